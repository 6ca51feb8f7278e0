"""Tasks: functions with contracts, that are called, copied to other processes, and compiled."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import pytest

from ropewalk.state import (
    Const,
    Contract,
    ContractViolation,
    Draft,
    NoSuchPath,
    PMap,
    StateError,
    Task,
    paths,
    policy_shape,
    shape_of,
    task,
)

ROOT = FilePath(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[int]
    accounts: PMap[str, int]


@dataclass(frozen=True, slots=True)
class Other:
    limits: int


P = paths(Bank)


@task(reads=[P.limits], writes=[P.accounts], label="pay", retries=3)
def transfer(b: Draft[Bank], src: str, *, n: int = 1) -> int:
    """Moves money."""
    b.accounts[src] -= n
    return n


@task
def free(b: Draft[Bank]) -> int:
    return int(b.limits)


class Holder:
    @staticmethod
    @task(reads=[P.limits])
    def inside(b: Draft[Bank]) -> int:
        return int(b.limits)


def test_a_task_is_called_with_any_object() -> None:
    bank = SimpleNamespace(accounts={"ann": 5}, limits=9)
    assert transfer(bank, "ann", n=2) == 2
    assert bank.accounts == {"ann": 3}
    assert free(bank) == 9
    with pytest.raises(TypeError):
        transfer(bank, "ann", wrong=2)  # type: ignore[call-arg]


def test_a_task_has_its_contract() -> None:
    assert transfer.contract == Contract([P.limits], [P.accounts])
    assert (transfer.label, transfer.retries, transfer.strict) == ("pay", 3, True)
    assert (free.contract, free.label, free.retries) == (None, "free", None)
    assert task(reads=[])(lambda b: 1).contract == Contract()
    assert task()(lambda b: 1).contract is None
    assert task(writes=[P.accounts], strict="warn")(lambda b: 1).strict == "warn"


def test_a_task_looks_like_its_function() -> None:
    assert transfer.__doc__ == "Moves money."
    assert transfer.__name__ == transfer.__wrapped__.__name__ == "transfer"
    assert list(inspect.signature(transfer).parameters) == ["b", "src", "n"]
    assert repr(transfer) == "<Task pay>"
    assert transfer.__module__ == __name__


def test_wrong_tasks() -> None:
    anything: Any = task

    async def later(b: Any) -> None: ...

    def generator(b: Any) -> Any:
        yield b

    def without() -> None: ...

    def named(*, b: Any) -> None: ...

    for wrong, words in (
        (later, "is an asynchronous one"),
        (generator, "is a generator"),
        (without, "has none that is positional"),
        (named, "has none that is positional"),
        (print, "must be a plain function, not <built-in"),
        (3, "must be a plain function, not 3"),
        (transfer, "is a task already"),
    ):
        with pytest.raises(TypeError, match=words):
            anything(wrong)
    anything(lambda *args: None)
    with pytest.raises(TypeError, match="label must be text"):
        anything(label=3)
    with pytest.raises(ValueError, match="strict must be True, False or 'warn', not 1"):
        anything(strict=1)
    with pytest.raises(ValueError, match="strict must be True, False or 'warn', not 'never'"):
        anything(strict="never")
    with pytest.raises(ValueError, match="retries must be 0 or more"):
        anything(retries=-1)


def test_a_wrong_contract_is_found_at_the_decorator() -> None:
    with pytest.raises(NoSuchPath):
        task(reads=[P.acounts])
    with pytest.raises(ContractViolation, match=r"Bank\.limits is Const") as caught:

        @task(writes=[P.limits], label="mine")
        def wrong(b: Draft[Bank]) -> None: ...

    assert caught.value.task == "mine"


def test_rules_are_kept_for_each_shape() -> None:
    shape = shape_of(Bank)
    rule = transfer.rule_for(shape)
    assert transfer.rule_for(shape) is rule
    assert free.rule_for(shape) is not rule
    with pytest.raises(StateError, match="a contract of Bank was used with a state of Other"):
        transfer.rule_for(shape_of(Other))
    texts = task(writes=["limits"], label="texts")(lambda b: None)
    assert texts.rule_for(shape_of(Other)) is texts.rule_for(shape_of(Other))
    with pytest.raises(ContractViolation) as caught:
        texts.rule_for(shape)
    assert caught.value.task == "texts"
    with pytest.raises(NoSuchPath):
        task(writes=["none"])(lambda b: None).rule_for(shape)
    assert texts.rule_for(policy_shape({})) is not None


def test_a_rule_does_not_keep_a_shape() -> None:
    @task
    def local(b: Any) -> None: ...

    shape = policy_shape({})
    local.rule_for(shape)
    gone = weakref.ref(shape)
    del shape
    gc.collect()
    assert gone() is None


def test_a_task_pickles_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(transfer)) is transfer
    assert pickle.loads(pickle.dumps(Holder.inside)) is Holder.inside
    assert copy.deepcopy(transfer) is copy.copy(transfer) is transfer


def test_a_task_of_a_function_pickles_by_its_parts() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")

    @task(reads=[P.limits], label="local", strict=False, retries=2)
    def local(b: Any, n: int) -> int:
        return int(b.limits + n)

    again = pickle.loads(cloudpickle.dumps(local))
    assert isinstance(again, Task)
    assert again(SimpleNamespace(limits=2), 3) == 5
    assert (again.contract, again.label, again.strict, again.retries) == (local.contract, "local", False, 2)
    assert again.rule_for(shape_of(Bank)) is not None


def test_a_draft_is_no_class_to_make() -> None:
    with pytest.raises(TypeError, match="a draft is made by a store"):
        Draft()


MAIN = """
import pickle
from dataclasses import dataclass
from types import SimpleNamespace

import ropewalk
from ropewalk.state import Const, Draft, Task, paths, task


@dataclass(frozen=True)
class State:
    limits: Const[int]


P = paths(State)


@task(reads=[P.limits], label="mine")
def plain(b: Draft[State], n: int) -> int:
    return helper(b.limits) + n


def helper(value):
    return value * 10


def apart(n):
    return plain(SimpleNamespace(limits=n), 1)


def described(one):
    return type(one).__name__, one.label, str(one.contract), one(SimpleNamespace(limits=2), 3)


if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(plain)) is plain
    with ropewalk.Pool(kind="process", workers=1) as pool:
        print(pool.submit(apart, 4).result())
        print(pool.submit(plain, SimpleNamespace(limits=3), 2).result())
        print(pool.submit(described, plain).result())
"""


def test_a_task_of_main_goes_to_workers(tmp_path: FilePath) -> None:
    file = tmp_path / "main.py"
    file.write_text(MAIN)
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["41", "32", "('Task', 'mine', 'Contract(reads=[P.limits])', 23)"], (
        done.stderr
    )
