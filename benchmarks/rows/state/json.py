"""Table: a state as JSON, and again after a change."""

from __future__ import annotations

from typing import Any

from harness.clock import median, seconds_of
from harness.measure import Size
from harness.states import ITEMS, NEEDS, OURS, nested, shuffled
from harness.table import Contest, Line, Row, times_better

ORJSON = "orjson"
MSGSPEC = "msgspec"


def whole(peer: str, calls: int) -> dict[str, float]:
    """Seconds of JSON of the nested dicts, all of it."""
    import json

    if peer == ORJSON:
        from orjson import dumps
    else:
        from msgspec.json import encode as dumps
    state = {**nested(ITEMS), "transfers": 0}
    assert json.loads(dumps(state)) == state

    def play() -> None:
        for _ in range(calls):
            dumps(state)

    took = seconds_of(play) / calls
    # They know nothing of the time before: after a change all is made again.
    return {"whole": took, "again": took}


def ours(peer: str, calls: int) -> dict[str, float]:
    """Seconds of JSON of a state that was never encoded; and of the next one, which differs in one leaf."""
    import json
    import time

    from harness.bank import Bank, bank, bump
    from ropewalk.state import PMap, dumps

    assert peer == OURS
    names = shuffled(ITEMS)

    def fresh() -> float:
        # Each state has values and nodes of its own, so that no bytes are kept on them.
        states = [bank(ITEMS).snapshot() for _ in range(calls)]
        began = time.perf_counter()
        for state in states:
            dumps(state)
        return (time.perf_counter() - began) / calls

    took = median(fresh)
    store = bank(ITEMS)
    dumps(store.snapshot())

    def again() -> float:
        spent = 0.0
        for name in names[: 10 * calls]:
            store.run(bump, name)
            state = store.snapshot()
            began = time.perf_counter()
            dumps(state)
            spent += time.perf_counter() - began
        return spent / len(names[: 10 * calls])

    after = median(again)
    found: Any = json.loads(dumps(store.snapshot()))
    state = store.snapshot()
    assert found["accounts"] == {
        name: {"owner": one.owner, "balance": one.balance} for name, one in state.accounts.items()
    }
    assert isinstance(state, Bank)
    assert isinstance(state.accounts, PMap)
    return {"whole": took, "again": after}


OWN = Contest(ours, players={OURS: (*NEEDS, "ropewalk.state:dumps")}, calls=Size(5, 1))
PEERS = Contest(whole, players={ORJSON: ("orjson",), MSGSPEC: ("msgspec",)}, calls=Size(5, 1))

ROW = Row(
    "json",
    "JSON of 5,000 accounts",
    "Ours is `dumps` of a state of frozen dataclasses in a `PMap` that was never encoded before, and of the next state "
    "after a transaction that changed one leaf, the transaction not in the time. The peers encode nested dicts with "
    "the same entries, all of them each time.",
    (
        Line(
            "a new state",
            "µs",
            OWN,
            "whole",
            None,
            {PEERS.by(ORJSON): times_better(0.95), PEERS.by(MSGSPEC): None},
            scale=1e6,
        ),
        Line(
            "again after 1 leaf",
            "µs",
            OWN,
            "again",
            None,
            {PEERS.by(ORJSON): times_better(15), PEERS.by(MSGSPEC): None},
            scale=1e6,
        ),
    ),
)
