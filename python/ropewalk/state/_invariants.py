"""Invariants: what every committed state fulfils."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from ropewalk._errors import InvariantBroken, NoSuchPath
from ropewalk.state._later import dropped, kind_of_later
from ropewalk.state._paths import EACH, Key, Path, steps_of

F = TypeVar("F", bound=Callable[[Any], object])

_NAME = "__ropewalk_reads__"


@overload
def invariant(function: F, /) -> F: ...
@overload
def invariant(*, reads: Iterable[Path[Any]]) -> Callable[[F], F]: ...
def invariant(function: Any = None, /, *, reads: Iterable[Path[Any]] | None = None) -> Any:
    """Says on which places an invariant depends: a commit that changes none of them does not call it.

        @invariant(reads=[P.accounts])
        def nobody_owes(bank: Bank) -> bool:
            return all(account.balance >= 0 for account in bank.accounts.values())

    The function takes a whole state. If the state must not be, it raises, or returns `False` or anything else that is
    neither `None` nor true.

    Raises:
        TypeError: the function cannot be called, or `reads` is no list of paths.
    """
    paths: tuple[Any, ...] | None = None
    if reads is not None:
        if isinstance(reads, Path):
            raise TypeError(f"reads must be a list of paths: write reads=[{reads!r}]")
        paths = tuple(reads)
        for path in paths:
            if not isinstance(path, Path):
                raise TypeError(f"reads must be a list of paths, such as P.accounts, and has {path!r}")

    def decorate(function: Any) -> Any:
        _check_function(function)
        if paths is not None:
            setattr(function, _NAME, paths)
        return function

    return decorate if function is None else decorate(function)


def checker(invariants: Iterable[Callable[[Any], object]]) -> Callable[[Any, Any, Any], None] | None:
    """Returns what a store calls before each commit, with the old state, the new one and the transaction.

    Raises:
        TypeError: an invariant is no plain function.
    """
    every = tuple(invariants)
    for one in every:
        _check_function(one)
    if not every:
        return None

    def check(old: Any, new: Any, _transaction: Any) -> None:
        for one in every:
            if not _is_untouched(one, old, new):
                check_one(one, new)

    return check


def _check_function(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"an invariant is a function of a state, not {function!r}")
    kind = kind_of_later(function)
    if kind:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"an invariant must be a plain function, and {name} is {kind}, which a call does not run"
        )


def check_one(function: Callable[[Any], object], state: Any) -> None:
    """Calls an invariant.

    Raises:
        InvariantBroken: it returned neither `None` nor what counts as true.
    """
    result = function(state)
    name = getattr(function, "__qualname__", repr(function))
    later = dropped(result)
    if later:
        raise InvariantBroken(
            f"the invariant {name} has returned a {later}, which nothing runs, so it has not looked at the state"
        )
    if result is not None and not result:
        raise InvariantBroken(f"the state breaks the invariant {name}")


def _is_untouched(function: Callable[[Any], object], old: Any, new: Any) -> bool:
    paths: tuple[Path[Any], ...] | None = getattr(function, _NAME, None)
    return paths is not None and all(_at(path, old) is _at(path, new) for path in paths)


def _at(path: Path[Any], state: Any) -> Any:
    """The value at a path, or at the collection whose items it names."""
    for step in steps_of(path):
        if step is EACH or state is None:
            return state
        try:
            state = state[step.value] if isinstance(step, Key) else getattr(state, step)
        except (LookupError, AttributeError, NoSuchPath):
            return None
    return state
