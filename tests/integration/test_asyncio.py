"""`loop.run_in_executor(pool, ...)` and asyncio's own tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.tasks import Gate

import ropewalk


def test_run_in_executor(pool: Any) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="told"):
            await loop.run_in_executor(pool, tasks.fail, "told")
        return await asyncio.gather(*(loop.run_in_executor(pool, tasks.square, n) for n in range(200)))

    assert asyncio.run(main()) == [n * n for n in range(200)]


def test_the_default_executor(make_pool: Callable[..., Any]) -> None:
    # asyncio takes nothing but a ThreadPoolExecutor for its default one.
    pool = make_pool(1, kind="thread")

    async def main() -> None:
        with pytest.raises(TypeError, match="ThreadPoolExecutor"):
            asyncio.get_running_loop().set_default_executor(pool)

    asyncio.run(main())


def test_cancelling_what_waits(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        held = loop.run_in_executor(pool, gate.hold, "task", 1)
        while not gate.marks():
            await asyncio.sleep(0.002)
        waiting = loop.run_in_executor(pool, gate.mark, "never")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # asyncio tells the pool's future in the loop's next turn; before it, the task may still begin.
        await asyncio.sleep(0)
        gate.open()
        assert await held == 1

    asyncio.run(main())
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert gate.marks("never") == []


def test_a_crash_is_an_exception_like_any(processes: Any) -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(processes, tasks.square, n) for n in range(20)]
        calls.insert(7, loop.run_in_executor(processes, tasks.killed_by, 9))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(main())
    assert isinstance(results.pop(7), ropewalk.WorkerCrashed)
    assert results == [n * n for n in range(20)]


def test_a_task_group(processes: Any, gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                group.create_task(processes.run(gate.hold))
                group.create_task(processes.run(_fail_when_held, gate))
        assert len(caught.value.exceptions) == 1

    asyncio.run(main())
    # The group has cancelled the other task: it is not running any more.
    until(lambda: not any(is_alive(pid) for pid in gate.marks()))
    assert processes.submit(tasks.square, 2).result(60) == 4


def _fail_when_held(gate: Gate) -> None:
    until(gate.marks)
    raise ValueError("one fails")


def test_as_completed(pool: Any) -> None:
    async def main() -> set[int]:
        return {
            await coroutine
            for coroutine in asyncio.as_completed([pool.run(tasks.square, n) for n in range(30)])
        }

    assert asyncio.run(main()) == {n * n for n in range(30)}
