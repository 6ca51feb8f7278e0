"""Results as values: the compiled classes `Ok` and `Err`, and functions that make them from calls and sort many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, overload

# Loaded now, because Python can read no module any more once descriptors run out.
from ropewalk import _errors as _errors
from ropewalk._load import results as _compiled

if TYPE_CHECKING:
    from ropewalk._results import Err as Err, Ok as Ok
else:
    Ok = _compiled.Ok
    Err = _compiled.Err

__all__ = ["Err", "Ok", "Result", "as_result", "collect", "from_call", "partition"]

_T = TypeVar("_T")
_E = TypeVar("_E")
_P = ParamSpec("_P")
_X = TypeVar("_X", bound=Exception)
_X_co = TypeVar("_X_co", bound=Exception, covariant=True)

#: The outcome of a call: an `Ok` or an `Err`. A union, so that type checkers can check that a ``match`` is exhaustive.
Result: TypeAlias = Ok[_T] | Err[_E]


@overload
def from_call(
    function: Callable[..., _T], /, *args: Any, catch: type[_X] | tuple[type[_X], ...], **kwargs: Any
) -> Ok[_T] | Err[_X]: ...
@overload
def from_call(
    function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> Ok[_T] | Err[Exception]: ...
def from_call(
    function: Callable[..., Any], /, *args: Any, catch: Any = Exception, **kwargs: Any
) -> Ok[Any] | Err[Exception]:
    """Calls a function, and returns `Ok` of its result or `Err` of the exception that it raised.

    `catch` is the class of the exceptions that count as errors of the call, or a tuple of classes. Other exceptions
    propagate, and so do `KeyboardInterrupt`, `SystemExit` and others that do not derive from `Exception`.

    >>> from_call(int, "7")
    Ok(7)
    >>> from_call(int, "seven", catch=ValueError).is_err()
    True
    """
    kinds: type[Exception] | tuple[type[Exception], ...] = catch
    if kinds is not Exception:
        _check_kinds("from_call", kinds if isinstance(kinds, tuple) else (kinds,))
    try:
        return Ok(function(*args, **kwargs))
    except kinds as error:
        return Err(error)


class _AsResult(Protocol[_X_co]):
    """The decorator that `as_result` returns."""

    # A coroutine function is a function too: where both overloads fit, the first is meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[_P, Coroutine[Any, Any, _T]], /
    ) -> Callable[_P, Coroutine[Any, Any, Ok[_T] | Err[_X_co]]]: ...
    @overload
    def __call__(self, function: Callable[_P, _T], /) -> Callable[_P, Ok[_T] | Err[_X_co]]: ...


def as_result(*kinds: type[_X]) -> _AsResult[_X]:
    """Makes a function, or a coroutine function, return a result; exceptions of these classes become errors.

    Other exceptions propagate.

    >>> @as_result(ValueError)
    ... def parse(text: str) -> int:
    ...     return int(text)
    >>> parse("7")
    Ok(7)
    >>> parse("seven").is_err()
    True
    """
    _check_kinds("as_result", kinds)

    def decorate(function: Callable[..., Any], /) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Ok[Any] | Err[_X]:
                try:
                    return Ok(await function(*args, **kwargs))
                except kinds as error:
                    return Err(error)

            return wait

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Ok[Any] | Err[_X]:
            try:
                return Ok(function(*args, **kwargs))
            except kinds as error:
                return Err(error)

        return call

    return decorate


def _check_kinds(who: str, kinds: tuple[object, ...]) -> None:
    if not kinds:
        raise TypeError(
            f"{who} needs the classes of the exceptions that count as errors, ValueError for instance"
        )
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(
                f"{who} accepts classes of exceptions that derive from Exception, not {kind!r}: exceptions that ask "
                "the program to end are not errors of a call"
            )


def collect(results: Iterable[Ok[_T] | Err[_E]]) -> Ok[list[_T]] | Err[_E]:
    """Returns `Ok` of all values, or the first `Err`; after that it reads no further results.

    >>> collect([Ok(1), Ok(2)])
    Ok([1, 2])
    >>> collect([Ok(1), Err("broken"), Ok(3)])
    Err('broken')
    """
    values: list[_T] = []
    for result in results:
        if isinstance(result, Ok):
            values.append(result.value)
        elif isinstance(result, Err):  # pyright: ignore[reportUnnecessaryIsInstance]
            return result
        else:
            _refuse("collect", result)
    return Ok(values)


def partition(results: Iterable[Ok[_T] | Err[_E]]) -> tuple[list[_T], list[_E]]:
    """Returns the values and the errors, each in order.

    >>> partition([Ok(1), Err("broken"), Ok(3)])
    ([1, 3], ['broken'])
    """
    values: list[_T] = []
    errors: list[_E] = []
    for result in results:
        if isinstance(result, Ok):
            values.append(result.value)
        elif isinstance(result, Err):  # pyright: ignore[reportUnnecessaryIsInstance]
            errors.append(result.error)
        else:
            _refuse("partition", result)
    return values, errors


def _refuse(who: str, item: object) -> NoReturn:
    # Another object with a `value`, a member of an Enum for instance, must not pass for an Ok.
    raise TypeError(f"{who} takes results, Ok or Err, not {item!r}")
