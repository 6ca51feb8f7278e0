"""Which pool of a `Runtime` runs a function."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

#: The attribute of a function in which `route` writes.
_MARK = "__ropewalk_route__"


def route(name: str) -> Callable[[F], F]:
    """Marks a function for the pool of this name: a `Runtime` submits it there.

    The function stays as it is, and can be called and submitted anywhere. A row of the runtime's `routes` for this
    function takes precedence; a row for its module does not.

    Raises:
        TypeError: `name` is no text, as in ``@route`` without a name.
        AttributeError: the callable takes no attributes, a built-in function for instance; use `routes`.

    Examples:
        >>> import ropewalk
        >>> @ropewalk.route("api")
        ... def answer(question):
        ...     return question.upper()
        >>> with ropewalk.Runtime(pools={"api": {"kind": "thread", "workers": 1}}) as runtime:
        ...     runtime.submit(answer, "why?").result()
        'WHY?'
    """
    if not isinstance(cast("object", name), str):
        raise TypeError(f"route needs the name of a pool, as in @route('api'), not {name!r}")

    def mark(function: F) -> F:
        setattr(function, _MARK, name)
        return function

    return mark


def marked(function: object) -> str | None:
    """Returns the name that `route` gave to a function, or to the function inside of a method or a partial."""
    name = getattr(_innermost(function), _MARK, None)
    # An object that answers to every name is no marked function.
    return name if isinstance(name, str) else None


def by_row(rows: Mapping[str, str], function: object) -> tuple[str | None, str | None]:
    """Returns what the rows say of a function itself, and of its module or the nearest package around that."""
    if not rows:
        return None, None
    module, name = _named(function)
    own = rows.get(f"{module}:{name}")
    while module and module not in rows:
        module = module.rpartition(".")[0]
    return own, rows.get(module)


def why_lost(row: str) -> str | None:
    """Returns why a row is that of no function, as far as a look can show; `None` if it may be the row of one.

    It looks for a module without importing it, and imports the module of a function.
    """
    module, colon, name = row.partition(":")
    if module == "__main__" or "<locals>" in name:
        return None  # Of the program, not of this process; or made by a call.
    if not colon:
        try:
            found = module in sys.modules or importlib.util.find_spec(module) is not None
        except (Exception, SystemExit) as error:  # A package runs its own code when it is imported.
            return f"names no module that can be found: {error or type(error).__name__}"
        return None if found else "names no module that can be found"
    if not module or not name:
        return "names no function, as 'package.module:function' does"
    try:
        function = attrgetter(name)(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # The same.
        return f"names nothing that can be imported: {error or type(error).__name__}"
    home, own = _named(function)
    if (home, own) != (module, name):
        return f"is the row of no function: the row of this one is '{home}:{own}', where it is defined"
    return None


def _named(function: object) -> tuple[str, str]:
    """Returns the names of a function's module, and of the function in it; those of its class for an instance."""
    inner = _innermost(function)
    named = inner if hasattr(inner, "__qualname__") else cast("Any", type(inner))
    return getattr(named, "__module__", None) or "builtins", getattr(named, "__qualname__", "")


def _innermost(function: Any) -> Any:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = cast("Any", inner).func
    return getattr(inner, "__func__", inner)
