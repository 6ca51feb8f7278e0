"""Rows: making results, chaining them, and telling a failure by one instead of by an exception."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from _measure import Case, Options, Outcome
from _report import Figure, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PEERS = ("result", "returns")


def _kinds(peer: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if peer == "ropewalk":
        from ropewalk import Err, Ok

        return Ok, Err
    if peer == "result":
        import result

        return result.Ok, result.Err
    from returns.result import Failure, Success

    return Success, Failure


def _timed(call: Callable[[], object], calls: int) -> dict[str, float]:
    for _ in range(calls // 10):
        call()
    began = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return {"ns": (time.perf_counter_ns() - began) / calls}


def floor(calls: int) -> dict[str, float]:
    """What every figure here has in it: a Python function that calls an empty method."""
    nothing = [].__len__
    return _timed(lambda: nothing(), calls)


def create(peer: str, calls: int) -> dict[str, float]:
    """``Ok(1)``"""
    ok, _ = _kinds(peer)
    return _timed(lambda: ok(1), calls)


def chain(peer: str, calls: int) -> dict[str, float]:
    """``Ok(1).map(f).and_then(g).map(f).unwrap_or(0)``, in each package's own names."""
    ok, _ = _kinds(peer)

    def more(number: int) -> int:
        return number + 1

    def wrap(number: int) -> Any:
        return ok(number)

    if peer == "returns":
        return _timed(lambda: ok(1).map(more).bind(wrap).map(more).value_or(0), calls)
    return _timed(lambda: ok(1).map(more).and_then(wrap).map(more).unwrap_or(0), calls)


def failure(peer: str, calls: int) -> dict[str, float]:
    """A function fails, and its caller takes another value."""
    if peer == "exception":
        error = ValueError

        def fails() -> int:
            raise error

        def call() -> int:
            try:
                return fails()
            except ValueError:
                return 0

        return _timed(call, calls)
    _, err = _kinds(peer)
    if peer == "returns":
        return _timed(lambda: err("no").value_or(0), calls)

    def refuses() -> Any:
        return err("no")

    return _timed(lambda: refuses().unwrap_or(0), calls)


def _cases(options: Options, contest: str, peers: Sequence[str]) -> Sequence[Case]:
    count = options.size(500_000, 100)
    cases = [
        Case(
            peer,
            f"_rows_results:{contest}",
            {"peer": peer, "calls": count},
            () if peer == "exception" else (peer,),
        )
        for peer in ("ropewalk", *peers)
    ]
    return [*cases, Case("an empty call", "_rows_results:floor", {"calls": count})]


def _create_cases(options: Options) -> Sequence[Case]:
    return _cases(options, "create", PEERS)


def _chain_cases(options: Options) -> Sequence[Case]:
    return _cases(options, "chain", PEERS)


def _failure_cases(options: Options) -> Sequence[Case]:
    return _cases(options, "failure", ("exception", *PEERS))


def _figures(outcomes: dict[str, Outcome], what: str) -> Iterable[Figure]:
    ours = ("ropewalk", "ns")
    yield figure(outcomes, "the floor: a frame that calls an empty method", "ns", ("an empty call", "ns"))
    yield figure(outcomes, what, "ns", ours, ("result", "ns"), goal=times_better(2))
    yield figure(outcomes, what, "ns", ours, ("returns", "ns"), goal=times_better(3.5))


def _create_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    return _figures(outcomes, "Ok(1)")


def _chain_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    return _figures(outcomes, "a chain of four")


def _failure_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for peer in ("exception", *PEERS):
        yield figure(outcomes, "fail, and go on with another value", "ns", ("ropewalk", "ns"), (peer, "ns"))


_INCLUDES = "One call of a Python function that does it, in a loop of half a million; the floor shows what that costs."
CREATE = Row("create", "making an Ok, ns", _INCLUDES, _create_cases, _create_figures)
CHAIN = Row(
    "chain",
    "make, map, and_then, map, unwrap_or, ns",
    _INCLUDES + " The three functions are Python's and in the time: the same for all.",
    _chain_cases,
    _chain_figures,
)
FAILURE = Row(
    "failure",
    "a function that fails, and a caller that goes on, ns",
    _INCLUDES + " The exception is raised one frame below, and caught.",
    _failure_cases,
    _failure_figures,
)
