"""The changes of a commit, as the compiled half lists them, and their repetition on another state."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, cast

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._arrays import changed_runs, patched
from ropewalk.state._kinds import names_of, replaced
from ropewalk.state._moved import note_lost, renamed
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
    #: An array has other items: it, and the array that takes its place; in a record the type of the items, the
    #: dimensions, and the bytes that differ.
    PATCH = 5


#: A change, the names, keys and indices that lead to its place, and its value.
Changes = list[tuple[int, tuple[Any, ...], Any]]


def applied(state: Any, changes: Changes) -> Any:
    """Returns a state with changes applied, in their order.

    The changes of one record are applied at once: a class may check that its fields fit together, and they need not
    fit after each.

    Raises:
        StateError: a change is not one of this state.
    """
    return _applied(state, changes, 0)


def recorded(changes: Changes) -> Changes:
    """Returns changes as a record has them: of an array that has changed in few places, only these."""
    return [_recorded(*change) for change in changes]


def _recorded(number: int, path: tuple[Any, ...], value: Any) -> tuple[int, tuple[Any, ...], Any]:
    if number != Change.PATCH:
        return number, path, value
    old, new = value
    runs = changed_runs(old, new)
    if runs is None:
        return int(Change.SET), path, new
    return number, path, (new.dtype.name, new.shape, runs)


def is_map(value: object) -> bool:
    """Whether a value is a map; to a type checker, a value that is `Any` stays that."""
    return isinstance(value, PMap)


def is_vector(value: object) -> bool:
    """Whether a value is a vector, like `is_map`."""
    return isinstance(value, PVector)


def _applied(at: Any, changes: Changes, depth: int) -> Any:
    """Applies changes whose first `depth` steps lead to `at`."""
    done = 0
    while done < len(changes):
        number, path, value = changes[done]
        try:
            if len(path) == depth:
                at = _here(at, Change(number), value)
                done += 1
                continue
            end = done + 1
            while end < len(changes) and len(changes[end][1]) > depth:
                end += 1
            at = _below(at, changes[done:end], depth)
            done = end
        except StateError:
            raise
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise _unfit(path, error) from error
    return at


def _below(at: Any, changes: Changes, depth: int) -> Any:
    """Applies changes of parts of `at`."""
    if is_record(type(at)):
        kind = cast("Any", type(at))
        names, fields = names_of(kind), dict[str, Any]()
        for name, part in _by_step(changes, depth):
            if name not in names:
                name = cast("str", renamed(kind).get(name, name))
            if name not in names:
                # The class has lost the field since.
                note_lost(kind, name)
                continue
            fields[name] = _applied(fields[name] if name in fields else getattr(at, name), part, depth + 1)
        return replaced(at, fields) if fields else at
    if is_map(at):
        old = at
        for key, part in _by_step(changes, depth):
            done = 0
            while done < len(part) and len(part[done][1]) == depth + 1:
                number, _, value = part[done]
                if number == Change.DELETE:
                    old = old.delete(key)
                elif number == Change.SET:
                    old = old.set(key, value)
                elif number == Change.PATCH:
                    old = old.set(key, patched(old[key], *value))
                elif number == Change.ADD:
                    # A counter that nobody had counted is 0.
                    old = old.set(key, old.get(key, 0) + value)
                else:
                    break
                done += 1
            if done < len(part):
                old = old.set(key, _applied(old[key], part[done:], depth + 1))
        return old
    if is_vector(at):
        items = at
        for index, part in _by_step(changes, depth):
            items = items.set(index, _applied(items[index], part, depth + 1))
        return items
    raise _unfit(changes[0][1], None)


def _by_step(changes: Changes, depth: int) -> Iterator[tuple[Any, Changes]]:
    """Yields the next step of changes that follow each other, and those that have it."""
    start = 0
    for end in range(1, len(changes) + 1):
        if end == len(changes) or not _is_same(changes[end][1][depth], changes[start][1][depth]):
            yield changes[start][1][depth], changes[start:end]
            start = end


def _is_same(one: Any, other: Any) -> bool:
    # A pickle keeps the identity of all keys but numbers.
    return one is other or (type(one) is type(other) and isinstance(one, (int, float)) and one == other)


def _here(at: Any, change: Change, value: Any) -> Any:
    if change is Change.SET:
        return value
    if change is Change.ADD:
        return at + value
    if change is Change.PATCH:
        return patched(at, *value)
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
