"""Transactions whose keys and values do random things with the draft at hand: `reentrant.py SEED ROUNDS COLLECT`.

With COLLECT the collector runs as often as it can, so that objects end within all kinds of calls.
"""

from __future__ import annotations

import gc
import random
import sys
from dataclasses import dataclass
from typing import Any

from ropewalk import Conflict, RopewalkError
from ropewalk.state import PMap, PVector, Store, leaf

#: What the drafts may answer to a use at the wrong time.
ANSWERS = (KeyError, IndexError, RuntimeError, TypeError, ValueError, RopewalkError)


class World:
    """The draft at hand, and how deep the methods of keys are in each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tx: Any = None
        self.depth = 0
        self.raised = 0

    def act(self, *, may_raise: bool) -> None:
        """Sometimes does something with the draft."""
        if self.tx is None or self.depth > 2 or self.random.random() > 0.2:
            return
        self.depth += 1
        try:
            self.work(self.tx)
        except ANSWERS:
            self.raised += 1
        finally:
            self.depth -= 1
        if may_raise and self.random.random() < 0.02:
            raise ZeroDivisionError

    def work(self, tx: Any) -> None:
        """Does one random thing."""
        key = Key(self.random.randrange(30))
        draft = tx.draft
        values, items = draft.values, draft.items
        number = self.random.randrange(-3, 6)
        match self.random.randrange(24):
            case 0 | 1 | 2:
                values[key] = self.random.choice([Value(1), {Key(1): Value(2)}, {Key(4): {}}])
            case 3:
                values.pop(key, None)
            case 4:
                list(values.items())
            case 5:
                values.update({Key(index): Value(index) for index in range(5)})
            case 6:
                draft.values = {key: {key: Value(3)}}
            case 7:
                values.popitem()
            case 8:
                values.clear()
            case 9:
                key in values  # noqa: B015
            case 10:
                items.append(self.random.choice([Value(4), {Key(2): Value(2)}]))
            case 11:
                items.pop(number)
            case 12:
                items.insert(number, {Key(3): Value(1)})
            case 13:
                items[number] = Value(5)
            case 14:
                draft.items = [Value(6), {key: 1}]
            case 15:
                items[number][key] = Value(7)
            case 16:
                values[key][Key(9)] = Value(8)
            case 17:
                items.reverse()
            case 18:
                repr(draft)
            case 19:
                values[key] = items
            case 20:
                items == [1]  # noqa: B015
            case 21:
                items.remove(Value(4))
            case 22:
                self.in_savepoint(tx)
            case _:
                tx.value(values)

    def in_savepoint(self, tx: Any) -> None:
        """Works within a savepoint, which sometimes fails."""
        with tx.savepoint():
            for _ in range(self.random.randrange(4)):
                self.work(tx)
            if self.random.random() < 0.5:
                raise KeyError("back")


@leaf
class Key:
    """A key of which many have one hash."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        WORLD.act(may_raise=True)
        return self.number % 3

    def __eq__(self, other: object) -> bool:
        WORLD.act(may_raise=True)
        return isinstance(other, Key) and other.number == self.number

    def __repr__(self) -> str:
        WORLD.act(may_raise=True)
        return f"Key({self.number})"

    def __del__(self) -> None:
        WORLD.act(may_raise=False)


@leaf
class Value:
    """A value."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        WORLD.act(may_raise=True)
        return isinstance(other, Value) and other.number == self.number

    def __del__(self) -> None:
        WORLD.act(may_raise=False)


@dataclass(frozen=True)
class State:
    """The state."""

    values: PMap[object, object]
    items: PVector[object]

    def __post_init__(self) -> None:
        """Is called by the commit."""
        WORLD.act(may_raise=True)


def main(seed: int, rounds: int, collect: bool) -> None:
    """Runs transactions, one after the other."""
    store = Store(State(PMap(), PVector()), history=3)
    gc.set_threshold(1 if collect else 50)
    ended = {"commits": 0, "others": 0}
    for _ in range(rounds):
        try:
            with store.transaction() as tx:
                WORLD.tx = tx
                for _ in range(WORLD.random.randrange(1, 25)):
                    try:
                        WORLD.work(tx)
                    except ANSWERS:
                        WORLD.raised += 1
        except (ZeroDivisionError, Conflict, RopewalkError):
            ended["others"] += 1
        else:
            ended["commits"] += 1
        finally:
            WORLD.tx = None
        state = store.snapshot()
        list(state.values.items())
        repr(state.items)
    print(ended, WORLD.raised)


WORLD = World(int(sys.argv[1]))
if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")
