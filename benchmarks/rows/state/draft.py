"""Table: reading a draft, inside of a transaction whose contract is strict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.clock import per_statement
from harness.measure import Size
from harness.states import DICT, ITEMS, NEEDS, OURS, names, nested, shuffled
from harness.table import Contest, Line, Row, times_the_peer

if TYPE_CHECKING:
    from collections.abc import Callable


def draft(peer: str, calls: int, touched: int) -> dict[str, float]:
    """Nanoseconds of a read three deep, again and again; and of the first read of each of many accounts."""
    import time

    keys = shuffled(ITEMS)[:touched]
    read, through = ".limits.daily.amount", ".accounts[name].balance"
    if peer == DICT:
        read, through = '["limits"]["daily"]["amount"]', '["accounts"][name]["balance"]'
    sweep: Callable[[Any], int]
    if peer == OURS:
        from harness.bank import bank, inside

        store = bank(ITEMS)

        def within(measure: Callable[[Any], float]) -> float:
            return float(store.run(inside, measure))

        def sweep(state: Any) -> int:
            return sum(state.accounts[key].balance for key in keys)
    else:
        state = nested(ITEMS)

        def within(measure: Callable[[Any], float]) -> float:
            return measure(state)

        def sweep(state: Any) -> int:
            return sum(state["accounts"][key]["balance"] for key in keys)

    def first(state: Any) -> float:
        began = time.perf_counter_ns()
        total = sweep(state)
        took = time.perf_counter_ns() - began
        assert total == 100 * touched
        return took / touched

    name = names(ITEMS)[77]
    return {
        "read": within(lambda state: per_statement(f"state{read}", {"state": state}, calls)),
        "through": within(
            lambda state: per_statement(f"state{through}", {"state": state, "name": name}, calls)
        ),
        "first": sorted(within(first) for _ in range(9))[4],
    }


READ = Contest(draft, players={OURS: NEEDS, DICT: ()}, calls=Size(300_000, 100), touched=Size(1000, 5))

ROW = Row(
    "draft",
    "a read three deep of a draft",
    "The statement alone, on a local variable, inside of one transaction whose contract is strict and names what is "
    "read: three attributes, or three keys of nested dicts; then an attribute, one of 5,000 keys and an attribute, "
    "always the same. The last line reads a thousand accounts once in a new transaction, so that each read makes a "
    "draft; its loop is in the time.",
    (
        Line("draft.limits.daily.amount", "ns", READ, "read", None, {DICT: times_the_peer(4)}),
        Line("draft.accounts[name].balance", "ns", READ, "through", None, {DICT: times_the_peer(4)}),
        Line("the same, each account for the first time", "ns", READ, "first", None, {DICT: None}),
    ),
)
