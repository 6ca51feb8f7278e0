"""Table: reading a snapshot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.clock import per_statement
from harness.measure import Size
from harness.states import FROZEN, ITEMS, NEEDS, NESTED, OURS, names, nested, plain
from harness.table import Contest, Line, Row, times_better, times_the_peer


def snapshot(peer: str, calls: int) -> dict[str, float]:
    """Nanoseconds of a read three deep: of a snapshot that is there, through a map, and with the snapshot itself."""
    state: Any
    holder: Any
    if peer == OURS:
        from harness.bank import bank

        store = bank(ITEMS)
        state, whole, holder = store.snapshot(), "holder.snapshot()", store
    else:
        state, whole = nested(ITEMS) if peer == NESTED else plain(ITEMS), "holder.state"
        holder = SimpleNamespace(state=state)
    read, through = ".limits.daily.amount", ".accounts[name].balance"
    if peer == NESTED:
        read, through = '["limits"]["daily"]["amount"]', '["accounts"][name]["balance"]'
    given = {"state": state, "holder": holder, "name": names(ITEMS)[77]}
    return {
        "read": per_statement(f"state{read}", given, calls),
        "through": per_statement(f"state{through}", given, calls),
        "whole": per_statement(f"{whole}{read}", given, calls),
    }


READ = Contest(snapshot, players={OURS: NEEDS, FROZEN: (), NESTED: ()}, calls=Size(300_000, 100))

ROW = Row(
    "snapshot",
    "a read three deep",
    "The statement alone, on local variables: three attributes of frozen dataclasses with slots, or three keys of "
    "nested dicts. Then an attribute, one of 5,000 keys and an attribute: our map has the key there, the peers' dict. "
    "Then `store.snapshot()` and the three attributes; the peers take their state from an attribute of an object.",
    (
        Line(
            "state.limits.daily.amount",
            "ns",
            READ,
            "read",
            None,
            {FROZEN: times_the_peer(1.1), NESTED: times_better(1)},
        ),
        Line("state.accounts[name].balance", "ns", READ, "through", None, {FROZEN: None, NESTED: None}),
        Line("store.snapshot().limits.daily.amount", "ns", READ, "whole", None, {FROZEN: None, NESTED: None}),
    ),
)
