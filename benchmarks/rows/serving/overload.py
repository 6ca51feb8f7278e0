"""Table: three times what the workers can do."""

from __future__ import annotations

from harness.measure import Size
from harness.serving import WORKERS, load, server
from harness.table import Contest, Line, Row, at_least, at_most
from rows.serving.echo import LOAD

#: Seconds of a call.
WORK = 0.005


def overload(program: str, seconds: float) -> dict[str, float]:
    """Goodput at three times the peak as a share of the peak; what refusals take; memory."""
    with server("ropewalk", "http", setting="small") as running:
        words = {"port": running.port, "path": "/v1/tools/work", "body": f'{{"seconds": {WORK}}}'}
        peak = load(program, "closed", **words, callers=WORKERS * 8, seconds=max(seconds / 4, 0.2))
        before = running.memory()
        over = load(program, "open", **words, rate=3 * peak["rate"], seconds=seconds)
        grown = running.memory() - before
    return {
        "peak": peak["rate"],
        "goodput": 100 * over["rate"] / peak["rate"],
        "refused p99": over["refused p99"],
        "p99": over["p99"],
        "errors": over["errors"],
        "grown": grown / 2**20,
    }


OVER = Contest(overload, "", None, program=LOAD, seconds=Size(20.0, 0.3), needs=("ropewalk", "pydantic"))

ROW = Row(
    "overload",
    "Three times what the workers can do",
    f"A tool that takes {WORK * 1e3:g} ms; the peak is that of a closed loop. Then calls are sent at three times that "
    "rate for 20 s, whatever comes of the earlier ones; times count from when a call was due. 100 calls may wait.",
    (
        Line("goodput", "% of the peak", OVER, "goodput", at_least(90), more_is_better=True, headline=True),
        Line("refusals, p99", "ms", OVER, "refused p99", scale=1e-3),
        Line("answers, p99", "ms", OVER, "p99", scale=1e-3),
        Line("errors that are no refusals", "", OVER, "errors", at_most(0)),
        Line("memory grown", "MiB", OVER, "grown", at_most(16)),
    ),
)
