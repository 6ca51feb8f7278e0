"""Rows: callbacks, timers, tasks and futures of an event loop, and calls from other threads."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from _loop_factory import cases, new_loop
from _measure import Case, Options, Outcome
from _report import Figure, at_least, at_most, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: How often a contest repeats itself in its interpreter; the median counts, the first time does not.
_TIMES = 5


def _nothing() -> None:
    pass


def _median(measure: Callable[[], float]) -> float:
    measure()
    return sorted(measure() for _ in range(_TIMES))[_TIMES // 2]


# --- callbacks and timers ----------------------------------------------------


def calls(loop_of: str, count: int) -> dict[str, float]:
    """Nanoseconds for a callback that does nothing: many at once, and one that schedules the next."""
    loop = new_loop(loop_of)

    def burst() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop.call_soon(_nothing)
        loop.call_soon(loop.stop)
        loop.run_forever()
        return (time.perf_counter_ns() - began) / count

    left = 0

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(step)
        else:
            loop.stop()

    def chain() -> float:
        nonlocal left
        left = count
        began = time.perf_counter_ns()
        loop.call_soon(step)
        loop.run_forever()
        return (time.perf_counter_ns() - began) / count

    figures = {"burst": _median(burst), "chain": _median(chain)}
    loop.close()
    return figures


def floor_of_calls(count: int) -> dict[str, float]:
    """The same function called in a loop of Python's own: what is left if a loop cost nothing."""

    def direct() -> float:
        began = time.perf_counter_ns()
        for function in [_nothing] * count:
            function()
        return (time.perf_counter_ns() - began) / count

    return {"burst": _median(direct)}


def timers(loop_of: str, count: int) -> dict[str, float]:
    """Nanoseconds for a timer of ten seconds: scheduled; scheduled and cancelled at once."""
    loop = new_loop(loop_of)

    def settle() -> None:
        loop.call_soon(loop.stop)
        loop.run_forever()

    def schedule() -> float:
        began = time.perf_counter_ns()
        handles = [loop.call_later(10, _nothing) for _ in range(count)]
        took = time.perf_counter_ns() - began
        for handle in handles:
            handle.cancel()
        settle()
        return took / count

    def cancel() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop.call_later(10, _nothing).cancel()
        took = time.perf_counter_ns() - began
        settle()
        return took / count

    figures = {"schedule": _median(schedule), "cancel": _median(cancel)}
    loop.close()
    return figures


def _call_cases(options: Options) -> Sequence[Case]:
    count = options.size(50_000, 500)
    floor = Case("a plain call", "_rows_loop_calls:floor_of_calls", {"count": count})
    return (*cases("_rows_loop_calls:calls", {"count": count}), floor)


def _call_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    burst, chain = ("ropewalk", "burst"), ("ropewalk", "chain")
    yield figure(outcomes, "scheduled and run", "ns", burst, ("a plain call", "burst"), goal=at_most(110))
    yield figure(outcomes, "scheduled and run", "ns", burst, ("asyncio", "burst"))
    yield figure(outcomes, "scheduled and run", "ns", burst, ("uvloop", "burst"), goal=times_better(4.5))
    yield figure(outcomes, "scheduled and run", "ns", burst, ("rloop", "burst"), goal=times_better(2.5))
    yield figure(outcomes, "a chain", "ns", chain, ("asyncio", "chain"), goal=at_most(140))
    yield figure(outcomes, "a chain", "ns", chain, ("uvloop", "chain"), goal=times_better(5))
    yield figure(outcomes, "a chain", "ns", chain, ("rloop", "chain"), goal=times_better(1.7))


CALLS = Row(
    "calls",
    "Callbacks that do nothing, for each",
    "50,000 `call_soon` and their run; and a callback that schedules the next. The loop is warm.",
    _call_cases,
    _call_figures,
)


def _timer_cases(options: Options) -> Sequence[Case]:
    return cases("_rows_loop_calls:timers", {"count": options.size(50_000, 500)})


def _timer_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for what, metric, goal in (
        ("scheduled", "schedule", times_better(2.5)),
        ("scheduled and cancelled", "cancel", times_better(2)),
    ):
        for peer in ("asyncio", "uvloop", "rloop"):
            yield figure(
                outcomes,
                what,
                "ns",
                ("ropewalk", metric),
                (peer, metric),
                goal=goal if peer == "rloop" else None,
            )


TIMERS = Row(
    "timers",
    "Timers, for each",
    "50,000 of ten seconds; `call_later` alone, and with `cancel`. The clean-up is not counted.",
    _timer_cases,
    _timer_figures,
)

# --- tasks and futures -------------------------------------------------------


def tasks(loop_of: str, count: int) -> dict[str, float]:
    """A second's worth of: `sleep(0)` of one task and of a hundred, futures awaited, coroutines gathered."""
    loop = new_loop(loop_of)

    async def sleeper(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def sleepers(number: int) -> float:
        times = count // number
        began = time.perf_counter_ns()
        await asyncio.gather(*[sleeper(times) for _ in range(number)])
        return number * times / (time.perf_counter_ns() - began) * 1e9

    async def futures() -> float:
        began = time.perf_counter_ns()
        for _ in range(count // 2):
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future
        return (count // 2) / (time.perf_counter_ns() - began) * 1e9

    async def one() -> int:
        return 1

    async def gather() -> float:
        number = count // 5
        began = time.perf_counter_ns()
        await asyncio.gather(*[one() for _ in range(number)])
        return number / (time.perf_counter_ns() - began) * 1e9

    run = loop.run_until_complete
    figures = {
        "one": _median(lambda: run(sleepers(1))),
        "hundred": _median(lambda: run(sleepers(100))),
        "futures": _median(lambda: run(futures())),
        "gather": _median(lambda: run(gather())),
    }
    loop.close()
    return figures


def _task_cases(options: Options) -> Sequence[Case]:
    return cases("_rows_loop_calls:tasks", {"count": options.size(50_000, 1000)})


def _task_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for what, metric in (
        ("sleep(0), one task", "one"),
        ("sleep(0), 100 tasks", "hundred"),
        ("futures awaited", "futures"),
        ("gather of 10,000", "gather"),
    ):
        for peer in ("asyncio", "uvloop", "rloop"):
            goal = times_better(1.1)
            yield figure(
                outcomes, what, "/s", ("ropewalk", metric), (peer, metric), goal=goal, more_is_better=True
            )


TASKS = Row(
    "tasks",
    "Tasks and futures, each second",
    "Tasks and futures are asyncio's own on every loop. Making them is counted.",
    _task_cases,
    _task_figures,
)

# --- other threads -----------------------------------------------------------


def foreign(loop_of: str, threads: int, each: int, state: bool) -> dict[str, float]:
    """`call_soon_threadsafe` from several threads at once, on a loop that runs in another one.

    `state`: every callback writes a number, and one thread more reads it all the while.
    """
    loop = new_loop(loop_of)
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    total, seen, ended = threads * each, 0, threading.Event()

    def call() -> None:
        nonlocal seen
        seen += 1
        if seen == total:
            ended.set()

    def once() -> tuple[float, float, float]:
        nonlocal seen
        seen = 0
        ended.clear()
        barrier = threading.Barrier(threads + 1 + state)
        spans: list[tuple[int, int]] = []
        samples: list[int] = []

        def write(sampled: bool) -> None:
            schedule, clock = loop.call_soon_threadsafe, time.perf_counter_ns
            barrier.wait()
            began = clock()
            if sampled:
                for _ in range(each):
                    before = clock()
                    schedule(call)
                    samples.append(clock() - before)
            else:
                for _ in range(each):
                    schedule(call)
            spans.append((began, clock()))

        def read() -> None:
            barrier.wait()
            reads = 0
            while reads < each:
                reads += 1 + 0 * seen

        # The first thread times each call of its own, and its speed is not counted.
        workers = [threading.Thread(target=write, args=(number == 0,)) for number in range(threads)]
        if state:
            workers.append(threading.Thread(target=read))
        for worker in workers:
            worker.start()
        barrier.wait()
        for worker in workers:
            worker.join()
        ended.wait(60)
        finished = time.perf_counter_ns()
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        samples.sort()
        return (
            total / (last - first) * 1e9,
            total / (finished - first) * 1e9,
            samples[len(samples) * 99 // 100],
        )

    once()
    rounds = [once() for _ in range(_TIMES)]
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()
    middle = [sorted(values)[_TIMES // 2] for values in zip(*rounds, strict=True)]
    return {"registered": middle[0], "ran": middle[1], "p99": middle[2]}


def _foreign_cases(options: Options) -> Sequence[Case]:
    contest = "_rows_loop_calls:foreign"
    plain: dict[str, object] = {"threads": 10, "each": options.size(5000, 50), "state": False}
    reader: dict[str, object] = {"threads": 10, "each": options.size(20_000, 50), "state": True}
    return (*cases(contest, plain), *cases(contest, reader, prefix="reader, "))


def _foreign_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    def line(what: str, metric: str, peer: str, goal: Any = None, prefix: str = "") -> Figure:
        ours, theirs = (prefix + "ropewalk", metric), (prefix + peer, metric)
        return figure(outcomes, what, "/s", ours, theirs, goal=goal, more_is_better=True)

    for peer in ("asyncio", "uvloop", "rloop"):
        yield line("registered", "registered", peer, at_least(8e6) if peer == "uvloop" else None)
    for peer in ("asyncio", "uvloop", "rloop"):
        yield line("registered and run", "ran", peer, at_least(7e6) if peer == "uvloop" else None)
    for peer in ("asyncio", "uvloop", "rloop"):
        goal = at_most(250) if peer == "uvloop" else None
        yield figure(outcomes, "p99 of a call", "ns", ("ropewalk", "p99"), (peer, "p99"), goal=goal)
    for peer in ("asyncio", "uvloop", "rloop"):
        goal = at_least(8.5e6) if peer == "uvloop" else None
        yield line("10 writers of 20,000 and a reader", "registered", peer, goal, "reader, ")


FOREIGN = Row(
    "foreign",
    "`call_soon_threadsafe` from ten threads, 5,000 each",
    "From the first call to the last; to the last callback; the 99th percentile of a call in one of the threads, "
    "its two clock readings included. The loop runs in a thread of its own.",
    _foreign_cases,
    _foreign_figures,
)

# --- once for each loop, executor or process ---------------------------------


def whole(loop_of: str, count: int) -> dict[str, float]:
    """Microseconds to make, run and close a loop, and for an empty call in the default executor."""

    def loops() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop = new_loop(loop_of)
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        return (time.perf_counter_ns() - began) / count / 1e3

    async def executor() -> float:
        loop = asyncio.get_running_loop()
        began = time.perf_counter_ns()
        for _ in range(10):
            await asyncio.gather(*[loop.run_in_executor(None, _nothing) for _ in range(100)])
        return (time.perf_counter_ns() - began) / 1000 / 1e3

    made = new_loop(loop_of)
    figures = {"loop": _median(loops), "executor": _median(lambda: made.run_until_complete(executor()))}
    made.run_until_complete(made.shutdown_default_executor())
    made.close()
    return figures


def children(loop_of: str, count: int, megabytes: int) -> dict[str, float]:
    """Milliseconds to start /bin/true and wait for it, in a parent that has touched so much memory."""
    memory = bytearray(megabytes << 20)
    memory[::4096] = b"x" * len(memory[::4096])

    async def main() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            child = await asyncio.create_subprocess_exec("/bin/true")
            await child.wait()
        return (time.perf_counter_ns() - began) / count / 1e6

    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    took = _median(lambda: loop.run_until_complete(main()))
    asyncio.set_event_loop(None)
    loop.close()
    return {"child": took}


def _whole_cases(options: Options) -> Sequence[Case]:
    count = options.size(20, 2)
    return (
        *cases("_rows_loop_calls:whole", {"count": options.size(100, 5)}),
        *cases("_rows_loop_calls:children", {"count": count, "megabytes": 1}, prefix="child, "),
        *cases("_rows_loop_calls:children", {"count": count, "megabytes": 500}, prefix="large, "),
    )


def _whole_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for peer in ("asyncio", "uvloop", "rloop"):
        goal = times_better(2) if peer == "uvloop" else None
        ours = ("ropewalk", "executor")
        yield figure(outcomes, "empty call in the executor", "µs", ours, (peer, "executor"), goal=goal)
    for peer in ("asyncio", "uvloop", "rloop"):
        goal = at_most(60) if peer == "uvloop" else None
        yield figure(outcomes, "made, run, closed", "µs", ("ropewalk", "loop"), (peer, "loop"), goal=goal)
    for peer in ("asyncio", "uvloop", "rloop"):
        goal = at_most(0.55) if peer == "uvloop" else None
        ours = ("child, ropewalk", "child")
        yield figure(outcomes, "child process", "ms", ours, ("child, " + peer, "child"), goal=goal)
    ours = ("large, ropewalk", "child")
    yield figure(outcomes, "child of a parent of 500 MB", "ms", ours, ("child, ropewalk", "child"))
    yield figure(outcomes, "child of a parent of 500 MB", "ms", ours, ("large, uvloop", "child"))


WHOLE = Row(
    "whole",
    "Loops, executor calls, child processes",
    "A loop made, run for one turn and closed; an empty call in the default executor, 100 at a time; /bin/true started "
    "and waited for.",
    _whole_cases,
    _whole_figures,
)
