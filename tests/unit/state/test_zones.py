"""Zones: what annotations say at run time."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import pytest

from ropewalk.state import (
    AppendOnly,
    ArrayShape,
    Const,
    Counter,
    PVector,
    Shm,
    StateError,
    Transient,
    Zone,
    bool_,
    float32,
)
from ropewalk.state._zones import zone_in_policy, zone_of


def test_zones_are_annotations_of_what_they_mean() -> None:
    assert Const[str] == Annotated[str, Zone.CONST]
    assert Transient[int] == Annotated[int, Zone.TRANSIENT]
    assert Counter == Annotated[int, Zone.COUNTER]
    assert AppendOnly[str] == Annotated[PVector[str], Zone.APPEND_ONLY]
    assert get_args(Shm[float32, "n 256"]) == (Any, ArrayShape("float32", ("n", 256)))


def test_numbers_of_zones_are_those_of_the_compiled_part() -> None:
    assert [zone.value for zone in Zone] == [0, 1, 2, 3, 4, 5]
    assert [zone.name for zone in Zone] == ["PLAIN", "CONST", "APPEND_ONLY", "COUNTER", "TRANSIENT", "ARRAY"]
    assert {zone for zone in Zone if zone.commutes} == {Zone.APPEND_ONLY, Zone.COUNTER}


@pytest.mark.parametrize(
    ("dtype", "dims", "wanted"),
    [
        (float32, "n 256", ArrayShape("float32", ("n", 256))),
        (bool_, "", ArrayShape("bool", ())),
        (float, "3", ArrayShape("float64", (3,))),
        ("int8", "_ n n", ArrayShape("int8", ("_", "n", "n"))),
    ],
)
def test_arrays(dtype: object, dims: str, wanted: ArrayShape) -> None:
    assert ArrayShape.of(dtype, dims) == wanted


def test_arrays_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    assert (
        ArrayShape.of(numpy.float32, "n")
        == ArrayShape.of(numpy.dtype("float32"), "n")
        == ArrayShape("float32", ("n",))
    )
    assert ArrayShape.of(numpy.bool_, "n") == ArrayShape("bool", ("n",))
    shape = ArrayShape.of(float32, "n n 2")
    lengths: dict[str, int] = {}
    shape.check(numpy.zeros((3, 3, 2), "float32"), lengths)
    assert lengths == {"n": 3}
    ArrayShape.of(float32, "_ _").check(numpy.zeros((3, 4), "float32"), lengths)
    for wrong in (
        numpy.zeros((3, 3, 2)),
        numpy.zeros((3, 2), "float32"),
        numpy.zeros((3, 4, 2), "float32"),
        numpy.zeros((3, 3, 1), "float32"),
        numpy.zeros((4, 4, 2), "float32"),
        [1.0],
    ):
        with pytest.raises(StateError, match=r'was given for Shm\[float32, "n n 2"\]'):
            shape.check(wrong, lengths)


def test_wrong_arrays() -> None:
    anything: Any = Shm
    for wrong in (float32, (float32,), (float32, "n", 2)):
        with pytest.raises(TypeError, match="needs a type of items and dimensions"):
            anything[wrong]
    with pytest.raises(TypeError, match="dimensions as text"):
        anything[float32, 256]
    with pytest.raises(TypeError, match="needs a type of items such as"):
        anything["two words", "n"]
    with pytest.raises(ValueError, match="'n-1' in the dimensions"):
        anything[float32, "n-1 2"]
    with pytest.raises(TypeError, match="is an annotation"):
        anything()


def test_a_place_has_one_zone() -> None:
    assert zone_of((), "a") == (Zone.PLAIN, None)
    assert zone_of(("other", Zone.CONST), "a") == (Zone.CONST, None)
    assert zone_of((Zone.CONST, Zone.CONST), "a") == (Zone.CONST, None)
    with pytest.raises(StateError, match="a is in the zones CONST and COUNTER"):
        zone_of((Zone.CONST, Zone.COUNTER), "a")


def test_zones_of_policies() -> None:
    assert zone_in_policy(Const, "a") == (Zone.CONST, None, Any)
    assert zone_in_policy(Zone.TRANSIENT, "a") == (Zone.TRANSIENT, None, Any)
    assert zone_in_policy(Const[str], "a") == (Zone.CONST, None, str)
    assert zone_in_policy(Counter, "a") == (Zone.COUNTER, None, int)
    zone, array, _ = zone_in_policy(Shm[float32, "n"], "a")
    assert (zone, array) == (Zone.ARRAY, ArrayShape("float32", ("n",)))
    for wrong in (int, "const", Annotated[int, "else"]):
        with pytest.raises(TypeError, match="the policy of a must be a zone"):
            zone_in_policy(wrong, "a")
