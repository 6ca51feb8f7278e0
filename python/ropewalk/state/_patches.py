"""Differences of states as JSON patches (RFC 6902), and the audit of a store."""

from __future__ import annotations

from typing import Any, NamedTuple

from ropewalk.state._diff import between
from ropewalk.state._replay import Change, is_map, is_vector

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
    found: list[Operation] = []
    for change, path, value in between(old, new, is_whole=False):
        where = _pointer(path)
        if change is Change.PATCH:
            # The array as it is now, of which nothing is copied.
            found.append({"op": "replace", "path": where, "value": value[1]})
        elif change is Change.SET:
            op = "replace" if not path or _has(old, path) else "add"
            found.append({"op": op, "path": where, "value": value})
        elif change is Change.DELETE:
            found.append({"op": "remove", "path": where})
        elif change is Change.APPEND:
            found += [{"op": "add", "path": f"{where}/-", "value": item} for item in value]
        elif change is Change.DROP:
            size = len(_at(old, path))
            found += [{"op": "remove", "path": f"{where}/{size - 1 - gone}"} for gone in range(value)]
    return found


def entry_of(before: Any, version: tuple[int, Any, Any, float, int, int]) -> Entry:
    """Returns the entry of a version; `before` is the state that it followed."""
    number, state, meta, at, _, _ = version
    label, who, why, _ = meta or (None, None, None, None)
    return Entry(number, at, label, who, why, patch_between(before, state), patch_between(state, before))


def _pointer(path: tuple[Any, ...]) -> str:
    """The JSON pointer (RFC 6901) of a place."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _at(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        state = state[step] if is_map(state) or is_vector(state) else getattr(state, step)
    return state


def _has(state: Any, path: tuple[Any, ...]) -> bool:
    try:
        _at(state, path)
    except (LookupError, AttributeError, TypeError):
        return False
    return True
