"""The difference of two states, which costs what has changed and not what there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ropewalk._load import state as _native
from ropewalk.state._arrays import sealed_memory
from ropewalk.state._kinds import beside, has_beside, names_of
from ropewalk.state._records import is_record
from ropewalk.state._replay import MISSING, Change, is_map, is_vector

PVector = _native.PVector


def between(old: Any, new: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Change, tuple[Any, ...], Any]]:
    """Yields the changes that make one value of the other, as small as they can be.

    Values that are equal but other objects count as changed, unless both are containers of one kind. Attributes of
    records that are no fields count too.
    """
    if old is new:
        return
    if type(old) is type(new):
        if is_map(new):
            for key, before, after in _native.diff_maps(old, new):
                if after is MISSING:
                    yield Change.DELETE, (*path, key), None
                elif before is MISSING:
                    yield Change.SET, (*path, key), after
                else:
                    yield from between(before, after, (*path, key))
            return
        if is_vector(new):
            yield from _of_vectors(old, new, path)
            return
        if is_record(type(new)):
            for name in names_of(type(new)):
                yield from between(getattr(old, name), getattr(new, name), (*path, name))
            if has_beside(type(new)):
                yield from _of_others(beside(old), beside(new), path)
            return
        if isinstance(new, (int, str, bytes)) and old == new:
            return
        if sealed_memory(new) is not None and sealed_memory(old) is not None:
            yield Change.PATCH, path, (old, new)
            return
    yield Change.SET, path, new


def _of_others(
    old: dict[str, Any], new: dict[str, Any], path: tuple[Any, ...]
) -> Iterator[tuple[Change, tuple[Any, ...], Any]]:
    # The step is a tuple: a field of that name may be gone from the class, or come to it.
    for name in old.keys() - new.keys():
        yield Change.DELETE, (*path, (name,)), None
    for name, value in new.items():
        if name not in old or old[name] is not value:
            yield Change.SET, (*path, (name,)), value


def _of_vectors(
    old: PVector[Any], new: PVector[Any], path: tuple[Any, ...]
) -> Iterator[tuple[Change, tuple[Any, ...], Any]]:
    appended: list[Any] = []
    if len(new) < len(old):
        yield Change.DROP, path, len(old) - len(new)
    for index, before, after in _native.diff_vectors(old, new):
        if after is MISSING:
            continue
        if before is MISSING:
            appended.append(after)
        else:
            yield from between(before, after, (*path, index))
    if appended:
        yield Change.APPEND, path, tuple(appended)
