"""Iterators over what the function of a stream returned, where that is none itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from types import CoroutineType
from typing import Any, cast


def iterate(returned: Any) -> Iterator[Any]:
    """Returns an iterator over the elements of an iterable, or of an asynchronous generator.

    Raises:
        TypeError: it is neither.
    """
    if hasattr(returned, "__aiter__"):
        return _drive(returned.__aiter__())
    if hasattr(returned, "__iter__"):
        return iter(returned)
    kind = cast("type[object]", type(returned))
    if issubclass(kind, CoroutineType):
        returned.close()
    raise TypeError(
        f"a stream needs a generator function, or one that returns an iterable, not {kind.__name__!r}. Use "
        f"`submit` for a function that returns its result"
    )


def _drive(items: AsyncIterator[Any]) -> Generator[Any, None, None]:
    """Runs an asynchronous iterator on an event loop of its own, one element at a time."""
    import asyncio

    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    item = runner.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                runner.run(_awaited(close))


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def _awaited(call: Any) -> None:
    await call()
