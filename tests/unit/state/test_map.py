"""`PMap`, its views, its builder, and `diff_maps`."""

from __future__ import annotations

import collections
import copy
import inspect
import pickle
import random
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.state._keys import HASHES, Acts, Hashed, fails

from ropewalk._load import state
from ropewalk.state import PMap

MISSING = state.MISSING


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
