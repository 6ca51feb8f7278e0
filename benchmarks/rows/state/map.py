"""Table: the persistent map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.clock import seconds_of
from harness.measure import Size
from harness.states import DICT, IMMUTABLES, NEEDS, OURS, PYRSISTENT, RPDS, names, shuffled
from harness.table import Contest, Goal, Line, Row, Side, times_better, times_the_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Made = Callable[[dict[str, int]], Any]
    Changed = Callable[[Any, str, int], Any]

PLAYERS: dict[str, tuple[str, ...]] = {
    OURS: NEEDS,
    DICT: (),
    IMMUTABLES: ("immutables",),
    RPDS: ("rpds",),
    PYRSISTENT: ("pyrsistent",),
}


def kinds(peer: str) -> tuple[Made, Changed]:
    """What makes a peer's map of a dict, and what derives a map with one entry set."""
    if peer == DICT:
        # A copy of a dict would copy its table, and build nothing.
        return lambda source: dict(list(source.items())), lambda old, key, value: {**old, key: value}
    if peer == RPDS:
        from rpds import HashTrieMap

        return HashTrieMap, lambda old, key, value: old.insert(key, value)
    made: Made
    if peer == OURS:
        from ropewalk.state import PMap

        made = PMap
    elif peer == IMMUTABLES:
        from immutables import Map

        made = Map
    else:
        from pyrsistent import pmap

        made = pmap
    return made, lambda old, key, value: old.set(key, value)


def use(peer: str, items: int, sets: int) -> dict[str, float]:
    """Nanoseconds for an entry: reading all in a shuffled order, setting some one after the other, building."""
    make, change = kinds(peer)
    source = {name: number for number, name in enumerate(names(items))}
    made = make(source)
    order = {name: name for name in source}
    keys = [order[name] for name in shuffled(items)]
    others = shuffled(items)
    # Each one of the peer's sets copies the whole dict.
    some = keys[: max(1, sets // 50 if peer == DICT else sets)]

    def read(keys: Sequence[str]) -> None:
        for key in keys:
            made[key]

    def changed() -> Any:
        new = made
        for number, key in enumerate(some):
            new = change(new, key, number)
        return new

    last = changed()
    assert len(last) == items
    assert (last[some[-1]], made[keys[0]]) == (len(some) - 1, source[keys[0]])
    return {
        "read": seconds_of(lambda: read(keys)) / items,
        "other": seconds_of(lambda: read(others)) / items,
        "set": seconds_of(changed) / len(some),
        "build": seconds_of(lambda: make(source)) / items,
    }


FEW = Contest(use, "5,000", PLAYERS, items=Size(5000, 50), sets=Size(2000, 5))
MANY = Contest(use, "50,000", PLAYERS, items=Size(50_000, 50), sets=Size(2000, 5))
READ: dict[Side, Goal | None] = {
    DICT: times_the_peer(1.6),
    RPDS: times_better(6),
    PYRSISTENT: times_better(20),
    IMMUTABLES: None,
}
SHOWN: dict[Side, Goal | None] = dict.fromkeys(READ)


def _lines(size: str, contest: Contest) -> tuple[Line, ...]:
    return (
        Line(f"read, {size} entries", "ns", contest, "read", None, READ, scale=1e9),
        Line(f"read by another str, {size} entries", "ns", contest, "other", None, SHOWN, scale=1e9),
        Line(f"set, {size} entries", "ns", contest, "set", None, SHOWN, scale=1e9),
        Line(f"build, {size} entries, each", "ns", contest, "build", None, SHOWN, scale=1e9),
    )


ROW = Row(
    "map",
    "the persistent map, for each entry",
    "Keys are str. A loop reads all keys once in a shuffled order, its own cost in the time: the key objects of the "
    "map, then equal ones that are other objects. Two thousand sets each derive a map from the last one; the peer "
    "`dict` copies itself for a set, forty times. Building takes a dict, and `dict` the list of its pairs.",
    (*_lines("5,000", FEW), *_lines("50,000", MANY)),
)
