"""Places of a state that transactions name by plain steps: names of fields, keys and indices."""

from __future__ import annotations

from typing import Any

from ropewalk._errors import StateError
from ropewalk.state._contract import zone_below
from ropewalk.state._paths import Key, Step, shape_below
from ropewalk.state._records import is_record
from ropewalk.state._shape import Shape, shape_of
from ropewalk.state._zones import Zone


def typed(state: Any, steps: tuple[Any, ...]) -> tuple[Step, ...]:
    """Returns plain steps as the steps of a path: a name at a record, a `Key` at a collection."""
    found: list[Step] = []
    at: Any = state
    for step in steps:
        if isinstance(step, str) and is_record(type(at)):
            found.append(step)
            at = getattr(at, step, None)
        else:
            found.append(Key(step))
            try:
                at = at[step]
            except Exception:
                at = None
    return tuple(found)


def zone_of(kind: Any, state: Any, steps: tuple[Any, ...]) -> Zone:
    """Returns the zone that holds at a place, as far as annotations tell."""
    try:
        shape: Shape = shape_of(kind)
        zone = shape.zone
        for step in typed(state, steps):
            shape = shape_below(shape, step)
            zone = zone_below(zone, shape)
    except (StateError, TypeError):
        return Zone.PLAIN
    return zone
