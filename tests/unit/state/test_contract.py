"""Contracts: what may be declared, and the rules, slots and conflicts that follow from it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk.state import (
    EACH,
    AppendOnly,
    Const,
    Contract,
    ContractViolation,
    Counter,
    Key,
    NoSuchPath,
    Path,
    PMap,
    PVector,
    Rule,
    StateError,
    Step,
    Transient,
    Zone,
    compile_rule,
    conflicts,
    describe,
    path_from,
    paths,
    policy_shape,
    shape_of,
    slots,
    steps_of,
)
from ropewalk.state._slots import MOST_SLOTS, commuting_slots


@dataclass(frozen=True, slots=True)
class Limits:
    most: int


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Memory:
    account: Account
    log: AppendOnly[int]


@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[Limits]
    accounts: PMap[str, Account]
    old: PMap[str, Account]
    journal: AppendOnly[Account]
    hits: Counter
    memory: Transient[Memory]
    counts: PMap[str, Counter]
    anything: Any


@dataclass(frozen=True, slots=True)
class Tree:
    value: int
    left: Tree | None
    children: PVector[Tree]


P = paths(Bank)
T = paths(Tree)


def rule_at(rule: Rule | None, *steps: Step) -> Rule | None:
    for step in steps:
        if rule is None:
            return None
        rule = rule.below(step)
    return rule


def at(contract: Contract | None, path: Path[Any]) -> tuple[bool, bool, Zone] | None:
    """What the rule of a place allows: reads, writes, and the zone."""
    found = rule_at(compile_rule(shape_of(Bank), contract), *steps_of(path))
    return None if found is None else (found.reads, found.writes, Zone(found.zone))


# --- declarations -----------------------------------------------------------------------------------------------------


def test_a_contract_has_its_paths() -> None:
    contract = Contract([P.limits, P.limits], (P.accounts,))
    assert contract.reads == (P.limits,)
    assert contract.writes == (P.accounts,)
    assert contract.root is Bank
    assert Contract() == Contract([], [])
    assert Contract([P.limits, P.hits]) == Contract([P.hits, P.limits])
    assert hash(Contract([P.limits, P.hits])) == hash(Contract([P.hits, P.limits]))
    assert Contract([P.limits]) != Contract(writes=[P.hits])
    assert Contract([P.limits]) != 3
    assert repr(contract) == "Contract(reads=[P.limits], writes=[P.accounts])"
    assert pickle.loads(pickle.dumps(contract)) == contract
    anything: Any = contract
    with pytest.raises(AttributeError, match="does not change"):
        anything.reads = ()


def test_texts_become_paths_beside_paths() -> None:
    assert Contract([P.limits, "accounts[...].owner"]).reads == (P.limits, P.accounts[...].owner)
    alone = Contract(["limits"], ["accounts"])
    assert alone.root is None
    assert alone.for_shape(shape_of(Bank)).writes == (path_from(shape_of(Bank), ("accounts",)),)
    with pytest.raises(NoSuchPath):
        Contract([P.limits, "acounts"])
    with pytest.raises(NoSuchPath):
        Contract(["acounts"]).for_shape(shape_of(Bank))
    with pytest.raises(ContractViolation):
        Contract(writes=["limits"]).for_shape(shape_of(Bank))


def test_wrong_declarations() -> None:
    anything: Any = Contract
    with pytest.raises(TypeError, match=r"write reads=\[Bank.limits\]"):
        anything(P.limits)
    with pytest.raises(TypeError, match=r"write writes=\['accounts'\]"):
        anything(writes="accounts")
    with pytest.raises(TypeError, match="reads must be a list of paths, not 3"):
        anything(3)
    with pytest.raises(TypeError, match="and has 3"):
        anything([P.limits, 3])
    with pytest.raises(ValueError, match="is no path"):
        anything(["a b"])
    with pytest.raises(StateError, match="paths of one state, and these are of Bank and Tree"):
        anything([P.limits], [T.value])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (P.limits, "Bank.limits is Const"),
        (P.limits.most, "Bank.limits.most is Const, or in a place that is"),
        (P.journal[...], "Declare the vector, journal, and append to it"),
        (P.journal[-1].owner, "whose items do not change"),
    ],
)
def test_zones_that_are_not_written(path: Path[Any], words: str) -> None:
    with pytest.raises(ContractViolation) as caught:
        Contract(writes=[path])
    assert words in str(caught.value)
    assert (caught.value.path, caught.value.access, caught.value.task) == (str(path), "write", None)
    assert Contract(reads=[path]).reads == (path,)


def test_zones_that_are_written() -> None:
    for path in (P, P.journal, P.hits, P.memory, P.memory.account.owner, P.memory.log[0], P.counts["a"]):
        assert Contract(writes=[path]).writes == (path,)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_without_a_contract_all_is_allowed_that_zones_allow() -> None:
    assert at(None, P) == (True, True, Zone.PLAIN)
    assert at(None, P.accounts[...].balance) == (True, True, Zone.PLAIN)
    assert at(None, P.limits) == at(None, P.limits.most) == (True, False, Zone.CONST)
    assert at(None, P.journal) == (True, True, Zone.APPEND_ONLY)
    assert at(None, P.journal[...].owner) == (True, False, Zone.APPEND_ONLY)
    assert at(None, P.hits) == (True, True, Zone.COUNTER)
    assert at(None, P.memory.account.owner) == at(None, P.memory.log) == (True, True, Zone.TRANSIENT)
    assert at(None, P.counts[...]) == (True, True, Zone.COUNTER)


def test_a_rule_covers_what_is_below_and_passes_what_is_above() -> None:
    contract = Contract(reads=[P.limits], writes=[P.accounts[...].balance])
    assert at(contract, P) == (False, False, Zone.PLAIN)
    assert at(contract, P.limits.most) == (True, False, Zone.CONST)
    assert at(contract, P.accounts) == at(contract, P.accounts["ann"]) == (False, False, Zone.PLAIN)
    assert at(contract, P.accounts["ann"].balance) == (True, True, Zone.PLAIN)
    assert at(contract, P.accounts["ann"].owner) is None
    assert at(contract, P.hits) is None
    assert at(Contract(), P) == (False, False, Zone.PLAIN)
    assert at(Contract(), P.hits) is None


def test_keys_count_as_each() -> None:
    contract = Contract(reads=[P.accounts["ann"]])
    assert at(contract, P.accounts["bob"].balance) == (True, False, Zone.PLAIN)
    assert at(contract, P.accounts) == (False, False, Zone.PLAIN)


def test_a_write_of_what_commutes_is_no_read() -> None:
    contract = Contract(writes=[P.journal, P.hits, P.counts[...]])
    assert at(contract, P.journal) == (False, True, Zone.APPEND_ONLY)
    assert at(contract, P.journal[...]) is None
    assert at(contract, P.hits) == (False, True, Zone.COUNTER)
    assert at(contract, P.counts["a"]) == (False, True, Zone.COUNTER)
    both = Contract(reads=[P.journal, P.hits], writes=[P.journal, P.hits])
    assert at(both, P.journal) == (True, True, Zone.APPEND_ONLY)
    assert at(both, P.journal[...]) == (True, False, Zone.APPEND_ONLY)
    whole = Contract(writes=[P])
    assert at(whole, P.journal) == (True, True, Zone.APPEND_ONLY)
    assert at(whole, P.limits) == (True, False, Zone.CONST)


def test_a_class_in_two_places_has_two_rules() -> None:
    contract = Contract(reads=[P.old], writes=[P.accounts])
    assert at(contract, P.accounts["a"].balance) == (True, True, Zone.PLAIN)
    assert at(contract, P.old["a"].balance) == (True, False, Zone.PLAIN)


def test_what_may_be_anything_is_one_place() -> None:
    contract = Contract(reads=[P.anything.deep["a"]])
    assert at(contract, P.anything) == at(contract, P.anything.other) == (True, False, Zone.PLAIN)
    found = rule_at(compile_rule(shape_of(Bank), contract), "anything")
    assert found is not None
    assert found.items is found


def test_a_cycle_of_classes_is_a_cycle_of_rules() -> None:
    everything = compile_rule(shape_of(Tree), None)
    assert rule_at(everything, "left") is everything
    assert rule_at(everything, "children", EACH) is everything
    some = compile_rule(shape_of(Tree), Contract(reads=[T.left.left.value], writes=[T.children]))
    assert rule_at(some, "value") is None
    deep = rule_at(some, "left", "left")
    assert deep is not None
    assert (deep.reads, rule_at(deep, "left"), rule_at(deep, "children")) == (False, None, None)
    assert rule_at(deep, "value") is not None
    inner = rule_at(some, "children", EACH)
    assert inner is not None
    assert inner.writes
    assert rule_at(inner, "left") is inner


def test_rules_of_another_class() -> None:
    made: list[Any] = []

    def make(
        reads: bool, writes: bool, zone: int, record: type | None, names: tuple[str, ...]
    ) -> dict[str, Any]:
        made.append((reads, writes, type(zone), record, names))
        return {}

    def link(rule: dict[str, Any], fields: Any, items: Any, _: Any) -> None:
        assert not rule
        rule.update(fields=fields, items=items)

    rule = compile_rule(shape_of(Bank), Contract(reads=[P.accounts[...].owner]), make, link)
    assert made[0] == (False, False, int, Bank, shape_of(Bank).names)
    accounts = rule["fields"][1]
    assert [field is None for field in rule["fields"]] == [True, False] + [True] * 6
    assert accounts["fields"] is None
    owner, balance = accounts["items"]["fields"]
    assert (owner, balance) == ({"fields": None, "items": None}, None)


def test_states_of_dicts() -> None:
    shape = policy_shape({"limits": Const, "journal": AppendOnly, "accounts[...].hits": Counter})
    contract = Contract(["other"], ["accounts[...].hits", "journal", "more"])
    rule = compile_rule(shape, contract)
    assert (rule.reads, rule.writes, rule.items) == (False, False, None)
    assert rule_at(rule, Key("limits")) is None

    def allowed(*keys: Any) -> tuple[bool, bool]:
        found = rule_at(rule, *map(Key, keys))
        assert found is not None
        return found.reads, found.writes

    assert allowed("other") == (True, False)
    assert allowed("other", "deep", 3) == (True, False)
    assert allowed("more") == (True, True)
    assert allowed("journal") == (False, True)
    assert allowed("accounts", "ann", "hits") == (False, True)
    assert rule_at(rule, Key("unknown")) is None
    each = compile_rule(shape, Contract(["[...]"]))
    for key in ("limits", "journal", "unknown"):
        found = rule_at(each, Key(key))
        assert found is not None
        assert found.reads
    with pytest.raises(ContractViolation):
        compile_rule(shape, Contract(writes=["limits"]))


def test_a_contract_is_of_one_state() -> None:
    with pytest.raises(StateError, match="a contract of Bank was used with a state of Tree"):
        compile_rule(shape_of(Tree), Contract([P.hits]))

    @dataclass(frozen=True)
    class Larger(Bank):
        more: int

    larger = compile_rule(shape_of(Larger), Contract([P.hits]))
    assert rule_at(larger, "hits") is not None
    assert rule_at(larger, "more") is None


# --- slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (Contract([P.accounts]), Contract([P.accounts]), False),
        (Contract([P.accounts]), Contract(writes=[P.accounts]), True),
        (Contract([P.accounts[...].owner]), Contract(writes=[P.accounts[...].balance]), False),
        (Contract([P.accounts]), Contract(writes=[P.accounts[...].balance]), True),
        (Contract([P.accounts[...].balance]), Contract(writes=[P.accounts]), True),
        (Contract(writes=[P.accounts["a"]]), Contract(writes=[P.accounts["b"]]), True),
        (Contract(writes=[P.accounts]), Contract(writes=[P.old]), False),
        (Contract(writes=[P.journal]), Contract(writes=[P.journal]), False),
        (Contract(writes=[P.hits]), Contract(writes=[P.hits, P.journal]), False),
        (Contract(writes=[P.counts[...]]), Contract(writes=[P.counts[...]]), False),
        (Contract(writes=[P.counts]), Contract(writes=[P.counts[...]]), True),
        (Contract([P.journal]), Contract(writes=[P.journal]), True),
        (Contract([P.journal[-1].owner]), Contract(writes=[P.journal]), True),
        (Contract([P.hits], [P.hits]), Contract(writes=[P.hits]), True),
        (Contract(writes=[P]), Contract(writes=[P.hits]), True),
        (Contract(writes=[P.memory.account]), Contract([P.memory.account.owner]), True),
        (Contract(writes=[P.anything.a]), Contract([P.anything.b]), True),
        (Contract(), Contract(writes=[P]), False),
        (None, Contract([P.hits]), True),
        (None, Contract(), False),
        (None, None, True),
        (Contract([T.left.value]), Contract(writes=[T.value]), True),
        (Contract([T.value]), Contract(writes=[T.children]), True),
    ],
)
def test_conflicts(one: Contract | None, other: Contract | None, wanted: bool) -> None:
    assert conflicts(one, other) is wanted
    assert conflicts(other, one) is wanted


def test_slots_are_bits() -> None:
    reads, writes = slots(Contract([P.limits], [P.accounts, P.journal]))
    assert reads & writes == writes & ~commuting_slots(shape_of(Bank))
    assert slots(None) == (-1, -1)
    assert slots(Contract()) == (0, 0)
    (whole, _) = slots(Contract([P]))
    assert whole & (whole + 1) == 0, "the whole state has all bits"
    assert bin(slots(Contract([P.accounts])).reads).count("1") == 4


def test_slots_of_texts_need_a_shape() -> None:
    shape = policy_shape({"a": Const, "b.c": Counter})
    with pytest.raises(ValueError, match="mean nothing without the shape"):
        slots(Contract(["a"]))
    with pytest.raises(ValueError, match="mean nothing without the shape"):
        conflicts(Contract(["a"]), Contract(["a"]))
    assert not conflicts(Contract(["a"]), Contract(writes=["b"]), shape)
    assert not conflicts(Contract(writes=["b.c"]), Contract(writes=["b.c"]), shape)
    assert conflicts(Contract(["b.c"]), Contract(writes=["b.c"]), shape)
    assert conflicts(Contract(["[...]"]), Contract(writes=["b.c"]), shape)
    # Keys that the policy does not name share one slot.
    assert conflicts(Contract(["x"]), Contract(writes=["y"]), shape)
    assert not conflicts(Contract(["x"]), Contract(writes=["b"]), shape)


def test_conflicts_are_of_one_state() -> None:
    with pytest.raises(StateError, match="was used with a state of"):
        conflicts(Contract([P.hits]), Contract([T.value]))


def test_a_state_with_very_many_places_has_fewer_slots() -> None:
    wide: Any = int
    for level in range(4):
        names = {f"f{number}": wide for number in range(8)}
        wide = dataclass(frozen=True)(type(f"Level{level}", (), {"__annotations__": names}))
    W = paths(wide)
    assert slots(Contract([W])).reads.bit_length() <= MOST_SLOTS
    assert conflicts(Contract([W.f0.f0.f0.f0]), Contract(writes=[W.f0.f0.f0]))
    assert not conflicts(Contract([W.f0.f0]), Contract(writes=[W.f1.f0.f0.f0]))


# --- descriptions -----------------------------------------------------------------------------------------------------


def test_descriptions() -> None:
    seen = [P.limits.most, P.accounts["a"].balance, P.accounts["b"].balance]
    written = [P.accounts["a"].balance, P.journal]
    assert (
        describe(seen, written) == "@task(reads=[P.limits.most], writes=[P.accounts[...].balance, P.journal])"
    )
    assert describe([P.journal], [P.journal]) == "@task(reads=[P.journal], writes=[P.journal])"
    assert describe([P.accounts, P.accounts["a"].owner], []) == "@task(reads=[P.accounts])"
    assert describe([], []) == "@task(reads=[])"
    assert describe([P], [], "bank") == "@task(reads=[bank])"
    assert describe(["a.b"], []) == "@task(reads=['a.b'])"
