"""Rows: what a task costs alone, in a full window, and in a map over many."""

from __future__ import annotations

import asyncio
import collections
import queue
import time
from typing import TYPE_CHECKING, Any

import _peers
import _workloads
from _measure import Case, Options, Outcome, percentile
from _report import Figure, at_least, at_most, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EXECUTOR, POOL = "ProcessPoolExecutor fork", "multiprocessing.Pool"
PAUSE = 0.02
WINDOW = 100


def roundtrip(peer: str, seconds: float, pauses: int) -> dict[str, float]:
    """Times of the empty task, one after another without a pause, then each after a pause."""
    contestant = _peers.ALL[peer](2, ("_workloads",))
    call, nothing, clock = contestant.call, _workloads.nothing, time.perf_counter_ns
    _until(seconds / 4, lambda: call(nothing))
    hot: list[int] = []
    until = clock() + int(seconds * 1e9)
    while (began := clock()) < until or len(hot) < 50:
        call(nothing)
        hot.append(clock() - began)
    woken: list[int] = []
    for _ in range(pauses):
        time.sleep(PAUSE)
        began = clock()
        call(nothing)
        woken.append(clock() - began)
    contestant.close()
    return {
        "hot p50": percentile(hot, 0.5) / 1e3,
        "hot p99": percentile(hot, 0.99) / 1e3,
        "woken p50": percentile(woken, 0.5) / 1e3,
        "woken p99": percentile(woken, 0.99) / 1e3,
    }


def window(peer: str, seconds: float) -> dict[str, float]:
    """Tasks a second with a hundred in flight: hand one in, take the oldest."""
    contestant = _peers.ALL[peer](2, ("_workloads",))
    submit, take, nothing = contestant.submit, contestant.take, _workloads.nothing

    def turn(tasks: int) -> None:
        flight: collections.deque[Any] = collections.deque()
        for _ in range(min(WINDOW, tasks)):
            flight.append(submit(nothing))
        for _ in range(tasks - WINDOW):
            take(flight.popleft())
            flight.append(submit(nothing))
        while flight:
            take(flight.popleft())

    rate = _rate(turn, seconds)
    contestant.close()
    return {"rate": rate}


def callbacks(peer: str, seconds: float) -> dict[str, float]:
    """The same by done-callbacks: each puts its future in a queue, which the main thread takes from."""
    contestant = _peers.ALL[peer](2, ("_workloads",))
    submit, nothing = contestant.submit, _workloads.nothing

    def turn(tasks: int) -> None:
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(min(WINDOW, tasks)):
            submit(nothing).add_done_callback(done.put)
        for _ in range(tasks - WINDOW):
            done.get().result()
            submit(nothing).add_done_callback(done.put)
        for _ in range(min(WINDOW, tasks)):
            done.get().result()

    rate = _rate(turn, seconds)
    contestant.close()
    return {"rate": rate}


def coroutines(peer: str, seconds: float, run: bool) -> dict[str, float]:
    """The same by asyncio: a hundred coroutines that await one task after another.

    ``run`` says whether by ``await pool.run(f)``, which only Ropewalk has, or by ``loop.run_in_executor``.
    """
    contestant: Any = _peers.ALL[peer](2, ("_workloads",))
    pool, nothing = contestant.pool, _workloads.nothing

    async def crowd(tasks: int) -> None:
        loop = asyncio.get_running_loop()

        async def walker() -> None:
            for _ in range(tasks // WINDOW):
                if run:
                    await pool.run(nothing)
                else:
                    await loop.run_in_executor(pool, nothing)

        await asyncio.gather(*(walker() for _ in range(WINDOW)))

    with asyncio.Runner() as runner:
        rate = _rate(lambda tasks: runner.run(crowd(tasks)), seconds)
    contestant.close()
    return {"rate": rate}


def mapping(peer: str, inputs: int, chunksizes: Sequence[int | None]) -> dict[str, float]:
    """Inputs a second of a map with each chunk size, after one turn to warm up."""
    contestant = _peers.ALL[peer](2, ("_workloads",))
    contestant.map(_workloads.increment, range(min(inputs, 20_000)), chunksizes[-1])
    figures = {}
    for chunksize in chunksizes:
        began = time.perf_counter()
        results = contestant.map(_workloads.increment, range(inputs), chunksize)
        seconds = time.perf_counter() - began
        if len(results) != inputs or results[0] != 1 or results[-1] != inputs:
            raise RuntimeError("the map's results are wrong")
        figures[_chunk(chunksize)] = inputs / seconds
    contestant.close()
    return figures


def _chunk(chunksize: int | None) -> str:
    return "no chunksize" if chunksize is None else f"chunksize {chunksize}"


def _until(seconds: float, step: Callable[[], Any]) -> int:
    """Repeat a step for so long, and at least twice; how often it was."""
    count, until = 0, time.perf_counter() + seconds
    while count < 2 or time.perf_counter() < until:
        step()
        count += 1
    return count


def _rate(turn: Callable[[int], Any], seconds: float) -> float:
    """Tasks a second of a turn that takes about so long; shorter turns find its size and warm up."""
    tasks = 2 * WINDOW
    while True:
        began = time.perf_counter()
        turn(tasks)
        spent = time.perf_counter() - began
        if spent >= seconds / 4:
            break
        tasks *= 4
    tasks = max(tasks, int(tasks * seconds / spent)) // WINDOW * WINDOW
    began = time.perf_counter()
    turn(tasks)
    return tasks / (time.perf_counter() - began)


ROUNDTRIP_PEERS = (
    "ropewalk",
    "ropewalk threads",
    EXECUTOR,
    "ProcessPoolExecutor forkserver",
    POOL,
    "ThreadPoolExecutor",
    "loky",
    "pebble",
    "mpire",
    "joblib",
)


def _roundtrip_cases(options: Options) -> Sequence[Case]:
    arguments = {"seconds": 0.02 if options.quick else 0.4, "pauses": options.size(40, 2)}
    return [
        Case(name, "_rows_tasks:roundtrip", {"peer": name, **arguments}, _peers.needs(name))
        for name in ROUNDTRIP_PEERS
    ]


def _roundtrip_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    hot, woken = ("ropewalk", "hot p50"), ("ropewalk", "woken p50")
    yield from (
        figure(outcomes, "hot, p50", "µs", hot, goal=at_most(8)),
        figure(outcomes, "hot, p50", "µs", hot, (EXECUTOR, "hot p50"), goal=times_better(15)),
        figure(outcomes, "hot, p50", "µs", hot, (POOL, "hot p50"), goal=times_better(7)),
        figure(outcomes, "woken, p50", "µs", woken, goal=at_most(50)),
    )
    for what, metric in (("hot, p50", "hot p50"), ("woken, p50", "woken p50"), ("hot, p99", "hot p99")):
        for peer in ROUNDTRIP_PEERS[2:]:
            if (metric, peer) not in (("hot p50", EXECUTOR), ("hot p50", POOL)):
                yield figure(outcomes, what, "µs", ("ropewalk", metric), (peer, metric))
    for metric in ("hot p50", "woken p50"):
        yield figure(
            outcomes,
            f"threads: {metric}",
            "µs",
            ("ropewalk threads", metric),
            ("ThreadPoolExecutor", metric),
        )


WINDOW_PEERS = (
    "ropewalk",
    "ropewalk threads",
    EXECUTOR,
    POOL,
    "ThreadPoolExecutor",
    "loky",
    "pebble",
    "mpire",
)
CALLBACK_PEERS = ("ropewalk", "ropewalk threads", EXECUTOR, "ThreadPoolExecutor", "pebble")
COROUTINE_PEERS = ("ropewalk", "ropewalk threads", EXECUTOR, "ThreadPoolExecutor")


def _window_cases(options: Options) -> Sequence[Case]:
    seconds = 0.02 if options.quick else 0.5
    cases = []
    for contest, peers in (
        ("window", WINDOW_PEERS),
        ("callbacks", CALLBACK_PEERS),
        ("coroutines", COROUTINE_PEERS),
    ):
        for name in peers:
            for run in (False, True) if contest == "coroutines" and name == "ropewalk" else (False,):
                arguments: dict[str, object] = {"peer": name, "seconds": seconds}
                if contest == "coroutines":
                    arguments["run"] = run
                label = f"{name}, {'run' if run else contest}"
                cases.append(Case(label, f"_rows_tasks:{contest}", arguments, _peers.needs(name)))
    return cases


def _window_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    def against(what: str, ours: str, theirs: str | None, **goal: Any) -> Figure:
        peer = (theirs, "rate") if theirs else None
        return figure(outcomes, what, "tasks/s", (ours, "rate"), peer, more_is_better=True, **goal)

    plain, called, awaited = "100 in flight", "100 in flight, done-callbacks", "100 in flight, asyncio"
    yield from (
        against(plain, "ropewalk, window", None, goal=at_least(200_000)),
        against(plain, "ropewalk, window", f"{EXECUTOR}, window", goal=times_better(20)),
        against(plain, "ropewalk, window", f"{POOL}, window", goal=times_better(10)),
        against(plain, "ropewalk, window", "pebble, window", goal=times_better(14)),
        against(called, "ropewalk, callbacks", f"{EXECUTOR}, callbacks", goal=times_better(8)),
        against(f"{awaited}, pool.run", "ropewalk, run", f"{EXECUTOR}, coroutines", goal=times_better(8)),
        against(
            f"{awaited}, run_in_executor",
            "ropewalk, coroutines",
            f"{EXECUTOR}, coroutines",
            goal=times_better(8),
        ),
        against(called, "ropewalk, callbacks", "pebble, callbacks"),
    )
    yield from (
        against(plain, "ropewalk, window", f"{peer}, window")
        for peer in ("ThreadPoolExecutor", "loky", "mpire")
    )
    yield from (
        against(f"threads: {what}", f"ropewalk threads, {contest}", f"ThreadPoolExecutor, {contest}")
        for what, contest in ((plain, "window"), (called, "callbacks"), (awaited, "coroutines"))
    )


MAP_PEERS: tuple[tuple[str, tuple[int | None, ...], int], ...] = (
    ("ropewalk", (None,), 1),
    (POOL, (None, 1024, 4096, 16384, 65536), 1),
    ("multiprocessing.Pool imap", (1024, 4096, 16384), 1),
    (EXECUTOR, (1024, 8192, 65536), 1),
    ("pebble", (8192, 65536), 1),
    ("mpire", (None, 8192), 1),
    ("loky", (8192, 65536), 1),
    ("joblib", (None,), 20),
)
"""Contestant, its chunk sizes, and by how much its input is cut short because it would take too long."""


def _map_cases(options: Options) -> Sequence[Case]:
    inputs = options.size(1_000_000, 4_000)
    return [
        Case(
            name,
            "_rows_tasks:mapping",
            {"peer": name, "inputs": inputs // cut, "chunksizes": chunksizes},
            _peers.needs(name),
        )
        for name, chunksizes, cut in MAP_PEERS
    ]


def _map_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    for peer, chunksizes, _ in MAP_PEERS[1:]:
        samples = {_chunk(size): outcomes[peer].sample(_chunk(size)) for size in chunksizes}
        best = max(samples, key=lambda chunk: sample.median if (sample := samples[chunk]) else 0.0)
        yield figure(
            outcomes,
            f"no chunksize, against {best}",
            "inputs/s",
            ("ropewalk", "no chunksize"),
            (peer, best),
            more_is_better=True,
            goal=times_better(1.2) if peer.startswith(POOL) else None,
        )


ROUNDTRIP = Row(
    "roundtrip",
    "one empty task and its answer, 2 workers",
    f"From submit to the result in hand, pool warm. Hot: one after another; woken: after {PAUSE} s of "
    "nothing, so that a worker sleeps. Each in its shortest way: submit().result(), apply(), "
    "schedule().result().",
    _roundtrip_cases,
    _roundtrip_figures,
)
WINDOWED = Row(
    "window",
    "a hundred empty tasks in flight, 2 workers",
    "Tasks handed in and results taken by one thread (or one event loop), pool warm. Callbacks: each "
    "done-callback is SimpleQueue.put. asyncio: a hundred coroutines, each awaiting one task after "
    "another.",
    _window_cases,
    _window_figures,
)
MAP = Row(
    "map",
    "map over 1,000,000 tiny inputs, 2 workers",
    "From the call to a list of all results, pool warm. Every peer plays each of several chunk sizes in "
    "every round and is judged by its best; Ropewalk is given none. joblib is given a twentieth of the "
    "inputs.",
    _map_cases,
    _map_figures,
)
