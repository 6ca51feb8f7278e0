"""Other views of an array in a transaction, its text, and comparisons of what has arrays."""
# The dimensions of arrays are no names of types.
# ruff: noqa: F722, F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from ropewalk._errors import ContractViolation  # noqa: E402
from ropewalk.state import (  # noqa: E402
    PMap,
    PVector,
    Shm,
    Store,
    complex128,
    float64,
    paths,
    task,
)


@dataclass(frozen=True, slots=True)
class State:
    w: Shm[float64, "n m"]
    z: Shm[complex128, "k"]
    rows: PMap[str, Shm[float64, "_"]] = PMap()  # noqa: RUF009


P = paths(State)


def state() -> State:
    return State(np.arange(12.0).reshape(3, 4), np.zeros(2, complex), PMap({"a": np.arange(3.0)}))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "T": lambda a: a.T,
    "ravel": lambda a: a.ravel(),
    "reshape": lambda a: a.reshape(2, -1),
    "swapaxes": lambda a: a.swapaxes(0, 1),
    "squeeze": lambda a: a[:, None].squeeze(),
    "transpose": lambda a: a.transpose(),
    "view": lambda a: a.view(),
    "part of a part": lambda a: a.T[:, 1:].reshape(-1, order="F"),
    "row of a view": lambda a: a.T[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_writes_as_that_of_numpy_does(name: str) -> None:
    view = VIEWS[name]
    plain = np.arange(12.0).reshape(3, 4)

    def change(a: Any) -> None:
        view(a)[0] = 77
        taken = view(a)
        taken[-1] += 5
        taken *= 2

    change(plain)
    with Store(state()) as store:
        store.run(lambda s: change(s.w))
        assert store.snapshot().w.tolist() == plain.tolist()
        assert store.at(0).w.tolist() == np.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_taken_before_a_write_sees_it(name: str) -> None:
    view = VIEWS[name]

    def change(s: Any) -> Any:
        taken = view(s.w)
        before = np.array(taken)
        s.w += 1
        assert (np.asarray(taken) == before + 1).all()
        return taken

    with Store(state()) as store:
        returned = store.run(change)
        # What a transaction returns is the program's own.
        assert type(returned) is np.ndarray
        assert returned.tolist() == view(store.snapshot().w).tolist()


def test_a_plain_array_of_a_draft_stays_as_it_was_taken() -> None:
    def change(s: Any) -> None:
        plain = np.asarray(s.w)
        s.w[0] = 50
        assert plain[0, 0] == 0
        with pytest.raises(ValueError, match="read-only"):
            plain[0] = 1

    with Store(state()) as store:
        store.run(change)
        assert store.snapshot().w[0, 0] == 50


def test_a_view_that_needs_a_copy_is_the_programs_own() -> None:
    def change(s: Any) -> None:
        copy = s.w.T.reshape(-1)
        copy[0] = 50
        lines = s.w.ravel(order="F")
        lines[0] = 50
        assert type(copy) is type(lines) is np.ndarray

    with Store(state()) as store:
        store.run(change)
        assert store.version == 0


def test_a_part_is_assigned_to_another_attribute() -> None:
    def change(s: Any) -> None:
        s.z.real = 2
        s.z.imag = s.z.real
        s.z[:1].real = s.z[1:2].imag + 5

    with Store(state()) as store:
        store.run(change)
        found = store.snapshot().z
        assert set(found.imag.ravel().tolist()) == {2}
        assert found.real.tolist()[:2] == [7, 2]


def test_attributes_that_are_items_are_assigned_and_others_are_not() -> None:
    def change(s: Any) -> None:
        s.w.flat = 3
        s.w[0].flat = [1, 2, 3, 4]
        s.z.real = 2
        s.z.imag = s.z.real + 1
        s.z.real *= 2
        for name, value in (("shape", (4, 3)), ("dtype", np.int64), ("strides", (8, 8)), ("mine", 3)):
            for array in (s.w, s.w[1:]):
                with pytest.raises(
                    AttributeError, match=f"^{name} of an array cannot be set in a transaction"
                ):
                    setattr(array, name, value)

    with Store(state()) as store:
        store.run(change)
        assert store.snapshot().w[:2].tolist() == [[1, 2, 3, 4], [3, 3, 3, 3]]
        assert store.snapshot().z.tolist() == [4 + 3j] * 2


def test_views_ask_for_the_right_to_write() -> None:
    def change(s: Any) -> None:
        s.w.T[0] = 3

    with Store(state()) as store:
        with pytest.raises(ContractViolation, match="writes w, which"):
            store.run(task(reads=[P.w])(change))
        store.run(task(writes=[P.w])(change))
        assert store.snapshot().w[:, 0].tolist() == [3, 3, 3]


def test_an_array_in_a_text_is_written_as_numpy_does() -> None:
    kept: list[Any] = []

    def change(s: Any) -> list[str]:
        kept.append(s.w)
        return [str(s.w), f"{s.w[0]}", f"{s.w[0, 1]:.2f}", repr(s.w), str(s.w.T[0])]

    plain = np.arange(12.0).reshape(3, 4)
    with Store(state()) as store:
        text, row, item, shown, column = store.run(change)
    assert text == str(plain)
    assert (row, item, column) == (str(plain[0]), "1.00", str(plain[:, 0]))
    assert shown == f"<draft of {plain!r}>"
    assert str(kept[0]) == repr(kept[0]) == "<draft of a transaction that has ended>"


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_collections_compare_arrays_whole() -> None:
    one, same, other = np.arange(3.0), np.arange(3.0), np.zeros(3)
    assert PMap({"a": one}) == PMap({"a": same}) == {"a": one}
    assert PMap({"a": one, "b": 1}) != PMap({"a": other, "b": 1})
    assert PVector([one, "x"]) == PVector([same, "x"])
    assert PVector([one]) != PVector([other])
    assert PMap({"a": PVector([one])}) == PMap({"a": PVector([same])})
    # Of one shape; the types of items may differ, as those of numbers do.
    assert PVector([one]) != PVector([np.zeros((3, 1))])
    assert PVector([one]) == PVector([np.arange(3)])
    # An array is equal to no other value.
    for value in (0, "x", None, [0, 1, 2], PVector([0.0, 1.0, 2.0])):
        assert PVector([one]) != PVector([value])
        assert PMap({"a": value}) != PMap({"a": one})


def test_collections_find_arrays() -> None:
    one, same, other = np.arange(3.0), np.arange(3.0), np.zeros(3)
    items = PVector([1, other, one, one])
    assert (items.index(same), items.count(same), same in items) == (2, 2, True)
    assert np.arange(4.0) not in items
    assert 5 not in items
    assert same in PMap({"a": one}).values()
    assert ("a", same) in PMap({"a": one}).items()
    assert ("a", 3) not in PMap({"a": one}).items()


def test_snapshots_of_a_mapping_compare() -> None:
    with Store({"a": np.arange(3.0)}, policy={"a": Shm[float64, "n"]}) as store:
        store.run(lambda s: s["a"].fill(5))
        assert store.snapshot() != store.at(0)
        store.undo()
        assert store.snapshot() == store.at(0)


def test_states_of_a_class_are_compared_by_their_difference() -> None:
    with Store(state()) as store:
        store.run(lambda s: s.w.fill(0))
        # The class's own comparison is that of a tuple.
        with pytest.raises(ValueError, match="truth value"):
            assert store.at(0) != store.at(1)
        assert [one["path"] for one in store.diff(0, 1)] == ["/w"]
        store.undo()
        assert store.diff(0, 2) == []
        assert store.snapshot().rows == store.at(0).rows


@dataclass(frozen=True, slots=True)
class Numbers:
    whole: int = 0
    real: float = 0.0
    flag: bool = False


def test_what_fields_of_numbers_take_of_numpy() -> None:
    with Store(Numbers()) as store:
        for name, value in (("whole", np.uint8(3)), ("real", np.float32(0.5)), ("real", np.int64(3))):
            store.run(lambda s, name=name, value=value: setattr(s, name, value))
            found = getattr(store.snapshot(), name)
            assert found == value
            assert type(found) is type(value)
        for name, value in (("whole", np.float32(3)), ("whole", np.bool_(True)), ("flag", np.bool_(True))):
            says = re.escape(f"{name} is declared as")
            with pytest.raises(TypeError, match=says):
                store.run(lambda s, name=name, value=value: setattr(s, name, value))
