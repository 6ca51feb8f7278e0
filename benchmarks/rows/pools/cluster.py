"""Table: a task on a Ray cluster, beside a bare call of a Ray actor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from harness import workloads
from harness.clock import repeat
from harness.measure import Size, percentile
from harness.pools import OURS
from harness.table import Contest, Line, Row

if TYPE_CHECKING:
    from collections.abc import Callable

RAY = "Ray"
LOCAL = {"address": "local", "num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
ARRAY = 1_000_000


class Bare:
    """What a program without a pool writes."""

    def nothing(self) -> None:
        """The empty task."""

    def first(self, array: Any) -> float:
        """Reads a little of a large argument."""
        return float(array[0])


def _first(array: Any) -> float:
    return float(array[0])


def _ours(array: Any) -> tuple[Callable[[], object], Callable[[], object], Callable[[], None]]:
    import ropewalk

    pool = ropewalk.Pool(1, kind="ray")
    nothing = workloads.nothing
    return (
        lambda: pool.submit(nothing).result(),
        lambda: pool.submit(_first, array).result(),
        pool.shutdown,
    )


def _bare(array: Any) -> tuple[Callable[[], object], Callable[[], object], Callable[[], None]]:
    import ray

    actor = ray.remote(num_cpus=1)(Bare).remote()
    return (
        lambda: ray.get(actor.nothing.remote()),
        lambda: ray.get(actor.first.remote(array)),
        lambda: ray.kill(actor),
    )


def calls(peer: str, seconds: float) -> dict[str, float]:
    """Times of one call after the other, in a local cluster that both start alike and before the clock runs."""
    import numpy as np
    import ray

    ray.init(**LOCAL)
    array = np.ones(ARRAY)
    nothing, large, close = (_ours if peer == OURS else _bare)(array)
    figures = {}
    for name, call in (("empty", nothing), ("array", large)):
        repeat(seconds / 4, call)
        times: list[int] = []
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while (began := time.perf_counter_ns()) < until or len(times) < 20:
            call()
            times.append(time.perf_counter_ns() - began)
        figures[name] = percentile(times, 0.5) / 1e3
    close()
    ray.shutdown()
    return figures


CALLS = Contest(calls, players=dict.fromkeys((OURS, RAY), ("ray", "numpy")), seconds=Size(2.0, 0.05))

ROW = Row(
    "cluster",
    'kind="ray": one call after the other, one actor, a local cluster',
    "From submit to the result in hand, beside ray.get(actor.method.remote()). Array: an argument of 8 MB that is new "
    "to the object store in each call. The pool copies it when it is submitted, so that the program may change it.",
    (
        Line("an empty call, p50", "µs", CALLS, "empty", None, {RAY: None}),
        Line("an array of 8 MB, p50", "µs", CALLS, "array", None, {RAY: None}),
    ),
)
