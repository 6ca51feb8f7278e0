"""Contracts against code: what is seen of the source of a task."""

# ruff: noqa: B009, B010, B018, C417, PERF102, PERF402, SIM108, UP028  # The code is read, not run.

from __future__ import annotations

import copy
import dataclasses
import itertools
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ropewalk import Err, Ok
from ropewalk.state import (
    AppendOnly,
    Const,
    ContractViolation,
    Counter,
    Draft,
    PMap,
    PVector,
    StateError,
    Store,
    Task,
    paths,
    task,
)
from ropewalk.state.check import Examined, examine, infer


@dataclass(frozen=True, slots=True)
class Limits:
    most: int


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int
    parent: Account | None = None

    @property
    def is_rich(self) -> bool:
        return self.balance > 1_000

    def owes(self, most: int) -> bool:
        return self.balance < -most


@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[Limits]
    accounts: PMap[str, Account]
    old: PVector[Account]
    journal: AppendOnly[Account]
    hits: Counter
    name: str
    anything: Any


P = paths(Bank)
B = Draft[Bank]


def touched(function: Callable[..., Any]) -> tuple[set[str], set[str]]:
    """What the source of a function reads and writes; nothing is wrong with it or unseen."""
    found = examine(task(function))
    assert not found.findings, found.findings
    return set(found.reads), set(found.writes)


def lines(found: Examined) -> list[str]:
    return [f"{one.level}: {one.message}" for one in found.findings]


def pay(account: Any, n: int) -> int:
    account.balance -= n
    return n


def account_of(b: Any, name: str) -> Any:
    return b.accounts[name]


def each_of(b: Any) -> Iterator[Any]:
    for account in b.accounts.values():
        yield account


def counted(b: Any, n: int) -> int:
    return 0 if n == 0 else counted(b, n - 1) + b.hits


@task
def other_task(b: B, n: int) -> None:
    b.hits += n


# --- what is read and written -----------------------------------------------------------------------------------------


def test_attributes_and_items() -> None:
    def read(b: B, k: str) -> int:
        return b.accounts[k].balance + b.limits.most

    def write(b: B, k: str) -> None:
        b.accounts[k].balance = 3
        b.name = "new"
        b.accounts["x"] = Account("x", 1)

    def both(b: B, k: str) -> None:
        b.accounts[k].balance -= 1

    assert touched(read) == ({"accounts[...].balance", "limits.most"}, set())
    assert touched(write) == (set(), {"accounts[...].balance", "name", "accounts[...]"})
    assert touched(both) == ({"accounts[...].balance"}, {"accounts[...].balance"})


def test_passing_through_is_no_read_of_what_is_above() -> None:
    def code(b: B, k: str) -> None:
        account = b.accounts[k]
        parent = account.parent
        if account is None or not parent or k in b.accounts:
            raise KeyError(k)

    assert touched(code) == ({"accounts[...].parent"}, set())

    @task(reads=[P.accounts[...].balance])
    def right(b: B, k: str) -> int:
        account = b.accounts[k]
        return account.balance if account is not None and k in b.accounts else 0

    @task(reads=[P.accounts[...].balance])
    def wrong(b: B, k: str) -> None:
        account = b.limits
        for _ in range(k in b.old):
            account = b.accounts.pop(k)
        del account

    assert lines(examine(right)) == []
    assert lines(examine(wrong)) == [
        "error: reads limits, which is not declared: add P.limits to reads",
        "error: reads old, which is not declared: add P.old to reads",
        "error: reads accounts[...], which is not declared: add P.accounts[...] to reads",
        "error: writes accounts[...], which is not declared: add P.accounts[...] to writes",
    ]


def test_deletions() -> None:
    def code(b: B, k: str) -> None:
        del b.accounts[k]
        del b.old[0]
        account = b.accounts[k]
        del account

    assert touched(code) == (set(), {"accounts[...]", "old"})


def test_counters_and_vectors() -> None:
    def code(b: B) -> None:
        b.hits += 1
        b.hits -= 2
        b.hits.add(3)
        b.journal.append(Account("a", 1))
        b.journal.extend([])
        b.journal += []
        log = b.journal
        log += [1]

    assert touched(code) == (set(), {"hits", "journal"})


def test_local_names() -> None:
    def code(b: B, k: str) -> None:
        first, second = b.accounts[k], b.old[0]
        first.balance, second.owner = 1, "x"
        (third := b.accounts[k]).owner = "y"
        *rest, last = b.old, b.limits
        number = last.most
        number += 1
        fourth = first if number else second
        fourth.parent = None
        del rest, third

    assert touched(code) == (
        {"limits.most"},
        {
            "accounts[...].balance",
            "old[...].owner",
            "accounts[...].owner",
            "accounts[...].parent",
            "old[...].parent",
        },
    )


def test_a_name_takes_another_place() -> None:
    def code(b: B, k: str) -> None:
        one = b.accounts[k]
        one.balance = 1
        one = b.old[0]
        one.owner = "x"

    assert touched(code)[1] == {"accounts[...].balance", "old[...].owner"}


def test_branches_join() -> None:
    def code(b: B, k: str) -> None:
        if k:
            one = b.accounts[k]
        else:
            one = b.old[0]
        one.balance = 1
        try:
            two = b.accounts[k]
            two = b.old[0]
        except KeyError:
            two.owner = "x"
        else:
            two.parent = None
        finally:
            b.name = "z"

    writes = touched(code)[1]
    assert writes == {
        "accounts[...].balance",
        "old[...].balance",
        "accounts[...].owner",
        "old[...].owner",
        "old[...].parent",
        "name",
    }


def test_loops() -> None:
    def code(b: B) -> None:
        for key in b.accounts:
            b.accounts[key].balance = 0
        for account in b.old:
            account.owner = "x"
        for number, account in enumerate(b.old):
            account.balance = number
        for _, account in b.accounts.items():
            account.parent = None
        one = None
        while one is None:
            if one is not None:
                one.owner = "later"
            one = b.accounts["a"]

    reads, writes = touched(code)
    assert reads == {"accounts", "old"}
    assert writes == {
        "accounts[...].balance",
        "old[...].owner",
        "old[...].balance",
        "accounts[...].parent",
        "accounts[...].owner",
    }


def test_a_walk_along_a_recursive_class_ends() -> None:
    def code(b: B, k: str) -> None:
        account = b.accounts[k]
        while account.parent is not None:
            account.balance = 0
            account = account.parent

    reads, writes = touched(code)
    assert reads == set()
    assert {"accounts[...].balance", "accounts[...].parent.balance"} <= writes
    assert all(path.endswith(".balance") for path in writes)


def test_comprehensions() -> None:
    def code(b: B) -> Any:
        total = sum(a.balance for a in b.accounts.values() if a.owner != "x")
        names = {k: v.owner for k, v in b.accounts.items()}
        rich = [a for a in b.old if a.is_rich]
        for a in rich:
            a.parent = None
        return total, names, [len(x) for x in "abc"]

    assert touched(code) == (
        {"accounts", "accounts[...].balance", "accounts[...].owner", "old", "old[...].balance"},
        {"old[...].parent"},
    )


def test_containers_are_read() -> None:
    def code(b: B, k: str) -> Any:
        return k in b.accounts, len(b.old), bool(b.journal), list(b.accounts.keys())

    assert touched(code)[0] == {"accounts", "old", "journal"}


def test_methods_of_maps() -> None:
    def code(b: B, k: str) -> None:
        b.accounts.get(k).balance = 1
        b.accounts.setdefault(k, Account(k, 0)).owner = "x"
        b.accounts.pop(k)
        b.accounts.update({})

    def whole(b: B) -> None:
        b.accounts.clear()

    assert touched(code) == (
        {"accounts[...]"},
        {"accounts[...].balance", "accounts[...].owner", "accounts[...]"},
    )
    assert touched(whole) == (set(), {"accounts"})


def test_methods_of_vectors() -> None:
    def code(b: B) -> None:
        b.old[0] = Account("a", 1)

    def whole(b: B) -> None:
        b.old.pop()

    def parts(b: B) -> None:
        for account in b.old[1:]:
            account.balance = 0
        b.old[1:] = []

    assert touched(code) == (set(), {"old[...]"})
    assert touched(whole) == ({"old"}, {"old"})
    assert touched(parts) == ({"old"}, {"old[...].balance", "old"})


def test_builtin_functions() -> None:
    def code(b: B) -> Any:
        for account in sorted(b.accounts.values(), key=lambda a: a.owner):
            account.balance = 0
        first = next(iter(b.old))
        first.owner = "x"
        for one, two in zip(b.old, b.old, strict=True):
            one.balance, two.balance = 1, 2
        richest = max(b.old, key=lambda a: a.is_rich)
        richest.parent = None
        setattr(first, "balance", 3)
        getattr(b, "limits").most
        return isinstance(first, Account), sum(map(lambda a: a.balance, b.old))

    reads, writes = touched(code)
    assert reads == {"accounts", "accounts[...].owner", "old", "old[...].balance", "limits.most"}
    assert writes == {"accounts[...].balance", "old[...].owner", "old[...].balance", "old[...].parent"}


def test_lists_of_drafts() -> None:
    def code(b: B) -> None:
        chosen = []
        for account in b.old:
            chosen.append(account)
        chosen += [b.accounts["a"]]
        for account in chosen:
            account.balance = 0
        waiting = deque(b.old)
        for account in waiting:
            account.owner = "x"
        for account in itertools.chain(b.old, b.accounts.values()):
            account.parent = None

    assert touched(code)[1] == {
        "old[...].balance",
        "accounts[...].balance",
        "old[...].owner",
        "old[...].parent",
        "accounts[...].parent",
    }


def test_functions_are_followed() -> None:
    def code(b: B, k: str) -> None:
        pay(b.accounts[k], 3)
        account_of(b, k).owner = "x"
        for account in each_of(b):
            account.parent = None
        pay(account=b.old[0], n=2)
        pay(*[b.old[1], 2])

    assert touched(code) == (
        {"accounts[...].balance", "accounts", "old[...].balance"},
        {"accounts[...].balance", "accounts[...].owner", "accounts[...].parent", "old[...].balance"},
    )


def test_tasks_recursion_and_inner_functions_are_followed() -> None:
    outside = 3

    def code(b: B, k: str) -> int:
        other_task(b, 3)

        def inner(account: Any) -> None:
            account.balance = outside
            b.name = "x"

        inner(b.old[0])
        return counted(b, 3)

    assert touched(code) == ({"hits"}, {"hits", "old[...].balance", "name"})


def test_properties_and_methods_of_records_are_followed() -> None:
    def code(b: B, k: str) -> bool:
        return b.accounts[k].is_rich or b.old[0].owes(b.limits.most)

    assert touched(code) == ({"accounts[...].balance", "old[...].balance", "limits.most"}, set())


def test_values_that_leave_are_read() -> None:
    def code(b: B, k: str) -> Any:
        print(b.name)
        Account(b.accounts[k].owner, 0)
        dataclasses.replace(b.old[0], balance=1)
        copy.copy(b.limits)
        if b.hits:
            return Err(f"{b.accounts[k].balance:>{b.hits}}")
        return Ok(b.journal)

    reads, _ = touched(code)
    assert reads == {
        "name",
        "accounts[...].owner",
        "old[...]",
        "limits",
        "hits",
        "accounts[...].balance",
        "journal",
    }


def test_matches() -> None:
    def code(b: B, k: str) -> int:
        match b.accounts[k]:
            case Account(owner="x", balance=n):
                return n
            case other:
                other.parent = None
        match b.name:
            case "a" | "b":
                return 1
        return 0

    assert touched(code) == (
        {"accounts[...].owner", "accounts[...].balance", "name"},
        {"accounts[...].parent"},
    )


def test_effects_touch_what_they_are_given() -> None:
    def code(b: B, k: str) -> None:
        b.on_commit(print, b.name)
        b.accounts[k].on_commit(print, k)

    assert touched(code) == ({"name", "accounts[...]"}, set())


def test_what_may_be_anything_is_one_place() -> None:
    def code(b: B) -> int:
        b.anything.deep["a"] = 3
        return int(b.anything["x"].more)

    assert touched(code) == ({"anything"}, {"anything"})


def test_states_of_dicts() -> None:
    @task(reads=["limits"], writes=["accounts"])
    def code(b: Any, k: str) -> None:
        if b["limits"]["most"] > b.other:
            b["accounts"][k]["balance"] = 3

    found = examine(code)
    assert found.reads == ("['limits']", "['other']")
    assert found.writes == ("['accounts']",)
    assert lines(found) == ["error: reads ['other'], which is not declared: add 'other' to reads"]
    assert found.suggestion == "@task(reads=['limits', 'other'], writes=['accounts'])"


# --- against the contract ---------------------------------------------------------------------------------------------


def test_a_right_contract() -> None:
    @task(reads=[P.limits], writes=[P.accounts[...].balance, P.journal, P.hits])
    def right(b: B, src: str, n: int) -> Any:
        if b.accounts[src].balance < min(n, b.limits.most):
            return Err(src)
        b.accounts[src].balance -= n
        b.journal.append(Account(src, n))
        b.hits += 1
        return Ok(n)

    assert examine(right).findings == ()
    assert infer(right) == "@task(reads=[P.limits.most], writes=[P.accounts[...].balance, P.hits, P.journal])"


def test_undeclared_touches_are_errors() -> None:
    @task(reads=[P.limits], writes=[P.old])
    def wrong(b: B, src: str) -> None:
        pay(b.accounts[src], b.limits.most)
        b.old.append(b.accounts[src])

    found = examine(wrong)
    assert lines(found) == [
        "error: reads accounts[...].balance, which is not declared: add P.accounts[...].balance to reads",
        "error: writes accounts[...].balance, which is not declared: add P.accounts[...].balance to writes",
        "error: reads accounts[...], which is not declared: add P.accounts[...] to reads",
    ]
    one, _, three = found.findings
    assert one.file == __file__
    assert (three.path, three.access, three.task) == ("accounts[...]", "read", wrong.label)
    source = Path(__file__).read_text().splitlines()
    assert "account.balance -= n" in source[one.line - 1]
    assert source[one.line - 1][one.column - 1 :].startswith("account.balance -= n")
    assert source[three.line - 1][three.column - 1 :].startswith("b.old.append(b.accounts[src])")


def test_one_place_is_reported_once() -> None:
    @task(reads=[])
    def wrong(b: B) -> int:
        return b.hits + b.hits + b.hits

    assert lines(examine(wrong)) == ["error: reads hits, which is not declared: add P.hits to reads (2 more)"]


def test_tasks_that_are_not_strict_have_warnings() -> None:
    @task(reads=[], strict="warn")
    def wrong(b: B) -> int:
        return b.hits * 1

    assert [one.level for one in examine(wrong).findings] == ["warning"]


def test_writes_that_no_contract_allows() -> None:
    @task
    def wrong(b: B) -> None:
        b.limits = Limits(3)
        b.limits.most = 3
        b.hits = 3
        b.hits *= 3
        b.journal = PVector()
        b.journal.pop()
        b.journal[0] = 3
        b.journal[-1].balance = 3

    assert lines(examine(wrong)) == [
        "error: writes limits, which is Const, or in a place that is",
        "error: writes limits.most, which is Const, or in a place that is",
        "error: assigns hits, which is a counter: use += and -=",
        "error: assigns hits, which is a counter: use += and -=",
        "error: changes journal, which is append-only: use append and extend",
        "error: changes journal, which is append-only: use append and extend",
        "error: writes journal[...], and the items of a vector that is append-only do not change",
        "error: writes journal[...].balance, and the items of a vector that is append-only do not change",
    ]


def test_a_read_of_what_is_appended_to_is_declared_apart() -> None:
    @task(writes=[P.journal, P.hits])
    def wrong(b: B) -> int:
        b.journal.append(b.journal[0])
        b.hits += 1
        return b.hits + 1

    assert lines(examine(wrong)) == [
        "error: reads journal[...], which is not declared: add P.journal[...] to reads",
        "error: reads hits, which is not declared: add P.hits to reads",
    ]


def test_unused_declarations_are_warnings() -> None:
    @task(reads=[P.limits, P.name], writes=[P.accounts, P.hits])
    def loose(b: B, k: str) -> int:
        return b.accounts[k].balance + b.limits.most

    assert lines(examine(loose)) == [
        "warning: declares name in reads, and it is never read",
        "warning: declares accounts in writes, and it is never written, only read: declare it in reads",
        "warning: declares hits in writes, and it is never written",
    ]


def test_unknown_fields_are_errors() -> None:
    @task
    def wrong(b: B, k: str) -> None:
        b.accounts[k].balanse = 3
        b.acounts[k]

    found = lines(examine(wrong))
    assert found[0].startswith("error: Account has no field 'balanse'. Did you mean 'balance'?")
    assert found[1].startswith("error: Bank has no field 'acounts'. Did you mean 'accounts'?")


def test_what_cannot_be_seen_is_noted() -> None:
    import json as library

    @task(reads=[P.limits], writes=[P.accounts])
    def unseen(b: B, k: str, function: Any) -> None:
        function(b.accounts[k])
        library.loads(b.limits)
        function(lambda: b.limits.most)
        b.accounts.strange()

    assert lines(examine(unseen)) == [
        "note: cannot see what function does with accounts[...]",
        "note: cannot see what library.loads does with limits",
        "note: cannot see what the method strange does with accounts",
    ]


def test_source_that_is_missing() -> None:
    names: dict[str, Any] = {}
    exec("def code(b): return b.x", names)
    found = examine(task(names["code"]))
    assert lines(found) == ["note: cannot see the source of this task"]
    assert found.suggestion == ""
    with pytest.raises(StateError, match="cannot see the source"):
        infer(task(names["code"]))


def test_a_state_that_is_not_known() -> None:
    @task
    def code(b: Any) -> int:
        return int(b.x)

    assert lines(examine(code)) == [
        "note: cannot see the class of the state: annotate the draft with Draft[...]"
    ]


def test_a_draft_of_another_state() -> None:
    @task(reads=[P.limits])
    def code(b: Draft[Account]) -> int:
        return int(b.balance)

    assert lines(examine(code)) == ["error: the draft is of Account, and the contract of Bank"]


def test_the_name_of_the_paths_is_the_modules() -> None:
    def code(bank: B) -> int:
        return bank.hits * 1

    names = dict(globals(), ROOT_OF_BANK=P)
    del names["P"]
    import types

    moved = types.FunctionType(code.__code__, names, "code", None, None)
    moved.__annotations__ = {"bank": B}
    assert infer(task(moved)) == "@task(reads=[ROOT_OF_BANK.hits])"


def test_a_lambda_is_read_too() -> None:
    one: Task[..., int] = task(reads=[P.name])(lambda b, n: b.hits + n)
    assert lines(examine(one)) == [
        "error: reads hits, which is not declared: add P.hits to reads",
        "warning: declares name in reads, and it is never read",
    ]


# --- against what runs ------------------------------------------------------------------------------------------------


def assigned(b: Any) -> None:
    b.accounts["a"].balance = 3


def subtracted(b: Any) -> None:
    b.accounts["a"].balance -= 3


def replaced(b: Any) -> None:
    b.accounts["new"] = Account("new", 1)


def deleted(b: Any) -> None:
    del b.accounts["a"]


def shortened(b: Any) -> None:
    del b.old[0]


def emptied(b: Any) -> None:
    for account in b.accounts.values():
        account.balance = 0


def counted_up(b: Any) -> None:
    b.hits += 1


def counted_anew(b: Any) -> None:
    b.hits = 3


def unlimited(b: Any) -> None:
    b.limits.most = 3


def rewritten(b: Any) -> None:
    b.journal[0].balance = 3


def forgotten(b: Any) -> None:
    b.journal = PVector()


CODES: list[Callable[[Any], Any]] = [
    assigned,
    subtracted,
    replaced,
    deleted,
    shortened,
    emptied,
    counted_up,
    counted_anew,
    unlimited,
    rewritten,
    forgotten,
    lambda b: b.name + "x",
    lambda b: b.limits.most + 1,
    lambda b: b.accounts["a"].balance + 1,
    lambda b: b.accounts["a"].owner + "x",
    lambda b: [account.owner for account in b.old],
    lambda b: list(b.accounts),
    lambda b: len(b.accounts),
    lambda b: "a" in b.accounts,
    lambda b: b.accounts["a"] is None,
    lambda b: b.accounts.get("a"),
    lambda b: b.accounts.pop("a"),
    lambda b: b.accounts.setdefault("new", Account("new", 1)),
    lambda b: b.old[0].owner,
    lambda b: b.old.append(Account("new", 1)),
    lambda b: b.old.pop(),
    lambda b: b.journal.append(Account("new", 1)),
    lambda b: b.journal[0].owner,
    lambda b: len(b.journal),
    lambda b: b.journal.pop(),
    lambda b: b.hits.add(3),
    lambda b: b.hits.value,
    lambda b: b.accounts["a"].parent,
]
CONTRACTS: list[tuple[list[Any], list[Any]]] = [
    ([], []),
    ([P], []),
    ([], [P]),
    ([P.limits, P.name], []),
    ([P.accounts], []),
    ([P.accounts[...].balance], []),
    ([P.accounts[...].owner], [P.accounts[...].balance]),
    ([], [P.accounts[...]]),
    ([], [P.accounts, P.old]),
    ([P.old], [P.old[...].owner]),
    ([], [P.journal, P.hits]),
    ([P.journal, P.hits], []),
    ([P.journal, P.hits], [P.journal, P.hits, P.name]),
]


@pytest.mark.parametrize("number", range(len(CODES)))
def test_what_is_found_is_what_a_store_refuses(number: int) -> None:
    ann, bob = Account("a", 5), Account("b", 7)
    state = Bank(Limits(3), PMap({"a": ann, "b": bob}), PVector([ann]), PVector([ann]), 0, "bank", 3)
    for reads, writes in CONTRACTS:
        made = task(reads=reads, writes=writes)(CODES[number])
        # The functions have no annotation, and a contract without paths does not name the state.
        made.__wrapped__.__annotations__["b"] = B
        found = [one for one in examine(made).findings if one.level == "error"]
        with Store(state) as store:
            try:
                store.run(made)
                refused = None
            except ContractViolation as error:
                refused = str(error)
        assert (refused is None) == (not found), (reads, writes, refused, found)


def test_what_is_done_to_arrays(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    file = tmp_path / "program.py"
    file.write_text(
        """
from dataclasses import dataclass

import numpy as np

from ropewalk.state import Shm, float32, paths, task, writable


@dataclass(frozen=True, slots=True)
class Model:
    weights: Shm[float32, "n 256"]


P = paths(Model)
"""
        + "".join(
            f"\n\n@task(reads=[P.weights])\ndef {name}(m):\n    {body}\n"
            for name, body in (
                ("w_item", "m.weights[0] = 1"),
                ("w_part", "m.weights[3] *= 2"),
                ("w_all", "m.weights += 2"),
                ("w_row", "row = m.weights[2]; row += 1"),
                ("w_each", "for row in m.weights: row *= 2"),
                ("w_method", "m.weights.fill(3)"),
                ("w_function", "writable(m.weights)[3] = 2"),
                ("w_own", "m.weights.writable()"),
                ("w_out", "np.add(m.weights, 1, out=m.weights)"),
                ("w_copyto", "np.copyto(m.weights, 1)"),
                ("r_item", "return m.weights[0, 1] + m.weights[1:].sum()"),
                ("r_shape", "return m.weights.shape, len(m.weights), m.weights.T"),
                ("r_numpy", "return np.sum(m.weights), np.linalg.norm(m.weights), np.add(m.weights, 1)"),
                ("r_name", "w = m.weights; return w @ w.T"),
            )
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", "check", str(file)], capture_output=True, text=True, check=False
    )
    said = (": error: ", ": warning: ", ": note: ")
    lines = [line for line in done.stdout.splitlines() if any(one in line for one in said)]
    assert all("writes weights, which is not declared" in line for line in lines), lines
    named = [line.split(": ")[2] for line in lines]
    assert sorted(named) == sorted(
        [
            "w_item",
            "w_part",
            "w_all",
            "w_row",
            "w_each",
            "w_method",
            "w_function",
            "w_own",
            "w_out",
            "w_copyto",
        ]
    )
