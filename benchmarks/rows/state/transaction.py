"""Table: transactions that change one leaf, and a hundred."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from harness.clock import seconds_of
from harness.measure import Size
from harness.states import DICT, IMMUTABLES, ITEMS, NEEDS, OURS, PYRSISTENT, nested, shuffled
from harness.table import Contest, Line, Row, at_most, times_the_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Changes a leaf of each of these accounts in one step; and says which balance an account has.
    Changer = tuple[Callable[[Sequence[str]], object], Callable[[str], int]]

DEEPCOPY = "deepcopy"


def changer(peer: str) -> Changer:
    """What changes a peer's state, of which old versions stay as they are, and what reads it."""
    state: Any = nested(ITEMS)
    change: Callable[[Any, Sequence[str]], Any]
    if peer == OURS:
        from harness.bank import bank, bump, bump_all

        store = bank(ITEMS)

        def step(names: Sequence[str]) -> None:
            if len(names) == 1:
                store.run(bump, names[0])
            else:
                store.run(bump_all, names)

        return step, lambda name: store.snapshot().accounts[name].balance
    if peer == PYRSISTENT:
        change = evolve
        from pyrsistent import pmap

        state = pmap({"accounts": pmap({name: pmap(one) for name, one in state["accounts"].items()})})
    elif peer == IMMUTABLES:
        change = mutate
        from immutables import Map

        state = Map({"accounts": Map({name: Map(one) for name, one in state["accounts"].items()})})
    else:
        change = {DICT: path_copy, DEEPCOPY: deep_copy}[peer]

    def replace(names: Sequence[str]) -> None:
        nonlocal state
        state = change(state, names)

    return replace, lambda name: int(state["accounts"][name]["balance"])


def evolve(state: Any, names: Sequence[str]) -> Any:
    """By pyrsistent's evolvers, which are a little faster than its `set` and twice as fast as its `transform`."""
    top, accounts = state.evolver(), state["accounts"].evolver()
    for name in names:
        account = accounts[name].evolver()
        account["balance"] += 1
        accounts[name] = account.persistent()
    top["accounts"] = accounts.persistent()
    return top.persistent()


def mutate(state: Any, names: Sequence[str]) -> Any:
    """By the mutations of immutables; an account with one changed entry is made by `set`, the faster way."""
    with state.mutate() as top, state["accounts"].mutate() as accounts:
        for name in names:
            account = accounts[name]
            accounts[name] = account.set("balance", account["balance"] + 1)
        top["accounts"] = accounts.finish()
        return top.finish()


def path_copy(state: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A copy of each dict on the way to a change, once."""
    accounts = dict(state["accounts"])
    for name in names:
        account = accounts[name]
        accounts[name] = {**account, "balance": account["balance"] + 1}
    return {**state, "accounts": accounts}


def deep_copy(state: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A copy of everything, changed in place."""
    state = copy.deepcopy(state)
    for name in names:
        state["accounts"][name]["balance"] += 1
    return state


def change(peer: str, calls: int, leaves: int) -> dict[str, float]:
    """Seconds of a transaction, over so many that change accounts in a shuffled order."""
    step, balance = changer(peer)
    if peer in (DICT, DEEPCOPY):
        calls = max(1, calls // (20 if peer == DICT else 1000))
    every = shuffled(ITEMS)
    jobs = [every[at : at + leaves] for at in range(0, ITEMS - leaves + 1, leaves)]
    jobs = (jobs * (calls // len(jobs) + 1))[:calls]

    def play() -> None:
        for job in jobs:
            step(job)

    took = seconds_of(play) / calls
    # Six times as often as it stands in the jobs: once to warm up, and five times under the clock.
    assert balance(jobs[0][0]) == 100 + 6 * sum(jobs[0][0] in job for job in jobs)
    return {"each": took}


ONE = Contest(
    change,
    "1 leaf",
    {OURS: NEEDS, IMMUTABLES: ("immutables",), PYRSISTENT: ("pyrsistent",), DICT: (), DEEPCOPY: ()},
    calls=Size(5000, 2),
    leaves=1,
)
HUNDRED = Contest(
    change,
    "100 leaves",
    {OURS: NEEDS, IMMUTABLES: ("immutables",), PYRSISTENT: ("pyrsistent",)},
    calls=Size(200, 2),
    leaves=100,
)

ROW = Row(
    "transaction",
    "a transaction over 5,000 accounts",
    "One call of a function that adds 1 to the balance of one account, or of a hundred; the accounts change by turns. "
    "Ours is `store.run` of a task with a contract: frozen dataclasses in a `PMap` in a frozen dataclass; the access "
    "checks, the validation of what was read, and the version that the history keeps are in the time. The peers check "
    "and keep nothing: maps in a map in a map by evolvers or `mutate`, a copy of each dict on the way, `deepcopy`.",
    (
        Line(
            "1 leaf of 5,000",
            "µs",
            ONE,
            "each",
            at_most(4),
            {PYRSISTENT: None, DICT: None, DEEPCOPY: None, IMMUTABLES: None},
            scale=1e6,
        ),
        Line(
            "100 leaves of 5,000",
            "µs",
            HUNDRED,
            "each",
            None,
            {IMMUTABLES: times_the_peer(1), PYRSISTENT: None},
            scale=1e6,
        ),
    ),
)
