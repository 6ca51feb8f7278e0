"""Keys whose methods come back to the draft that looks them up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk import StateError
from ropewalk.state import Store, leaf

KEYS = Path(__file__).with_name("reentrant.py")


@leaf
class Calls:
    """A key that equals others of its number, and calls a function first, once."""

    hook: Callable[[], object] | None = None

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        hook, Calls.hook = Calls.hook, None
        if hook is not None:
            hook()
        return isinstance(other, Calls) and other.number == self.number


WALKS: dict[str, Callable[[Any, Any], object]] = {
    "repr": lambda _tx, items: repr(items),
    "value": lambda tx, items: tx.value(items),
    "store": lambda tx, items: tx.draft.__setitem__("other", items),
    "within": lambda tx, items: tx.draft.__setitem__("other", [items]),
}
USES: dict[str, Callable[[Any, Any], object]] = {
    "assign": lambda _tx, items: [items.__setitem__(index, 0) for index in range(4)],
    "append": lambda _tx, items: [items.append(index) for index in range(5000)],
    "read": lambda _tx, items: items[0],
    "len": lambda _tx, items: len(items),
    "value": lambda tx, items: tx.value(items),
    "savepoint": lambda tx, _items: tx.savepoint().__enter__(),
    "abort": lambda tx, _items: tx.abort(),
}


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("use", USES)
def test_a_draft_that_is_read_whole_is_not_used_meanwhile(walk: str, use: str) -> None:
    store = Store({"items": []})
    with store.transaction() as tx:
        items = tx.draft["items"]
        for _ in range(4):
            items.append({Calls(0): 0, Calls(1): 1})
        for item in list(items):
            item[Calls(2)] = 2
        Calls.hook = lambda: USES[use](tx, items)
        with pytest.raises(StateError, match="is being read whole"):
            WALKS[walk](tx, items)
        assert Calls.hook is None
        # The transaction goes on as if nothing had been asked of it.
        items.append(1)
        assert len(tx.value(items)) == 5
    assert len(store.snapshot()["items"]) == 5


def test_repr_within_a_walk_says_that_the_draft_is_being_read() -> None:
    shown: list[str] = []
    with Store({"item": {}}).transaction() as tx:
        item = tx.draft["item"]
        item[Calls(0)] = 0
        item[Calls(1)] = 1
        Calls.hook = lambda: shown.append(repr(item))
        tx.value(tx.draft)
    assert shown == ["<draft that is being read>"]


def test_a_value_that_is_replaced_while_its_key_is_compared_is_not_used() -> None:
    with Store({}).transaction() as tx:
        draft = tx.draft
        draft[Calls(0)] = ("old", 1)
        Calls.hook = lambda: draft.__setitem__(Calls(0), ("new", 2))
        assert draft[Calls(0)] == ("new", 2)


@pytest.mark.parametrize("seed", range(6))
def test_random_methods_of_keys_and_values_harm_nothing(seed: int) -> None:
    """In a process of its own, whose memory is filled when it is freed."""
    environment = os.environ | {"PYTHONMALLOC": "debug", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(KEYS), str(seed), "150", str(seed % 2)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "commits" in ended.stdout
