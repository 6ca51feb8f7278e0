"""`PMap`: keys that meet, and keys that act."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest
from tests.unit.state._keys import HASHES, Acts, Hashed, fails

from ropewalk.state import PMap

# --- keys that meet, and keys that act --------------------------------------------------------------------------------


@pytest.mark.parametrize("hash_", HASHES)
def test_keys_with_one_hash(hash_: int) -> None:
    keys = [Hashed(n, hash_) for n in range(20)]
    it = PMap([(key, key.name) for key in keys])
    assert len(it) == 20
    assert [it[Hashed(n, hash_)] for n in range(20)] == list(range(20))
    assert Hashed(20, hash_) not in it
    assert it.discard(Hashed(20, hash_)) is it
    shuffled = PMap([(key, key.name) for key in reversed(keys)])
    assert it == shuffled
    assert hash(it) == hash(shuffled)
    assert it.set(Hashed(3, hash_), "new") != it
    for n, key in enumerate(keys):
        it = it.delete(Hashed(n, hash_))
        assert key not in it
        assert len(it) == 19 - n
        assert sorted(it.values()) == list(range(n + 1, 20))


def test_deleting_restores_the_form() -> None:
    # Maps are compared by their form, so this fails if a deletion leaves another one.
    for first in HASHES:
        for second in HASHES:
            start = PMap([(Hashed("a", first), 1), ("x", 2)])
            more = start.set(Hashed("b", second), 3).set(Hashed("c", second), 4)
            less = more.delete(Hashed("c", second)).delete(Hashed("b", second))
            assert less == start
            assert start == less
            builder = more.mutate()
            del builder[Hashed("b", second)]
            del builder[Hashed("c", second)]
            assert builder.finish() == start


def test_an_error_of_a_comparison_goes_on() -> None:
    key = Acts(fails)
    it = PMap({Hashed("a", 7): 1})
    for use in (
        lambda: it[key],
        lambda: it.get(key),
        lambda: key in it,
        lambda: it.set(key, 1),
        lambda: it.delete(key),
        lambda: it.discard(key),
        lambda: it.update([(key, 1)]),
        lambda: it | {key: 1},
        lambda: it.mutate().update({key: 1}),
        lambda: key in it.keys(),  # noqa: SIM118
        lambda: (key, 1) in it.items(),
    ):
        with pytest.raises(ZeroDivisionError):
            use()
    assert it == {Hashed("a", 7): 1}


def test_a_builder_is_as_it_was_after_an_error() -> None:
    builder = PMap({Hashed("a", 7): 1, "x": 2}).mutate()
    with pytest.raises(ZeroDivisionError):
        builder[Acts(fails)] = 1
    with pytest.raises(ZeroDivisionError):
        del builder[Acts(fails)]
    assert len(builder) == 2
    builder["y"] = 3
    assert builder.finish() == {Hashed("a", 7): 1, "x": 2, "y": 3}


def test_a_comparison_may_drop_the_map() -> None:
    held: dict[str, Any] = {}

    def drop() -> None:
        held.clear()
        gc.collect()

    for use in (
        lambda key: held["map"].get(key),
        lambda key: held["map"].set(key, 1),
        lambda key: held["map"].discard(key),
        lambda key: held["map"].update({key: 1}),
        lambda key: key in held["map"].keys(),  # noqa: SIM118
        lambda key: list(held["map"].items()).index((key, 1)),
        lambda key: held["map"] == PMap({key: 1}),
    ):
        held["map"] = PMap({Acts(drop): object()})
        with contextlib.suppress(ValueError):
            use(Acts(drop))
        assert not held


def test_a_comparison_may_not_use_the_builder_that_it_is_made_for() -> None:
    refused: list[str] = []

    def again() -> None:
        for use in (
            lambda: builder.__setitem__("z", 1),
            lambda: builder.__delitem__("x"),
            lambda: builder["x"],
            lambda: builder.update(z=1),
            lambda: len(builder),
            lambda: "x" in builder,
            builder.finish,
        ):
            with pytest.raises(RuntimeError, match="another call uses this builder"):
                use()
        refused.append("all")

    builder = PMap({Acts(again): 1, "x": 2}).mutate()
    builder[Acts(lambda: None)] = 3
    assert refused == ["all"]
    assert len(builder.finish()) == 3


def test_the_end_of_a_value_may_use_the_builder() -> None:
    class Ends:
        def __del__(self) -> None:
            builder["late"] = len(builder)

    builder = PMap(a=1).mutate()
    for _ in range(3):
        builder["x"] = Ends()
        builder["x"] = 2
        assert builder["late"] == len(builder) or builder["late"] == 2
    builder["y"] = Ends()
    del builder["y"]
    assert builder.finish() == {"a": 1, "x": 2, "late": 3}


def test_a_dict_may_change_while_it_is_read() -> None:
    source: dict[Any, int] = {}

    def grow() -> None:
        source.update((n, n) for n in range(1000))

    source.update({Acts(grow): 1, Acts(grow): 2, "x": 3})  # type: ignore[dict-item]
    assert PMap(source)["x"] == 3
