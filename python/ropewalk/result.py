"""Results as values: `Ok` and `Err`, which are compiled, and what makes them from calls and sorts many of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, overload

# The errors are loaded now: once descriptors run out, no module can be read any more.
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

#: What a call came to: an `Ok` or an `Err`. A union, so that type checkers know when a ``match`` leaves nothing out.
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
    """Calls a function: `Ok` of what it returns, or `Err` of the exception that it raises.

    `catch` is the class of the exceptions that are errors of the call, or a tuple of them; others go on. So do
    `KeyboardInterrupt`, `SystemExit` and their like in any case.

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
    """What `as_result` gives."""

    # A coroutine function is a function too: of the two that fit, the first is meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[_P, Coroutine[Any, Any, _T]], /
    ) -> Callable[_P, Coroutine[Any, Any, Ok[_T] | Err[_X_co]]]: ...
    @overload
    def __call__(self, function: Callable[_P, _T], /) -> Callable[_P, Ok[_T] | Err[_X_co]]: ...


def as_result(*kinds: type[_X]) -> _AsResult[_X]:
    """Has a function, or a coroutine function, return a result, with the exceptions of these kinds as errors.

    Other exceptions go on.

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
        raise TypeError(f"{who} takes the classes of the exceptions that are errors, ValueError for instance")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(
                f"{who} takes classes of exceptions that derive from Exception, not {kind!r}: what asks the program "
                "to end is no error of a call"
            )


def collect(results: Iterable[Ok[_T] | Err[_E]]) -> Ok[list[_T]] | Err[_E]:
    """`Ok` of every value, or the first `Err`, after which no more is taken.

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
    """The values and the errors, each in order.

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
    # What has a `value` of its own, a member of an Enum for instance, must not pass for an Ok.
    raise TypeError(f"{who} takes results, Ok or Err, not {item!r}")
