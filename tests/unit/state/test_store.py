"""`Store` without a journal: transactions, their results, conflicts, savepoints and merges."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.polling import until

from ropewalk._errors import (
    Conflict,
    ContractViolation,
    NoSuchPath,
    NotFrozen,
    StateError,
)
from ropewalk.result import Err, Ok
from ropewalk.state import (
    DELETE,
    AppendOnly,
    Counter,
    PMap,
    PVector,
    Store,
    Transient,
    paths,
    task,
)

EMPTY: PVector[Any] = PVector()


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Bank:
    accounts: PMap[str, Account]
    journal: AppendOnly[Any] = EMPTY
    hits: Counter = 0
    cursor: Transient[int] = 0


P = paths(Bank)


def bank(**options: Any) -> Store[Bank]:
    return Store(Bank(PMap({name: Account(name, 100) for name in ("ann", "bob")})), **options)


def add(b: Any, name: str, amount: int = 1) -> int:
    b.accounts[name].balance += amount
    return int(b.accounts[name].balance)


def balance(store: Store[Bank], name: str = "ann") -> int:
    return store.snapshot().accounts[name].balance


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_commits_and_returns() -> None:
    store = bank()
    before = store.snapshot()
    assert store.run(add, "ann", amount=5) == 105
    assert (store.version, balance(store), before.accounts["ann"].balance) == (1, 105, 100)
    assert asyncio.run(store.arun(add, "ann")) == 106
    assert store.run_all([(add, "ann"), (add, "bob", 7), lambda b: None]) == [107, 107, None]
    assert store.version == 4


def test_what_changes_nothing_makes_no_version() -> None:
    store = bank()
    state = store.snapshot()
    store.run(lambda b: (list(b.accounts), b.accounts["ann"].balance))
    store.run(lambda b: setattr(b, "accounts", b.accounts))
    with store.transaction() as tx:
        assert len(tx.draft.accounts) == 2
    assert store.version == 0
    assert store.snapshot() is state


def test_what_is_not_touched_stays_the_same_object() -> None:
    store = bank()
    bob = store.snapshot().accounts["bob"]
    store.run(add, "ann")
    assert store.snapshot().accounts["bob"] is bob


@pytest.mark.parametrize("wrong", [3, None, "add"])
def test_run_takes_functions_only(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a task or a function"):
        bank().run(wrong)


def test_functions_that_run_later_are_refused() -> None:
    async def coroutine(b: Any) -> None:
        add(b, "ann")

    def generator(b: Any) -> Any:
        yield add(b, "ann")

    store = bank()
    for wrong in (coroutine, generator, lambda b: (name for name in b.accounts)):
        with pytest.raises(TypeError, match="plain function"):
            store.run(wrong)
    assert store.version == 0


def test_err_rolls_back_and_comes_out() -> None:
    store = bank()

    def refuse(b: Any, error: Any) -> Any:
        add(b, "ann")
        b.on_commit(print, "never")
        return Err(b.accounts["ann"] if error is None else error)

    assert store.run(refuse, "poor") == Err("poor")
    assert store.run(refuse, None) == Err(Account("ann", 101))
    assert store.run_all([(refuse, "x"), (add, "bob")]) == [Err("x"), 101]
    assert (store.version, balance(store)) == (1, 100)


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_exceptions_roll_back(error: BaseException) -> None:
    store = bank()

    def fail(b: Any) -> None:
        add(b, "ann")
        b.on_commit(print, "never")
        raise error

    for use in (
        lambda: store.run(fail),
        lambda: store.run_all([(add, "bob"), fail, (add, "bob")]),
        lambda: in_block(store, fail),
    ):
        with pytest.raises(type(error)):
            use()
    assert (store.version, balance(store), balance(store, "bob")) == (1, 100, 101)


def in_block(store: Store[Any], function: Callable[[Any], Any]) -> None:
    with store.transaction() as tx:
        function(tx.draft)


def test_results_have_no_drafts() -> None:
    store = bank()
    ann = Account("ann", 101)

    def work(b: Any) -> Any:
        add(b, "ann")
        one = b.accounts["ann"]
        return one, [one, (one, {"x": one})], {"all": b.accounts}, Ok(one), b.hits, None

    found = store.run(work)
    assert found == (ann, [ann, (ann, {"x": ann})], {"all": store.snapshot().accounts}, Ok(ann), 0, None)
    assert type(found[0]) is Account
    assert type(found[4]) is int
    assert store.run(lambda b: Ok([b.journal])) == Ok([PVector()])
    kept = [1, {"a": (2,)}]
    assert store.run(lambda b: kept) is kept


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_a_conflict_runs_the_task_again() -> None:
    store = bank()
    tries = []

    def slow(b: Any) -> None:
        tries.append(b.accounts["ann"].balance)
        if len(tries) == 1:
            other_thread(lambda: store.run(add, "ann", 10))
        b.accounts["ann"].balance *= 2

    store.run(slow)
    assert (tries, balance(store)) == ([100, 110], 220)


def other_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_block_raises_and_explains() -> None:
    store = bank()
    with pytest.raises(Conflict) as caught, store.transaction("fees") as tx:  # noqa: PT012
        tx.draft.accounts["ann"].balance -= 1
        store.run(add, "bob")
        store.run(task(label="rival")(lambda b: add(b, "ann")))
    error = caught.value
    assert (error.path, error.version) == ("accounts['ann'].balance", 0)
    assert str(error) == tx.explain()
    for part in ("fees", "version 0", "accounts['ann'].balance", "rival", "version 2"):
        assert part in str(error)
    assert (balance(store), store.version) == (101, 2)
    with store.transaction() as tx:
        pass
    assert tx.explain() == ""


def test_explain_with_keys_that_are_names_of_methods() -> None:
    store = Store({"items": {"get": 1}, "other": 1})
    with pytest.raises(Conflict) as caught, store.transaction() as tx:  # noqa: PT012
        tx.draft["items"]["get"] += 1
        store.run(task(label="bystander")(lambda d: d.update(other=2)))
        store.run(task(label="rival")(lambda d: d["items"].update(get=5)))
    assert "rival" in str(caught.value)
    assert "version 2" in str(caught.value)


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_a_long_task_does_not_starve(retries: int) -> None:
    store = bank(retries=retries)
    stop = threading.Event()
    committed = []

    def storm() -> None:
        while not stop.is_set():
            store.run(add, "ann")
            committed.append(1)

    thread = threading.Thread(target=storm)
    thread.start()
    tries = []

    def long(b: Any) -> None:
        tries.append(1)
        value = b.accounts["ann"].balance
        if len(tries) <= retries + 1:
            # Others commit while it runs, until it has claimed what it touches; the first may be an older one.
            seen = len(committed)
            until(lambda: len(committed) > seen + 1)
        b.accounts["ann"].balance = value + 1_000_000

    try:
        store.run(long)
    finally:
        stop.set()
        thread.join()
    assert len(tries) == retries + 2
    assert balance(store) == 100 + 1_000_000 + len(committed)


def test_exclusive_lets_the_others_wait() -> None:
    store = bank()
    began = threading.Event()

    def other() -> None:
        began.set()
        store.run(add, "ann", 10)

    thread = threading.Thread(target=other)
    with store.transaction(exclusive=True) as tx:
        thread.start()
        began.wait()
        add(tx.draft, "ann")
        assert thread.is_alive()
    thread.join()
    assert [version.state.accounts["ann"].balance for version in store.history()] == [100, 101, 111]
    with pytest.raises(KeyError), store.transaction(exclusive=True):
        raise KeyError
    store.run(add, "ann")


def test_an_exclusive_block_cannot_wait_for_itself() -> None:
    store = bank()
    with store.transaction(exclusive=True) as tx:
        for use in (
            lambda: store.run(add, "bob"),
            lambda: store.run_all([(add, "bob")]),
            lambda: in_block(store, lambda b: None),
            store.undo,
        ):
            with pytest.raises(StateError, match="exclusive"):
                use()
        add(tx.draft, "ann")
    store.run(add, "bob")
    assert (balance(store), balance(store, "bob")) == (101, 101)


def test_a_transaction_within_a_task_that_has_claimed() -> None:
    store = bank(retries=0)
    tries = []

    def outer(b: Any) -> None:
        tries.append(1)
        b.accounts["ann"].balance += 1
        if len(tries) == 1:
            other_thread(lambda: store.run(add, "ann"))
        store.run(lambda inner: inner.journal.append(len(tries)))

    store.run(outer)
    assert (len(tries), balance(store), list(store.snapshot().journal)) == (2, 102, [1, 2])

    def selfish(b: Any) -> None:
        b.accounts["ann"].balance += 1
        store.run(add, "ann")

    with pytest.raises(Conflict, match="same store"):
        store.run(selfish)
    store.run(add, "ann")


def test_tasks_that_are_not_strict_claim_everything() -> None:
    store = bank(retries=0)
    tries = []

    @task(reads=[], strict=False)
    def loose(b: Any) -> None:
        tries.append(1)
        value = b.accounts["ann"].balance
        if len(tries) == 1:
            other_thread(lambda: store.run(add, "ann"))
        b.accounts["ann"].balance = value + 1

    store.run(loose)
    assert (len(tries), balance(store)) == (2, 102)


# --- savepoints and merges --------------------------------------------------------------------------------------------


def test_savepoints_nest() -> None:
    store = bank()
    done: list[str] = []
    with store.transaction() as tx:
        add(tx.draft, "ann")
        tx.on_commit(done.append, "first")
        with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012
            add(tx.draft, "ann", 10)
            tx.on_commit(done.append, "never")
            with tx.savepoint():
                add(tx.draft, "bob", 10)
                tx.draft.journal.append(1)
                tx.draft.hits += 1
            with pytest.raises(ValueError, match="inner"), tx.savepoint():  # noqa: PT012
                add(tx.draft, "bob", 100)
                del tx.draft.accounts["ann"]
                raise ValueError("inner")
            assert (tx.draft.accounts["ann"].balance, tx.draft.accounts["bob"].balance) == (111, 110)
            raise KeyError
        assert (tx.draft.hits, len(tx.draft.journal)) == (0, 0)
        with tx.savepoint():
            add(tx.draft, "bob")
        tx.on_commit(done.append, "last")
    assert (balance(store), balance(store, "bob"), store.version) == (101, 101, 1)
    assert done == ["first", "last"]


def test_a_draft_that_went_back_to_one_savepoint_goes_back_to_the_outer_one() -> None:
    store = bank()
    with store.transaction() as tx:
        with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012
            with pytest.raises(ValueError, match="inner"), tx.savepoint():  # noqa: PT012
                # Their first change: the outer savepoint has saved nothing of them.
                add(tx.draft, "bob", 10)
                tx.draft.journal.append(1)
                tx.draft.hits += 1
                raise ValueError("inner")
            add(tx.draft, "bob", 100)
            tx.draft.journal.append(2)
            tx.draft.hits += 2
            raise KeyError
        assert tx.draft.accounts["bob"].balance == 100
        assert (tx.draft.hits, len(tx.draft.journal)) == (0, 0)


def test_what_a_savepoint_has_read_counts() -> None:
    store = bank()
    with pytest.raises(Conflict), store.transaction() as tx:  # noqa: PT012
        with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012
            assert tx.draft.accounts["ann"].balance == 100
            raise KeyError
        tx.draft.accounts["bob"].balance = 1
        store.run(add, "ann")


def test_abort_in_a_savepoint_and_in_a_block() -> None:
    store = bank()
    with store.transaction() as tx:
        add(tx.draft, "ann")
        with tx.savepoint():
            tx.abort()
    assert (store.version, tx.version) == (0, None)


def test_merge_is_deep() -> None:
    store = Store({"a": {"b": {"c": 1, "d": 2}, "gone": 1}, "list": [1], "keep": 1})
    with store.transaction() as tx:
        tx.merge("a", {"b": {"c": 5, "new": {"deep": None}}, "gone": DELETE, "never": DELETE})
        tx.merge(None, {"list": [2, 3], "more": {"x": 1, "y": DELETE}})
    found = store.snapshot()
    assert found == PMap(
        {
            "a": PMap({"b": PMap({"c": 5, "d": 2, "new": PMap({"deep": None})})}),
            "list": PVector([2, 3]),
            "keep": 1,
            "more": PMap({"x": 1}),
        }
    )
    accounts = bank()
    with accounts.transaction() as tx:
        tx.merge(P.accounts, {"ann": {"balance": 7}, "bob": DELETE})
        tx.merge(P.accounts["ann"].owner, "Ann")
    assert accounts.snapshot().accounts == PMap({"ann": Account("Ann", 7)})


def test_wrong_merges_are_refused() -> None:
    store = bank()
    for path, values, error in (
        (None, 3, TypeError),
        (P.accounts[...], {}, ValueError),
        ("accounts['none'].balance", 3, NoSuchPath),
        (P.accounts["ann"], {"none": 1}, (NoSuchPath, AttributeError)),
        (P.accounts["ann"].balance, DELETE, TypeError),
        (P.journal, [], ContractViolation),
    ):
        with pytest.raises(error), store.transaction() as tx:
            tx.merge(path, values)
    assert store.version == 0


def test_arrays_are_refused_with_a_way_out() -> None:
    np = pytest.importorskip("numpy")
    with pytest.raises(NotFrozen, match=r'Shm\[float64, "3"\]'):
        Store({"weights": np.zeros(3)})
    store = Store({"weight": np.int64(3)})
    store.run(lambda root: root.update(weight=np.float32(4)))
    assert store.snapshot()["weight"] == 4
