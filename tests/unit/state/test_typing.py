"""Types of state, checked by mypy and by pyright in strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    "class PMap" not in (ROOT / "python/ropewalk/_state.pyi").read_text(), reason="the stub has no maps yet"
)

HEAD = """
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_type

from ropewalk import Err, Ok, Result
from ropewalk.state import (
    AppendOnly, Const, Counter, Draft, Job, Path, PMap, PVector, Shm, Store, Task, Transient, conflicts, covers,
    float32, paths, task, writable,
)


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[Account]
    accounts: PMap[str, Account]
    journal: AppendOnly[Account]
    hits: Counter
    cursor: Transient[int]
    weights: Shm[float32, "n 256"]
    counts: PMap[str, Counter]


P = paths(Bank)


@task(reads=[P.limits], writes=[P.accounts, P.journal], label="pay", retries=3)
def transfer(b: Draft[Bank], src: str, n: int, *, fast: bool = False) -> Result[int, str]:
    if b.accounts[src].balance < n:
        return Err(src)
    b.accounts[src].balance -= n
    b.accounts[src] = Account(src, n)
    b.journal.append(Account(src, n))
    b.hits += 1
    del b.accounts["x"]
    return Ok(n)


@task
def free(b: Draft[Bank]) -> int:
    return 3


@task(writes=[P.hits])
def counted(b: Draft[Bank], by: int = 1) -> int:
    b.hits += by
    return by


def plain(b: Draft[Bank]) -> str:
    return "x"
"""

RIGHT = """
async def stored(store: Store[Bank]) -> None:
    assert_type(store.snapshot(), Bank)
    assert_type(store.at(3), Bank)
    assert_type(store.history()[0].state, Bank)
    assert_type(store.run(transfer, "ann", 3), Ok[int] | Err[str])
    assert_type(await store.arun(free), int)
    assert_type(await store.submit(free), int)
    async for change in store.changes():
        assert_type(change.new, Bank)
    async for part in store.changes(P.accounts[...].balance):
        assert_type(part.old, Any)
    assert_type(store.run_all([free, free]), list[int])
    assert_type(store.run_all([(transfer, "ann", 3)]), list[Ok[int] | Err[str]])
    assert_type(store.run_all([partial(counted, by=3), partial(free)]), list[int])
    # Checkers differ in what they find.
    mixed: list[Any] = store.run_all([free, (counted, 3), partial(counted, by=3)])
    print(store.run_all([free, (transfer, "ann", 3), plain]), mixed)
    assert_type(store.run_all((counted, number) for number in range(3)), list[int])
    assert_type(store.run_all(plain for _ in range(3)), list[str])
    same = [(counted, number) for number in range(3)]
    assert_type(store.run_all(same), list[int])
    several: list[Job[Any]] = [free, (transfer, "ann", 3)]
    assert_type(store.run_all(several), list[Any])
    with store.transaction("t") as tx, store.by("eve"):
        assert_type(tx.version, int | None)


def fields(bank: Bank) -> None:
    assert_type(bank.limits, Account)
    assert_type(bank.accounts["ann"], Account)
    assert_type(bank.journal, PVector[Account])
    assert_type(bank.journal[0], Account)
    assert_type(bank.hits, int)
    assert_type(bank.cursor, int)
    assert_type(bank.counts["a"], int)
    assert_type(bank.weights.nbytes, int)
    assert_type(writable(bank.weights).nbytes, int)
    bank.weights[3] *= 2
    bank.weights[3, 4] = 1


def called(bank: Draft[Bank]) -> None:
    assert_type(transfer(bank, "ann", 3), Ok[int] | Err[str])
    assert_type(transfer(object(), "ann", n=3, fast=True), Ok[int] | Err[str])
    assert_type(free(bank), int)
    one: Task[[], int] = free
    assert_type(one.label, str)


def named() -> None:
    assert_type(P, Path[Bank])
    assert_type(P.accounts["ann"].balance, Path[Any])
    assert_type(P.accounts[...], Path[Any])
    assert_type(covers(P, P.accounts), bool)
    assert_type(conflicts(transfer.contract, free.contract), bool)
"""

#: Each is one mistake, and what mypy and pyright say about it.
WRONG = {
    "an argument of another type": ("transfer(object(), 3, 3)\n", "arg-type", "reportArgumentType"),
    "an argument that is missing": ("transfer(object(), 'ann')\n", "call-arg", "reportCallIssue"),
    "an argument that is not there": ("free(object(), 3)\n", "call-arg", "reportCallIssue"),
    "a result of another type": ("one: str = free(object())\n", "assignment", "reportAssignmentType"),
    "a wrong switch": ("task(strict='never')\n", "call-overload", "reportArgumentType"),
    "a contract of another thing": ("task(reads=[3])\n", "list-item", "reportArgumentType"),
    "a task without a draft": ("@task\ndef none() -> int:\n    return 3\n", "arg-type", "reportArgumentType"),
    "a job that is no task": (
        "def f(store: Store[Bank]) -> None:\n    store.run_all([3])\n",
        "arg-type",
        "reportArgumentType",
    ),
    "a job whose first part is no task": (
        "def f(store: Store[Bank]) -> None:\n    store.run_all([(3, free)])\n",
        "arg-type",
        "reportArgumentType",
    ),
    "a task in the place of a list of jobs": (
        "def f(store: Store[Bank]) -> None:\n    store.run_all(free)\n",
        "call-overload",
        "reportArgumentType",
    ),
    "results of another type": (
        "def f(store: Store[Bank]) -> None:\n    one: str = store.run_all([free])[0]\n",
        "assignment",
        "reportAssignmentType",
    ),
    "a field of a frozen state": (
        "def f(bank: Bank) -> None:\n    bank.hits = 3\n",
        "misc",
        "reportAttributeAccessIssue",
    ),
    "a value of another type in a zone": (
        "def f(bank: Bank) -> str:\n    return bank.hits\n",
        "return-value",
        "reportReturnType",
    ),
}


def _checked(file: Path, *command: str) -> str:
    environment = os.environ | {"MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=file.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return done.stdout + done.stderr


def run_mypy(file: Path) -> list[str]:
    """The codes of the errors that mypy finds, and their lines."""
    pytest.importorskip("mypy")
    said = _checked(file, "mypy", "--strict", "--config-file=", f"--cache-dir={file.parent}", file.name)
    return [line for line in said.splitlines() if ": error:" in line]


def run_pyright(file: Path) -> list[str]:
    """The rules of the errors that pyright finds, and their lines."""
    pytest.importorskip("pyright")
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": [str(ROOT / "python")],
        "reportMissingModuleSource": False,
    }
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    said = _checked(file, "pyright", "--outputjson", "--pythonpath", sys.executable, file.name)
    found = json.loads(said[said.index("{") :])["generalDiagnostics"]
    return [f"{one['range']['start']['line'] + 1}: {one.get('rule')}: {one['message']}" for one in found]


def test_right_programs_pass(tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text(HEAD + RIGHT)
    assert not run_mypy(file)
    assert not run_pyright(file)


def test_each_mistake_is_found(tmp_path: Path) -> None:
    # One file for all, because a checker takes seconds to start.
    first = HEAD.count("\n")
    text = HEAD
    places: dict[str, range] = {}
    for name, (mistake, _, _) in WRONG.items():
        places[name] = range(first + 1, first + 1 + mistake.count("\n"))
        text += mistake
        first += mistake.count("\n")
    file = tmp_path / "wrong.py"
    file.write_text(text)
    mypy, pyright = run_mypy(file), run_pyright(file)
    for name, (_, code, rule) in WRONG.items():
        mine = [line for line in mypy if int(line.split(":")[1]) in places[name]]
        assert any(f"[{code}]" in line for line in mine), (name, mine)
        its = [line for line in pyright if int(line.split(":")[0]) in places[name]]
        assert any(f": {rule}:" in line for line in its), (name, its)
