"""What is said of arrays that do not fit, and of those that have no place: each error names it."""
# The dimensions of arrays are no names of types.
# ruff: noqa: F722, F821, UP037

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from ropewalk._errors import ContractViolation, NotFrozen, WrongType  # noqa: E402
from ropewalk.state import AppendOnly, Const, PMap, PVector, Shm, Store, float32, paths, task  # noqa: E402


@dataclass(frozen=True, slots=True)
class Inner:
    any: object = 0


@dataclass(frozen=True, slots=True)
class Table:
    vectors: Shm[float32, "n 4"]
    norms: Shm[float32, "n"]
    rows: PMap[str, Shm[float32, "n"]]
    count: int = 0
    any: object = None
    inner: Inner = Inner()
    many: PMap[str, object] = PMap()  # noqa: RUF009
    log: PVector[int] = PVector()  # noqa: RUF009


P = paths(Table)


def table(length: int = 3) -> Table:
    return Table(
        np.ones((length, 4), np.float32),
        np.ones(length, np.float32),
        PMap({"a": np.ones(length, np.float32)}),
    )


# --- arrays that are not as declared ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.ones((3, 4)), r"vectors: an array of float64 \(3, 4\) was given for Shm\[float32, \"n 4\"\]"),
        (np.ones((3, 5), np.float32), r"vectors: .*, where 4 is wanted"),
        (np.ones(3, np.float32), r"vectors: an array of float32 \(3,\) was given"),
        ([[1.0] * 4] * 3, r"vectors: Shm.* is wanted, and not an object of class list"),
        (None, r"vectors: .*class NoneType"),
        (3.0, r"vectors: .*class float"),
        (np.zeros((3, 4), object), r"vectors: a state has no arrays of object"),
        (np.ma.masked_array(np.ones((3, 4), np.float32)), r"vectors: a masked array"),
    ],
)
def test_what_does_not_fit_is_of_a_wrong_type(wrong: Any, says: str) -> None:
    with pytest.raises(WrongType, match=says) as caught:
        Store(replace(table(), vectors=wrong))
    assert caught.value.path == "vectors"
    with Store(table()) as store:
        # It is one of Python's own too.
        with pytest.raises(TypeError, match=says):
            store.run(lambda t: setattr(t, "vectors", wrong))
        assert store.version == 0


def test_an_array_of_a_map_is_named_by_its_key() -> None:
    with Store(table()) as store:
        with pytest.raises(WrongType, match=r"rows\['b'\]: an array of float64") as caught:
            store.run(lambda t: t.rows.update(b=np.ones(3)))
        assert caught.value.path == "rows['b']"
    with pytest.raises(WrongType, match=r"rows\['b'\]: an array of float64"):
        Store(replace(table(), rows={"b": np.ones(3)}))


# --- lengths ----------------------------------------------------------------------------------------------------------


def _set(**changes: Any) -> Any:
    def change(t: Any) -> None:
        for name, value in changes.items():
            setattr(t, name, value)

    return change


def test_unequal_lengths_name_what_was_changed_and_what_was_not() -> None:
    other = np.zeros((5, 4), np.float32)
    with Store(table()) as store:
        with pytest.raises(
            WrongType, match=r"^vectors: .*\(5, 4\).* n = 3 is wanted: norms has that length, and was"
        ):
            store.run(_set(vectors=other))
        with pytest.raises(
            WrongType, match=r"^norms: .*\(5,\).* n = 3 is wanted: vectors has that length, and was"
        ):
            store.run(_set(norms=np.zeros(5, np.float32)))
        both = _set(vectors=other, norms=np.zeros(5, np.float32))
        with pytest.raises(
            WrongType,
            match=r"^vectors: .* n = 3 is wanted: rows\['a'\] has that length, and was not changed$",
        ):
            store.run(both)
        with pytest.raises(
            WrongType, match=r"^norms: .* n = 5 is wanted: vectors has that length now$"
        ) as caught:
            store.run(_set(vectors=other, norms=np.zeros(6, np.float32), rows=PMap()))
        assert caught.value.path == "norms"
        assert store.version == 0
        store.run(_set(vectors=other, norms=np.zeros(5, np.float32), rows=PMap()))
    with pytest.raises(WrongType, match=r"^norms: .* n = 3 is wanted: vectors has that length$"):
        Store(replace(table(), norms=np.zeros(4, np.float32)))


# --- arrays that have no place ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"any": np.ones(3)}, "any"),
        ({"count": np.ones(3)}, "count"),
        ({"inner": Inner(np.ones(3))}, "inner.any"),
        ({"many": {"deep": [np.ones(3)]}}, "many['deep'][0]"),
    ],
)
def test_an_array_at_a_place_that_is_not_declared_names_it(changes: Any, where: str) -> None:
    says = f"{where} cannot be stored: an array of float64 (3,) changes in place"
    with pytest.raises(NotFrozen) as caught:
        Store(replace(table(), **changes))
    assert str(caught.value).startswith(says)
    with Store(table()) as store:
        with pytest.raises(NotFrozen) as caught:
            store.run(_set(**changes))
        assert str(caught.value).startswith(says)
        assert store.version == 0


def test_an_array_in_a_mapping_names_the_rows_of_the_policy_that_have_no_place() -> None:
    with pytest.raises(NotFrozen, match=r"^\['w'\] cannot be stored: an array") as caught:
        Store({"w": np.zeros(3)})
    assert not hasattr(caught.value, "__notes__")
    policy: Any = {"ww": Shm[float32, "n"], "log": AppendOnly, "sub.x": Const, "sub.y": Const, "w.z": Const}
    with pytest.raises(NotFrozen, match=r"^\['w'\] cannot be stored: an array") as caught:
        Store({"w": np.zeros(3), "log": [1], "sub": {"x": 3}}, policy=policy)
    assert caught.value.__notes__ == [
        "the policy names ['ww'] and ['sub']['y'] and ['w']['z'], which the state does not have"
    ]
    # A mapping may get a key later.
    with Store({"log": [1]}, policy=policy) as store:
        store.run(lambda s: s.update(ww=np.zeros(3, np.float32)))
        assert len(store.snapshot()["ww"]) == 3


# --- contracts --------------------------------------------------------------------------------------------------------


def _write_item(t: Any) -> None:
    t.vectors[0] = 1


def _write_all(t: Any) -> None:
    t.vectors += 1


def _write_key(t: Any) -> None:
    t.many["k"] = 1


@pytest.mark.parametrize("change", [_write_item, _write_all, _write_key])
def test_a_change_at_a_place_that_is_not_declared_is_to_be_declared_as_a_write(change: Any) -> None:
    with Store(table()) as store:
        with pytest.raises(ContractViolation, match=r"to reads, or to writes if the task changes it$"):
            store.run(task(writes=[P.count])(change))
        with pytest.raises(ContractViolation, match=r"writes .*to writes$"):
            store.run(task(reads=[P.vectors, P.many])(change))
        store.run(task(writes=[P.vectors, P.many])(change))


def test_what_can_only_be_read_is_to_be_declared_as_a_read() -> None:
    @dataclass(frozen=True, slots=True)
    class State:
        log: AppendOnly[int]
        limit: Const[int] = 3
        count: int = 0

    paths_ = paths(State)
    with Store(State(PVector())) as store:
        for read in (lambda s: s.limit, lambda s: len(s.log)):
            with pytest.raises(ContractViolation, match=r"Add the place to reads$"):
                store.run(task(writes=[paths_.count, paths_.log])(read))
