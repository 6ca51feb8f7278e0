"""A task that raises `StopIteration` fails like any other, and ends no loop over its map."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ropewalk


def stop(number: int) -> int:
    if number == 1:
        raise StopIteration("the task's own")
    return number


def stop_asynchronously(number: int) -> int:
    if number == 1:
        raise StopAsyncIteration("the task's own")
    return number


@pytest.mark.parametrize("chunksize", [1, 4])
@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_a_task_that_raises_stop_iteration_ends_no_loop(pool: Any, name: str, chunksize: int) -> None:
    came, results = [], getattr(pool, name)(stop, range(4), chunksize=chunksize)
    with pytest.raises(RuntimeError, match="raised StopIteration") as told:
        came.extend(results)
    assert isinstance(told.value.__cause__, StopIteration)
    assert told.value.__cause__.value == "the task's own"
    results = getattr(pool, name)(stop, range(4), chunksize=chunksize)
    failures = 0
    # As after any exception, what is left can be asked for.
    while True:
        try:
            came.append(next(results))
        except StopIteration:
            break
        except RuntimeError:
            failures += 1
    assert failures == 1
    assert sorted(set(came)) == [0, 2, 3]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(getattr(pool, name)(stop, range(4), chunksize=chunksize, progress=True))


@pytest.mark.parametrize("function", [stop, stop_asynchronously])
@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_nor_an_asynchronous_one(pool: Any, name: str, function: Callable[[int], int]) -> None:
    kind = StopIteration if function is stop else StopAsyncIteration

    async def main() -> None:
        with pytest.raises(RuntimeError, match=f"raised {kind.__name__}") as told:
            _ = [value async for value in getattr(pool, name)(function, range(4), chunksize=1)]
        assert isinstance(told.value.__cause__, kind)

    asyncio.run(main())


def test_nor_an_awaited_call(pool: Any) -> None:
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        asyncio.run(pool.run(stop, 1))


def test_a_stop_iteration_as_a_result_is_itself(pool: Any) -> None:
    told = list(pool.map(stop, range(3), results=True))
    assert [ropewalk.Ok(0), ropewalk.Ok(2)] == [told[0], told[2]]
    assert isinstance(told[1].error, StopIteration)
