"""Slots: the places of a state as bits, so that two contracts are compared by one operation on integers."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, cast

from ropewalk.state._contract import Contract, plain_steps, zone_below
from ropewalk.state._paths import EACH, Key, Path, Step, steps_of
from ropewalk.state._shape import Kind, Shape, shape_of

#: A state with more places than this has one slot for several: those below the last that has one of its own.
MOST_SLOTS = 1024


class Slots(NamedTuple):
    """The places that a contract reads and writes, a bit for each."""

    reads: int
    writes: int


class _Places:
    """The numbered places of a shape.

    A place is numbered where it is, so that the balances of two maps of accounts have two numbers. A class within
    itself has the number of its outer one: a tree's nodes are one place.
    """

    def __init__(self, shape: Shape) -> None:
        #: The number of the place one step below that of a number.
        self.below: list[dict[Step, int]] = [{}]
        zones = [shape.zone]
        self._shared: set[int] = set()
        todo: deque[tuple[int, Shape, dict[int, int]]] = deque([(0, shape, {id(shape): 0})])
        while todo:
            number, place, above = todo.popleft()
            for step, part in _parts(place):
                outer = above.get(id(part))
                if outer is None and len(zones) >= MOST_SLOTS:
                    outer = number
                if outer is not None:
                    self.below[number][step] = outer
                    self._shared.add(outer)
                    continue
                self.below[number][step] = inner = len(zones)
                self.below.append({})
                zones.append(zone_below(zones[number], part))
                todo.append((inner, part, {**above, id(part): inner}))
        #: The places at which two writes do not conflict.
        self.commuting = sum(
            1 << number for number, zone in enumerate(zones) if zone.commutes and number not in self._shared
        )

    def bits(self, steps: tuple[Step, ...]) -> int:
        """Returns the bits of the places that steps lead to, and of all that is below them."""
        todo = [0]
        for step in steps:
            todo = [inner for number in todo for inner in self._next(number, step)]
        found = 0
        while todo:
            one = todo.pop()
            if not found >> one & 1:
                found |= 1 << one
                todo += self.below[one].values()
        return found

    def _next(self, number: int, step: Step) -> list[int]:
        below = self.below[number]
        if step is EACH:
            # A dict-shaped state has keys with numbers of their own.
            return [inner for key, inner in below.items() if not isinstance(key, str)] or [number]
        # Other keys share a number, and below the last place with one of its own there are no others.
        return [below.get(step, below.get(EACH, number))]


def _parts(shape: Shape) -> list[tuple[Step, Shape]]:
    if shape.kind in (Kind.LEAF, Kind.ANY):
        return []
    is_record = shape.kind is Kind.RECORD
    found: list[tuple[Step, Shape]] = [
        (name if is_record else Key(name), field)
        for name, field in zip(shape.names, shape.fields, strict=True)
    ]
    return found if shape.items is None else [*found, (EACH, shape.items)]


def _places_of(shape: Shape) -> _Places:
    if shape._places is None:
        shape._places = _Places(shape)
    return cast("_Places", shape._places)


def slots(contract: Contract | None, shape: Shape | None = None) -> Slots:
    """Returns the bits of what a contract reads and writes; a declared path has its own and those of all below it.

    `shape` is that of the store's state; it may be left out if the contract has typed paths. A task without a contract
    reads and writes all. Contracts may be compared only with the same shape.

    Raises:
        StateError: the contract is of another state.
        ValueError: the contract has texts alone, and no shape was given.
    """
    if contract is None:
        return Slots(-1, -1)
    if shape is None:
        shape = _own_shape(contract)
        if shape is None:
            return Slots(0, 0)
    fitting = contract.for_shape(shape)
    places = _places_of(shape)

    def bits(paths: tuple[Path[Any] | str, ...], commuting: bool = True) -> int:
        found = 0
        for path in paths:
            one = places.bits(plain_steps(shape, steps_of(cast("Path[Any]", path))))
            # To append or to count is no read.
            found |= one if commuting or one & ~places.commuting else 0
        return found

    return Slots(bits(fitting.reads) | bits(fitting.writes, commuting=False), bits(fitting.writes))


def _own_shape(contract: Contract) -> Shape | None:
    if contract.root is not None:
        return shape_of(contract.root)
    if contract.reads or contract.writes:
        raise ValueError(f"{contract!r} has texts, which mean nothing without the shape of a state; give it")
    return None


def conflicts(one: Contract | None, other: Contract | None, shape: Shape | None = None) -> bool:
    """Whether tasks with these contracts must not run at the same time: one may read or write what the other writes.

    Two that append to one vector, or count one counter, do not conflict if neither reads it.

    Raises:
        StateError: the contracts are of two states.
        ValueError: a contract has texts alone, and no shape was given.
    """
    if shape is None:
        shape = next((found for found in map(_root_shape, (one, other)) if found is not None), None)
    mine, its = slots(one, shape), slots(other, shape)
    commuting = 0 if shape is None else _places_of(shape).commuting
    return bool(mine.writes & its.reads or mine.reads & its.writes or mine.writes & its.writes & ~commuting)


def _root_shape(contract: Contract | None) -> Shape | None:
    return None if contract is None or contract.root is None else shape_of(contract.root)


def commuting_slots(shape: Shape) -> int:
    """Returns the bits of the places at which two writes do not conflict, to compare many `Slots` of one state."""
    return _places_of(shape).commuting
