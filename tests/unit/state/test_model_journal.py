"""Pydantic models in a journal: what was committed is there again, and nothing is validated twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropewalk._errors import NotFrozen
from ropewalk.state import Store

pydantic = pytest.importorskip("pydantic")


class Aliased(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True)
    x: int = pydantic.Field(alias="X")
    y: int = pydantic.Field(default=0, validation_alias="Y")
    name: str = ""


class Hashed(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")
    x: int = 0
    password: str
    made: int = pydantic.Field(default=0, validate_default=True)
    _twice: int = pydantic.PrivateAttr(default=0)

    @pydantic.field_validator("password")
    @classmethod
    def digest(cls, value: str) -> str:
        return f"h({value})"

    @pydantic.field_validator("made")
    @classmethod
    def count(cls, value: int) -> int:
        NUMBERS.append(len(NUMBERS))
        return 1000 + len(NUMBERS)

    def model_post_init(self, context: object, /) -> None:
        self._twice = self.x * 2000


class Lists(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(frozen=True)
    x: int = 0
    items: Any = ()

    @pydantic.model_validator(mode="after")
    def fill(self) -> Any:
        if self.x:
            self.__dict__["items"] = [self.x]
        return self


#: What the validators of the tests have counted.
NUMBERS: list[int] = []


def everything(model: Any) -> Any:
    return model.__dict__, model.__pydantic_extra__, model.__pydantic_private__, model.model_fields_set


def test_models_with_aliases_are_changed_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "models.wal"
    with Store({"a": Aliased(X=1, Y=2), "b": Aliased(X=5)}, journal=file) as store:
        with store.transaction() as tx:
            tx.draft["a"].x += 1
            tx.draft["a"].y += 1
        state = store.snapshot()
        assert (state["a"].x, state["a"].y) == (2, 3)
    with Store({"a": Aliased(X=1)}, journal=file) as store:
        assert store.snapshot() == state
        store.run(more)
        assert store.snapshot()["b"].x == 6


def more(draft: Any) -> None:
    draft["b"].x += 1


@pytest.mark.parametrize("compacts", [False, True])
def test_nothing_is_validated_when_a_journal_is_opened(tmp_path: Path, compacts: bool) -> None:
    file = tmp_path / "models.wal"
    with Store({"a": Hashed(password="s", foo=5), "b": Hashed(password="t")}, journal=file) as store:
        with store.transaction() as tx:
            tx.draft["a"].x += 3
        if compacts:
            store.compact()
        expected = {key: everything(model) for key, model in store.snapshot().items()}
    assert expected["b"][0]["password"] == "h(t)"
    assert expected["a"][1:] == ({"foo": 5}, {"_twice": 6000}, {"x", "password", "foo"})
    validated = len(NUMBERS)
    with Store({"a": Hashed(password="")}, journal=file) as store:
        assert {key: everything(model) for key, model in store.snapshot().items()} == expected
    # Only the state that was given.
    assert len(NUMBERS) == validated + 1


def test_undo_is_in_the_journal_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "models.wal"
    with Store({"a": Hashed(password="s", foo=5)}, journal=file) as store:
        before = everything(store.snapshot()["a"])
        with store.transaction() as tx:
            tx.draft["a"].x += 3
        store.undo()
        assert everything(store.snapshot()["a"]) == before
    with Store({"a": Hashed(password="")}, journal=file) as store:
        assert everything(store.snapshot()["a"]) == before


def test_a_validator_cannot_set_what_changes() -> None:
    store = Store({"a": Lists()})
    with pytest.raises(NotFrozen, match="A validator of Lists has set items to a value of class list"):
        store.run(one)
    assert store.version == 0


def one(draft: Any) -> None:
    draft["a"].x = 1
