"""`Ok` and `Err` come from the core; here is what makes and sorts them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from windlass._load import foundation

if TYPE_CHECKING:
    from windlass._foundation import Err as Err
    from windlass._foundation import Ok as Ok
else:
    Ok = foundation.Ok
    Err = foundation.Err

_T = TypeVar("_T")
_E = TypeVar("_E")
_P = ParamSpec("_P")
_X = TypeVar("_X", bound=BaseException)

#: What a call came to: an `Ok` or an `Err`. A union, so that type checkers know when a ``match`` leaves nothing out.
Result: TypeAlias = Ok[_T] | Err[_E]


def from_call(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Ok[_T] | Err[Exception]:
    """Calls a function: `Ok` of what it returns, or `Err` of the exception that it raises.

    `KeyboardInterrupt`, `SystemExit` and their like, which are no errors of the call, go on.

    >>> from_call(int, "7")
    Ok(7)
    >>> from_call(int, "seven").is_err()
    True
    """
    try:
        return Ok(function(*args, **kwargs))
    except Exception as error:
        return Err(error)


def as_result(*kinds: type[_X]) -> Callable[[Callable[_P, _T]], Callable[_P, Ok[_T] | Err[_X]]]:
    """Has a function return a result, with the exceptions of these kinds as errors; others go on.

    >>> @as_result(ValueError)
    ... def parse(text: str) -> int:
    ...     return int(text)
    >>> parse("7")
    Ok(7)
    >>> parse("seven").is_err()
    True
    """
    if not kinds:
        raise TypeError(
            "as_result takes the classes of the exceptions that are errors: @as_result(ValueError)"
        )
    for kind in kinds:
        _check_kind(kind)

    def decorate(function: Callable[_P, _T]) -> Callable[_P, Ok[_T] | Err[_X]]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> Ok[_T] | Err[_X]:
            try:
                return Ok(function(*args, **kwargs))
            except kinds as error:
                return Err(error)

        return call

    return decorate


def _check_kind(kind: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(f"as_result takes the classes of exceptions, not {kind!r}: @as_result(ValueError)")


def collect(results: Iterable[Ok[_T] | Err[_E]]) -> Ok[list[_T]] | Err[_E]:
    """`Ok` of every value, or the first `Err`, after which no more is taken.

    >>> collect([Ok(1), Ok(2)])
    Ok([1, 2])
    >>> collect([Ok(1), Err("broken"), Ok(3)])
    Err('broken')
    """
    values: list[_T] = []
    for result in results:
        if isinstance(result, Err):
            return result
        values.append(result.value)
    return Ok(values)


def partition(results: Iterable[Ok[_T] | Err[_E]]) -> tuple[list[_T], list[_E]]:
    """The values and the errors, each in order.

    >>> partition([Ok(1), Err("broken"), Ok(3)])
    ([1, 3], ['broken'])
    """
    values: list[_T] = []
    errors: list[_E] = []
    for result in results:
        if isinstance(result, Err):
            errors.append(result.error)
        else:
            values.append(result.value)
    return values, errors
