"""The state that the tests of stores use, and its tasks; workers import this module."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tests.polling import until

from ropewalk.result import Err, Ok
from ropewalk.state import AppendOnly, Const, Counter, PMap, PVector, Transient, paths, task


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Bank:
    limit: Const[int]
    accounts: PMap[str, Account]
    log: AppendOnly[int]
    hits: Counter
    cursor: Transient[int]


P = paths(Bank)


def bank(count: int = 4, balance: int = 100) -> Bank:
    """A bank with accounts a0, a1 and so on."""
    accounts = PMap({f"a{number}": Account(f"o{number}", balance) for number in range(count)})
    return Bank(10, accounts, PVector(), 0, 0)


@task(reads=[P.limit], writes=[P.accounts, P.log, P.hits])
def transfer(b: Any, source: str, target: str, amount: int) -> Any:
    if b.accounts[source].balance < amount:
        return Err("poor")
    b.accounts[source].balance -= amount
    b.accounts[target].balance += amount
    b.log.append(amount)
    b.hits += 1
    return Ok(b.accounts[source])


@task(writes=[P.accounts])
def where(b: Any, key: str) -> int:
    b.accounts[key].balance += 1
    return os.getpid()


@task(reads=[P.hits], writes=[P.hits])
def count(b: Any, number: int) -> int:
    b.hits += number
    return int(b.hits)


@task(reads=[P.hits])
def sneaky(b: Any) -> int:
    return len(b.accounts)


@task(writes=[P.accounts])
def fails(b: Any) -> None:
    b.accounts["a0"].balance = 0
    raise ValueError("no")


@task(writes=[P.hits])
def held(b: Any, file: str) -> None:
    """Runs until a file is there."""
    until(lambda: os.path.exists(file))
    b.hits += 1


#: Stores that an effect closes.
OPEN: list[Any] = []


def close_all() -> None:
    for store in OPEN:
        store.close()


@task(writes=[P.hits])
def last(b: Any) -> None:
    b.hits += 1
    b.on_commit(close_all)


def total(state: Bank) -> int:
    return sum(account.balance for account in state.accounts.values())
