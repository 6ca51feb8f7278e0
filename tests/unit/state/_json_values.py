"""Values for the tests of JSON."""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, NewType, TypeVar

from ropewalk.state import (
    Const,
    Counter,
    PMap,
    PVector,
)

UTC = datetime.UTC
T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True)
class Loose:
    """Without slots, and with what a class can say of its fields."""

    name: str
    tags: tuple[str, ...] = ()
    length: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name has a character")
        object.__setattr__(self, "length", len(self.name))


@dataclass(frozen=True, slots=True)
class Tree:
    value: int
    below: PVector[Tree] = field(default_factory=PVector)
    named: PMap[str, Tree | None] = field(default_factory=PMap)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: PVector[T]
    best: T | None = None


UserId = NewType("UserId", int)


@dataclass(frozen=True, slots=True)
class Bank:
    accounts: PMap[str, Account]
    by_day: PMap[datetime.date, PVector[decimal.Decimal]]
    by_color: PMap[Color, int]
    by_id: PMap[UserId, uuid.UUID]
    limits: Const[tuple[int, float]]
    hits: Counter
    at: datetime.datetime | None
    kind: Literal["a", 7] | None
    path: pathlib.PurePosixPath
    tags: frozenset[str]
    points: PVector[Point]
    loose: Loose
    span: datetime.timedelta
    clock: datetime.time
    level: Level
    flags: Flags
    either: int | str
    nest: PMap[str, PMap[int, PVector[bool]]]


BANK = Bank(
    accounts=PMap(ann=Account("Ann", 5), bob=Account('B"ob\n', -(10**30))),
    by_day=PMap({datetime.date(2020, 1, 2): PVector([decimal.Decimal("1.10"), decimal.Decimal("-3E+7")])}),
    by_color=PMap({Color.RED: 1, Color.BLUE: 2}),
    by_id=PMap({UserId(7): uuid.UUID(int=3)}),
    limits=(1, 2.5),
    hits=3,
    at=datetime.datetime(2020, 1, 2, 3, 4, 5, 6, UTC),
    kind=7,
    path=pathlib.PurePosixPath("/a/b"),
    tags=frozenset({"z", "a", "é"}),
    points=PVector([Point(1, 2.0), Point(3)]),
    loose=Loose("abc", ("t",)),
    span=datetime.timedelta(days=-1, microseconds=20),
    clock=datetime.time(1, 2, 3),
    level=Level.LOW,
    flags=Flags.A | Flags.B,
    either="x",
    nest=PMap(a=PMap({1: PVector([True, False]), -2: PVector()}), b=PMap()),
)
