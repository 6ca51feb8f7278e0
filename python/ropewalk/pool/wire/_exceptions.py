"""Exceptions that pickle cannot restore: their classes need other arguments than `args`, or forbid assignments.

Pickle restores an exception by calling its class with ``args`` and assigning its attributes. This fails for a class
whose ``__init__`` needs other arguments, or whose instances are frozen. This module restores such an exception without
running code of its class: it calls the built-in class that the exception derives from, and sets the attributes.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, cast

_HEAP = 1 << 9
_set: Any = BaseException.__setattr__


def _maker(kind: type[BaseException]) -> Any:
    """Returns the built-in class that an exception's class derives from, and has its layout from."""
    maker: Any = kind
    while maker.__flags__ & _HEAP:
        maker = maker.__base__
    return maker


def pickles_by_default(kind: Any) -> bool:
    """Whether the class leaves pickling to `BaseException`, and does not define it itself."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return False
    maker: Any = _maker(kind)
    own: Any = kind
    return (
        kind not in copyreg.dispatch_table
        and own.__reduce__ is maker.__reduce__
        and own.__reduce_ex__ is object.__reduce_ex__
        and own.__setstate__ is maker.__setstate__
        and getattr(own, "__getstate__", None) is getattr(maker, "__getstate__", None)
    )


def has_slots(kind: type[BaseException]) -> bool:
    """Whether exceptions of this class have slots, which `BaseException` does not pickle."""
    return pickles_by_default(kind) and bool(cast("Any", copyreg)._slotnames(kind))


def needs_care(kind: type[BaseException]) -> bool:
    """Whether pickle would run code of the class when it restores an exception, or leave slots out."""
    maker: Any = _maker(kind)
    own: Any = kind
    return pickles_by_default(kind) and (
        has_slots(kind)
        or own.__init__ is not maker.__init__
        or own.__new__ is not maker.__new__
        or own.__setattr__ is not maker.__setattr__
    )


def reduce(error: BaseException, part: Callable[[BaseException], object] | None = None) -> tuple[Any, ...]:
    """Returns how such an exception is restored; `part` maps each exception of a group to what is pickled for it."""
    kind: Any = type(error)
    made: tuple[Any, ...] = _maker(kind).__reduce__(error)
    arguments: tuple[Any, ...] = made[1]
    if part is not None and isinstance(error, BaseExceptionGroup):
        arguments = (error.message, [part(one) for one in error.exceptions])
    attributes: dict[str, Any] = dict(made[2] or {}) if len(made) > 2 else {}
    slots: list[str] = cast("Any", copyreg)._slotnames(kind)
    for name in slots:
        with contextlib.suppress(AttributeError):
            attributes[name] = getattr(error, name)
    return make, (kind, arguments, attributes)


def make(kind: Any, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Makes an exception without running code of its class."""
    maker: Any = _maker(kind)
    made: BaseException = maker.__new__(kind, *arguments)
    maker.__init__(made, *arguments)
    for name, value in attributes.items():
        _set(made, name, value)
    return made


class Carrier:
    """Unpickles as the exception that it carries, without running code of the exception's class."""

    def __init__(self, error: BaseException, part: Callable[[BaseException], object]) -> None:
        self.error = error
        self.part = part

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self.error, self.part)


# --- a second attempt at unpickling ---------------------------------------------------------------------------------

_Unpickler: Any = cast("Any", pickle)._Unpickler


class _TolerantUnpickler(_Unpickler):  # type: ignore[misc]
    """Unpickles as pickle does; if an exception's class fails, it makes the exception without code of the class."""

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        try:
            self.stack[-1] = function(*arguments)
        except Exception as error:
            if isinstance(error, MemoryError) or not pickles_by_default(function):
                raise
            self.stack[-1] = make(function, arguments, {})

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        made = self.stack[-2]
        state = self.stack[-1]
        if isinstance(made, BaseException) and pickles_by_default(type(made)) and isinstance(state, dict):
            self.stack.pop()
            for name, value in state.items():
                _set(made, name, value)
        else:
            _Unpickler.load_build(self)

    dispatch[pickle.BUILD[0]] = load_build


def reopen(stream: Any, error: BaseException, buffers: Any = ()) -> Any:
    """Unpickles with the tolerant unpickler a stream that failed with `error`.

    Raises:
        BaseException: the same error, if this fails too.
    """
    other = isinstance(error, (ImportError, MemoryError, RecursionError)) or not isinstance(error, Exception)
    if other or type(error).__module__.startswith("ropewalk."):
        raise error
    try:
        return _TolerantUnpickler(io.BytesIO(stream), buffers=buffers).load()
    except Exception:
        raise error from None


def loads(stream: Any, buffers: Any = ()) -> Any:
    """Unpickles as `pickle.loads` does, and restores exceptions that pickle cannot."""
    try:
        return pickle.loads(stream, buffers=buffers)
    except Exception as error:
        return reopen(stream, error, buffers)
