"""What a call came to, as a value: the compiled part."""

from collections.abc import Callable
from types import GenericAlias
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, final

_T_co = TypeVar("_T_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)
_U = TypeVar("_U")
_R = TypeVar("_R", bound=Ok[Any] | Err[Any])

@final
class Ok(Generic[_T_co]):
    """A call that came to a value.

    >>> import ropewalk
    >>> ropewalk.Ok(3).map(lambda number: number + 1)
    Ok(4)
    """

    __match_args__ = ("value",)

    def __new__(cls, value: _T_co, /) -> Self: ...
    @property
    def value(self) -> _T_co:
        """What it holds."""
    def is_ok(self) -> Literal[True]:
        """Whether it is an `Ok`."""
    def is_err(self) -> Literal[False]:
        """Whether it is an `Err`."""
    def ok(self) -> _T_co:
        """The value, or `None` for an `Err`."""
    def err(self) -> None:
        """The error, or `None` for an `Ok`."""
    def map(self, function: Callable[[_T_co], _U], /) -> Ok[_U]:
        """``Ok(function(value))``; an `Err` stays as it is."""
    def map_err(self, function: Callable[[Any], object], /) -> Self:
        """``Err(function(error))``; an `Ok` stays as it is."""
    def and_then(self, function: Callable[[_T_co], _R], /) -> _R:
        """``function(value)``, which gives a result; an `Err` stays as it is."""
    def or_else(self, function: Callable[[Any], object], /) -> Self:
        """``function(error)``, which gives a result; an `Ok` stays as it is."""
    def inspect(self, function: Callable[[_T_co], object], /) -> Self:
        """Calls ``function(value)`` for an `Ok`; gives itself."""
    def inspect_err(self, function: Callable[[Any], object], /) -> Self:
        """Calls ``function(error)`` for an `Err`; gives itself."""
    def unwrap(self) -> _T_co:
        """The value. An `Err` raises: its error if that is an exception, else `UnwrapError`."""
    def unwrap_err(self) -> NoReturn:
        """The error. An `Ok` raises `UnwrapError`."""
    def unwrap_or(self, default: object, /) -> _T_co:
        """The value, or `default` for an `Err`."""
    def unwrap_or_else(self, function: Callable[[Any], object], /) -> _T_co:
        """The value, or ``function(error)`` for an `Err`."""
    def expect(self, message: str, /) -> _T_co:
        """The value. An `Err` raises `UnwrapError` with the message; its error is the cause if it is an exception."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> NoReturn:
        """Raises `TypeError`: that an `Err` should be true would mislead, that an ``Ok(0)`` should be false as well."""
    def __reduce__(self) -> tuple[type[Self], tuple[_T_co]]: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class Err(Generic[_E_co]):
    """A call that came to an error: an exception, or anything that says what was wrong. It has the methods of `Ok`."""

    __match_args__ = ("error",)

    def __new__(cls, error: _E_co, /) -> Self: ...
    @property
    def error(self) -> _E_co:
        """What it holds."""
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
