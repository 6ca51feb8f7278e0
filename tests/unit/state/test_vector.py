"""`PVector`, its builder, and `diff_vectors`."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk._load import state
from ropewalk.state import PMap, PVector, Store

MISSING = state.MISSING
#: Lengths around those where a tail becomes a leaf, and where a trie becomes higher or lower.
LENGTHS = [0, 1, 2, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1055, 1056, 1057, 1088, 2080, 32_800, 33_825]


def changes(old: list[Any], new: list[Any]) -> list[tuple[int, Any, Any]]:
    """The model of a difference."""
    longest = max(len(old), len(new))
    old, new = ([*items, *[MISSING] * (longest - len(items))] for items in (old, new))
    return [(n, old[n], new[n]) for n in range(longest) if old[n] is not new[n]]


# --- making and reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_each_length(length: int) -> None:
    items = [str(n) for n in range(length)]
    it = PVector(items)
    assert len(it) == length
    assert list(it) == items
    assert [it[n] for n in range(length)] == items
    assert [it[n - length] for n in range(length)] == items
    assert bool(it) is bool(items)
    for wrong in (length, -length - 1, 1 << 70, -1 << 70):
        with pytest.raises(IndexError):
            it[wrong]
    grown: PVector[str] = PVector()
    for item in items[:3000]:
        grown = grown.append(item)
    assert grown == PVector(items[:3000]) == it[:3000]


@pytest.mark.parametrize("length", LENGTHS)
def test_it_grows_and_shrinks_back(length: int) -> None:
    it = PVector(range(length))
    items = list(range(length))
    made = [it]
    for n in range(70):
        made.append(made[-1].append(n))
    for n in range(70, -1, -1):
        assert list(made[n]) == items + list(range(n))
        # Vectors are compared by their form, so this fails if a pop leaves another one.
        assert made[n] == (made[n + 1].pop() if n < 70 else made[n])
    shorter = it
    for n in range(min(length, 70)):
        shorter = shorter.pop()
        assert shorter == PVector(items[: length - n - 1])


def test_it_is_made_of_any_iterable() -> None:
    assert list(PVector()) == list(PVector([])) == list(PVector(iter(()))) == []
    assert list(PVector("ab")) == list(PVector(("a", "b"))) == list(PVector({"a": 1, "b": 2})) == ["a", "b"]
    assert list(PVector.__new__(PVector, "ab")) == ["a", "b"]
    it = PVector([1])
    assert PVector(it) is it
    assert PVector() is PVector([])


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda: PVector(1), TypeError, "not iterable"),
        (lambda: PVector([], []), TypeError, "one iterable"),
        (lambda: PVector(items=[]), TypeError, "by position"),
        (lambda: PVector([1])["a"], TypeError, "integers or slices, not str"),
        (lambda: PVector([1])[1.0], TypeError, "integers or slices, not float"),
        (lambda: PVector([1])[:: 10**100][5], IndexError, "no item"),
        (lambda: PVector([1])[::0], ValueError, "zero"),
        (lambda: PVector([1]).set(1, 2), IndexError, "no item"),
        (lambda: PVector([1]).set("a", 2), TypeError, "integer"),
        (lambda: PVector([1]).set(1), TypeError, "an index and an item"),
        (lambda: PVector([1]).insert(1), TypeError, "an index and an item"),
        (lambda: PVector().pop(), IndexError, "no item"),
        (lambda: PVector([1]).delete(-2), IndexError, "no item"),
        (lambda: PVector([1]).index(2), ValueError, "no such item"),
        (lambda: PVector([1]).index(), TypeError, "index"),
        (lambda: PVector([1]).__add__([1]), TypeError, "not with list"),
        (lambda: PVector([1]).extend(1), TypeError, "not iterable"),
        (lambda: PVector([1]) < PVector([2]), TypeError, "not supported"),
        (lambda: state.VectorBuilder(), TypeError, "cannot create"),
        (lambda: type("Mine", (PVector,), {}), TypeError, "not an acceptable base type"),
    ],
)
def test_wrong_arguments(use: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        use()


def test_slices_are_those_of_a_list() -> None:
    for length in (0, 5, 33, 70, 1100):
        items = list(range(length))
        it = PVector(items)
        bounds = [None, 0, 1, -1, 5, -7, 32, 33, 64, 1056, length, -length, length + 9, -length - 9]
        for start in bounds:
            for stop in bounds:
                assert list(it[start:stop]) == items[start:stop]
                assert it[start:stop] == PVector(items[start:stop])
        for step in (2, -1, -3, 40, -2000):
            assert list(it[::step]) == items[::step]
            assert list(it[60:3:step]) == items[60:3:step]
        assert it[:] is it
        assert type(it[1:2]) is PVector
        assert it[3:3] is PVector()


def test_searching() -> None:
    it = PVector([1, 2.0, "a", 2, None] * 20)
    assert 2 in it
    assert "b" not in it
    assert it.index(2) == 1
    assert it.index(2, 2) == 3
    assert it.index(2, -2) == 98
    assert it.index("a", 50, 53) == 52
    with pytest.raises(ValueError, match="no such item"):
        it.index("a", 53, 57)
    assert it.index(None, -1000, 1 << 80) == 4
    assert (it.count(2), it.count("b")) == (40, 0)
    nan = float("nan")
    assert nan in PVector([nan])
    assert PVector([nan]).index(nan) == 0


def test_iterators_know_what_is_left() -> None:
    walk = iter(PVector(range(70)))
    for left in range(70, 0, -1):
        assert walk.__length_hint__() == left  # type: ignore[attr-defined]
        assert next(walk) == 70 - left
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(walk)
    assert iter(walk) is walk
    assert list(reversed(PVector(range(70)))) == list(range(69, -1, -1))


def test_reprs() -> None:
    assert repr(PVector()) == "PVector([])"
    assert repr(PVector(["a", PVector([1])])) == "PVector(['a', PVector([1])])"
    held: list[Any] = []
    held.append(PVector([held]))
    assert repr(held) == "[PVector([[...]])]"
    assert repr(held[0]) == "PVector([[PVector([...])]])"


# --- deriving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_setting(length: int) -> None:
    it = PVector(range(length))
    for index in {0, 1, 31, 32, length // 2, length - 33, length - 32, length - 1}:
        if not 0 <= index < length:
            continue
        new = it.set(index, "new")
        assert new[index] == "new"
        assert list(new) == [*range(index), "new", *range(index + 1, length)]
        assert it.set(index - length, "new") == new
        assert it.set(index, it[index]) is it
    assert it == PVector(range(length))


def test_inserting_and_deleting() -> None:
    for length in (0, 1, 33, 70, 1100):
        items = list(range(length))
        it = PVector(items)
        for index in (0, 1, -1, 31, 32, 33, length - 1, length, length + 5, -length, -length - 5, 1 << 80):
            more = items.copy()
            more.insert(min(index, 1 << 60), "new")
            assert it.insert(index, "new") == PVector(more)
            if -length <= index < length:
                less = items.copy()
                del less[index]
                assert it.delete(index) == PVector(less)
        assert list(it) == items


def test_joining() -> None:
    for first in (0, 1, 32, 33, 1056):
        for second in (0, 1, 31, 32, 1100):
            left, right = PVector(range(first)), PVector(range(second))
            assert list(left + right) == [*range(first), *range(second)]
            assert left.extend(range(second)) == left.extend(right) == left + right
    it = PVector([1])
    assert it.extend([]) is it
    assert it + PVector() is it
    assert it + it == PVector([1, 1])


# --- equality, hashes, copies -----------------------------------------------------------------------------------------


def test_equality() -> None:
    it = PVector([1, [2]])
    assert it == PVector([1.0, [2]])
    assert it != PVector([1, [3]])
    assert it != PVector([1])
    assert it != [1, [2]]
    assert it != (1, [2])
    assert (PVector() == ()) is False
    long = PVector(range(5000))
    assert long == PVector(range(5000))
    for index in (0, 31, 1024, 4000, 4999):
        assert long != long.set(index, None)
    nan = float("nan")
    assert PVector([nan]) == PVector([nan])


def test_an_error_of_a_comparison_goes_on() -> None:
    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        __hash__ = object.__hash__

    it = PVector([Refuses()])
    for use in (
        lambda: it == PVector([Refuses()]),
        lambda: it != PVector([Refuses()]),
        lambda: 1 in it,
        lambda: it.index(1),
        lambda: it.count(1),
    ):
        with pytest.raises(ZeroDivisionError):
            use()


def test_a_comparison_may_drop_the_vector() -> None:
    held: dict[str, Any] = {}

    class Drops:
        def __eq__(self, other: object) -> bool:
            held.clear()
            gc.collect()
            return False

        __hash__ = object.__hash__

    for use in (
        lambda: 1 in held["it"],
        lambda: held["it"].count(1),
        lambda: held["it"] == PVector([Drops(), 2]),
    ):
        held["it"] = PVector([Drops(), object()])
        use()
        assert not held


def test_hashes() -> None:
    assert hash(PVector([1, "a"])) == hash(PVector([1.0, "a"]))
    assert hash(PVector([1, 2])) != hash(PVector([2, 1]))
    assert hash(PVector()) == hash(PVector([1]).pop())
    assert len({PVector(range(100)), PVector(range(100)), PVector(range(99))}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(PVector([[]]))


def test_a_nest_too_deep_to_hash_or_to_compare_says_so() -> None:
    def nest() -> PVector[Any]:
        it: PVector[Any] = PVector()
        for _ in range(100_000):
            it = PVector([it])
        return it

    one, other = nest(), nest()
    for use in (lambda: hash(one), lambda: repr(one), lambda: one == other):
        with pytest.raises(RecursionError):
            use()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    it = PVector([1, PVector(["a"]), PMap(b=2)])
    again = pickle.loads(pickle.dumps(it, protocol))
    assert again == it
    assert type(again[1]) is PVector
    assert pickle.loads(pickle.dumps(PVector, protocol)) is PVector


def test_another_process_reads_a_pickle() -> None:
    program = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())[-1])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(PVector([*range(50), "it came"])),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == b"it came"


def test_copies() -> None:
    it = PVector([[1]])
    assert copy.copy(it) is it
    deep = copy.deepcopy(it)
    assert deep == it
    assert deep[0] is not it[0]


def test_annotations() -> None:
    assert PVector[int].__args__ == (int,)
    assert PVector[int]([1]) == PVector([1])


def test_a_match_takes_it_apart() -> None:
    match PVector([1, 2, 3]):
        case [first, *rest]:
            assert (first, rest) == (1, [2, 3])
        case _:
            raise AssertionError("it is no sequence")


# --- builders ---------------------------------------------------------------------------------------------------------


def test_a_builder() -> None:
    base = PVector([1, 2])
    builder = base.mutate()
    builder.append(3)
    builder[0] = "one"
    builder.extend([4, 5])
    assert (len(builder), builder[0], builder[-1], builder.pop()) == (5, "one", 5, 5)
    first = builder.finish()
    assert list(first) == ["one", 2, 3, 4]
    assert list(base) == [1, 2]
    builder[1] = "two"
    builder.append(6)
    assert list(first) == ["one", 2, 3, 4]
    assert list(builder.finish()) == ["one", "two", 3, 4, 6]
    for use in (lambda: builder[9], lambda: builder.__setitem__(9, 1), lambda: PVector().mutate().pop()):
        with pytest.raises(IndexError):
            use()
    with pytest.raises(TypeError, match="use pop"):
        del builder[0]
    with pytest.raises(TypeError):
        builder["a"]
    assert base.mutate().finish() is base


def test_a_builder_ends_with_its_block() -> None:
    with PVector([1]).mutate() as builder:
        builder.append(2)
    for use in (
        lambda: builder.append(3),
        lambda: builder.extend([3]),
        lambda: builder.__setitem__(0, 3),
        builder.pop,
    ):
        with pytest.raises(RuntimeError, match="block has ended"):
            use()
    assert builder[1] == 2
    assert list(builder.finish()) == [1, 2]


def test_what_a_builder_calls_may_not_use_it() -> None:
    builder = PVector([1, 2]).mutate()
    refused: list[bool] = []

    class Index:
        def __index__(self) -> int:
            with pytest.raises(RuntimeError, match="another call uses this builder"):
                builder.append(3)
            refused.append(True)
            return 0

    def items() -> Any:
        yield 3
        with pytest.raises(RuntimeError, match="another call uses this builder"):
            builder.pop()
        refused.append(True)

    builder[Index()] = "one"
    assert builder[Index()] == "one"
    builder.extend(items())
    assert refused == [True] * 3
    assert list(builder.finish()) == ["one", 2, 3]


def test_the_end_of_an_item_may_use_the_builder() -> None:
    class Ends:
        def __del__(self) -> None:
            builder.append("late")

    builder = PVector([1]).mutate()
    builder[0] = Ends()
    builder[0] = 2
    assert list(builder.finish()) == [2, "late"]
    builder.append(Ends())
    builder.pop()
    assert list(builder.finish()) == [2, "late", "late"]


def test_threads_that_share_a_builder_get_an_error_at_most() -> None:
    builder = PVector(range(100)).mutate()
    barrier = threading.Barrier(4)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        barrier.wait()
        for n in range(5000):
            try:
                if n % 3 == 0:
                    builder.append([n])
                elif n % 3 == 1:
                    builder.pop()
                else:
                    builder[source.randrange(50)] = [n]
            except (RuntimeError, IndexError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(list(builder.finish())) == len(builder)


def test_threads_read_while_others_derive() -> None:
    base = PVector(range(2000))
    newest = [base]
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            it = newest[0]
            if sum(1 for _ in it) != len(it) or it[7] != 7:
                wrong.append(it)

    def derive() -> None:
        it = base
        for n in range(3000):
            it = it.append(n) if n % 3 else it.set(100 + n % 1000, n)
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
    assert base == PVector(range(2000))


def test_threads_may_share_an_iterator() -> None:
    walk = iter(PVector(range(20_000)))
    found: list[list[int]] = [[], []]
    threads = [threading.Thread(target=lambda into=into: into.extend(walk)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(20_000))


# --- differences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_differences(length: int) -> None:
    items = list(range(length))
    old = PVector(items)
    assert state.diff_vectors(old, old) == []
    for other in (0, 1, 32, 33, 1025, 1057, 2000):
        new = PVector(items[:other])
        model = changes(items, items[:other])
        assert state.diff_vectors(old, new) == model
        assert state.diff_vectors(new, old) == [(n, after, before) for n, before, after in model]
    for index in {0, length // 2, length - 1}:
        if 0 <= index < length:
            assert state.diff_vectors(old, old.set(index, "new")) == [(index, index, "new")]
    more = old.extend(range(length, length + 2000))
    assert [n for n, _, _ in state.diff_vectors(old, more)] == list(range(length, length + 2000))


def test_a_difference_takes_two_vectors() -> None:
    it = PVector([1])
    for wrong in ((it,), (it, [1]), ([1], it), (it, it, it)):
        with pytest.raises(TypeError, match="two vectors, old and new"):
            state.diff_vectors(*wrong)


# --- laws -------------------------------------------------------------------------------------------------------------


def test_machine() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    stateful = pytest.importorskip("hypothesis.stateful")
    st = pytest.importorskip("hypothesis.strategies")
    values = st.integers(0, 3) | st.text(max_size=1)
    many = st.sampled_from([1, 31, 32, 33, 1000]).flatmap(
        lambda n: st.lists(values, max_size=3).map(lambda v: v * n)
    )

    class Machine(stateful.RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.made: list[tuple[PVector[Any], list[Any]]] = [(PVector(), [])]
            self.builder, self.model = self.made[0][0].mutate(), list[Any]()

        @stateful.rule(items=many)
        def extend(self, items: list[Any]) -> None:
            it, model = self.made[-1]
            self.made.append((it.extend(items), model + items))

        @stateful.rule(value=values, index=st.integers(-70, 70))
        def change(self, value: Any, index: int) -> None:
            it, model = self.made[-1]
            new = model.copy()
            new.insert(index, value)
            self.made.append((it.insert(index, value), new))
            if -len(model) <= index < len(model):
                new = model.copy()
                new[index] = value
                self.made.append((it.set(index, value), new))
                self.made.append(
                    (it.delete(index), [*model[: index % len(model)], *model[index % len(model) + 1 :]])
                )

        @stateful.rule(bounds=st.slices(1200))
        def cut(self, bounds: slice) -> None:
            it, model = self.made[-1]
            self.made.append((it[bounds], model[bounds]))

        @stateful.rule(items=many, pops=st.integers(0, 40), value=values)
        def edit(self, items: list[Any], pops: int, value: Any) -> None:
            self.builder.extend(items)
            self.model += items
            for _ in range(min(pops, len(self.model))):
                assert self.builder.pop() == self.model.pop()
            for index in range(0, len(self.model), 50):
                self.builder[index] = self.model[index] = value

        @stateful.rule()
        def finish(self) -> None:
            self.made.append((self.builder.finish(), self.model.copy()))

        @stateful.rule(at=st.integers(0, 5))
        def edit_another(self, at: int) -> None:
            it, model = self.made[at % len(self.made)]
            self.builder, self.model = it.mutate(), model.copy()

        @stateful.invariant()
        def is_as_the_model(self) -> None:
            it, model = self.made[-1]
            assert list(it) == model
            assert len(self.builder) == len(self.model)

        def teardown(self) -> None:
            for it, model in self.made:
                assert list(it) == model
                assert it == PVector(model)
                assert hash(it) == hash(PVector(model))
            for (old, was), (new, is_) in zip(self.made, self.made[1:], strict=False):
                assert state.diff_vectors(old, new) == changes(was, is_)

    settings = hypothesis.settings(max_examples=40, stateful_step_count=30, deadline=None)
    stateful.run_state_machine_as_test(Machine, settings=settings)


def test_index_errors_name_the_index() -> None:
    vector = PVector([1, 2, 3])
    for call in (lambda: vector[7], lambda: vector.set(7, 0), lambda: vector.mutate()[7]):
        with pytest.raises(IndexError, match="no item 7: it has 3 items"):
            call()
    with pytest.raises(IndexError, match="no item 7"):
        Store({"v": vector}).run(lambda b: b["v"][7])


def test_the_repr_of_a_large_vector_is_short() -> None:
    assert eval(repr(PVector(range(1000)))) == PVector(range(1000))
    assert repr(PVector(range(1001))) == "PVector([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... and 991 more])"
    assert str(inspect.signature(PVector)) == "(items=(), /)"
