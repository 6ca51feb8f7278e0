"""The state under test in the peers' shapes: limits, and accounts by name, each with an owner and a balance."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

OURS = "ropewalk"
FROZEN = "frozen slots"
NESTED = "nested dicts"
DICT = "dict"
IMMUTABLES = "immutables"
RPDS = "rpds-py"
PYRSISTENT = "pyrsistent"
#: What our side needs.
NEEDS = ("ropewalk", "ropewalk.state")
#: The accounts of the state in most rows.
ITEMS = 5000


@dataclass(frozen=True, slots=True)
class Limit:
    """So much, and so often."""

    amount: int
    count: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a bank."""

    daily: Limit
    monthly: Limit


@dataclass(frozen=True, slots=True)
class Account:
    """One leaf under test is the balance."""

    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Plain:
    """The bank as frozen slots with a dict, which is what reads without any library cost."""

    limits: Limits
    accounts: dict[str, Account]


def names(items: int) -> list[str]:
    """The names of the accounts."""
    return [f"account-{number}" for number in range(items)]


def shuffled(items: int) -> list[str]:
    """All names in an order that no map has by itself; the same in each interpreter."""
    found = names(items)
    random.Random(14).shuffle(found)
    return found


def limits() -> Limits:
    """The limits of each bank."""
    return Limits(Limit(1000, 3), Limit(20_000, 30))


def accounts(items: int) -> dict[str, Account]:
    """The accounts as frozen slots."""
    return {name: Account(f"owner of {name}", 100) for name in names(items)}


def plain(items: int) -> Plain:
    """The bank as frozen slots."""
    return Plain(limits(), accounts(items))


def nested(items: int) -> dict[str, Any]:
    """The bank as nested dicts."""
    return {
        "limits": {"daily": {"amount": 1000, "count": 3}, "monthly": {"amount": 20_000, "count": 30}},
        "accounts": {name: {"owner": f"owner of {name}", "balance": 100} for name in names(items)},
    }


def balance_of(state: dict[str, Any], name: str) -> int:
    """A balance in nested dicts; worker processes call it."""
    found: int = state["accounts"][name]["balance"]
    return found
