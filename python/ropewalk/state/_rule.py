"""Rules: a contract and a shape as the graph that drafts follow, one rule for each place.

A draft has the rule of its place. Touching a part of it asks the rule of that part: no text is compared and nothing is
looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from ropewalk.state._contract import Contract, plain_steps, zone_below
from ropewalk.state._paths import EACH, Key, Path, Step, steps_of
from ropewalk.state._shape import Kind, Shape, has_arrays
from ropewalk.state._zones import INHERITED, Zone

R = TypeVar("R")


class Rule:
    """What a task may do at one place, and below it.

    With `reads` it reads the place and all below; with `writes` it replaces the place and changes all below. With
    neither, it passes through to the parts that have rules: a map may be asked for an item, but not iterated, and a
    record for a field, but not taken whole. In a zone that commutes, `writes` alone lets it append or count.

    `zone` is the zone that holds here, be it from above. `names` and `fields` are those of a record, or of a map whose
    policy names keys; a field without a rule may not be touched. `items` is the rule of a map's or a vector's items.
    The rule of a place that may be anything is its own `items`, and holds for all that is below it.

    The compiled drafts have a class of their own with this constructor and this `link`; this one serves
    `ropewalk check`, and whatever examines a rule.
    """

    __slots__ = ("arrays", "fields", "items", "names", "reads", "record", "writes", "zone")

    def __init__(
        self, reads: bool, writes: bool, zone: int, record: type | None, names: tuple[str, ...]
    ) -> None:
        self.reads = reads
        self.writes = writes
        self.zone = zone
        self.record = record
        self.names = names
        self.fields: tuple[Rule | None, ...] | None = None
        self.items: Rule | None = None
        self.arrays: Shape | None = None

    def link(
        self, fields: tuple[Rule | None, ...] | None, items: Rule | None, arrays: Shape | None = None
    ) -> None:
        """Sets the rules of what is below, once they are made: a rule may be below itself.

        `arrays` is the shape of the place, if arrays are declared below it.
        """
        self.fields = fields
        self.items = items
        self.arrays = arrays

    def below(self, step: Step) -> Rule | None:
        """Returns the rule one step below; `None` where nothing is declared."""
        name = step.value if isinstance(step, Key) else step
        if self.fields is not None and name in self.names:
            return self.fields[self.names.index(cast("str", name))]
        return self.items

    def __repr__(self) -> str:
        can = "+".join(word for word, has in (("reads", self.reads), ("writes", self.writes)) if has)
        record = f" {self.record.__qualname__}" if self.record is not None else ""
        return f"<Rule {can or 'passes'} {Zone(self.zone).name}{record}>"


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a contract says of one place: what holds for all of it, and the paths that go on below it."""

    reads: bool
    writes: bool
    zone: Zone
    read_paths: frozenset[tuple[Step, ...]]
    write_paths: frozenset[tuple[Step, ...]]

    @property
    def is_nothing(self) -> bool:
        return not (self.reads or self.writes or self.read_paths or self.write_paths)

    @property
    def appends(self) -> bool:
        return self.zone is Zone.APPEND_ONLY and self.writes

    def arrived(self, shape: Shape) -> _Declared:
        """Returns this with the paths that end here, and the zone of the place, taken into account."""
        zone = zone_below(self.zone, shape)
        writes = self.writes or () in self.write_paths
        reads = self.reads or () in self.read_paths or (() in self.write_paths and not zone.commutes)
        if zone is Zone.CONST or self.zone is Zone.APPEND_ONLY:
            writes = False
        return _Declared(reads, writes, zone, self.read_paths - {()}, self.write_paths - {()})

    def below(self, step: Step) -> _Declared:
        return _Declared(
            self.reads,
            self.writes,
            self.zone if self.zone in INHERITED else Zone.PLAIN,
            frozenset(path[1:] for path in self.read_paths if _leads(path[0], step)),
            frozenset(path[1:] for path in self.write_paths if _leads(path[0], step)),
        )

    def named(self) -> tuple[str, ...]:
        """Returns the keys of a dict-shaped state that the paths name next."""
        first = {path[0] for path in (*self.read_paths, *self.write_paths)}
        return tuple(sorted(step.value for step in first if isinstance(step, Key)))


def _leads(mine: Step, step: Step) -> bool:
    return mine == step or (mine is EACH and isinstance(step, Key))


@overload
def compile_rule(shape: Shape, contract: Contract | None) -> Rule: ...
@overload
def compile_rule(
    shape: Shape,
    contract: Contract | None,
    make: Callable[[bool, bool, int, type | None, tuple[str, ...]], R],
    link: Callable[[R, tuple[R | None, ...] | None, R | None, Shape | None], object],
    settle: Callable[[R, Shape], object] = ...,
) -> R: ...
def compile_rule(
    shape: Shape, contract: Contract | None, make: Any = Rule, link: Any = Rule.link, settle: Any = None
) -> Any:
    """Returns the rule of a whole state; without a contract all is allowed that the zones allow.

    `make` and `link` are the constructor and the `link` of another class of rules; `settle` is called with each rule
    and the shape of its place.

    Raises:
        StateError: the contract is of another state.
    """
    made: dict[tuple[int, _Declared], Any] = {}

    def rule_of(shape: Shape, declared: _Declared) -> Any:
        declared = declared.arrived(shape)
        if declared.is_nothing:
            return None
        return placed(shape, declared)

    def placed(shape: Shape, declared: _Declared) -> Any:
        known = made.get((id(shape), declared))
        if known is not None:
            return known
        names = shape.names
        parts = [*zip(names, shape.fields, strict=True)]
        if shape.of_policy:
            # What the contract names has a rule of its own, though the policy has no row for it.
            parts += [(key, cast("Shape", shape.items)) for key in declared.named() if key not in names]
            names = tuple(name for name, _ in parts)
        one = make(declared.reads, declared.writes, int(declared.zone), shape.record, names)
        made[id(shape), declared] = one
        fields = None
        items = None
        if shape.kind is Kind.ANY:
            # What is appended stays as it is.
            items = rule_of(shape, declared.below(EACH)) if declared.appends else one
        elif shape.kind is not Kind.LEAF:
            if shape.kind is Kind.RECORD or parts:
                is_record = shape.kind is Kind.RECORD
                fields = tuple(
                    rule_of(part, declared.below(name if is_record else Key(name))) for name, part in parts
                )
            if shape.items is not None:
                items = rule_of(shape.items, declared.below(EACH))
        link(one, fields, items, shape if shape.kind is not Kind.LEAF and has_arrays(shape) else None)
        if settle is not None:
            settle(one, shape)
        return one

    return placed(shape, _whole(shape, contract).arrived(shape))


def _whole(shape: Shape, contract: Contract | None) -> _Declared:
    if contract is None:
        return _Declared(True, True, Zone.PLAIN, frozenset(), frozenset())
    fitting = contract.for_shape(shape)

    def plain(paths: tuple[Path[Any] | str, ...]) -> frozenset[tuple[Step, ...]]:
        return frozenset(plain_steps(shape, steps_of(cast("Path[Any]", path))) for path in paths)

    return _Declared(False, False, Zone.PLAIN, plain(fitting.reads), plain(fitting.writes))
