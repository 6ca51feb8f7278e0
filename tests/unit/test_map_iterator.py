"""The iterator of `map`: ``for``, ``async for``, and its length."""

from __future__ import annotations

import asyncio
import contextlib
import io
import operator
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

ROOT = Path(__file__).parents[2]


def test_its_length_is_what_is_to_come(pool: Any) -> None:
    results = pool.map(tasks.square, range(100))
    assert isinstance(results, ropewalk.MapIterator)
    assert len(results) == operator.length_hint(results) == 100
    for left in range(99, -1, -1):
        next(results)
        assert len(results) == left
    assert list(results) == []
    assert len(results) == 0
    assert bool(results)
    assert len(pool.map(tasks.add, range(3), range(5))) == 3


def test_a_length_that_is_not_known(pool: Any) -> None:
    results = pool.map(tasks.square, iter(range(3)))
    with pytest.raises(TypeError, match="length"):
        len(results)
    assert operator.length_hint(results, 7) == 7
    assert bool(results)
    assert list(results) == [0, 1, 4]
    # One over another: the inner one's length is asked for, and not known.
    assert list(pool.map(tasks.square, pool.map(tasks.square, iter(range(3))))) == [0, 1, 16]
    assert len(pool.map(tasks.square, pool.map(tasks.square, range(3)))) == 3


def test_tqdm_knows_the_length(pool: Any) -> None:
    tqdm = pytest.importorskip("tqdm")
    said = io.StringIO()
    assert list(tqdm.tqdm(pool.map(tasks.square, range(9)), file=said)) == [n * n for n in range(9)]
    assert "9/9" in said.getvalue()


def test_a_closed_map_has_nothing_to_come(pool: Any) -> None:
    results = pool.map(tasks.square, range(1000))
    next(results)
    results.close()
    assert list(results) == []
    assert len(results) == 0


def test_async_for(pool: Any) -> None:
    async def main() -> None:
        assert [value async for value in pool.map(tasks.square, range(1000))] == [n * n for n in range(1000)]
        unordered = [value async for value in pool.map_unordered(tasks.square, iter(range(1000)))]
        assert sorted(unordered) == [n * n for n in range(1000)]
        told = [it async for it in pool.options(retries=1).map(int, ["1", "x"], results=True)]
        assert told[0] == ropewalk.Ok(1)
        assert isinstance(told[1].error, ValueError)

    asyncio.run(main())


def test_async_for_leaves_the_loop_alone(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)

    async def main() -> None:
        results = pool.map(gate.hold, ["a", "b", "c"], [1, 2, 3])
        first = asyncio.ensure_future(anext(results))
        while not gate.marks("a"):
            await asyncio.sleep(0.002)
        assert not first.done()
        gate.open()
        assert await first == 1
        assert [value async for value in results] == [2, 3]

    asyncio.run(main())


def test_async_for_goes_on_after_an_exception(pool: Any) -> None:
    async def main() -> None:
        results = pool.map(int, ["1", "x", "3"], chunksize=1)
        assert await anext(results) == 1
        with pytest.raises(ValueError, match="invalid literal"):
            await anext(results)
        assert await anext(results) == 3
        with pytest.raises(StopAsyncIteration):
            await anext(results)

    asyncio.run(main())


def test_a_cancelled_wait_loses_no_result(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)

    async def main() -> None:
        results = pool.map_unordered(gate.hold, ["a", "b"], [1, 2])
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(results), 0.02)
        gate.open()
        assert sorted([value async for value in results]) == [1, 2]

    asyncio.run(main())


def test_two_coroutines_at_one_map(pool: Any) -> None:
    async def main() -> None:
        results = pool.map_unordered(tasks.square, range(200))

        async def take() -> list[int]:
            return [value async for value in results]

        one, two = await asyncio.gather(take(), take())
        assert sorted(one + two) == [n * n for n in range(200)]

    asyncio.run(main())


def test_the_time_limit_of_an_asynchronous_map(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await anext(pool.map(gate.hold, ["a"], timeout=0.05))

    asyncio.run(main())


def test_aclose(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)

    async def main() -> None:
        async with contextlib.aclosing(pool.map(gate.hold, ["a"] * 50)):
            while not gate.marks("a"):
                await asyncio.sleep(0.002)
        assert pool.statistics().queued == 0

    asyncio.run(main())
    gate.open()


def test_leaving_asynchronously_finishes_what_was_taken(gate: Gate, kind: str) -> None:
    async def main() -> None:
        ticks = 0
        futures = []

        async def work() -> None:
            async with ropewalk.Pool(1, kind=kind) as pool:
                futures.extend(pool.submit(gate.hold) for _ in range(3))

        leaving = asyncio.create_task(work())
        while not gate.marks() or ticks < 5:
            ticks += 1
            await asyncio.sleep(0.002)
        assert not leaving.done()
        gate.open()
        await leaving
        assert all(future.result(0) for future in futures)

    asyncio.run(main())


def test_leaving_a_pool_that_is_the_loops_own_executor(kind: str) -> None:
    async def main() -> None:
        async with ropewalk.Pool(1, kind=kind) as pool:
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(pool, tasks.square, 3) == 9
            assert await loop.run_in_executor(pool.options(task_timeout=60), tasks.square, 4) == 16

    asyncio.run(main())


PROGRESS = """
import ropewalk
from tests import tasks

with ropewalk.Pool(2, kind="thread") as pool:
    print(sum(pool.map(tasks.square, range(50), progress=True)))
    results = pool.map_unordered(tasks.square, iter(range(50)), progress=True)
    print(next(results) + sum(results))
    for _ in pool.map(tasks.square, range(50), progress=True):
        break
"""


def test_progress_is_silent_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRESS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("40425\n40425\n", "")


@contextlib.contextmanager
def _on_a_terminal(program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], bytearray]]:
    """Runs a program whose standard error is a terminal; with what it has drawn there so far."""
    ours, theirs = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    drawn = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                drawn.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield started, drawn
    finally:
        started.kill()
        started.communicate(timeout=60)
        reader.join(60)
        os.close(ours)


def test_progress_on_a_terminal() -> None:
    with _on_a_terminal(PROGRESS) as (program, drawn):
        out, _ = program.communicate(timeout=60)
    assert out == "40425\n40425\n"
    assert re.search(rb"50/50", drawn)
    assert re.search(rb"50/\?", drawn)


PARTS = """
import sys
import ropewalk
from tests.tasks import Gate

gate = Gate(sys.argv[1])

def half(_):
    ropewalk.current_task().progress(1, 2)
    gate.hold()

with ropewalk.Pool(1, kind="process") as pool:
    for _ in pool.map(half, [0], progress=True):
        pass
"""


def test_the_bar_moves_with_what_running_tasks_report(tmp_path: Path) -> None:
    with _on_a_terminal(PARTS, str(tmp_path)) as (program, drawn):
        # The end of a bar that is neither empty nor full.
        until(lambda: "\N{BOX DRAWINGS HEAVY RIGHT}".encode() in drawn)
        assert b"1/1" not in drawn
        Gate(tmp_path).open()
        assert program.wait(60) == 0
    assert b"1/1" in drawn


def test_parts_of_inputs_that_are_under_way(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def report(done: float, total: float | None) -> None:
        current = ropewalk.current_task()
        assert current is not None
        current.progress(done, total)
        gate.hold()

    with ropewalk.Pool(4, kind="thread") as pool:
        results = pool.map(report, [1, 30, 7, 5], [4, 10, 0, None])
        # A quarter, and one that is beyond its end; those without a total say nothing.
        until(lambda: results._under_way() == 1.25)
        gate.open()
        list(results)
        assert results._under_way() == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("processes", "workers="),
        ("n_jobs", "workers="),
        ("mp_context", "zygote"),
        ("maxtasksperchild", "max_tasks_per_child="),
        ("max_requests", "max_tasks="),
        ("max_memory_per_child", "max_rss="),
        ("worker", "did you mean workers="),
        ("nonsense", "on_crash"),
    ],
)
def test_other_libraries_names_are_answered_with_ours(name: str, told: str) -> None:
    with pytest.raises(TypeError, match=f"{name}.*({told})"):
        ropewalk.Pool(**{name: 3})  # type: ignore[arg-type]


def test_public_objects_say_what_they_are(pool: Any) -> None:
    future = pool.submit(tasks.square, 3)
    future.result(60)
    bus = ropewalk.Bus()
    view = pool.options(task_timeout=3)
    for thing in (
        *(pool, future, future.task, view, pool.statistics(), pool.map(tasks.square, [1])),
        *(bus, bus.subscribe("a.*"), bus.statistics(), ropewalk.shared.buffer(64)),
        *(ropewalk.Ok(1), ropewalk.Err("no"), ropewalk.OutOfDescriptors("none left")),
    ):
        assert "object at 0x" not in repr(thing)
    assert repr(view).startswith("<ropewalk.PoolOptions of ropewalk-")
    assert "timeout=3.0" in repr(view)
    assert "1 results to come" in repr(pool.map(tasks.square, [1]))


def test_views_offer_what_a_pool_offers(pool: Any) -> None:
    view = pool.options(retries=1)
    assert (view.pool, view.kind, view.explain()) == (pool, pool.kind, pool.explain())
    assert view.submit(tasks.square, 3).result(60) == 9
    assert view.statistics().completed >= 1
    assert list(view.map(tasks.square, [1, 2])) == [1, 4]

    async def main() -> None:
        assert await view.run(tasks.square, 5) == 25

    asyncio.run(main())
    with view as again:
        assert again is view
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 3)
    until(lambda: pool.statistics().worker_pids == (), seconds=60)
