"""What `examine` finds against a contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state._examined import Account, B, Limits, P, lines, pay

from ropewalk import Err, Ok
from ropewalk.state import (
    AppendOnly,
    Counter,
    Draft,
    PMap,
    PVector,
    StateError,
    Task,
    paths,
    task,
)
from ropewalk.state.check import examine, infer

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
    assert (one.file, three.file) == (pay.__code__.co_filename, __file__)
    assert (three.path, three.access, three.task) == ("accounts[...]", "read", wrong.label)
    source = Path(pay.__code__.co_filename).read_text().splitlines()
    assert source[one.line - 1][one.column - 1 :].startswith("account.balance -= n")
    source = Path(__file__).read_text().splitlines()
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


@dataclass(frozen=True, slots=True)
class Site:
    hits: PMap[str, Counter]
    logs: PMap[str, AppendOnly[int]]


def test_keys_of_maps_in_zones_that_commute() -> None:
    p = paths(Site)

    @task(writes=[p.hits, p.logs])
    def right(s: Draft[Site], name: str) -> None:
        s.logs[name] = PVector([1])
        del s.hits[name]

    @task
    def wrong(s: Draft[Site], name: str) -> None:
        s.hits[name] = 3
        del s.logs[name]

    assert lines(examine(right)) == []
    assert lines(examine(wrong)) == [
        "error: assigns hits[...], which is a counter: use += and -=",
        "error: changes logs[...], which is append-only: use append and extend",
    ]


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
