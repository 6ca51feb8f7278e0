"""Drafts of records whose class refuses the values that they have so far."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk._errors import ContractViolation
from ropewalk.state import PMap, PVector, Store, paths, task


@dataclass(frozen=True)
class Made:
    """Is made by its own `__new__`, which refuses like a model's validator."""

    low: int
    high: int

    def __new__(cls, low: int, high: int) -> Made:
        if low > high:
            raise ValueError("low is above high")
        return super().__new__(cls)


@dataclass(frozen=True, slots=True)
class Home:
    span: Any
    spans: PMap[str, Any]
    list: PVector[Any]


def pydantic_class() -> Any:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(frozen=True)
        low: int
        high: int

        @pydantic.model_validator(mode="after")  # type: ignore[untyped-decorator]
        def fits(self) -> Any:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    return Model


@pytest.fixture(params=["dataclass", "pydantic"])
def kind(request: pytest.FixtureRequest) -> Any:
    return Made if request.param == "dataclass" else pydantic_class()


def home(kind: Any) -> Store[Home]:
    span = kind(low=1, high=2)
    return Store(Home(span, PMap(a=span), PVector([span])))


def test_repr_does_not_raise(kind: Any) -> None:
    store = home(kind)
    name = kind.__name__
    with store.transaction() as tx:
        d = tx.draft
        d.span.low = d.spans["a"].low = d.list[0].low = 5
        assert repr(d.span) == f"<draft of {name}(low=5, high=2), whose values do not fit>"
        assert repr(d.spans) == "<draft of a PMap in which values do not fit>"
        assert repr(d.list) == "<draft of a PVector in which values do not fit>"
        assert repr(d) == (
            f"<draft of Home(span={d.span!r}, spans={d.spans!r}, list={d.list!r}), whose values do not fit>"
        )
        d.span.high = d.spans["a"].high = d.list[0].high = 5
        fits = kind(low=5, high=5)
        assert repr(d.span) == f"<draft of {fits!r}>"
        assert repr(d) == f"<draft of {Home(fits, PMap(a=fits), PVector([fits]))!r}>"
    assert store.snapshot().span == kind(low=5, high=5)


def test_what_does_not_fit_equals_itself_alone(kind: Any) -> None:
    store = home(kind)
    with store.transaction() as tx:
        d = tx.draft
        d.span.low = d.spans["a"].low = 5
        old = kind(low=1, high=2)
        for draft, other in ((d.span, old), (d.span, d.spans["a"]), (d.spans, {}), (d.spans, PMap(a=old))):
            assert (operator.eq(draft, other), operator.ne(draft, other)) == (False, True)
            if kind is Made:
                # A model on the left looks for attributes of models, which a draft has not.
                assert (operator.eq(other, draft), operator.ne(other, draft)) == (False, True)
        assert (operator.eq(d, store.snapshot()), operator.ne(d, store.snapshot())) == (False, True)
        assert (operator.eq(d.span, d.span), operator.ne(d.span, d.span)) == (True, False)
        with pytest.raises(TypeError, match="not supported"):
            _ = d.span < old
        d.span.high = d.spans["a"].high = 5
        assert d.span == d.spans["a"] == kind(low=5, high=5)


def test_a_comparison_is_refused_where_the_contract_refuses_it(kind: Any) -> None:
    p = paths(Home)

    def compare(d: Any) -> bool:
        return bool(d.spans == {})

    with pytest.raises(ContractViolation):
        home(kind).run(task(reads=[p.span])(compare))


def test_a_commit_of_what_does_not_fit_raises(kind: Any) -> None:
    store = home(kind)
    with pytest.raises(ValueError, match="low is above high"):
        store.run(lambda d: setattr(d.span, "low", 5))
    assert store.version == 0
