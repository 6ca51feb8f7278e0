"""Shapes: what annotations of frozen classes say, as a graph."""

from __future__ import annotations

import collections
import datetime
import enum
import gc
import sys
import sysconfig
import weakref
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import pytest

from ropewalk.state import (
    AppendOnly,
    Const,
    Counter,
    Kind,
    NotFrozen,
    PMap,
    PVector,
    Shape,
    Shm,
    StateError,
    Transient,
    Zone,
    float32,
    policy_shape,
    shape_of,
)

T = TypeVar("T")
U = TypeVar("U")
Name = NewType("Name", str)


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True, slots=True)
class Limits:
    most: int


@dataclass(frozen=True, slots=True)
class Account:
    owner: Name
    balance: int = 0
    limits: Limits | None = None
    kinds: ClassVar[list[int]] = []
    given: InitVar[int] = 0


@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[Limits]
    accounts: PMap[str, Account]
    journal: AppendOnly[Account]
    hits: Counter
    cursor: Transient[int]
    weights: Shm[float32, "n 256"]  # noqa: F722
    counts: PMap[str, Counter]


@dataclass(frozen=True, slots=True)
class Tree:
    value: int
    left: Tree | None
    right: Optional[Tree]  # noqa: UP045
    children: PVector[Tree]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: PVector[T]
    first: T | None
    after: Page[T] | None


@dataclass(frozen=True, slots=True)
class IntPage(Page[int]):
    more: str


@dataclass(frozen=True, slots=True)
class Pair(Generic[T, U]):
    one: T
    two: Page[PVector[U]]


class Point(NamedTuple):
    x: float
    y: Limits


@dataclass(frozen=True)
class Leaves:
    a: int
    b: str | None
    c: datetime.datetime
    d: tuple[int, ...]
    e: frozenset[str]
    f: Literal["x", "y"]
    g: Colour
    h: int | str | None
    i: type[list[int]]
    j: tuple[Limits, Account]
    k: Name


@dataclass(frozen=True)
class Anything:
    a: Any
    b: object
    c: Limits | Account
    d: int | Limits
    e: collections.abc.Callable[[list[int]], int]


class Subject:
    pass


def below(shape: Shape, *names: str) -> Shape:
    for name in names:
        shape = shape.field(name) if name != "[]" else shape.items  # type: ignore[assignment]
    return shape


def test_a_record() -> None:
    shape = shape_of(Bank)
    assert (shape.kind, shape.record, shape.zone, shape.items) == (Kind.RECORD, Bank, Zone.PLAIN, None)
    assert shape.names == ("limits", "accounts", "journal", "hits", "cursor", "weights", "counts")
    kinds = [(one.kind.name, one.zone.name) for one in shape.fields]
    assert kinds == [
        ("RECORD", "CONST"),
        ("MAP", "PLAIN"),
        ("VECTOR", "APPEND_ONLY"),
        ("LEAF", "COUNTER"),
        ("LEAF", "TRANSIENT"),
        ("LEAF", "ARRAY"),
        ("MAP", "PLAIN"),
    ]
    assert below(shape, "limits", "most").kind is Kind.LEAF
    assert below(shape, "accounts").key is str
    assert below(shape, "accounts", "[]").record is Account
    assert below(shape, "journal", "[]") is below(shape, "accounts", "[]") is shape_of(Account)
    assert below(shape, "counts", "[]").zone is Zone.COUNTER
    assert below(shape, "weights").array is not None


def test_only_fields_are_fields() -> None:
    assert shape_of(Account).names == ("owner", "balance", "limits")
    assert below(shape_of(Account), "limits").record is Limits
    assert below(shape_of(Account), "owner").kind is Kind.LEAF


def test_a_class_has_one_shape() -> None:
    shape = shape_of(Bank)
    assert shape_of(Bank) is shape
    assert shape_of(shape) is shape
    assert shape != shape_of(Account)


def test_a_class_within_itself_is_a_cycle() -> None:
    shape = shape_of(Tree)
    assert below(shape, "left") is below(shape, "right") is below(shape, "children", "[]") is shape
    assert "Tree" in repr(shape)


def test_a_zone_around_a_cycle_is_complete() -> None:
    @dataclass(frozen=True)
    class Node:
        next: Const[Node]
        name: str

    shape = shape_of(Node)
    inner = below(shape, "next")
    assert inner.zone is Zone.CONST
    assert inner is not shape
    assert below(inner, "next") is inner
    assert below(inner, "name").kind is Kind.LEAF


def test_generic_classes_are_filled_in() -> None:
    shape = shape_of(Page[str])
    assert below(shape, "items", "[]").annotation is str
    assert below(shape, "first").kind is Kind.LEAF
    assert below(shape, "after") is shape
    assert below(shape_of(Page), "items", "[]").kind is Kind.ANY
    assert below(shape_of(IntPage), "items", "[]").annotation is int
    assert below(shape_of(IntPage), "after", "first").annotation is int
    pair = shape_of(Pair[Limits, int])
    assert below(pair, "one").record is Limits
    assert below(pair, "two", "items", "[]").kind is Kind.VECTOR
    assert below(pair, "two", "items", "[]", "[]").annotation is int


def test_a_bound_of_a_type_variable_is_its_shape() -> None:
    B = TypeVar("B", bound=Limits)

    @dataclass(frozen=True)
    class Holder(Generic[B]):
        held: B

    assert below(shape_of(Holder), "held").record is Limits


def test_a_generic_class_without_an_end_is_refused() -> None:
    @dataclass(frozen=True)
    class Grows(Generic[T]):
        inner: Grows[tuple[T, T]] | None

    with pytest.raises(StateError, match="more than 8 levels deep"):
        shape_of(Grows[int])


def test_named_tuples() -> None:
    shape = shape_of(Point)
    assert (shape.kind, shape.names) == (Kind.RECORD, ("x", "y"))
    assert below(shape, "y").record is Limits
    plain = collections.namedtuple("plain", "a b")  # noqa: PYI024
    assert [one.kind for one in shape_of(plain).fields] == [Kind.ANY, Kind.ANY]


def test_leaves() -> None:
    shape = shape_of(Leaves)
    assert {name: below(shape, name).kind for name in shape.names} == dict.fromkeys(shape.names, Kind.LEAF)


def test_what_may_be_anything() -> None:
    shape = shape_of(Anything)
    assert {name: below(shape, name).kind for name in shape.names} == dict.fromkeys(shape.names, Kind.ANY)

    @dataclass(frozen=True)
    class Other:
        a: Subject
        b: PMap  # type: ignore[type-arg]
        c: PVector  # type: ignore[type-arg]

    other = shape_of(Other)
    assert below(other, "a").kind is Kind.ANY
    assert below(other, "b").kind is Kind.MAP
    assert below(other, "b", "[]").kind is below(other, "c", "[]").kind is Kind.ANY


def test_keys_of_maps() -> None:
    assert shape_of(PMap[Name, int]).key is str
    assert shape_of(PMap[tuple[int, int], int]).key is None
    assert shape_of(PMap[Any, int]).key is None
    with pytest.raises(NotFrozen, match=r"a key of PMap"):
        shape_of(PMap[tuple[list[int]], int])


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [
        (list[int], "PVector"),
        (list, "PVector"),
        ("list[int]", "PVector"),
        (dict[str, int], "PMap"),
        (set[int], "frozenset"),
        (bytearray, "bytes"),
        (collections.deque[int], "PVector"),
        (collections.defaultdict[str, int], "PMap"),
        (collections.abc.MutableMapping[str, int], "PMap"),
        (list[int] | None, "PVector"),
        (PMap[str, list[int]], "PVector"),
        (tuple[set[int], ...], "frozenset"),
        (Const[dict[str, int]], "PMap"),
        (int | bytearray, "bytes"),
    ],
)
def test_what_changes_in_place_is_refused(annotation: Any, instead: str) -> None:
    @dataclass(frozen=True)
    class State:
        part: int

    State.__annotations__["part"] = annotation
    with pytest.raises(NotFrozen, match=r"^State\.part.* changes in place") as caught:
        shape_of(State)
    assert f"Use {instead}" in str(caught.value)
    assert isinstance(caught.value, (StateError, TypeError))


def test_arrays_of_numpy_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NotFrozen, match=r"Use Shm\["):
        shape_of(PMap[str, numpy.ndarray])


def test_classes_that_are_not_frozen_are_refused() -> None:
    @dataclass
    class Loose:
        a: int

    @dataclass(frozen=True)
    class Holds:
        loose: PMap[str, Loose]

    with pytest.raises(NotFrozen, match=r"is not frozen.*Make it @dataclass\(frozen=True"):
        shape_of(Loose)
    with pytest.raises(NotFrozen, match=r"Loose, of which Holds\.loose\[\.\.\.\] is one, is not frozen"):
        shape_of(Holds)


def test_names_that_are_missing_are_reported() -> None:
    @dataclass(frozen=True)
    class State:
        part: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        StateError, match=r"annotations of .*State cannot be read: name 'Missing' is not defined"
    ):
        shape_of(State)
    with pytest.raises(StateError, match="names nothing that can be found"):
        shape_of("Missing")


def test_classes_of_a_function_see_its_names() -> None:
    def outer() -> Shape:
        @dataclass(frozen=True)
        class One:
            two: Two | None

        @dataclass(frozen=True)
        class Two:
            ones: PVector[One]

        return shape_of(One)

    shape = outer()
    assert below(shape, "two", "ones", "[]") is shape


def test_places_with_two_zones_are_refused() -> None:
    for annotation in (Const[Counter], Transient[AppendOnly[int]], Const[Transient[int]]):
        with pytest.raises(StateError, match="in the zones"):
            shape_of(PMap[str, annotation])  # type: ignore[valid-type]
    with pytest.raises(StateError, match="zone in one arm of a union"):
        shape_of(Union[Counter, str])  # noqa: UP007
    with pytest.raises(StateError, match="a counter is an int"):
        shape_of(Annotated[str, Zone.COUNTER])
    with pytest.raises(StateError, match="append-only and no vector"):
        shape_of(Annotated[int, Zone.APPEND_ONLY])


def test_other_annotations_do_not_matter() -> None:
    assert shape_of(Annotated[int, "metres"]).zone is Zone.PLAIN
    assert shape_of(Annotated[Counter, "metres"]).zone is Zone.COUNTER
    assert shape_of(Optional[Counter]).zone is Zone.COUNTER  # noqa: UP045


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements are of Python 3.12")
def test_type_statements() -> None:
    names: dict[str, Any] = {"PMap": PMap, "Limits": Limits}
    exec("type Maps = PMap[str, Limits]\ntype Of[T] = PMap[str, T]", names)
    assert below(shape_of(names["Maps"]), "[]").record is Limits
    assert below(shape_of(names["Of"][int]), "[]").annotation is int


@pytest.mark.skipif(
    sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="3.13 without a global lock keeps classes for ever once there were two threads",
)
def test_a_class_that_is_gone_is_forgotten() -> None:
    def made() -> weakref.ref[type]:
        @dataclass(frozen=True)
        class State:
            part: int
            inner: State | None

        if below(shape_of(State), "inner").record is not State:
            raise AssertionError
        return weakref.ref(State)

    gone = made()
    for _ in range(3):
        gc.collect()
    assert gone() is None


def test_structs_of_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")

    class Item(msgspec.Struct, frozen=True):  # type: ignore[misc, name-defined]
        name: str
        limits: Const[Limits]

    class Loose(msgspec.Struct):  # type: ignore[misc, name-defined]
        name: str

    shape = shape_of(Item)
    assert (shape.kind, shape.names) == (Kind.RECORD, ("name", "limits"))
    assert below(shape, "limits").zone is Zone.CONST
    with pytest.raises(NotFrozen, match="Make it class Loose"):
        shape_of(Loose)


def test_models_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(frozen=True)
        name: str
        hits: Counter = 0
        limits: Const[Limits]
        inner: Item | None = None

    class Loose(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str

    shape = shape_of(Item)
    assert (shape.kind, shape.names) == (Kind.RECORD, ("name", "hits", "limits", "inner"))
    assert below(shape, "hits").zone is Zone.COUNTER
    assert below(shape, "limits").zone is Zone.CONST
    assert below(shape, "inner") is shape
    with pytest.raises(NotFrozen, match=r"ConfigDict\(frozen=True\)"):
        shape_of(Loose)


def test_policies() -> None:
    shape = policy_shape(
        {
            "limits": Const,
            "orders[...].hits": Counter,
            "orders[...].log": AppendOnly[Limits],
            "clients.ann": Transient,
            "w": Shm[float32, "n"],
            "clients['two words']": Const[Limits],
        }
    )
    assert (shape.kind, shape.of_policy) == (Kind.MAP, True)
    assert shape.names == ("limits", "orders", "clients", "w")
    assert below(shape, "limits").zone is Zone.CONST
    assert below(shape, "[]").kind is Kind.ANY
    order = below(shape, "orders", "[]")
    assert (below(order, "hits").kind, below(order, "hits").zone) == (Kind.LEAF, Zone.COUNTER)
    assert below(order, "log").zone is Zone.APPEND_ONLY
    assert below(order, "log", "[]").record is Limits
    assert below(shape, "clients", "ann").zone is Zone.TRANSIENT
    assert below(shape, "clients", "two words", "most").kind is Kind.LEAF
    assert below(shape, "w").array is not None


def test_wrong_policies() -> None:
    for policy in (
        {"a": Const, "a.b": Counter},
        {"a.b": Const, "a": Counter},
        {"a": Const, "['a']": Counter},
    ):
        with pytest.raises(StateError, match=r"zone|two rows"):
            policy_shape(policy)
    with pytest.raises(StateError, match="is the whole"):
        policy_shape({"": Const})
    with pytest.raises(StateError, match="keys that are text"):
        policy_shape({"a[3]": Const})
    with pytest.raises(TypeError, match="the policy of a must be a zone"):
        policy_shape({"a": int})
    with pytest.raises(ValueError, match="is no path"):
        policy_shape({"a b": Const})


def test_defaults_of_factories_do_not_matter() -> None:
    @dataclass(frozen=True)
    class State:
        part: PMap[str, int] = field(default_factory=PMap)

    assert below(shape_of(State), "part").kind is Kind.MAP
