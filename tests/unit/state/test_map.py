"""`PMap`, its views, its builder, and `diff_maps`."""

from __future__ import annotations

import collections
import contextlib
import copy
import gc
import inspect
import pickle
import random
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.polling import is_gone

from ropewalk._load import state
from ropewalk.state import PMap

MISSING = state.MISSING


class Hashed:
    """A key with a chosen hash."""

    def __init__(self, name: object, hash_: int = 0) -> None:
        self.name = name
        self.hash_ = hash_

    def __hash__(self) -> int:
        return self.hash_

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Hashed) else NotImplemented

    def __repr__(self) -> str:
        return f"Hashed({self.name!r}, {self.hash_})"


#: Hashes that meet at the top, further down, at the bottom, and in their folded form.
HASHES = [0, 1, 32, 1 << 10, 1 << 30, 1 << 31, 1 << 32, (1 << 32) | 1, (1 << 40) | (1 << 8), -2, -5]


def changes(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """The model of a difference."""
    pairs = {key: (old.get(key, MISSING), new.get(key, MISSING)) for key in {**old, **new}}
    return {key: (before, after) for key, (before, after) in pairs.items() if before is not after}


# --- making and reading -----------------------------------------------------------------------------------------------


def test_it_is_made_of_what_a_dict_is_made_of() -> None:
    assert dict(PMap()) == {}
    assert dict(PMap({"a": 1})) == {"a": 1}
    assert dict(PMap([("a", 1), ["b", 2]], c=3)) == {"a": 1, "b": 2, "c": 3}
    assert dict(PMap({"a": 1}, a=2, b=3)) == {"a": 2, "b": 3}
    assert dict(PMap(collections.ChainMap({"a": 1}, {"b": 2}))) == {"a": 1, "b": 2}
    assert dict(PMap(collections.OrderedDict(a=1))) == {"a": 1}
    assert dict(PMap(pair for pair in [("a", 1)])) == {"a": 1}
    assert PMap.__new__(PMap, {"a": 1}, b=2) == {"a": 1, "b": 2}


def test_a_map_of_a_map_is_that_map() -> None:
    it = PMap(a=1)
    assert PMap(it) is it
    assert PMap() is PMap({})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: PMap(1), TypeError, "not iterable"),
        (lambda: PMap([1]), TypeError, "a pair of a key and a value"),
        (lambda: PMap([(1, 2), (1, 2, 3)]), ValueError, "entry 1 has 3 parts"),
        (lambda: PMap({}, {}), TypeError, "one mapping or iterable of pairs"),
        (lambda: PMap([([], 1)]), TypeError, "unhashable"),
        (lambda: PMap().update({}, {}), TypeError, "one mapping or iterable of pairs"),
        (lambda: PMap().set(1), TypeError, "a key and a value"),
        (lambda: PMap().get(), TypeError, "takes a key"),
        (lambda: PMap()[[]], TypeError, "unhashable"),
        (lambda: [] in PMap(a=1), TypeError, "unhashable"),
    ],
)
def test_wrong_arguments(make: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_no_class_derives_from_it() -> None:
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Mine", (PMap,), {})
    with pytest.raises(TypeError):
        state._Node() if hasattr(state, "_Node") else type(PMap(a=1).mutate())()


def test_reading() -> None:
    it = PMap({"a": 1, 2: None})
    assert (it["a"], it[2], len(it), bool(it), bool(PMap())) == (1, None, 2, True, False)
    assert "a" in it
    assert "b" not in it
    assert (it.get("a"), it.get("b"), it.get("b", 3), it.get(2, 3)) == (1, None, 3, None)
    with pytest.raises(KeyError) as caught:
        it["b"]
    assert caught.value.args == ("b",)
    with pytest.raises(KeyError) as caught:
        it[1, 2]
    assert caught.value.args == ((1, 2),)


def test_equal_keys_of_other_types_are_one_key() -> None:
    it = PMap({1: "one", "a": "text"})
    assert it[1.0] == it[True] == "one"
    assert list(it.set(True, "new")) == list(it), "the first key stays, as in a dict"

    class Text(str):
        __slots__ = ()

    assert it[Text("a")] == "text"
    assert it["".join(["a"])] == "text"


@pytest.mark.parametrize("text", ["ascii", "\xe9t\xe9", "\u20ac5", "\U0001f600!", ""])
def test_strings_of_each_width(text: str) -> None:
    other = "".join([*text])
    it = PMap({text: 1, text + "x": 2, text + "\U0001f601": 3})
    assert (it[other], it[other + "x"], it[other + "\U0001f601"]) == (1, 2, 3)


def test_large_integers() -> None:
    keys = [
        sign * (1 << bits) + more
        for bits in (29, 30, 59, 60, 61, 64, 200)
        for sign in (1, -1)
        for more in (0, 1)
    ]
    it = PMap({key: str(key) for key in keys})
    assert len(it) == len(set(keys))
    for key in keys:
        assert it[int(str(key))] == str(key)
    # They have the same hash.
    assert PMap({-1: "a", -2: "b", 2**61 - 2: "c", 0: "d", 2**61 - 1: "e"})[2**61 - 1] == "e"


def test_nan_is_found_by_identity() -> None:
    nan, other = float("nan"), float("nan")
    it = PMap({nan: 1})
    assert it[nan] == 1
    assert other not in it
    assert len(it.set(other, 2)) == 2
    assert it.set(nan, 3)[nan] == 3


# --- deriving ---------------------------------------------------------------------------------------------------------


def test_deriving_leaves_the_map_as_it_is() -> None:
    it = PMap(a=1)
    assert it.set("b", 2) == {"a": 1, "b": 2}
    assert it.set("a", 2) == {"a": 2}
    assert it.delete("a") == {}
    assert it.update(b=2) == it.update({"b": 2}) == it.update([("b", 2)]) == {"a": 1, "b": 2}
    assert it == {"a": 1}


def test_what_changes_nothing_returns_the_map_itself() -> None:
    value = object()
    it = PMap({f"key {n}": value for n in range(100)})
    assert it.set("key 5", value) is it
    assert it.discard("none") is it
    assert it.update() is it
    assert it.update(it) is it
    assert it.update({"key 7": value}) is it
    assert copy.copy(it) is it
    assert it.mutate().finish() is it


def test_deleting() -> None:
    it = PMap(a=1, b=2)
    assert it.delete("a") == it.discard("a") == {"b": 2}
    with pytest.raises(KeyError) as caught:
        it.delete("c")
    assert caught.value.args == ("c",)


def test_uniting() -> None:
    left, right = PMap(a=1, b=1), PMap(b=2, c=2)
    assert left | right == left | dict(right) == dict(left) | right == {"a": 1, "b": 2, "c": 2}
    assert type(dict(left) | right) is PMap
    assert left | collections.ChainMap({"d": 4}) == {"a": 1, "b": 1, "d": 4}
    with pytest.raises(TypeError, match="unsupported operand"):
        left | [("a", 1)]
    with pytest.raises(TypeError, match="unsupported operand"):
        1 | left


# --- views and iterators ----------------------------------------------------------------------------------------------


def test_views() -> None:
    it = PMap({n: str(n) for n in range(100)})
    keys, values, items = it.keys(), it.values(), it.items()
    assert len(keys) == len(values) == len(items) == 100
    assert list(keys) == list(it)
    assert list(values) == [it[key] for key in it]
    assert list(items) == list(zip(keys, values, strict=True))
    assert 5 in keys
    assert "5" not in keys
    assert "5" in values
    assert 5 not in values
    assert (5, "5") in items
    assert (5, "6") not in items
    assert (500, "5") not in items
    assert 5 not in items
    with pytest.raises(TypeError, match="unhashable"):
        [] in keys  # noqa: B015


def test_views_of_keys_and_items_are_sets() -> None:
    it, other = PMap(a=1, b=2), PMap(b=2, c=3)
    assert it.keys() & other.keys() == {"b"}
    assert it.keys() | other == {"a", "b", "c"}
    assert it.keys() - {"a"} == {"b"}
    assert ["a", "z"] - it.keys() == {"z"}  # type: ignore[operator]
    assert it.items() ^ other.items() == {("a", 1), ("c", 3)}
    assert it.keys() == {"a", "b"} == it.keys()
    assert it.keys() == dict(it).keys()
    assert it.keys() != other.keys()
    assert it.keys() < {"a", "b", "c"}
    assert it.keys() >= {"a"}
    assert it.keys().isdisjoint(["c"])
    assert not it.items().isdisjoint(other.items())
    assert it.keys() != ["a", "b"]
    assert it.values() != it.values()
    with pytest.raises(TypeError):
        it.keys() < ["a"]  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError, match="unhashable"):
        hash(it.keys())


def test_iterators_know_what_is_left() -> None:
    walk = iter(PMap({n: n for n in range(70)}))
    for left in range(70, 0, -1):
        assert walk.__length_hint__() == left  # type: ignore[attr-defined]
        next(walk)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(walk)
    assert iter(walk) is walk


def test_reprs() -> None:
    assert repr(PMap()) == "PMap({})"
    assert repr(PMap(a=PMap({1: "x"}))) == "PMap({'a': PMap({1: 'x'})})"
    held: list[Any] = []
    it = PMap(a=held)
    held.append(it)
    assert repr(it) == "PMap({'a': [PMap({...})]})"
    assert repr(PMap(a=1).keys()) == "MapKeys(['a'])"
    assert repr(PMap(a=1).values()) == "MapValues([1])"
    assert repr(PMap(a=1).items()) == "MapItems([('a', 1)])"
    views: list[Any] = []
    views.append(PMap(a=views).values())
    assert repr(views) == "[MapValues([[...]])]"


# --- equality, hashes, copies -----------------------------------------------------------------------------------------


def test_equality() -> None:
    it = PMap(a=1, b=[2])
    assert it == PMap(b=[2], a=1.0) == {"a": 1, "b": [2]}
    assert {"a": 1, "b": [2]} == it  # noqa: SIM300
    assert it == types.MappingProxyType({"a": 1, "b": [2]})
    assert it != PMap(a=1)
    assert it != PMap(a=1, b=[3])
    assert it != PMap(a=1, c=[2])
    assert it != {"a": 1, "c": [2]}
    assert it != [("a", 1), ("b", [2])]
    assert it != 1
    assert (it == object()) is False
    with pytest.raises(TypeError):
        it < it  # type: ignore[operator]  # noqa: B015
    nan = float("nan")
    assert PMap(a=nan) == PMap(a=nan)


def test_values_that_do_not_compare() -> None:
    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        __hash__ = object.__hash__

    with pytest.raises(ZeroDivisionError):
        PMap(a=Refuses()) == PMap(a=Refuses())  # noqa: B015
    with pytest.raises(ZeroDivisionError):
        PMap(a=Refuses()) == {"a": Refuses()}  # noqa: B015
    with pytest.raises(ZeroDivisionError):
        Refuses() in PMap(a=Refuses()).values()  # noqa: B015
    same = Refuses()
    assert PMap(a=same) == PMap(a=same)


def test_hashes_follow_equality_and_not_the_order() -> None:
    keys: list[Any] = [*range(100), *map(str, range(100)), *(Hashed(n, n % 3) for n in range(10))]
    first = PMap([(key, key) for key in keys])
    second = PMap([(key, key) for key in reversed(keys)])
    assert first == second
    assert hash(first) == hash(first) == hash(second)
    assert hash(PMap(a=1)) != hash(PMap(a=2)) != hash(PMap(b=2))
    assert hash(PMap(a="b")) != hash(PMap(b="a"))
    assert len({PMap(a=1), PMap(a=1), PMap(a=True)}) == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(PMap(a=[]))


def test_a_nest_too_deep_to_hash_or_to_compare_says_so() -> None:
    def nest() -> PMap[str, Any]:
        it: PMap[str, Any] = PMap()
        for _ in range(100_000):
            it = PMap(a=it)
        return it

    one, other = nest(), nest()
    for use in (lambda: hash(one), lambda: repr(one), lambda: one == other):
        with pytest.raises(RecursionError):
            use()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    it = PMap({"a": 1, 2: PMap(b=[3])})
    again = pickle.loads(pickle.dumps(it, protocol))
    assert again == it
    assert type(again) is PMap
    assert type(again[2]) is PMap
    assert pickle.loads(pickle.dumps(PMap, protocol)) is PMap


def test_another_process_reads_a_pickle() -> None:
    program = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())['a'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(PMap(a="it came")),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == b"it came"


def test_deep_copies() -> None:
    held = [1]
    it = PMap(a=held)
    deep = copy.deepcopy(it)
    assert deep == it
    assert deep["a"] is not held


def test_annotations() -> None:
    assert PMap[str, int].__args__ == (str, int)
    assert PMap[str, int](a=1) == {"a": 1}


def test_a_match_takes_it_apart() -> None:
    match PMap(kind="circle", radius=3):
        case {"kind": "circle", "radius": radius}:
            assert radius == 3
        case _:
            raise AssertionError("it is no mapping")


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


class Acts:
    """A key whose comparison does something first."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.action()
        return self is other


def fails() -> None:
    raise ZeroDivisionError


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


# --- builders ---------------------------------------------------------------------------------------------------------


def test_a_builder() -> None:
    base = PMap(a=1, b=2)
    builder = base.mutate()
    builder["c"] = 3
    builder["a"] = 4
    del builder["b"]
    assert (len(builder), builder["a"], builder.get("b"), builder.get("b", 7)) == (2, 4, None, 7)
    assert "c" in builder
    assert "b" not in builder
    with pytest.raises(KeyError):
        del builder["b"]
    with pytest.raises(KeyError):
        builder["b"]
    builder.discard("b")
    builder.update({"d": 5}, e=6)
    builder.discard("d")
    first = builder.finish()
    assert first == {"a": 4, "c": 3, "e": 6}
    assert base == {"a": 1, "b": 2}
    builder["a"] = 7
    assert first["a"] == 4
    assert builder.finish()["a"] == 7
    with pytest.raises(TypeError, match="cannot create"):
        state.MapBuilder()


def test_a_builder_ends_with_its_block() -> None:
    with PMap(a=1).mutate() as builder:
        builder["b"] = 2
    for use in (
        lambda: builder.__setitem__("c", 3),
        lambda: builder.__delitem__("a"),
        lambda: builder.update(c=3),
        lambda: builder.discard("a"),
    ):
        with pytest.raises(RuntimeError, match="block has ended"):
            use()
    assert builder["b"] == 2
    assert builder.finish() == {"a": 1, "b": 2}
    with pytest.raises(ZeroDivisionError), PMap().mutate():
        fails()


def test_maps_of_one_builder_share_nothing_that_changes() -> None:
    builder = PMap().mutate()
    made = []
    for n in range(300):
        builder[n % 100] = n
        if n % 3 == 0:
            del builder[n % 100]
        made.append((builder.finish(), dict(builder.finish())))
    for it, model in made:
        assert it == model


def test_threads_that_share_a_builder_get_an_error_at_most() -> None:
    builder = PMap().mutate()
    barrier = threading.Barrier(4)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        barrier.wait()
        for _ in range(5000):
            key = source.randrange(300)
            try:
                if source.random() < 0.7:
                    builder[key] = [key]
                elif source.random() < 0.5:
                    builder.discard(key)
                else:
                    assert builder.get(key, [key]) == [key]
            except RuntimeError as error:
                assert "another call uses" in str(error)  # noqa: PT017
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(value == [key] for key, value in builder.finish().items())


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_read_while_others_derive() -> None:
    base = PMap({f"key {n}": n for n in range(2000)})
    newest = [base]
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            it = newest[0]
            if sum(1 for _ in it.items()) != len(it) or it["key 7"] != 7:
                wrong.append(it)

    def derive() -> None:
        it = base
        for n in range(3000):
            it = it.set(f"key {n}", n) if n % 2 else it.set(f"other {n}", n)
            newest[0] = it

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=derive) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong
    assert base == {f"key {n}": n for n in range(2000)}


def test_threads_may_share_an_iterator() -> None:
    walk = iter(PMap({n: n for n in range(20_000)}))
    found: list[list[int]] = [[], []]
    threads = [threading.Thread(target=lambda into=into: into.extend(walk)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(20_000))


# --- differences ------------------------------------------------------------------------------------------------------


def test_differences() -> None:
    old = PMap(a=1, b=2, c=3)
    new = old.set("a", 9).delete("b").set("d", 4)
    assert sorted(state.diff_maps(old, new)) == [("a", 1, 9), ("b", 2, MISSING), ("d", MISSING, 4)]
    assert state.diff_maps(old, old) == state.diff_maps(old, old.set("a", 1)) == []
    assert sorted(state.diff_maps(PMap(), old)) == [
        (key, MISSING, value) for key, value in sorted(old.items())
    ]
    equal = [1]
    assert state.diff_maps(PMap(a=equal), PMap(a=[1])) == [("a", [1], [1])]
    assert repr(MISSING) == "MISSING"
    for wrong in ((old,), (old, {}), ({}, old), (old, old, old)):
        with pytest.raises(TypeError, match="two maps, old and new"):
            state.diff_maps(*wrong)


def test_a_difference_skips_what_is_shared() -> None:
    compared: list[object] = []
    keys = [Acts(lambda: compared.append(1)) for _ in range(50)]
    old = PMap(dict.fromkeys(range(10_000), 0)).update([(key, 1) for key in keys])
    compared.clear()
    assert state.diff_maps(old, old.set(9, 1)) == [(9, 0, 1)]
    assert not compared


def test_an_error_of_a_comparison_ends_a_difference() -> None:
    with pytest.raises(ZeroDivisionError):
        state.diff_maps(PMap({Acts(fails): 1}), PMap({Acts(fails): 1}))


# --- memory -----------------------------------------------------------------------------------------------------------


class Link:
    held: Any = None


@pytest.mark.parametrize(
    "through",
    [
        lambda link: PMap(a=link),
        lambda link: PMap({n: link if n == 70 else n for n in range(100)}),
        lambda link: PMap({Hashed(link): 1, Hashed(2): 2}),
        lambda link: PMap(a=PMap(b=PMap(c=link))),
        lambda link: PMap(a=link).keys(),
        lambda link: PMap(a=link).values(),
        lambda link: iter(PMap(a=link).items()),
        lambda link: PMap(a=link).mutate(),
        lambda link: in_builder(link),
    ],
    ids=["map", "deep", "key", "nested", "keys", "values", "iterator", "builder", "edited"],
)
def test_a_cycle_is_collected(through: Callable[[Link], object]) -> None:
    link = Link()
    link.held = through(link)
    gone = weakref.ref(link)
    gc.collect()
    del link
    assert gone() is not None, "there is no cycle: the test would pass with anything"
    gc.collect()
    assert gone() is None


def in_builder(link: Link) -> object:
    builder = PMap({n: n for n in range(100)}).mutate()
    builder[50] = link
    return builder


def test_the_collector_knows_only_what_may_be_in_a_cycle() -> None:
    atoms = PMap({n: str(n) for n in range(1000)})
    assert not gc.is_tracked(atoms)
    assert not gc.is_tracked(atoms.set(7, "new").delete(8).update({9: 1.5, "x": None}))
    assert not gc.is_tracked(PMap())
    for value in ([], {}, Link(), PMap(), lambda: 1):
        assert gc.is_tracked(atoms.set(700, value))
        builder = atoms.mutate()
        builder[1] = "first of its own node"
        builder[700] = value
        assert gc.is_tracked(builder.finish())
    assert gc.is_tracked(PMap({Link(): 1}))


def test_a_deep_nest_is_dropped() -> None:
    link = Link()
    gone = weakref.ref(link)
    it: Any = link
    del link
    for n in range(100_000):
        it = PMap(a=it) if n % 3 else PMap({"a": 1, n: it, "b": 2})
    del it
    assert is_gone(gone)


def test_the_nest_is_dropped_by_a_finalizer_in_another() -> None:
    class Holds:
        def __init__(self, held: object) -> None:
            self.held = held

    it: Any = None
    for _ in range(30_000):
        it = PMap(a=it)
    for _ in range(50):
        it = PMap(a=[Holds(it)])
    gone = weakref.ref(it["a"][0])
    del it
    assert is_gone(gone)


def churn(source: random.Random, values: list[object], keys: list[Any], rounds: int) -> None:
    """Uses all that takes or gives references."""
    it: PMap[Any, Any] = PMap()
    builder = it.mutate()
    for n in range(rounds):
        key, value = source.choice(keys), source.choice(values)
        what = source.randrange(12)
        if what < 3:
            it = it.set(key, value)
        elif what == 3:
            it = it.discard(key)
        elif what < 7:
            builder[key] = value
        elif what == 7:
            builder.discard(key)
        elif what == 8:
            it.get(key)
            builder.get(key)
            assert (key in it) == (it.get(key) is not None)
        elif n % 50 == 0:
            newer = builder.finish()
            state.diff_maps(it, newer)
            it, builder = newer, it.mutate()
            list(it.items())
            assert it == PMap(dict(it))
            pickle.dumps(len(it.keys() & builder.finish().keys()))


@pytest.mark.parametrize(
    ("spread", "count", "rounds"), [(1, 20, 200_000), (3, 40, 200_000), (1 << 40, 300, 1_000_000)]
)
def test_references_are_balanced(spread: int, count: int, rounds: int) -> None:
    values = [object() for _ in range(5)]
    keys: list[Any] = [Hashed(n, (n * 2654435761) % spread) for n in range(count)]
    keys += [f"text {n}" for n in range(count)]
    source = random.Random(spread)
    churn(source, values, keys, 1000)
    gc.collect()
    before = [sys.getrefcount(one) for one in values + keys]
    churn(source, values, keys, rounds)
    gc.collect()
    assert [sys.getrefcount(one) for one in values + keys] == before


# --- laws -------------------------------------------------------------------------------------------------------------


def test_it_does_what_a_dict_does() -> None:
    source = random.Random(11)
    for _ in range(60):
        keys: list[Any] = [Hashed(n, source.choice(HASHES)) for n in range(source.choice([3, 30]))]
        keys += [source.choice([n, str(n), (n,), n + 0.5]) for n in range(source.choice([3, 300]))]
        it: PMap[Any, Any] = PMap()
        model: dict[Any, Any] = {}
        for n in range(200):
            before, old = it, dict(model)
            key = source.choice(keys)
            if source.random() < 0.6:
                it, model = it.set(key, n), {**model, key: n}
            elif source.random() < 0.7:
                it = it.discard(key)
                model.pop(key, None)
            else:
                builder = it.mutate()
                for key in source.choices(keys, k=50):
                    if source.random() < 0.6:
                        builder[key] = model[key] = n
                    else:
                        builder.discard(key)
                        model.pop(key, None)
                    assert len(builder) == len(model)
                it = builder.finish()
            assert len(it) == len(model)
            assert {key: (was, is_) for key, was, is_ in state.diff_maps(before, it)} == changes(old, model)
            assert before == old
        assert it == model
        assert dict(it.items()) == model
        shuffled = source.sample(list(model), len(model))
        assert it == PMap([(key, model[key]) for key in shuffled])


def _examples() -> Iterator[Any]:
    yield from range(3)
    yield from (Hashed(n, 0) for n in range(3))
    # Other names than those above: what is equal has one hash.
    yield from (Hashed(10 + n, 1 << (5 * n)) for n in range(8))
    yield from "abc"


def test_machine() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    stateful = pytest.importorskip("hypothesis.stateful")
    st = pytest.importorskip("hypothesis.strategies")
    keys = st.sampled_from(list(_examples())) | st.integers() | st.text(max_size=2)
    values = st.integers(0, 3) | st.just(None)

    class Machine(stateful.RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.made: list[tuple[PMap[Any, Any], dict[Any, Any]]] = [(PMap(), {})]
            self.builder, self.model = self.made[0][0].mutate(), dict[Any, Any]()

        @stateful.rule(key=keys, value=values)
        def set(self, key: Any, value: Any) -> None:
            it, model = self.made[-1]
            self.made.append((it.set(key, value), {**model, key: value}))

        @stateful.rule(key=keys)
        def delete(self, key: Any) -> None:
            it, model = self.made[-1]
            if key in model:
                self.made.append((it.delete(key), {k: v for k, v in model.items() if k != key}))
            else:
                with pytest.raises(KeyError):
                    it.delete(key)

        @stateful.rule(key=keys, value=values)
        def edit(self, key: Any, value: Any) -> None:
            self.builder[key] = self.model[key] = value

        @stateful.rule(key=keys)
        def cut(self, key: Any) -> None:
            self.builder.discard(key)
            self.model.pop(key, None)

        @stateful.rule()
        def finish(self) -> None:
            self.made.append((self.builder.finish(), dict(self.model)))

        @stateful.rule(at=st.integers(0, 5))
        def edit_another(self, at: int) -> None:
            it, model = self.made[at % len(self.made)]
            self.builder, self.model = it.mutate(), dict(model)

        @stateful.rule(at=st.integers(0, 5))
        def unite(self, at: int) -> None:
            it, model = self.made[-1]
            other, more = self.made[at % len(self.made)]
            self.made.append((it | other, {**model, **more}))

        @stateful.invariant()
        def is_as_the_model(self) -> None:
            it, model = self.made[-1]
            assert it == model
            assert len(self.builder) == len(self.model)

        def teardown(self) -> None:
            for it, model in self.made:
                assert dict(it.items()) == model
                assert it == PMap(model)
                assert hash(it) == hash(PMap(model))
            for (old, was), (new, is_) in zip(self.made, self.made[1:], strict=False):
                found = {key: (before, after) for key, before, after in state.diff_maps(old, new)}
                assert found == changes(was, is_)

    settings = hypothesis.settings(max_examples=60, stateful_step_count=40, deadline=None)
    stateful.run_state_machine_as_test(Machine, settings=settings)


def test_the_repr_of_a_large_map_is_short() -> None:
    large = PMap({number: number for number in range(1001)})
    assert eval(repr(large.delete(7))) == large.delete(7)
    assert repr(large).count(":") == 10
    assert repr(large).endswith(", ... and 991 more})")
    assert str(inspect.signature(PMap)) == "(source=(), /, **entries)"
