"""The changes of a commit, as the compiled half lists them, and their repetition on another state."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, cast

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._records import is_record

PMap = _native.PMap
PVector = _native.PVector
#: Stands for no value.
MISSING = _native.MISSING


class Change(IntEnum):
    """What a change does at its path; the numbers of `crates/py-state/src/draft/build.rs`."""

    #: The place has this value.
    SET = 0
    #: The place has none any more.
    DELETE = 1
    #: These values are behind the last item.
    APPEND = 2
    #: This number was added.
    ADD = 3
    #: So many items were taken from the end.
    DROP = 4


#: A change, the names, keys and indices that lead to its place, and its value.
Changes = list[tuple[int, tuple[Any, ...], Any]]


def applied(state: Any, changes: Changes) -> Any:
    """Returns a state with changes applied, in their order.

    Raises:
        StateError: a change is not one of this state.
    """
    for number, path, value in changes:
        state = _applied(state, Change(number), path, value, path)
    return state


def is_map(value: object) -> bool:
    """Whether a value is a map; to a type checker, a value that is `Any` stays that."""
    return isinstance(value, PMap)


def is_vector(value: object) -> bool:
    """Whether a value is a vector, like `is_map`."""
    return isinstance(value, PVector)


def _applied(at: Any, change: Change, path: tuple[Any, ...], value: Any, whole: tuple[Any, ...]) -> Any:
    try:
        if not path:
            return _here(at, change, value)
        step, rest = path[0], path[1:]
        if is_map(at):
            old = at
            if rest or change not in (Change.SET, Change.DELETE):
                # A counter that nobody had counted is 0.
                below = old.get(step, 0) if change is Change.ADD and not rest else old[step]
                return old.set(step, _applied(below, change, rest, value, whole))
            return old.delete(step) if change is Change.DELETE else old.set(step, value)
        if is_vector(at):
            items = at
            return items.set(step, _applied(items[step], change, rest, value, whole))
        if is_record(type(at)):
            return _native.replaced(at, step, _applied(getattr(at, step), change, rest, value, whole))
    except StateError:
        raise
    except (LookupError, AttributeError, TypeError) as error:
        raise _unfit(whole, error) from error
    raise _unfit(whole, None)


def _here(at: Any, change: Change, value: Any) -> Any:
    if change is Change.SET:
        return value
    if change is Change.ADD:
        return at + value
    items = cast("PVector[Any]", at)
    if change is Change.APPEND:
        return items.extend(value)
    if change is Change.DROP:
        return items[: len(items) - value]
    raise TypeError(f"{change.name} has no place")


def _unfit(path: tuple[Any, ...], error: Exception | None) -> StateError:
    said = "" if error is None else f": {type(error).__name__}: {error}"
    return StateError(
        f"a change in the journal is at {list(path)!r}, which the state does not have{said}. The classes of the state "
        f"have changed since it was written"
    )
