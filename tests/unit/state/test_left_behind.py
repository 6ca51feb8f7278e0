"""What leaves a transaction, as its result or with an effect: values, and no drafts."""
# ruff: noqa: F722, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ropewalk._errors import NotFrozen
from ropewalk.result import Ok
from ropewalk.state import PMap, PVector, Shm, Store, float64, paths, task


@dataclass(frozen=True, slots=True)
class Inner:
    m: PMap[str, int]
    x: int = 0


@dataclass(frozen=True, slots=True)
class Outer:
    a: Inner
    v: PVector[int]


def opened() -> Store[Outer]:
    return Store(Outer(Inner(PMap(k=1)), PVector([1])))


class Named(NamedTuple):
    one: Any
    other: Any = 0


@dataclass(frozen=True)
class Plain:
    """Its check runs once, when it is made."""

    one: Any
    other: Any = 0
    made = [0]  # noqa: RUF012 - a counter.

    def __post_init__(self) -> None:
        self.made[0] += 1


# --- results ----------------------------------------------------------------------------------------------------------


def test_a_draft_in_a_record_becomes_its_value() -> None:
    store = opened()

    def replaced(o: Any) -> Any:
        o.a.m["k"] = 2
        return dataclasses.replace(o.a, x=3)

    assert store.run(replaced) == Inner(PMap(k=2), 3)
    for make in (Named, Plain):
        found = store.run(lambda o, make=make: make(o.a, [make(o.v), {"key": make(o)}]))
        assert found == make(Inner(PMap(k=2)), [make(PVector([1])), {"key": make(store.snapshot())}])
        assert found.one is store.snapshot().a
    Plain.made[0] = 0
    found = store.run(lambda o: Ok((Plain(o.a),)))
    assert (found, Plain.made[0]) == (Ok((Plain(store.snapshot().a),)), 1)


def test_a_draft_in_a_struct_or_a_model_becomes_its_value() -> None:
    pydantic, msgspec = pytest.importorskip("pydantic"), pytest.importorskip("msgspec")

    class Struct(msgspec.Struct, frozen=True):  # type: ignore[misc, name-defined]
        one: Any
        other: int = 0

    class Model(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(frozen=True, arbitrary_types_allowed=True)
        one: Any
        other: int = 0

    store = opened()
    inner = store.snapshot().a
    assert store.run(lambda o: Struct(o.a, 2)) == Struct(inner, 2)
    assert store.run(lambda o: Model(one=o.a, other=2)) == Model(one=inner, other=2)


def test_a_record_without_drafts_stays_the_same_object() -> None:
    store = opened()
    for value in (Named(1, [2]), Plain(Inner(PMap())), Inner(PMap()), [Named(1)], {"a": Plain(1)}):
        assert store.run(lambda _, value=value: value) is value
    assert store.run(lambda o: copy.copy(o.a)) is store.snapshot().a


def test_a_record_that_can_change_is_left_alone() -> None:
    @dataclass
    class Node:
        up: Any = None

    one = Node()
    one.up = one
    assert opened().run(lambda _: one) is one


# --- effects ----------------------------------------------------------------------------------------------------------

CALLS: list[tuple[Any, ...]] = []


def keep(*args: Any) -> None:
    CALLS.append(args)


@pytest.mark.parametrize("journaled", [False, True])
def test_arguments_of_effects_are_values(tmp_path: Path, journaled: bool) -> None:
    CALLS.clear()
    with Store(opened().snapshot(), journal=tmp_path / "a.wal" if journaled else None) as store:

        def work(o: Any) -> None:
            o.a.m["k"] = 2
            o.on_commit(keep, o.a, [o.v], (o.a.m, 1), {"all": o}, Inner(o.a.m))
            o.a.m["k"] = 3

        store.run(work)
        # What they are when the effect is asked for.
        then = Inner(PMap(k=2))
        assert [
            (then, [PVector([1])], (PMap(k=2), 1), {"all": Outer(then, PVector([1]))}, Inner(PMap(k=2)))
        ] == CALLS
        given = [1]
        store.run(lambda o: o.on_commit(keep, given))
        assert CALLS[1] == ([1],)
        with pytest.raises(TypeError, match="takes a function"):
            store.run(lambda o: o.on_commit())
        with store.transaction() as tx:
            tx.on_commit(keep, tx.draft.a, tx.draft.v)
        assert CALLS[2] == (Inner(PMap(k=3)), PVector([1]))


# --- parts of arrays --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrays:
    w: Shm[float64, "n 2"]
    t: tuple[Any, ...] = ()
    rows: PVector[Shm[float64, "2"]] = PVector()  # noqa: RUF009 - it never changes.


A = paths(Arrays)


@task(writes=[A.w])
def sends_a_row(a: Any) -> None:
    a.w[0] = 7
    a.on_commit(keep, a.w[0], [a.w[1:]], a.w)
    a.w[0] = 8


@pytest.mark.parametrize("journaled", [False, True])
def test_a_row_goes_with_an_effect_as_a_copy(tmp_path: Path, journaled: bool) -> None:
    np = pytest.importorskip("numpy")
    CALLS.clear()
    with Store(Arrays(np.zeros((3, 2))), journal=tmp_path / "a.wal" if journaled else None) as store:
        store.run(sends_a_row)
        ((row, (rest,), whole),) = CALLS
        assert (type(row), row.tolist(), rest.tolist()) == (np.ndarray, [7, 7], [[0, 0], [0, 0]])
        assert whole.tolist() == [[7, 7], [0, 0], [0, 0]]
        assert store.snapshot().w[0].tolist() == [8, 8]


def test_a_row_in_a_tuple_is_refused_with_what_to_do() -> None:
    np = pytest.importorskip("numpy")
    store = Store(Arrays(np.zeros((3, 2))))
    for value in (lambda a: (a.w[0],), lambda a: (1, (a.w[1:],))):
        with pytest.raises(NotFrozen, match=r"t\[.*\.copy\(\)") as caught:
            store.run(lambda a, value=value: setattr(a, "t", value(a)))
        assert "ArrayPart" not in str(caught.value)

    def stored(a: Any) -> None:
        a.w[0] = 3
        a.t = tuple(a.w[0].tolist())
        a.rows.append(a.w[0].copy())

    store.run(stored)
    assert (store.snapshot().t, store.snapshot().rows[0].tolist()) == ((3.0, 3.0), [3, 3])
