"""Differences of states as JSON patches (RFC 6902), and the audit of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ropewalk._load import state as _native
from ropewalk.state._kinds import names_of
from ropewalk.state._records import is_record
from ropewalk.state._replay import MISSING, is_map, is_vector

#: One operation of a patch: ``{"op": "replace", "path": "/accounts/ann/balance", "value": 5}``. The value is an object
#: of the state, not its JSON.
Operation = dict[str, Any]


class Entry(NamedTuple):
    """What one version changed, and in which name."""

    version: int
    #: When it was committed, in seconds since 1970.
    at: float
    label: str | None
    who: str | None
    why: str | None
    #: What leads from the version before to this one.
    patch: list[Operation]
    #: What leads back.
    inverse: list[Operation]


def patch_between(old: Any, new: Any) -> list[Operation]:
    """Returns what leads from one state to another, as the operations of a JSON patch."""
    return list(_operations(old, new, ""))


def entry_of(before: Any, version: tuple[int, Any, Any, float, int, int]) -> Entry:
    """Returns the entry of a version; `before` is the state that it followed."""
    number, state, meta, at, _, _ = version
    label, who, why, _ = meta or (None, None, None, None)
    return Entry(number, at, label, who, why, patch_between(before, state), patch_between(state, before))


def _below(where: str, step: object) -> str:
    """The JSON pointer (RFC 6901) of a place below another."""
    return f"{where}/" + str(step).replace("~", "~0").replace("/", "~1")


def _operations(old: Any, new: Any, where: str) -> Iterator[Operation]:
    """Yields what makes one value of the other; each operation stands on those before it."""
    if old is new:
        return
    if type(old) is type(new):
        if is_map(new):
            for key, before, after in _native.diff_maps(old, new):
                if after is MISSING:
                    yield {"op": "remove", "path": _below(where, key)}
                elif before is MISSING:
                    yield {"op": "add", "path": _below(where, key), "value": after}
                else:
                    yield from _operations(before, after, _below(where, key))
            return
        if is_vector(new):
            yield from _of_vectors(old, new, where)
            return
        if is_record(type(new)):
            for name in names_of(type(new)):
                yield from _operations(getattr(old, name), getattr(new, name), _below(where, name))
            return
        if isinstance(new, (int, str, bytes)) and old == new:
            return
    yield {"op": "replace", "path": where, "value": new}


def _of_vectors(old: Any, new: Any, where: str) -> Iterator[Operation]:
    for start, gone, at, came in _runs(old, new):
        both = min(len(gone), len(came))
        # What stands left of a run is as in the new vector by now, so its index is the new one.
        for index, (before, after) in enumerate(zip(gone, came, strict=False), at):
            yield from _operations(before, after, f"{where}/{index}")
        for index in range(at + len(gone) - 1, at + both - 1, -1):
            yield {"op": "remove", "path": f"{where}/{index}"}
        is_end = start + len(gone) == len(old)
        for index, item in enumerate(came[both:], at + both):
            yield {"op": "add", "path": f"{where}/{'-' if is_end else index}", "value": item}


def _runs(old: Any, new: Any) -> Iterator[tuple[int, list[Any], int, list[Any]]]:
    """Yields where two vectors differ: an index of the old one, the items that go, an index of the new one, and the
    items that come.

    An item stays if it is the same object. Items that have changed places go, and come elsewhere. It costs what is
    behind the first difference, as an insertion itself does.
    """
    found = _native.diff_vectors(old, new)
    if not found:
        return
    first = found[0][0]
    # Items without their equal behind them: the index at which each was seen last.
    gone, came = list(old[first:]), list(new[first:])
    while gone and came and gone[-1] is came[-1]:
        del gone[-1], came[-1]
    last_gone = {id(item): index for index, item in enumerate(gone)}
    last_came = {id(item): index for index, item in enumerate(came)}
    i = j = begun_i = begun_j = 0
    while i < len(gone) and j < len(came):
        if gone[i] is came[j]:
            if (begun_i, begun_j) != (i, j):
                yield first + begun_i, gone[begun_i:i], first + begun_j, came[begun_j:j]
            i, j = i + 1, j + 1
            begun_i, begun_j = i, j
            continue
        stays = last_came.get(id(gone[i]), -1) > j
        was_there = last_gone.get(id(came[j]), -1) > i
        i += was_there or not stays
        j += stays or not was_there
    if begun_i < len(gone) or begun_j < len(came):
        yield first + begun_i, gone[begun_i:], first + begun_j, came[begun_j:]
