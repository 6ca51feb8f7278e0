"""The ways in which a program chooses the loop."""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk.loop._loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")


def new_event_loop() -> Loop:
    """Return a new loop: a `loop_factory` for `asyncio.Runner` and other functions that take one."""
    return Loop()


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> _T:
    """Run a coroutine on a new loop, as `asyncio.run` does on asyncio's.

    `loop_factory` makes the loop, a subclass of `Loop` for instance.

    Examples:
        >>> import asyncio, ropewalk
        >>> async def main() -> str:
        ...     await asyncio.sleep(0)
        ...     return type(asyncio.get_running_loop()).__name__
        >>> ropewalk.run(main())
        'Loop'

    Raises:
        RuntimeError: a loop runs in this thread.
    """
    if asyncio._get_running_loop() is not None:
        if asyncio.iscoroutine(main):
            # Nothing else will run it, and Python would warn of that.
            main.close()
        raise RuntimeError(
            "ropewalk.run() cannot be called from a running event loop: await the coroutine there. A notebook runs its "
            "cells in a loop: start a thread with a Ropewalk loop there, and give it coroutines with "
            "asyncio.run_coroutine_threadsafe."
        )
    with asyncio.Runner(debug=debug, loop_factory=loop_factory or new_event_loop) as runner:
        return runner.run(main)


def _policy_class() -> Any:
    with warnings.catch_warnings():
        # asyncio deprecates policies from 3.14 on; until 3.16 some programs have no other way.
        warnings.simplefilter("ignore", DeprecationWarning)
        return asyncio.DefaultEventLoopPolicy


class EventLoopPolicy(_policy_class()):  # type: ignore[misc]
    """asyncio's default policy, which makes Ropewalk's loops."""

    def _loop_factory(self) -> Loop:
        return new_event_loop()


def install() -> None:
    """Make asyncio use Ropewalk's loop wherever it makes one: `asyncio.run`, `asyncio.new_event_loop`.

    asyncio deprecates its policies from 3.14 on; `ropewalk.run` and a `loop_factory` need none.
    """
    with warnings.catch_warnings():
        if sys.version_info >= (3, 14):
            warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(EventLoopPolicy())  # pyright: ignore[reportDeprecated]
