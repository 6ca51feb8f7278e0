"""Table: a snapshot on its way to a worker process."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from harness.measure import Size
from harness.states import ITEMS, NEEDS, OURS, balance_of, names, nested
from harness.table import Contest, Line, Row, times_better

if TYPE_CHECKING:
    from collections.abc import Callable

EXECUTOR = "dicts to ProcessPoolExecutor"
PICKLE = "dicts, pickle alone"


def snapshot(peer: str, calls: int, items: int) -> dict[str, float]:
    """Seconds until a task has read one balance: of the first task of a store, and of one after a change of a leaf.

    The worker runs already. The middle one of the calls counts.
    """
    first: list[float] = []
    again: list[float] = []

    def timed(times: list[float], call: Callable[[], Any], wanted: int) -> None:
        began = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - began)
        assert found == wanted

    name = names(items)[items // 2]
    if peer == OURS:
        import ropewalk
        from harness.bank import balance, bank, bump

        with ropewalk.Pool(1) as pool:
            with bank(8, pool=pool) as small:
                small.submit(balance, names(8)[0]).result()
            for _ in range(calls):
                with bank(items, pool=pool) as store:
                    timed(first, lambda: store.submit(balance, name).result(), 100)
                    store.run(bump, name)
                    timed(again, lambda: store.submit(balance, name).result(), 101)
    else:
        state = nested(items)
        with ProcessPoolExecutor(1) as executor:
            executor.submit(balance_of, nested(8), names(8)[0]).result()
            for number in range(calls):
                for times, wanted in ((first, 100 + number), (again, 101 + number)):
                    if peer == PICKLE:
                        timed(times, lambda: balance_of(pickle.loads(pickle.dumps(state, 5)), name), wanted)
                    else:
                        timed(times, lambda: executor.submit(balance_of, state, name).result(), wanted)
                    if times is first:
                        state["accounts"][name]["balance"] += 1
    return {"first": sorted(first)[calls // 2], "again": sorted(again)[calls // 2]}


WORKER = Contest(
    snapshot,
    "worker",
    {OURS: NEEDS, EXECUTOR: (), PICKLE: ()},
    calls=Size(30, 1),
    items=Size(ITEMS, 50),
)

ROW = Row(
    "worker",
    "a snapshot in a worker",
    "A task in a worker process that runs already reads one of 5,000 balances: from the call to its result, the middle "
    "call. Ours is `store.submit` of a task whose contract has the accounts, on a `ropewalk.Pool`: the first task of a "
    "store, and one after a leaf has changed. The peers' state is nested dicts, which are sent whole each time: to a "
    "`ProcessPoolExecutor`; or nowhere, by `pickle.dumps` and `pickle.loads` alone.",
    (
        Line("the first task", "ms", WORKER, "first", None, {EXECUTOR: None, PICKLE: None}, scale=1e3),
        Line(
            "after one change",
            "ms",
            WORKER,
            "again",
            None,
            {EXECUTOR: times_better(5), PICKLE: times_better(5)},
            scale=1e3,
        ),
    ),
)
