"""Tasks that no worker can import: how often they are pickled, and that workers have them as they are."""
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state._bank import P, bank, count, transfer

import ropewalk
from ropewalk._errors import ContractViolation, EncodeError, ResultEncodeError, WorkerCrashed
from ropewalk.pool.wire import _functions
from ropewalk.state import Store, task

PROGRAM = """
from dataclasses import dataclass

import ropewalk
from ropewalk.pool.wire import _functions
from ropewalk.state import Counter, PMap, Store, paths, task

MADE = []
encode = _functions.encode

def counted(function):
    MADE.append(function.__qualname__)
    return encode(function)

_functions.encode = counted


@dataclass(frozen=True)
class Item:
    size: int


@dataclass(frozen=True)
class State:
    a: int = 0
    b: int = 0
    hits: Counter = 0
    items: PMap[str, Item] = PMap()

    def total(self):
        return self.a + self.b


P = paths(State)
STEP = 1

def step():
    return STEP

@task(writes=[P.a, P.hits])
def one(s, times=1):
    s.a += step() * times
    s.hits += 1
    return int(s.a)

@task(writes=[P.b, P.items["x"]])
def other(s):
    s.b += 1
    s.items[f"i{s.b}"] = Item(int(s.b))
    return s.items[f"i{s.b}"]
"""


def _program(tmp_path: Path, source: str) -> list[str]:
    """What a script prints."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + textwrap.dedent(source))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_task_of_the_main_module_is_pickled_once_and_again_when_a_global_changes(tmp_path: Path) -> None:
    source = """
        with ropewalk.Pool(2, kind="process") as pool, Store(State(), pool=pool) as store:
            print(store.run_all([one, other] * 10)[-2:])
            print([store.submit(one, times=2).result(60) for _ in range(5)])
            print(sorted(MADE))
            STEP = 10
            print([store.submit(one).result(60) for _ in range(3)])
            def step():
                return 100
            print(store.submit(one, 2).result(60), store.run_all([one, other]))
            print(sorted(MADE), store.snapshot().total(), store.snapshot().hits)
        """
    assert _program(tmp_path, source) == [
        "[10, Item(size=10)]",
        "[12, 14, 16, 18, 20]",
        "['one', 'other']",
        "[30, 40, 50]",
        "250 [350, Item(size=11)]",
        "['one', 'one', 'one', 'other'] 361 20",
    ]


def test_a_class_that_is_defined_again_is_another_state(tmp_path: Path) -> None:
    source = """
        before = State
        with ropewalk.Pool(1, kind="process") as pool:
            with Store(State(), pool=pool) as store:
                print(store.submit(one).result(60))
            @dataclass(frozen=True)
            class State:
                a: str = "a"
                hits: Counter = 0
            P = paths(State)
            @task(writes=[P.a])
            def one(s):
                s.a += "b"
                return str(s.a)
            with Store(State(), pool=pool) as store:
                print(store.submit(one).result(60))
            with Store(before(), pool=pool) as store:
                print(store.submit(other).result(60))
        """
    assert _program(tmp_path, source) == ["1", "ab", "Item(size=1)"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    encode = _functions.encode

    def counted(function: Callable[..., Any]) -> Any:
        names.append(function.__qualname__)
        return encode(function)

    monkeypatch.setattr(_functions, "encode", counted)
    return names


def _adder(amount: int, log: list[int] | None = None) -> Any:
    @task(writes=[P.hits], label=f"add{amount}")
    def add(b: Any, times: int = 1) -> int:
        b.hits += amount * times
        if log is not None:
            log.append(amount)
        return os.getpid()

    return add


def test_closures_are_pickled_once_for_each_store(made: list[str]) -> None:
    tasks = [_adder(1), _adder(10)]
    with ropewalk.Pool(2, kind="process") as pool:
        for _ in range(2):
            with Store(bank(), pool=pool) as store:
                futures = [store.submit(one, times=2) for one in tasks * 5]
                assert os.getpid() not in {future.result(60) for future in futures}
                assert store.snapshot().hits == 110
    assert sorted(made) == ["add1", "add1", "add10", "add10"]


def test_what_may_change_unnoticed_is_pickled_each_time() -> None:
    amounts = [1]
    lock = {"by": amounts}

    def add(b: Any) -> int:
        b.hits += lock["by"][0]
        return int(b.hits)

    with ropewalk.Pool(1, kind="process") as pool, Store(bank(), pool=pool) as store:
        assert [store.submit(add).result(60) for _ in range(2)] == [1, 2]
        amounts[0] = 10
        assert store.submit(add).result(60) == 12


def test_every_kind_of_callable_is_sent() -> None:
    class Adder:
        def __call__(self, b: Any, number: int) -> int:
            b.hits += number
            return int(b.hits)

        def twice(self, b: Any, number: int) -> int:
            return self(b, 2 * number)

    @task
    def free(b: Any, number: int) -> int:
        b.hits += number
        return int(b.hits)

    @task(writes=[P.accounts], strict=False)
    def loose(b: Any, number: int) -> int:
        b.hits += number
        return int(b.hits)

    texts = task(reads=["hits"], writes=["hits"])(lambda b, number: free(b, number))
    every = [Adder(), Adder().twice, free, loose, texts, count, lambda b, number: free(b, number)]
    with ropewalk.Pool(1, kind="process") as pool, Store(bank(), pool=pool) as store:
        results = [store.submit(one, 1).result(60) for one in every]
        assert results == [1, 3, 4, 5, 6, 7, 8]
        with pytest.raises(ContractViolation, match="the task sneak reads accounts"):
            store.submit(task(writes=[P.hits], label="sneak")(lambda b: len(b.accounts))).result(60)


@pytest.mark.skipif(
    sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="3.13 without a global lock keeps every class once there was a second thread",
)
def test_a_task_and_its_store_are_not_kept() -> None:
    class Known:
        pass

    def adder(known: Any) -> Any:
        @task(reads=[P.hits], writes=[P.hits])
        def add(b: Any, number: int) -> int:
            assert known is not None
            b.hits += number
            return int(b.hits)

        return add

    with ropewalk.Pool(1, kind="process") as pool, Store(bank(), pool=pool) as store:
        known: Any = Known
        add = adder(known)
        assert store.submit(add, 3).result(60) == 3
        gone = weakref.ref(add), weakref.ref(add.__wrapped__), weakref.ref(known)
        del add, known, Known
        until(lambda: gc.collect() + 1 and all(is_gone(one) for one in gone))
    kept = _adder(3)
    with ropewalk.Pool(1, kind="process") as pool:
        store = Store(bank(), pool=pool)
        store.submit(kept).result(60)
        assert len(kept._shipped) == 1
        there = weakref.ref(store)
        store.close()
        del store
        until(lambda: gc.collect() + 1 and is_gone(there))
        assert not len(kept._shipped)


# --- errors -----------------------------------------------------------------------------------------------------------


@task(writes=[P.hits])
def returns(b: Any, what: str) -> Any:
    b.hits += 1
    if what == "effect":
        b.on_commit(print, threading.Lock())
    return threading.Lock() if what == "result" else 3


@task(writes=[P.hits], label="the end")
def dies(b: Any) -> None:
    os._exit(3)


def test_errors_name_the_task_and_the_argument_of_the_program() -> None:
    with ropewalk.Pool(1, kind="process") as pool, Store(bank(), pool=pool) as store:
        with pytest.raises(EncodeError, match=r"the task returns to a worker process: argument 2, <unlocked"):
            store.submit(returns, "x", threading.Lock()).result(60)  # type: ignore[call-arg]
        with pytest.raises(
            EncodeError, match=r"the task returns to a worker process: argument what, <unlocked"
        ):
            store.submit(returns, what=threading.Lock()).result(60)  # type: ignore[arg-type]
        lock = threading.Lock()
        hold = task(writes=[P.hits], label="hold")(lambda b: lock)
        with pytest.raises(EncodeError, match="cannot send <function hol") as caught:
            store.submit(hold).result(60)
        assert caught.value.__notes__ == ["the task hold of a store was on its way to a worker process"]
        with pytest.raises(ResultEncodeError, match="the task returns returned <unlocked"):
            store.submit(returns, "result").result(60)
        with pytest.raises(ResultEncodeError, match=r"the task returns gave <unlocked.* to the effect print"):
            store.submit(returns, "effect").result(60)
        assert store.version == 0


def test_a_lost_worker_is_one_of_the_task() -> None:
    with ropewalk.Pool(1, kind="process") as pool, Store(bank(), pool=pool) as store:
        with pytest.raises(WorkerCrashed, match=r"the end\(") as caught:
            store.submit(dies).result(60)
        assert "the task the end changed nothing" in caught.value.__notes__[0]
        assert "pool.options(retries=2)" in caught.value.__notes__[0]
        store.submit(transfer, "a0", "a1", 1).result(60)


def test_a_pool_runs_a_task_again_whose_worker_is_lost(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    @task(writes=[P.hits])
    def flaky(b: Any, flag: Path) -> None:
        b.hits += 1
        if not flag.exists():
            flag.touch()
            os._exit(3)

    with (
        ropewalk.Pool(1, kind="process") as pool,
        Store(bank(), pool=pool.options(retries=2)) as store,
    ):
        store.submit(flaky, flag).result(60)
        assert store.snapshot().hits == 1
