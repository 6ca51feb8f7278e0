"""Laws of JSON: what `dumps` writes, the standard library and orjson read, and `loads` reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.state import PMap, PVector, dumps, loads

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
)


def _values(leaves: Any) -> Any:
    return st.recursive(leaves, lambda below: st.lists(below) | st.dictionaries(_TEXTS, below), max_leaves=40)


def _persistent(value: Any) -> Any:
    if isinstance(value, dict):
        return PMap({key: _persistent(one) for key, one in value.items()})
    if isinstance(value, list):
        return PVector([_persistent(one) for one in value])
    return value


@hypothesis.given(_values(_LEAVES))
@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_the_standard_library_reads_it(value: Any) -> None:
    persistent = _persistent(value)
    for one in (value, persistent):
        for cache in (True, False):
            found = json.loads(dumps(one, cache=cache))
            assert found == value
            assert repr(found) == repr(value) or one is persistent
    assert loads(dumps(persistent)) == persistent


@hypothesis.given(_values(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | _TEXTS))
@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_it_is_what_orjson_writes(value: Any) -> None:
    orjson = pytest.importorskip("orjson")
    assert dumps(value) == orjson.dumps(value)


@hypothesis.given(st.floats(allow_nan=False, allow_infinity=False))
@hypothesis.settings(deadline=None)
def test_floats_come_back(number: float) -> None:
    assert repr(json.loads(dumps(number))) == repr(number)


@hypothesis.given(
    st.dictionaries(st.integers(0, 400), _TEXTS | st.lists(st.integers()).map(tuple), max_size=80),
    st.lists(st.tuples(st.integers(0, 400), st.none() | _TEXTS), max_size=40),
)
@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_changes_show_in_the_text(first: dict[int, Any], changes: list[tuple[int, str | None]]) -> None:
    value: PMap[int, Any] = PMap(dict.fromkeys(range(200), "x" * 40)).update(first)
    rows: PVector[Any] = PVector(["x" * 40] * 401)
    for key, new in changes:
        dumps(value)
        dumps(rows)
        value = value.discard(key) if new is None else value.set(key, new)
        rows = rows.set(key, new)
        assert dumps(value) == dumps(value, cache=False)
        assert json.loads(dumps(value)) == {
            str(key): list(one) if isinstance(one, tuple) else one for key, one in value.items()
        }
        assert json.loads(dumps(rows)) == list(rows)
