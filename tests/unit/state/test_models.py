"""Pydantic models as records: what they have beside their fields, and maps and vectors as their fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from ropewalk.state import AppendOnly, Counter, PMap, PVector, Store, WrongType

pydantic = pytest.importorskip("pydantic")


class Loose(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")
    a: int = 1
    b: int = pydantic.Field(2, alias="BB")
    _own: int = pydantic.PrivateAttr(5)


class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True)
    name: str
    size: int = pydantic.Field(0, ge=0)


class Stock(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True)
    items: PMap[str, Item] = PMap()
    hits: Counter = 0
    log: AppendOnly[str] = PVector()
    any: PMap = PMap()  # type: ignore[type-arg]


class Sum(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True)
    a: int = 1
    _twice: int = 0

    def model_post_init(self, _context: Any, /) -> None:
        object.__getattribute__(self, "__pydantic_private__")["_twice"] = 2 * self.a


def loose() -> Any:
    made = Loose(a=1, zz=9)
    made._own = 77
    return made


def beside(model: Any) -> Any:
    return model.a, model.b, model.model_extra, model._own, model.model_fields_set


def test_a_change_keeps_what_is_beside_the_fields() -> None:
    store = Store(loose())
    store.run(lambda m: setattr(m, "a", 3))
    assert beside(store.snapshot()) == (3, 2, {"zz": 9}, 77, {"a", "zz"})


def test_a_journal_keeps_what_is_beside_the_fields(tmp_path: Path) -> None:
    file = tmp_path / "j"
    with Store(loose(), journal=file) as store:
        store.run(lambda m: setattr(m, "a", 3))
    with Store(Loose(), journal=file) as store:
        assert beside(store.snapshot()) == (3, 2, {"zz": 9}, 77, {"a", "zz"})
        store.compact()
    with Store(Loose(), journal=file) as store:
        assert beside(store.snapshot()) == (3, 2, {"zz": 9}, 77, {"a", "zz"})


def test_a_class_that_makes_its_private_attributes_makes_them_anew() -> None:
    store = Store(Sum())
    store.run(lambda m: setattr(m, "a", 4))
    assert store.snapshot()._twice == 8


def test_maps_and_vectors_are_fields_that_pydantic_knows() -> None:
    made = Stock(items={"a": {"name": "a", "size": "1"}}, log=("x",))
    assert made.items == PMap(a=Item(name="a", size=1))
    assert type(made.items) is PMap
    assert type(made.log) is PVector
    assert made.model_dump() == {"items": {"a": {"name": "a", "size": 1}}, "hits": 0, "log": ["x"], "any": {}}
    assert Stock.model_validate_json(made.model_dump_json()) == made
    assert Stock(items=made.items, log=made.log).items is made.items
    assert Stock(any={1: [2]}).any == PMap({1: [2]})
    schema = Stock.model_json_schema()
    assert schema["properties"]["items"]["additionalProperties"] == {"$ref": "#/$defs/Item"}
    assert schema["properties"]["log"]["items"] == {"type": "string"}
    with pytest.raises(pydantic.ValidationError, match=r"items.a.size"):
        Stock(items={"a": Item(name="a", size=1).model_dump() | {"size": -1}})
    with pytest.raises(pydantic.ValidationError, match=r"log"):
        Stock(log="xy")
    with pytest.raises(pydantic.ValidationError, match=r"items"):
        Stock(items=[1])


def test_a_model_validates_its_fields_and_the_store_what_is_in_maps() -> None:
    store = Store(Stock())
    store.run(lambda m: setattr(m, "items", {"a": {"name": "a", "size": "1"}}))
    store.run(lambda m: setattr(m.items["a"], "size", "17"))
    assert store.snapshot().items["a"].size == 17
    with pytest.raises(WrongType, match=r"items\['b'\] is declared as Item, and was given a dict"):
        store.run(lambda m: m.items.update(b={"name": "b"}))
    with pytest.raises(WrongType, match=r"log\[\.\.\.\] is declared as str"):
        store.run(lambda m: m.log.append(3))


def test_a_change_does_not_validate_the_items_beside_it() -> None:
    validated: list[str] = []

    class Item(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(frozen=True, revalidate_instances="always")
        name: str

        @pydantic.field_validator("name")
        @classmethod
        def note(cls, name: str) -> str:
            validated.append(name)
            return name

    class State(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(frozen=True)
        items: PMap[str, Item]
        count: int = 0

    State.model_rebuild(_types_namespace={"PMap": PMap, "Item": Item})
    store = Store(State(items=PMap({name: Item(name=name) for name in "abc"})))
    validated.clear()
    with store.transaction() as tx:
        tx.draft.items["a"].name = "new"
        tx.draft.count = 1
    assert set(validated) == {"new"}
    # Elsewhere each item is.
    with pytest.raises(pydantic.ValidationError):
        State(items={"a": {"name": 5}})


def test_one_map_in_two_fields_is_validated_for_each() -> None:
    class State(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(frozen=True)
        small: PMap[str, Annotated[int, pydantic.Field(le=9)]] = PMap()
        large: PMap[str, int] = PMap()

    State.model_rebuild(_types_namespace={"PMap": PMap, "Annotated": Annotated, "pydantic": pydantic})
    store = Store(State(large=PMap(a=100)))
    with pytest.raises(pydantic.ValidationError, match=r"small\.a"), store.transaction() as tx:
        tx.draft.small = store.snapshot().large
    assert not store.snapshot().small
