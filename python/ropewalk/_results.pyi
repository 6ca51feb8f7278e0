"""The extension module of results: the outcome of a call as a value."""

from collections.abc import Callable
from types import GenericAlias
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, final

_T_co = TypeVar("_T_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)
_U = TypeVar("_U")
_R = TypeVar("_R", bound=Ok[Any] | Err[Any])

@final
class Ok(Generic[_T_co]):
    """The result of a call that returned a value.

    >>> import ropewalk
    >>> ropewalk.Ok(3).map(lambda number: number + 1)
    Ok(4)
    """

    __match_args__ = ("value",)

    def __new__(cls, value: _T_co, /) -> Self: ...
    @property
    def value(self) -> _T_co:
        """The value."""
    def is_ok(self) -> Literal[True]:
        """Whether it is an `Ok`."""
    def is_err(self) -> Literal[False]:
        """Whether it is an `Err`."""
    def ok(self) -> _T_co:
        """Returns the value, or `None` for an `Err`."""
    def err(self) -> None:
        """Returns the error, or `None` for an `Ok`."""
    def map(self, function: Callable[[_T_co], _U], /) -> Ok[_U]:
        """Returns ``Ok(function(value))``; an `Err` returns itself."""
    def map_err(self, function: Callable[[Any], object], /) -> Self:
        """Returns ``Err(function(error))``; an `Ok` returns itself."""
    def and_then(self, function: Callable[[_T_co], _R], /) -> _R:
        """Returns ``function(value)``, which must be a result; an `Err` returns itself."""
    def or_else(self, function: Callable[[Any], object], /) -> Self:
        """Returns ``function(error)``, which must be a result; an `Ok` returns itself."""
    def inspect(self, function: Callable[[_T_co], object], /) -> Self:
        """Calls ``function(value)`` for an `Ok`; returns itself."""
    def inspect_err(self, function: Callable[[Any], object], /) -> Self:
        """Calls ``function(error)`` for an `Err`; returns itself."""
    def unwrap(self) -> _T_co:
        """Returns the value. An `Err` raises its error if that is an exception, else `UnwrapError`."""
    def unwrap_err(self) -> NoReturn:
        """Returns the error. An `Ok` raises `UnwrapError`."""
    def unwrap_or(self, default: object, /) -> _T_co:
        """Returns the value, or `default` for an `Err`."""
    def unwrap_or_else(self, function: Callable[[Any], object], /) -> _T_co:
        """Returns the value, or ``function(error)`` for an `Err`."""
    def expect(self, message: str, /) -> _T_co:
        """Returns the value. An `Err` raises `UnwrapError` with the message; if its error is an exception, that is the
        cause."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> NoReturn:
        """Raises `TypeError`, because a true `Err` would mislead, and so would a false ``Ok(0)``."""
    def __reduce__(self) -> tuple[type[Self], tuple[_T_co]]: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class Err(Generic[_E_co]):
    """The result of a call that failed: an exception, or another object that describes the error. It has the methods of
    `Ok`."""

    __match_args__ = ("error",)

    def __new__(cls, error: _E_co, /) -> Self: ...
    @property
    def error(self) -> _E_co:
        """The error."""
    def is_ok(self) -> Literal[False]: ...
    def is_err(self) -> Literal[True]: ...
    def ok(self) -> None: ...
    def err(self) -> _E_co: ...
    def map(self, function: Callable[[Any], object], /) -> Self: ...
    def map_err(self, function: Callable[[_E_co], _U], /) -> Err[_U]: ...
    def and_then(self, function: Callable[[Any], object], /) -> Self: ...
    def or_else(self, function: Callable[[_E_co], _R], /) -> _R: ...
    def inspect(self, function: Callable[[Any], object], /) -> Self: ...
    def inspect_err(self, function: Callable[[_E_co], object], /) -> Self: ...
    def unwrap(self) -> NoReturn: ...
    def unwrap_err(self) -> _E_co: ...
    def unwrap_or(self, default: _U, /) -> _U: ...
    def unwrap_or_else(self, function: Callable[[_E_co], _U], /) -> _U: ...
    def expect(self, message: str, /) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> NoReturn: ...
    def __reduce__(self) -> tuple[type[Self], tuple[_E_co]]: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...
