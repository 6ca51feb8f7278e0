"""Rows: large arrays on their way to tasks, and computing on shared ones."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import _peers
import _workloads
from _measure import Case, Options, Outcome
from _rendezvous import Rendezvous
from _report import Figure, Goal, at_most, figure, times_better, times_the_peer
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EXECUTOR, POOL = "ProcessPoolExecutor fork", "multiprocessing.Pool"
TASKS, WORKERS = 4, 2
ARRAY_PEERS = (EXECUTOR, POOL, "loky", "joblib")
REPEATS = 3


def shared(megabytes: int) -> dict[str, float]:
    """An array to four tasks by Ropewalk: shared cold and warm, used for the first time and again."""
    import numpy as np

    import ropewalk

    length = megabytes * 1_000_000 // 8
    array = np.arange(length, dtype=np.float64)
    contestant = _peers.Ropewalk(WORKERS, ("numpy", "_workloads"), blas_threads=1)
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
        time.sleep(
            0.05
        )  # the workers' messages that they let go of it; a program that recycles is not in a hurry
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
    contestant = _peers.ALL[peer](WORKERS, ("numpy", "_workloads"))
    _four(contestant, array[:1000], array[:1000])
    wall, compute = _four(contestant, array, array)
    contestant.close()
    return {**_beyond({"plain argument": wall}, compute), "compute": compute}


def extra_memory(peer: str, megabytes: int) -> dict[str, float]:
    """The most that the system's memory grew while an array went to four tasks, in arrays."""
    import numpy as np

    array = np.arange(megabytes * 1_000_000 // 8, dtype=np.float64)
    contestant = _peers.ALL[peer](WORKERS, ("numpy", "_workloads"))
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


def _four(contestant: _peers.Contestant, argument: Any, array: Any) -> tuple[float, float]:
    """Give the argument to four tasks: seconds until all results are there, those of computing."""
    began = time.perf_counter()
    if isinstance(contestant, _peers.Joblib):
        answers = contestant.map(_workloads.total, [argument] * TASKS, None)
    else:
        handles = [contestant.submit(_workloads.total, argument) for _ in range(TASKS)]
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


def _computing_alone(contestant: _peers.Ropewalk, length: int) -> float:
    """Seconds that four sums take two workers, two each, over private arrays that they hold already."""
    meeting = Rendezvous()

    def hold(size: int) -> None:
        meeting.close_gate()
        handles = [
            contestant.submit(_workloads.hold, meeting.bell, meeting.gate, size) for _ in range(WORKERS)
        ]
        meeting.await_pids(WORKERS)
        meeting.open_gate()
        for handle in handles:
            handle.result()

    hold(length)
    times = []
    for _ in range(REPEATS + 1):
        handles = [contestant.submit(_workloads.total_held) for _ in range(TASKS)]
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


def kernel(side: int, repeats: int) -> dict[str, float]:
    """Kernels on shared and on plain arrays, turn by turn inside one worker: milliseconds of each."""
    import ropewalk

    contestant = _peers.Ropewalk(1, ("numpy", "_workloads"), blas_threads=1)
    source, out = (ropewalk.shared.array((side, side)) for _ in range(2))
    _fill(source)
    times = contestant.call(_workloads.kernels, source, out, repeats)
    contestant.close()
    return {name: statistics.median(values) for name, values in times.items()}


def products_pooled(side: int, blas_threads: int) -> dict[str, float]:
    """Four matrix products as tasks of two workers, operands and results in shared arrays."""
    import numpy as np

    import ropewalk

    contestant = _peers.Ropewalk(WORKERS, ("numpy", "_workloads"), blas_threads=blas_threads)
    left, right, *outs = (ropewalk.shared.array((side, side)) for _ in range(2 + TASKS))
    for operand in (left, right):
        _fill(operand)

    def turn() -> None:
        handles = [contestant.submit(_workloads.multiply, left, right, out) for out in outs]
        for handle in handles:
            handle.result()

    turn()  # maps the pages and wakes BLAS's threads
    began = time.perf_counter()
    turn()
    seconds = time.perf_counter() - began
    expected = np.asarray(left)[0] @ np.asarray(right)
    if not all(np.allclose(np.asarray(out)[0], expected) for out in outs):
        raise RuntimeError("a product is wrong")
    contestant.close()
    return {"seconds": seconds}


def products_plain(side: int) -> dict[str, float]:
    """The same four products one after another in this process, BLAS's threads set from outside."""
    import numpy as np

    left, right, *outs = (np.zeros((side, side)) for _ in range(2 + TASKS))
    for operand in (left, right):
        _fill(operand)

    def turn() -> None:
        for out in outs:
            np.matmul(left, right, out=out)

    turn()
    began = time.perf_counter()
    turn()
    return {"seconds": time.perf_counter() - began}


def _fill(array: Any) -> None:
    import numpy as np

    view = np.asarray(array)
    view[:] = np.random.default_rng(7).random(view.shape)


def _array_cases(options: Options) -> Sequence[Case]:
    size: dict[str, object] = {"megabytes": options.size(200, 2)}
    cases = [Case("ropewalk", "_rows_arrays:shared", size, ("ropewalk", "numpy"))]
    cases += [
        Case(peer, "_rows_arrays:pickled", {"peer": peer, **size}, ("numpy", *_peers.needs(peer)))
        for peer in ARRAY_PEERS
    ]
    cases += [
        Case(
            f"{peer}, memory",
            "_rows_arrays:extra_memory",
            {"peer": peer, **size},
            ("numpy", *_peers.needs(peer)),
            rounds=2,
        )
        for peer in ("ropewalk", EXECUTOR)
    ]
    return cases


def _array_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    beyond = ", beyond computing"

    def line(what: str, metric: str, peer: str | None = None, goal: Goal | None = None) -> Figure:
        their_metric = "plain argument" + (beyond if metric.endswith(beyond) else "")
        theirs = (peer, their_metric) if peer else None
        return figure(outcomes, what, "ms", ("ropewalk", metric), theirs, scale=1e3, goal=goal)

    yield line("the computing itself: four sums by two workers, private arrays", "compute")
    yield line("what the tasks themselves took, shared array", "used again, inside the tasks")
    yield line("put, cold", "put cold", goal=at_most(85))
    yield line("put, warm", "put warm", goal=at_most(25))
    for use in ("used again", "first use"):
        what = f"already shared, {use}: beyond computing"
        yield line(what, use + beyond, goal=at_most(2))
        for peer in ARRAY_PEERS[:2]:
            yield line(what, use + beyond, peer, times_better(100))
    for what, metric in (
        ("already shared, used again: all of it", "used again"),
        ("already shared, first use: all of it", "first use"),
        ("put and used, warm: all of it", "warm put and used"),
        ("put and used, cold: all of it", "cold put and used"),
    ):
        for peer in ARRAY_PEERS[:2]:
            yield line(what, metric, peer)
    for peer in ARRAY_PEERS:
        yield line("plain arguments, four times: all of it", "plain argument", peer)
    for way, goal in (("shared", at_most(1.0)), ("plain argument", None)):
        ours, theirs = ("ropewalk, memory", way), (f"{EXECUTOR}, memory", "plain argument")
        what = f"extra memory, {way}"
        yield figure(outcomes, what, "arrays", ours, goal=goal)
        yield figure(outcomes, what, "arrays", ours, theirs)


def _kernel_cases(options: Options) -> Sequence[Case]:
    side, repeats = options.size(3000, 120), options.size(15, 3)
    ours, plain = ("ropewalk", "numpy"), ("numpy",)
    return [
        Case("ropewalk", "_rows_arrays:kernel", {"side": side, "repeats": repeats}, ours),
        Case(
            "2 workers, 1 BLAS thread each",
            "_rows_arrays:products_pooled",
            {"side": side, "blas_threads": 1},
            ours,
        ),
        Case(
            "one process, 2 BLAS threads",
            "_rows_arrays:products_plain",
            {"side": side},
            plain,
            environment=_blas(2),
        ),
        Case(
            "2 workers, 2 BLAS threads each",
            "_rows_arrays:products_pooled",
            {"side": side, "blas_threads": 2},
            ours,
        ),
        Case(
            "one process, 1 BLAS thread",
            "_rows_arrays:products_plain",
            {"side": side},
            plain,
            environment=_blas(1),
        ),
    ]


def _blas(threads: int) -> dict[str, str]:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def _kernel_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    for kernel, what in (
        ("elementwise", "out = a × 2.5 + 1 in place"),
        ("rows", "sums of rows"),
    ):
        ours, plain = ("ropewalk", f"{kernel} shared"), ("ropewalk", f"{kernel} plain")
        small = ("ropewalk", f"{kernel} small-paged")
        against = f"{what}, shared against plain arrays"
        yield figure(outcomes, against, "ms", ours, plain, scale=1e3, goal=times_the_peer(1.02))
        # Where the kernel gives shared memory no huge pages, this is the reason for the figure before.
        yield figure(outcomes, f"{against} without huge pages", "ms", ours, small, scale=1e3)
    for ours, theirs, bound in (
        ("2 workers, 1 BLAS thread each", "one process, 2 BLAS threads", 1.08),
        ("2 workers, 1 BLAS thread each", "one process, 1 BLAS thread", None),
        ("2 workers, 2 BLAS threads each", "one process, 2 BLAS threads", None),
    ):
        yield figure(
            outcomes,
            f"four products, {ours}",
            "s",
            (ours, "seconds"),
            (theirs, "seconds"),
            goal=times_the_peer(bound) if bound else None,
        )


ARRAY = Row(
    "array",
    "a 200 MB float64 array to 4 tasks of 2 workers, each summing it",
    "Wall time from the first submit (or, for put, from share()) to the last result, pool warm. The "
    "computing is measured apart: Ropewalk's as the same sums over private arrays that the workers hold,"
    " a peer's inside its tasks. Extra memory: the peak of AnonPages + Shmem of the whole system, in "
    "sizes of the array, untimed.",
    _array_cases,
    _array_figures,
)
KERNEL = Row(
    "kernel",
    "computing on shared 3000 × 3000 arrays",
    "Kernels: turn by turn in one worker on shared and on private arrays, pages mapped. Products: wall "
    "time of four tasks against four calls in a fresh process, pages mapped, threads awake, operands "
    "shared beforehand.",
    _kernel_cases,
    _kernel_figures,
)
