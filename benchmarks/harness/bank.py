"""The state under test as Ropewalk keeps it, and the tasks that change it; imported by contests of ours alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.states import Account, Limits, accounts, limits
from ropewalk.state import Const, Counter, Draft, PMap, Store, paths, task


@dataclass(frozen=True, slots=True)
class Bank:
    """Limits that never change, accounts, and a count of transfers."""

    limits: Const[Limits]
    accounts: PMap[str, Account]
    transfers: Counter


P = paths(Bank)


def bank(items: int, **options: Any) -> Store[Bank]:
    """A store with so many accounts."""
    return Store(Bank(limits(), PMap(accounts(items)), 0), **options)


@task(writes=[P.accounts])
def bump(b: Draft[Bank], name: str) -> None:
    """Changes one leaf."""
    b.accounts[name].balance += 1


@task(writes=[P.accounts])
def bump_all(b: Draft[Bank], names: Sequence[str]) -> None:
    """Changes a leaf of each of these accounts."""
    found = b.accounts
    for name in names:
        found[name].balance += 1


@task(reads=[P.accounts])
def balance(b: Draft[Bank], name: str) -> int:
    """Reads one leaf."""
    return b.accounts[name].balance


@task(reads=[P.limits])
def nothing(_: Draft[Bank]) -> None:
    """Begins, and commits nothing."""


@task(reads=[P.limits, P.accounts])
def inside(b: Draft[Bank], measure: Callable[[Any], Any]) -> Any:
    """Measures something inside of a transaction, on its draft."""
    return measure(b)


@task(writes=[P.transfers])
def hit(b: Draft[Bank]) -> None:
    """Counts."""
    b.transfers += 1


@task(writes=[P.accounts, P.transfers])
def transfer(b: Draft[Bank], source: str, target: str, amount: int) -> bool:
    """Moves an amount from one account to another, if it is there."""
    if b.accounts[source].balance < amount:
        return False
    b.accounts[source].balance -= amount
    b.accounts[target].balance += amount
    b.transfers += 1
    return True
