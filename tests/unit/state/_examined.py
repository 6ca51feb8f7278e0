"""A state, and what the tests of the reader of tasks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ropewalk.state import (
    AppendOnly,
    Const,
    Counter,
    Draft,
    PMap,
    PVector,
    paths,
    task,
)
from ropewalk.state.check import Examined, examine


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
