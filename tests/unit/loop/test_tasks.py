"""Tasks and futures of a loop: factories, eager tasks, asynchronous generators."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.loop.recording import turns, until

Loop = asyncio.AbstractEventLoop
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="default")


async def _answer() -> int:
    await asyncio.sleep(0)
    return 42


async def test_a_task_has_its_name_and_its_loop(loop: Loop) -> None:
    task = loop.create_task(_answer(), name="answer")
    assert isinstance(task, asyncio.Task)
    assert (task.get_name(), task.get_loop()) == ("answer", loop)
    assert await task == 42


async def test_a_task_runs_in_the_context_it_is_given(loop: Loop) -> None:
    async def read() -> str:
        await asyncio.sleep(0)
        return VARIABLE.get()

    context = contextvars.copy_context()
    context.run(VARIABLE.set, "given")
    assert await loop.create_task(read(), context=context) == "given"
    assert await loop.create_task(read()) == "default"


async def test_a_future_belongs_to_its_loop(loop: Loop) -> None:
    future = loop.create_future()
    assert isinstance(future, asyncio.Future)
    assert future.get_loop() is loop


async def test_a_task_factory(loop: Loop) -> None:
    made: list[asyncio.Task[Any]] = []

    def factory(loop: Loop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        made.append(asyncio.Task(coroutine, loop=loop, **kwargs))
        return made[-1]

    loop.set_task_factory(factory)  # type: ignore[arg-type]
    assert loop.get_task_factory() is factory
    task = loop.create_task(_answer(), name="named", context=contextvars.copy_context())
    assert made == [task]
    assert task.get_name() == "named"
    assert await task == 42
    assert await asyncio.gather(_answer(), _answer()) == [42, 42]
    assert len(made) == 3
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None
    await loop.create_task(_answer())
    assert len(made) == 3
    with pytest.raises(TypeError):
        loop.set_task_factory("not callable")  # type: ignore[arg-type]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
async def test_eager_tasks(loop: Loop) -> None:
    seen: list[str] = []

    async def work(wait: bool) -> str:
        seen.append("started")
        assert asyncio.current_task() is not None
        VARIABLE.set("set by the task")
        if wait:
            await asyncio.sleep(0.001)
        seen.append("finished")
        return "result"

    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    task = loop.create_task(work(wait=False))
    assert task.done()
    assert seen == ["started", "finished"]
    assert await task == "result"
    task = loop.create_task(work(wait=True))
    assert seen == ["started", "finished", "started"]
    assert not task.done()
    assert await task == "result"
    assert VARIABLE.get() == "default"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="eager_start is new in 3.14")
async def test_eager_start(loop: Loop) -> None:
    async def work() -> str:
        return "result"

    assert loop.create_task(work(), eager_start=True).result() == "result"  # type: ignore[call-arg]
    task = loop.create_task(work(), eager_start=False)  # type: ignore[call-arg]
    assert not task.done()
    await task


async def test_ready_tasks_take_turns(loop: Loop) -> None:
    seen: list[str] = []

    async def step(name: str) -> None:
        for _ in range(3):
            seen.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(step(name) for name in "abc"))
    assert "".join(seen) == "abcabcabc"


async def test_cancelling_at_every_kind_of_wait(loop: Loop) -> None:
    async def on_future() -> None:
        await loop.create_future()

    async def on_executor() -> None:
        await loop.run_in_executor(None, int)
        await loop.create_future()

    for coroutine in (asyncio.sleep(0), asyncio.sleep(60), on_future(), on_executor()):
        task = loop.create_task(coroutine)
        await turns(2)
        task.cancel()
        done, _ = await asyncio.wait([task])
        # A task that is over by then is not cancelled any more; any other is.
        assert task in done
        assert task.cancelled() or task.result() is None


async def test_many_tasks(loop: Loop) -> None:
    assert await asyncio.gather(*(_answer() for _ in range(10_000))) == [42] * 10_000
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_queues_locks_and_groups_work(loop: Loop) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(3)
    lock = asyncio.Lock()
    taken: list[int] = []

    async def put(start: int) -> None:
        for number in range(start, start + 50):
            await queue.put(number)

    async def take() -> None:
        for _ in range(50):
            number = await queue.get()
            async with lock:
                await asyncio.sleep(0)
                taken.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(put(number * 50))
            group.create_task(take())
    assert sorted(taken) == list(range(200))


async def _numbers(closed: list[str]) -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        await asyncio.sleep(0)
        closed.append("closed")


def test_shutdown_closes_asynchronous_generators(loop: Loop) -> None:
    closed: list[str] = []
    generator = _numbers(closed)

    async def start() -> None:
        assert await anext(generator) == 1

    loop.run_until_complete(start())
    assert closed == []
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert closed == ["closed"]


async def test_a_dropped_asynchronous_generator_is_closed(loop: Loop) -> None:
    closed: list[str] = []
    generator = _numbers(closed)
    assert await anext(generator) == 1
    del generator
    gc.collect()
    await until(lambda: closed)
    assert closed == ["closed"]


def test_the_hooks_of_generators_are_those_of_the_running_loop(loop: Loop) -> None:
    before = sys.get_asyncgen_hooks()

    async def main() -> Any:
        return sys.get_asyncgen_hooks()

    inside = loop.run_until_complete(main())
    assert None not in inside
    assert sys.get_asyncgen_hooks() == before


def test_a_generator_after_the_shutdown_warns(loop: Loop) -> None:
    loop.run_until_complete(loop.shutdown_asyncgens())
    generator = _numbers([])

    async def late() -> None:
        with pytest.warns(ResourceWarning, match="was scheduled after"):
            await anext(generator)
        await generator.aclose()  # type: ignore[attr-defined]

    loop.run_until_complete(late())
