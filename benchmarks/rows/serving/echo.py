"""Tables: a tool that answers what it is sent, over HTTP and gRPC."""

from __future__ import annotations

from harness.measure import Size
from harness.programs import Program
from harness.serving import BODY, GRPC_PLAYERS, HTTP_PLAYERS, WORKERS, load, server
from harness.table import Contest, Line, Row, at_least, at_most, times_better

LOAD, CEILING = Program("load", serving=True), Program("ceiling", serving=True)
CALLERS = 100


def echo(contender: str, protocol: str, program: str, ceiling: str, seconds: float) -> dict[str, float]:
    """Calls each second, and how long they take."""
    with server(contender, protocol, ceiling) as running:
        words = {"protocol": protocol, "port": running.port, "path": "/v1/tools/echo", "body": BODY}
        return load(program, "closed", **words, callers=CALLERS, seconds=seconds)


def _row(protocol: str, title: str, players: dict[str, tuple[str, ...]], ceiling: str, peer: str) -> Row:
    contest = Contest(
        echo,
        "",
        players,
        as_argument="contender",
        protocol=protocol,
        program=LOAD,
        ceiling=CEILING,
        seconds=Size(6.0, 0.2),
    )
    others = {name: None for name in players if name not in ("ropewalk", ceiling, peer)}
    return Row(
        protocol,
        title,
        f"A hundred callers, each of which sends its next call when it has its answer, for six seconds after half a "
        f"second; client and server share the machine. {WORKERS} worker processes of every contender but {ceiling}, "
        f"which answers what it is sent, with two threads and nothing behind it. Arguments are checked by pydantic "
        f"where the contender checks any. The times are those of whole calls.",
        (
            Line("calls", "/s", contest, "rate", at_least(30_000), more_is_better=True),
            Line(
                "calls",
                "/s",
                contest,
                "rate",
                None,
                {ceiling: times_better(0.4), peer: times_better(5), **others},
                more_is_better=True,
                headline=True,
            ),
            Line("p50", "ms", contest, "p50", None, {ceiling: None, peer: None}, scale=1e-3),
            Line("p99", "ms", contest, "p99", at_most(8), {ceiling: None, peer: None}, scale=1e-3),
            Line("errors", "", contest, "errors", at_most(0)),
        ),
    )


ROWS = (
    _row("grpc", "Echo by gRPC", GRPC_PLAYERS, "tonic", "grpc.aio + executor"),
    _row("http", "Echo by HTTP", HTTP_PLAYERS, "axum", "FastAPI + executor"),
)
