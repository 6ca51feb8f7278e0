"""Table: what an exporter costs that is switched on, beside none."""

from __future__ import annotations

from harness.measure import Size
from harness.serving import BODY, load, server
from harness.table import Contest, Line, Row, times_better
from rows.serving.echo import LOAD


def exported(program: str, seconds: float) -> dict[str, float]:
    """Calls each second."""
    with server("ropewalk", "http") as running:
        words = {"port": running.port, "path": "/v1/tools/echo", "body": BODY}
        return load(program, "closed", **words, callers=100, seconds=seconds)


def _contest(way: str, environment: dict[str, str]) -> Contest:
    return Contest(
        exported,
        way,
        None,
        program=LOAD,
        seconds=Size(5.0, 0.2),
        needs=("ropewalk", "pydantic"),
        environment=environment,
    )


# Nobody listens at the discard port: spans are made and batched, and dropped in the end.
ON = _contest("exported", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
OFF = _contest("off", {})

ROW = Row(
    "telemetry",
    "Traces of every call, beside none",
    "Echo by HTTP, a hundred callers; a span of the request and one of the run for every call, made and batched for a "
    "collector that is not there, beside a server without one. The numbers of /metrics are counted in both.",
    (
        Line(
            "traced",
            "/s",
            ON,
            "rate",
            None,
            {OFF.by("ropewalk"): times_better(0.8)},
            more_is_better=True,
            headline=True,
        ),
    ),
)
