"""Keys of maps: what may be one, which are the same, and that a journal finds each again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ropewalk._errors import NotFrozen, StateError
from ropewalk.state import Counter, NotJson, PMap, Store, dumps

NAN = float("nan")


class Mutable:
    """Can be hashed, and can change."""


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


def store() -> Store[Any]:
    return Store({"m": {}, "hits": {}}, policy={"hits[...]": Counter})


def put(key: Any) -> Callable[[Any], None]:
    def work(d: Any) -> None:
        d["m"][key] = 1

    return work


def count(key: Any) -> Callable[[Any], None]:
    def work(d: Any) -> None:
        d["hits"][key] += 1

    return work


def refusals(key: Hashable, error: type[Exception], match: str) -> None:
    for add in (put(key), count(key), lambda d: d["m"].update({"deep": {key: 1}})):
        made = store()
        with pytest.raises(error, match=match):
            made.run(add)
        assert made.version == 0
    with pytest.raises(error, match=match):
        Store({"m": {key: 1}})
    with pytest.raises(error, match=match):
        Store(PMap({key: 1}))


@pytest.mark.parametrize("key", [Mutable(), (1, Mutable()), frozenset([Mutable()])])
def test_a_key_never_changes(key: Hashable) -> None:
    refusals(key, NotFrozen, "Mutable may change")


@pytest.mark.parametrize(
    "key", [NAN, (1, NAN), (1, (NAN, 2)), frozenset([NAN]), complex(0, NAN), type("F", (float,), {})(NAN)]
)
def test_nan_is_no_key(key: Hashable) -> None:
    refusals(key, StateError, "NaN cannot be a key")


def test_a_key_that_cannot_be_hashed() -> None:
    for key in ([1], ([1],), {1: 2}):
        for add in (put(key), count(key)):
            with pytest.raises(TypeError, match="unhashable"):
                store().run(add)


def test_equal_keys_are_one() -> None:
    made = store()

    def work(d: Any) -> None:
        d["m"][True] = 1
        d["m"][1] = 2
        d["m"][1.0] = 3
        d["m"][0.0] = 1
        d["m"][-0.0] = 2
        d["m"][Decimal(1)] = 4
        d["hits"][1] += 1
        d["hits"][True] += 1

    made.run(work)
    state = made.snapshot()
    assert sorted(map(repr, state["m"].items())) == ["(0.0, 2)", "(True, 4)"]
    assert [*map(repr, state["hits"].items())] == ["(1, 2)"]
    assert repr(Store({1: "a", 2: "b"} | {True: "c"}).snapshot()[True]) == "'c'"


KEYS = [0, 1, -1, True, 2**70, 1.5, -0.0, float("inf"), "x", "", b"x", None, (1, "a"), (), frozenset([1, 2])]
KEYS += [Decimal("1.50"), Point(0.0, 1.0), 3 + 4j]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_journal_finds_a_key_again(key: Hashable, tmp_path: Path) -> None:
    def opened() -> Store[Any]:
        return Store({"m": {}, "hits": {}}, policy={"hits[...]": Counter}, journal=tmp_path / "wal")

    def change(d: Any) -> None:
        put(key)(d)
        d["m"]["deep"] = {key: {"n": 1}}
        count(key)(d)

    def again(d: Any) -> None:
        d["m"][key] += 1
        d["m"]["deep"][key]["n"] = 5
        count(key)(d)

    def delete(d: Any) -> None:
        del d["m"][key]
        del d["hits"][key]
        d["m"]["deep"][key]["n"] += 1

    for work in (change, again, delete, change):
        with opened() as made:
            made.run(work)
            state = made.snapshot()
        with opened() as made:
            assert made.snapshot() == state
            assert repr(made.snapshot()) == repr(state)
    assert state == {"m": {key: 1, "deep": {key: {"n": 1}}}, "hits": {key: 1}}


def test_keys_in_json() -> None:
    assert dumps(PMap({True: 1})) == b'{"true":1}'
    assert dumps(PMap({-0.0: 1})) == b'{"-0.0":1}'
    for key in ((1, 2), b"x", frozenset([1])):
        with pytest.raises(NotJson, match="a key is a str"):
            dumps(PMap({key: 1}))
