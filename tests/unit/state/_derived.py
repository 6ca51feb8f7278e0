"""Records whose `__post_init__` normalises, derives, and sets attributes that are no fields."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from ropewalk.state import PMap, PVector, paths, task

NONE: PVector[str] = PVector()


@dataclass(frozen=True)
class User:
    name: str
    tags: PVector[str] = NONE
    age: int = 0
    key: str = field(init=False, default="")

    def __post_init__(self) -> None:
        # Not idempotent: a check that runs once more shows.
        object.__setattr__(self, "name", self.name.strip().lower() + "!")
        object.__setattr__(self, "key", self.name[:3])
        object.__setattr__(self, "shown", f"{self.name} ({self.age})")
        if self.age > 10:
            object.__setattr__(self, "old", True)

    @functools.cached_property
    def letters(self) -> list[str]:
        return list(self.name)


@dataclass(frozen=True, slots=True)
class Pair:
    x: int
    y: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", self.x * 2000)


@dataclass(frozen=True)
class World:
    pair: Pair
    users: PMap[str, User]
    row: PVector[Pair]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1000 + len(self.users))


def world() -> World:
    return World(Pair(1), PMap({"a": User("Ann"), "b": User("Bob")}), PVector([Pair(1), Pair(2)]))


def all_of(value: Any) -> Any:
    """The fields and the other attributes of all records, in plain values."""
    if isinstance(value, PMap):
        return {key: all_of(part) for key, part in value.items()}
    if isinstance(value, PVector):
        return [all_of(part) for part in value]
    names = getattr(type(value), "__dataclass_fields__", None)
    if names is None:
        return value
    held = {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in names}}
    return {name: all_of(part) for name, part in held.items() if name != "letters"}


W = paths(World)


@task(writes=[W.users[...].name])
def rename(w: Any, key: str, name: str) -> None:
    w.users[key].name = name


@task(reads=[W.users], writes=[W.users, W.row])
def move(w: Any, key: str, to: str) -> None:
    user = w.users[key]
    user.age += 20
    w.users[to] = user
    w.row[0].x += 1
    w.row.append(Pair(9))


@task(reads=[W.users])
def shown(w: Any, key: str) -> Any:
    return w.users[key]
