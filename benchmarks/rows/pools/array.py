"""Table: large arrays on their way to tasks."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness import pools, workloads
from harness.measure import Size
from harness.pools import EXECUTOR, PLAYERS, POOL
from harness.rendezvous import Rendezvous
from harness.table import Contest, Goal, Line, Row, at_most, times_better

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TASKS, WORKERS = 4, 2
REPEATS = 3


def shared(megabytes: int) -> dict[str, float]:
    """An array to four tasks by Ropewalk: shared cold and warm, used for the first time and again."""
    import numpy as np

    import ropewalk

    length = megabytes * 1_000_000 // 8
    array = np.arange(length, dtype=np.float64)
    contestant = pools.Ropewalk(WORKERS, ("numpy", "harness.workloads"), blas_threads=1)
    compute = _computing_alone(contestant, length)

    def use(argument: Any) -> float:
        return _four(contestant, argument, array)[0]

    figures = {"compute": compute}
    began = time.perf_counter()
    handle: Any = ropewalk.share(array)
    figures["put cold"] = time.perf_counter() - began
    figures["first use"] = use(handle)
    figures["cold put and used"] = time.perf_counter() - began
    again = [_four(contestant, handle, array) for _ in range(REPEATS)]
    figures["used again"], figures["used again, inside the tasks"] = map(
        statistics.median, zip(*again, strict=True)
    )
    puts, both = [], []
    for _ in range(REPEATS):
        del handle
        gc.collect()
        # The workers' messages that they let go of it; a program that recycles is not in a hurry.
        time.sleep(0.05)
        began = time.perf_counter()
        handle = ropewalk.share(array)
        puts.append(time.perf_counter() - began)
        use(handle)
        both.append(time.perf_counter() - began)
    figures["put warm"] = statistics.median(puts)
    figures["warm put and used"] = statistics.median(both)
    del handle
    gc.collect()
    use(array)
    figures["plain argument"] = statistics.median(use(array) for _ in range(REPEATS))
    contestant.close()
    return _beyond(figures, compute)


def pickled(peer: str, megabytes: int) -> dict[str, float]:
    """The same array handed to four tasks as a plain argument, by a peer."""
    import numpy as np

    array = np.arange(megabytes * 1_000_000 // 8, dtype=np.float64)
    contestant = pools.ALL[peer](WORKERS, ("numpy", "harness.workloads"))
    _four(contestant, array[:1000], array[:1000])
    wall, compute = _four(contestant, array, array)
    contestant.close()
    return {**_beyond({"plain argument": wall}, compute), "compute": compute}


def extra_memory(peer: str, megabytes: int) -> dict[str, float]:
    """The most that the system's memory grew while an array went to four tasks, in arrays."""
    import numpy as np

    array = np.arange(megabytes * 1_000_000 // 8, dtype=np.float64)
    contestant = pools.ALL[peer](WORKERS, ("numpy", "harness.workloads"))
    _four(contestant, array[:1000], array[:1000])
    figures = {}
    ways: dict[str, Callable[[], object]] = {"plain argument": lambda: _four(contestant, array, array)}
    if peer == "ropewalk":
        import ropewalk

        # Shared first: what a plain argument leaves in the arena would be there already.
        ways = {"shared": lambda: _four(contestant, ropewalk.share(array), array), **ways}
    for way, act in ways.items():
        gc.collect()
        before = _system_bytes()
        with _Peak() as peak:
            act()
        figures[way] = max(0.0, (peak.most - before) / array.nbytes)
    contestant.close()
    return figures


class _Peak:
    """The highest reading of the system's memory while the block runs, read every two milliseconds."""

    def __enter__(self) -> Self:
        self.most = _system_bytes()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._end.wait(0.002):
            self.most = max(self.most, _system_bytes())

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.most = max(self.most, _system_bytes())


def _system_bytes() -> int:
    """Private and shared memory of everything that runs; the page cache of files is not in it."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("AnonPages:", "Shmem:")))


def _four(contestant: pools.Contestant, argument: Any, array: Any) -> tuple[float, float]:
    """Give the argument to four tasks: seconds until all results are there, those of computing."""
    began = time.perf_counter()
    if isinstance(contestant, pools.Joblib):
        answers = contestant.map(workloads.total, [argument] * TASKS, None)
    else:
        handles = [contestant.submit(workloads.total, argument) for _ in range(TASKS)]
        answers = [contestant.take(handle) for handle in handles]
    wall = time.perf_counter() - began
    _check(answers, len(array))
    return wall, _critical(answers)


def _check(answers: Sequence[tuple[int, float, float]], length: int) -> None:
    expected = length * (length - 1) / 2
    if any(abs(value - expected) > 1e-6 * expected for _, _, value in answers):
        raise RuntimeError("a task saw another array")


def _critical(answers: Sequence[tuple[int, float, float]]) -> float:
    """The computing time of the process that computed longest."""
    spent: dict[int, float] = {}
    for pid, seconds, _ in answers:
        spent[pid] = spent.get(pid, 0.0) + seconds
    return max(spent.values())


def _computing_alone(contestant: pools.Ropewalk, length: int) -> float:
    """Seconds that four sums take two workers, two each, over private arrays that they hold already."""
    meeting = Rendezvous()

    def hold(size: int) -> None:
        meeting.close_gate()
        handles = [
            contestant.submit(workloads.hold, meeting.arrivals, meeting.gate, size) for _ in range(WORKERS)
        ]
        meeting.await_pids(WORKERS)
        meeting.open_gate()
        for handle in handles:
            handle.result()

    hold(length)
    times = []
    for _ in range(REPEATS + 1):
        handles = [contestant.submit(workloads.total_held) for _ in range(TASKS)]
        answers = [handle.result() for handle in handles]
        _check(answers, length)
        # Two each: had one worker taken three, that would be the scheduler's doing and not computing.
        times.append(statistics.fmean(seconds for _, seconds, _ in answers) * TASKS / WORKERS)
    hold(0)
    meeting.close()
    return statistics.median(times[1:])


def _beyond(figures: dict[str, float], compute: float) -> dict[str, float]:
    """The figures, and for each wall time what it is beyond the computing."""
    beyond = {f"{name}, beyond computing": max(value - compute, 0.0) for name, value in figures.items()}
    return {**figures, **beyond}


MEGABYTES = Size(200, 2)
OURSELVES = Contest(shared, needs=("ropewalk", "numpy"), megabytes=MEGABYTES)
PICKLED = Contest(pickled, players=PLAYERS, needs=("numpy",), megabytes=MEGABYTES)
MEMORY = Contest(extra_memory, "memory", PLAYERS, needs=("numpy",), rounds=2, megabytes=MEGABYTES)

BEYOND = ", beyond computing"
PEERS = (EXECUTOR, POOL)
HUNDREDFOLD = times_better(100)


def _line(
    what: str, metric: str, goal: Goal | None = None, peers: Mapping[str, Goal | None] | None = None
) -> Line:
    """A line about Ropewalk's ways beside the peers' plain arguments."""
    theirs = "plain argument" + (BEYOND if metric.endswith(BEYOND) else "")
    beside = {(PICKLED.by(peer), theirs): bound for peer, bound in (peers or {}).items()}
    return Line(what, "ms", OURSELVES, metric, goal, beside, scale=1e3)


ROW = Row(
    "array",
    "a 200 MB float64 array to 4 tasks of 2 workers, each summing it",
    "Wall time from the first submit (or, for put, from share()) to the last result, pool warm. The "
    "computing is measured apart: Ropewalk's as the same sums over private arrays that the workers hold,"
    " a peer's inside its tasks. Extra memory: the peak of AnonPages + Shmem of the whole system, in "
    "sizes of the array, untimed.",
    (
        _line("the computing itself: four sums by two workers, private arrays", "compute"),
        _line("what the tasks themselves took, shared array", "used again, inside the tasks"),
        _line("put, cold", "put cold", at_most(85)),
        _line("put, warm", "put warm", at_most(25)),
        _line(
            "already shared, used again: beyond computing",
            "used again" + BEYOND,
            at_most(2),
            dict.fromkeys(PEERS, HUNDREDFOLD),
        ),
        _line(
            "already shared, first use: beyond computing",
            "first use" + BEYOND,
            at_most(2),
            dict.fromkeys(PEERS, HUNDREDFOLD),
        ),
        _line("already shared, used again: all of it", "used again", None, dict.fromkeys(PEERS)),
        _line("already shared, first use: all of it", "first use", None, dict.fromkeys(PEERS)),
        _line("put and used, warm: all of it", "warm put and used", None, dict.fromkeys(PEERS)),
        _line("put and used, cold: all of it", "cold put and used", None, dict.fromkeys(PEERS)),
        _line(
            "plain arguments, four times: all of it",
            "plain argument",
            None,
            dict.fromkeys((*PEERS, "loky", "joblib")),
        ),
        Line(
            "extra memory, shared",
            "arrays",
            MEMORY,
            "shared",
            at_most(1.0),
            {(EXECUTOR, "plain argument"): None},
        ),
        Line("extra memory, plain argument", "arrays", MEMORY, "plain argument", None, {EXECUTOR: None}),
    ),
)
