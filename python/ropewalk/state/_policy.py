"""The shape of a dict-shaped state: what a policy says of its paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._paths import EACH, Key, Path, Step, steps_in, steps_of, text_of
from ropewalk.state._shape import Kind, Shape, shape_of
from ropewalk.state._zones import Zone, zone_in_policy


def policy_shape(policy: Mapping[str | Path[Any], Any]) -> Shape:
    """Returns the shape of a dict-shaped state with a policy: zones by path, as annotations give them to fields.

    policy_shape({"limits": Const, "journal": AppendOnly, "orders[...].hits": Counter})

    What the policy does not name may hold anything, in the zone of the container that it is in.

    Raises:
        StateError: a path is in two zones, or below one that has a zone.
        TypeError: a value of the policy is no zone.
        ValueError: a text is no path.
    """
    root = _map()
    for path, wanted in policy.items():
        steps = steps_in(path) if isinstance(path, str) else steps_of(path)
        text = text_of(steps)
        if not steps:
            raise StateError("a policy gives zones to parts of the state, and '' is the whole")
        above = root
        for step in steps[:-1]:
            above = _opened(above, step, text)
        found = _child(above, steps[-1])
        if found is not None and (found.kind is not Kind.ANY or found.zone is not Zone.PLAIN):
            raise StateError(f"the policy has two rows for {text}, or one for a path below it")
        _put(above, steps[-1], _in_zone(wanted, text))
    return root


def rows_without_place(shape: Shape, state: Any, above: str = "") -> list[str]:
    """Returns the paths that a policy names and that a state does not have.

    That is no fault: a mapping may get the key later. It may be a typing error, though.
    """
    found: list[str] = []
    for name, place in zip(shape.names, shape.fields, strict=True):
        path = f"{above}[{name!r}]"
        if not isinstance(state, (dict, _native.PMap)) or name not in state:
            found.append(path)
        elif place.of_policy:
            found += rows_without_place(place, cast("Any", state)[name], path)
    return found


def _map() -> Shape:
    made = Shape(Kind.MAP, dict)
    made.of_policy = True
    made.items = Shape(Kind.ANY, Any)
    return made


def _in_zone(wanted: Any, text: str) -> Shape:
    zone, array, annotation = zone_in_policy(wanted, text)
    if zone is Zone.ARRAY:
        made = Shape(Kind.LEAF, wanted, zone)
        made.array = array
        return made
    if annotation is not Any and not getattr(annotation, "__parameters__", ()):
        return shape_of(annotation).in_zone(zone, None)
    if zone is Zone.COUNTER:
        return Shape(Kind.LEAF, int, zone)
    made = Shape(Kind.VECTOR if zone is Zone.APPEND_ONLY else Kind.ANY, Any, zone)
    if zone is Zone.APPEND_ONLY:
        made.items = Shape(Kind.ANY, Any)
    return made


def _child(above: Shape, step: Step) -> Shape | None:
    if step is EACH:
        return above.items
    name = step.value if isinstance(step, Key) else step
    return above.fields[above.names.index(name)] if name in above.names else None


def _put(above: Shape, step: Step, made: Shape) -> None:
    if step is EACH:
        above.items = made
        return
    name: Any = step.value if isinstance(step, Key) else step
    if not isinstance(name, str):
        raise StateError(f"a policy names keys that are text, or each with [...], and not {name!r}")
    fields = dict(zip(above.names, above.fields, strict=True)) | {name: made}
    above.names, above.fields = tuple(fields), tuple(fields.values())


def _opened(above: Shape, step: Step, text: str) -> Shape:
    found = _child(above, step)
    if found is not None and found.of_policy:
        return found
    if found is not None and found.zone is not Zone.PLAIN:
        raise StateError(f"{text} is below a path that has the zone {found.zone.name}")
    made = _map()
    _put(above, step, made)
    return made
