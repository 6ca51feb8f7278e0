"""Laws of contracts: rules and conflicts are what the declared paths say of each place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.state.test_contract import Bank, P, at, rule_at

from ropewalk.state import (
    EACH,
    Contract,
    Path,
    Shape,
    Step,
    Zone,
    compile_rule,
    conflicts,
    covers,
    path_from,
    shape_of,
    steps_of,
)

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")


def every_path(shape: Shape, steps: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    yield steps
    for name, field in zip(shape.names, shape.fields, strict=True):
        yield from every_path(field, (*steps, name))
    if shape.items is not None:
        yield from every_path(shape.items, (*steps, EACH))


PLACES = [path_from(Bank, steps) for steps in every_path(shape_of(Bank))]
WRITABLE = [
    path
    for path in PLACES
    if not covers(P.limits, path) and (not covers(P.journal, path) or path == P.journal)
]
CONTRACTS = st.builds(
    Contract, st.lists(st.sampled_from(PLACES), max_size=3), st.lists(st.sampled_from(WRITABLE), max_size=3)
)


def zone_of_place(path: Path[Any]) -> Zone:
    found = at(None, path)
    assert found is not None
    return found[2]


def model(contract: Contract, path: Path[Any]) -> tuple[bool, bool]:
    """Whether a place may be read, and written, from the paths alone."""
    given: Any = contract
    zone = zone_of_place(path)
    writes = any(covers(one, path) for one in given.writes)
    reads = any(covers(one, path) for one in given.reads)
    reads = reads or any(
        covers(one, path) and zone_of_place(one) not in (Zone.APPEND_ONLY, Zone.COUNTER)
        for one in given.writes
    )
    if zone is Zone.CONST or (covers(P.journal, path) and path != P.journal):
        writes = False
    return reads, writes


@hypothesis.settings(deadline=None)
@hypothesis.given(CONTRACTS)
def test_rules_allow_what_the_paths_declare(contract: Contract) -> None:
    rule = compile_rule(shape_of(Bank), contract)
    for path in PLACES:
        found = rule_at(rule, *steps_of(path))
        allowed = (False, False) if found is None else (found.reads, found.writes)
        assert allowed == model(contract, path), path
        if found is None:
            declared: Any = (*contract.reads, *contract.writes)
            # What only a write without a read covers has no rule either: an item of a vector that is appended to.
            assert not any(covers(path, one) for one in declared)


@hypothesis.settings(deadline=None)
@hypothesis.given(CONTRACTS, CONTRACTS)
def test_conflicts_are_what_the_places_say(one: Contract, other: Contract) -> None:
    def touched(contract: Contract) -> tuple[set[Path[Any]], set[Path[Any]]]:
        given: Any = contract
        writes = {path for path in PLACES if any(covers(mine, path) for mine in given.writes)}
        return {path for path in PLACES if model(contract, path)[0]}, writes

    (my_reads, my_writes), (its_reads, its_writes) = touched(one), touched(other)
    both = {
        path for path in my_writes & its_writes if zone_of_place(path) not in (Zone.APPEND_ONLY, Zone.COUNTER)
    }
    assert conflicts(one, other) == bool(both or my_writes & its_reads or my_reads & its_writes)
    assert conflicts(one, other) == conflicts(other, one)
