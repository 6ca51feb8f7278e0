"""Functions whose call does not run them: coroutine functions and generators, where a plain function is needed."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, cast

#: What such a function returns.
_LATER = (types.AsyncGeneratorType, types.CoroutineType, types.GeneratorType)


_CALL = "__call__"


def kind_of_later(function: Any) -> str:
    """Returns what a function is whose call does not run it, such as ``a coroutine function``; empty for any other."""
    while isinstance(function, functools.partial):
        function = function.func
    # The class's own: what an object of it runs when it is called.
    for one in (function, getattr(cast("type[object]", type(function)), _CALL, None)):
        if inspect.iscoroutinefunction(one):
            return "a coroutine function"
        if inspect.isasyncgenfunction(one) or inspect.isgeneratorfunction(one):
            return "a generator"
    return ""


def dropped(result: object) -> str:
    """Closes what a function returned without having run, and returns the name of its class; empty for any other.

    Nothing warns then that it was never awaited.
    """
    if not isinstance(result, _LATER):
        return ""
    close = getattr(cast("Any", result), "close", None)
    if close is not None:
        close()
    return type(cast("object", result)).__name__


def check_effect(function: Any) -> None:
    """Checks what is to be called after a commit.

    Raises:
        TypeError: a call of it would not run it.
    """
    kind = kind_of_later(function)
    if kind:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"on_commit takes a plain function, because no event loop awaits it, and {name} is {kind}. Give a function "
            f"that starts it: one that calls asyncio.run, or loop.call_soon_threadsafe"
        )
