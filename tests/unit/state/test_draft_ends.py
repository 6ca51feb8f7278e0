"""The end of drafts: after a transaction, in other threads, in the depth, and in the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import operator
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.polling import is_gone

from ropewalk._errors import StateError, TransactionEnded
from ropewalk.state import PVector, Store, leaf


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


# --- the end, and other threads ---------------------------------------------------------------------------------------


def uses(d: Any) -> list[Callable[[], Any]]:
    one, v, m = d["one"], d["v"], d["m"]
    return [
        lambda: one.balance,
        lambda: setattr(one, "balance", 1),
        lambda: v[0],
        lambda: v.append(1),
        lambda: v.pop(),
        lambda: len(v),
        lambda: list(v),
        lambda: m["a"],
        lambda: operator.setitem(m, "a", 1),
        lambda: m.get("a"),
        lambda: "a" in m,
        lambda: list(m),
        lambda: one == one.owner,
        lambda: d["one"],
        lambda: d.on_commit(print),
        lambda: one.on_commit(print),
    ]


def state() -> dict[str, Any]:
    return {"one": Account("ann", 5), "v": [1], "m": {"a": 1}}


@pytest.mark.parametrize("end", ["commit", "error", "abort"])
def test_no_draft_can_be_used_after_the_end(end: str) -> None:
    store = Store(state())
    kept: list[Callable[[], Any]] = []
    with contextlib.suppress(KeyError), store.transaction() as tx:
        kept += uses(tx.draft)
        if end == "error":
            raise KeyError(end)
        if end == "abort":
            tx.abort()
    for use in kept:
        with pytest.raises(TransactionEnded, match="has ended"):
            use()
    with pytest.raises(TransactionEnded):
        store.run(lambda d: operator.setitem(d, "x", kept_draft(store)))
    assert store.version == 0


def kept_draft(store: Store[Any]) -> Any:
    with store.transaction() as tx:
        return tx.draft["m"]


def test_no_draft_can_be_used_from_another_thread() -> None:
    store = Store(state())
    caught: list[str] = []

    def other(calls: list[Callable[[], Any]]) -> None:
        for call in calls:
            try:
                call()
            except TransactionEnded as error:
                caught.append(str(error))

    with store.transaction() as tx:
        calls = [*uses(tx.draft), lambda: tx.draft, tx.abort, lambda: tx.savepoint().__enter__()]
        thread = threading.Thread(target=other, args=(calls,))
        thread.start()
        thread.join()
        tx.draft["v"].append(2)
    assert len(caught) == len(calls)
    assert all("thread" in text for text in caught)
    assert store.snapshot()["v"] == PVector([1, 2])


def test_checks_cannot_use_the_drafts() -> None:
    kept: list[Any] = []
    seen: list[str] = []

    @dataclass(frozen=True)
    class Checked:
        n: int

        def __post_init__(self) -> None:
            for draft in kept:
                try:
                    draft.n = 7
                except TransactionEnded as error:
                    seen.append(str(error))

    store = Store({"a": Checked(1)})

    def work(d: Any) -> None:
        kept.append(d["a"])
        d["a"].n = 2

    store.run(work)
    assert len(seen) == 1
    assert "being committed" in seen[0]
    assert store.snapshot()["a"].n == 2


# --- sizes, cycles, leaks ---------------------------------------------------------------------------------------------


def test_values_that_are_too_deep_are_refused() -> None:
    value: Any = []
    for _ in range(10_000):
        value = [value]
    cycle: list[Any] = []
    cycle.append(cycle)
    store = Store({})
    for bad in (value, cycle, {"a": cycle}, (cycle,)):
        with pytest.raises(StateError, match="500 levels"):
            store.run(lambda d, bad=bad: operator.setitem(d, "x", bad))

    def down(d: Any) -> None:
        for _ in range(10_000):
            d["x"] = {}
            d = d["x"]

    with pytest.raises(StateError, match="500 levels"):
        store.run(down)
    assert store.version == 0


DEEP = """
from dataclasses import dataclass
from ropewalk._errors import ContractViolation
from ropewalk.state import Const, PMap, Store, paths, task
from typing import Any

@dataclass(frozen=True, slots=True)
class Root:
    fixed: Const[int]
    any: PMap[str, Any]

def down(r):
    d = r.any
    for _ in range(200_000):
        d["x"] = {}
        d = d["x"]
    try:
        r.fixed = 1
    except ContractViolation:
        print("refused")
    raise KeyError

store = Store(Root(1, PMap()))
for _ in range(2):
    try:
        store.run(down)
    except KeyError:
        print("dropped")
"""


def test_drafts_of_any_depth_are_dropped_without_a_deep_stack() -> None:
    out = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout.split()) == (0, ["refused", "dropped"] * 2), out.stderr


def test_cycles_through_drafts_and_stores_are_collected() -> None:
    class Mark:
        pass

    mark = Mark()
    known = weakref.ref(mark)
    store = Store(state())
    with store.transaction() as tx:
        tx.draft["v"].append(2)
        tx.draft["one"].balance = 3
        tx.on_commit(lambda *_: None, mark, tx, store, tx.draft["m"])
        mark.all = (mark, store, tx, uses(tx.draft))  # type: ignore[attr-defined]
        tx.abort()
    del store, tx, mark
    gc.collect()
    assert is_gone(known)


def test_transactions_keep_no_references() -> None:
    class Leaf:
        __slots__ = ("__weakref__",)

    leaf(Leaf)
    value = Leaf()
    key = "key-" + "x" * 5
    store = Store({"v": [1, 2], "m": {key: {"n": 0}}}, history=1)

    def work(d: Any) -> None:
        d["v"].append(value)
        d["v"][0] = value
        d["v"].pop()
        d["m"][key]["n"] = value
        d["m"]["gone"] = {"n": value}
        del d["m"]["gone"]
        raise KeyError

    def counts() -> tuple[int, ...]:
        gc.collect()
        return sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(store)

    def again(times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(KeyError):
                store.run(work)

    again(10)
    before = counts()
    again(100_000)
    assert counts() == before
