"""Table: eight threads that change the same places."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

from harness.measure import Size
from harness.states import ITEMS, NEEDS, OURS, names, nested
from harness.table import Contest, Line, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREADS = 8
LOCKED = "dict under a lock"
PLAYERS: dict[str, tuple[str, ...]] = {OURS: NEEDS, LOCKED: ()}


class Locked:
    """A dict that is replaced under a lock, so that what a reader took stays as it is."""

    def __init__(self, items: int) -> None:
        self.lock = threading.Lock()
        self.state: dict[str, Any] = {**nested(items), "transfers": 0}

    def hit(self) -> None:
        """Counts."""
        with self.lock:
            self.state = {**self.state, "transfers": self.state["transfers"] + 1}

    def transfer(self, source: str, target: str, amount: int) -> bool:
        """Moves an amount from one account to another, if it is there."""
        with self.lock:
            accounts = dict(self.state["accounts"])
            if accounts[source]["balance"] < amount:
                return False
            for name, change in ((source, -amount), (target, amount)):
                accounts[name] = {**accounts[name], "balance": accounts[name]["balance"] + change}
            self.state = {**self.state, "accounts": accounts, "transfers": self.state["transfers"] + 1}
            return True


def rate(plays: Sequence[Callable[[], int]]) -> tuple[float, int]:
    """Transactions a second of threads that play these at once, from their common start to the last end; and all."""
    start = threading.Barrier(len(plays) + 1)
    done: list[int] = []

    def work(play: Callable[[], int]) -> None:
        start.wait()
        done.append(play())

    threads = [threading.Thread(target=work, args=(play,)) for play in plays]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    assert len(done) == len(plays), "a thread died"
    return sum(done) / took, sum(done)


def count(peer: str, each: int) -> dict[str, float]:
    """Transactions a second that add 1 to one counter."""
    if peer == OURS:
        from harness.bank import bank, hit

        store = bank(8)

        def one() -> object:
            return store.run(hit)
    else:
        locked = Locked(8)
        one = locked.hit

    def play() -> int:
        for _ in range(each):
            one()
        return each

    speed, every = rate([play] * THREADS)
    found = store.snapshot().transfers if peer == OURS else locked.state["transfers"]
    assert found == every == THREADS * each
    return {"rate": speed}


def move(peer: str, each: int, items: int) -> dict[str, float]:
    """Transactions a second that move 1 between two of eight accounts, all threads in the same eight."""
    one: Callable[[str, str, int], object]
    if peer == OURS:
        from harness.bank import bank, transfer

        store = bank(items)

        def one(source: str, target: str, amount: int) -> object:
            return store.run(transfer, source, target, amount)
    else:
        locked = Locked(items)
        one = locked.transfer
    hot = names(8)

    def player(number: int) -> Callable[[], int]:
        chance = random.Random(number)
        pairs = [chance.sample(hot, 2) for _ in range(each)]
        return lambda: sum(1 for source, target in pairs if one(source, target, 1) in (True, False))

    speed, every = rate([player(number) for number in range(THREADS)])
    assert every == THREADS * each
    if peer == OURS:
        total = sum(account.balance for account in store.snapshot().accounts.values())
    else:
        total = sum(account["balance"] for account in locked.state["accounts"].values())
    assert total == 100 * items
    return {"rate": speed}


COUNT = Contest(count, "a counter", PLAYERS, each=Size(2000, 5))
FEW = Contest(move, "8 accounts", PLAYERS, each=Size(1000, 5), items=8)
MANY = Contest(move, "8 of 5,000 accounts", PLAYERS, each=Size(500, 5), items=Size(ITEMS, 50))

ROW = Row(
    "threads",
    "eight threads",
    "Transactions a second of eight threads together, from their common start to the end of the last; conflicts and "
    "repetitions are in the time. All add 1 to a `Counter`; or all move 1 between two of the same eight accounts, in a "
    "state with no more, and with 5,000. The peer copies the dicts on the way under one `threading.Lock`.",
    (
        Line("a counter", "1/s", COUNT, "rate", None, {LOCKED: None}, more_is_better=True),
        Line("transfers, 8 accounts", "1/s", FEW, "rate", None, {LOCKED: None}, more_is_better=True),
        Line(
            "transfers, 8 of 5,000 accounts", "1/s", MANY, "rate", None, {LOCKED: None}, more_is_better=True
        ),
    ),
)
