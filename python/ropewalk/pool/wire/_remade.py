"""Objects that cannot be pickled and of which a worker makes its own: locks, caches, context variables."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

import contextvars
import functools
import io
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, cast

_LOCK: type = type(threading.Lock())
_RLOCK: type = type(threading.RLock())
_CACHED: type = type(functools.lru_cache(lambda: None))
# The class of a bound single-dispatch method; before Python 3.14 it is a function of this name.
_BOUND_GENERIC_CODE = "singledispatchmethod.__get__.<locals>._method"
_BOUND_GENERIC: Any = getattr(functools, "_singledispatchmethod_get", None)


def reduce_definition(value: Any) -> Any:
    """Returns how a worker makes a cached or single-dispatch function; `None` for any other value."""
    if type(value) is _CACHED:
        cached: Any = value
        settings = dict(cached.cache_parameters())
        attributes = {name: item for name, item in vars(value).items() if name != "cache_parameters"}
        return _make_cached, (settings, cached.__wrapped__), attributes, None, None, _set_attributes
    if isinstance(value, types.FunctionType) and value.__globals__ is vars(functools):
        registry = getattr(value, "registry", None)
        if isinstance(registry, types.MappingProxyType) and object in registry:
            return _make_generic, (registry[object],), _implementations(registry), None, None, _register
        if value.__code__.co_qualname == _BOUND_GENERIC_CODE:
            cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
            found: Any = value
            return _bind, (found.register.__self__, cells["obj"].cell_contents, cells["cls"].cell_contents)
    if type(value) is functools.singledispatchmethod:
        # From Python 3.13 on it has a cache, of weak references.
        others = _implementations(value.dispatcher.registry)
        return functools.singledispatchmethod, (value.func,), others, None, None, _register
    if type(value) is _BOUND_GENERIC:
        bound: Any = value
        return _bind, (bound._unbound, bound._obj, bound._cls)
    return None


def reduce_state(value: Any) -> Any:
    """Returns how a worker makes a lock or a similar object of a module's global; `None` for any other value.

    The worker's object is a new one: its lock is not held, even if this process holds the original.

    Raises:
        TypeError: the object is an open file.
    """
    kind: Any = type(value)
    make = _STATES.get(kind)
    if make is not None:
        return make(value)
    if isinstance(value, io.IOBase) and value not in (sys.stdin, sys.stdout, sys.stderr):
        raise TypeError(f"it is an open file, {getattr(value, 'name', '?')!r}; open it in the function")
    return None


def unsendable() -> tuple[type, ...]:
    """Returns the classes whose objects must not be pickled, though a pickler would, or would not name a remedy."""
    found: list[type] = [io.TextIOWrapper]
    for module, name in (("socket", "socket"), ("multiprocessing.connection", "_ConnectionBase")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            found.append(kind)
    return tuple(found)


def refuse(value: Any) -> None:
    """Raises for an object of a class in `unsendable`.

    Pickle sends a connection as the number of its descriptor, which means something else in another process.
    cloudpickle sends a file as a copy of its text.

    Raises:
        TypeError: the object is not a standard stream, which each process has.
    """
    if value in (sys.stdin, sys.stdout, sys.stderr):
        return
    kind = cast("type[object]", type(value))
    cure = (
        "Give its name, and open it in the task."
        if isinstance(value, io.TextIOBase)
        else "Its descriptor belongs to this process: pass it with Pool(initializer=..., initargs=...)."
    )
    raise TypeError(f"cannot pickle '{kind.__module__}.{kind.__qualname__}' object. {cure}")


def _context_variable(value: contextvars.ContextVar[Any]) -> Any:
    try:
        # In an empty context `get` returns the default.
        return _make_variable, (value.name, contextvars.Context().run(value.get))
    except LookupError:
        return contextvars.ContextVar, (value.name,)


def _barrier(value: Any) -> Any:
    return threading.Barrier, (value.parties, value._action, value._timeout)


_STATES: dict[type, Callable[[Any], Any]] = {
    _LOCK: lambda _: (threading.Lock, ()),
    _RLOCK: lambda _: (threading.RLock, ()),
    threading.local: lambda _: (threading.local, ()),
    threading.Condition: lambda value: (threading.Condition, (value._lock,)),
    threading.Event: lambda value: (_make_event, (value.is_set(),)),
    threading.Semaphore: lambda value: (threading.Semaphore, (value._value,)),
    threading.BoundedSemaphore: lambda value: (threading.BoundedSemaphore, (value._initial_value,)),
    threading.Barrier: _barrier,
    contextvars.ContextVar: _context_variable,
}


def _make_cached(settings: dict[str, Any], function: Callable[..., Any]) -> Any:
    return functools.lru_cache(**settings)(function)


def _set_attributes(made: Any, attributes: dict[str, Any]) -> None:
    vars(made).update(attributes)


def _make_generic(function: Callable[..., Any]) -> Any:
    return functools.singledispatch(function)


def _implementations(registry: Any) -> list[tuple[type, Callable[..., Any]]]:
    return [(kind, run) for kind, run in registry.items() if kind is not object]


def _register(made: Any, implementations: list[tuple[type, Callable[..., Any]]]) -> None:
    for kind, run in implementations:
        made.register(kind, run)


def _bind(method: Any, owner: Any, kind: Any) -> Any:
    return method.__get__(owner, kind)


def _make_variable(name: str, default: Any) -> Any:
    return contextvars.ContextVar(name, default=default)


def _make_event(is_set: bool) -> threading.Event:
    made = threading.Event()
    if is_set:
        made.set()
    return made
