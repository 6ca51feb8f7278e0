"""The result types under test, and the lines that their tables share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.clock import per_call
from harness.measure import Size
from harness.table import Contest, Line

if TYPE_CHECKING:
    from collections.abc import Callable

PLAYERS: dict[str, tuple[str, ...]] = {
    "ropewalk": ("ropewalk",),
    "result": ("result",),
    "returns": ("returns",),
    "exception": (),
}
CALLS = Size(500_000, 100)
INCLUDES = "One call of a Python function that does it, in a loop of half a million; the floor shows what that costs."


def kinds(peer: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a peer makes of a success, and of a failure."""
    if peer == "ropewalk":
        from ropewalk import Err, Ok

        return Ok, Err
    if peer == "result":
        import result

        return result.Ok, result.Err
    from returns.result import Failure, Success

    return Success, Failure


def floor(calls: int) -> dict[str, float]:
    """What every figure here has in it: a Python function that calls an empty method."""
    nothing = [].__len__
    return per_call(lambda: nothing(), calls)


FLOOR = Line(
    "the floor: a frame that calls an empty method",
    "ns",
    Contest(floor, calls=CALLS),
    "ns",
    ours="an empty call",
)
