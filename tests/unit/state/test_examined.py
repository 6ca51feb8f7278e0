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
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state._examined import Account, B, Bank, Limits, P, lines, pay, touched

from ropewalk import Err, Ok
from ropewalk.state import (
    ContractViolation,
    PMap,
    PVector,
    Store,
    task,
)
from ropewalk.state.check import examine


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
