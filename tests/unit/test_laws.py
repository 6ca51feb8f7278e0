"""Properties of all values and all views, by Hypothesis; skipped if it is not installed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests import tasks

from ropewalk import shared
from ropewalk.pool.wire import _serialize

hypothesis: Any = pytest.importorskip("hypothesis")
np: Any = pytest.importorskip("numpy")
st: Any = pytest.importorskip("hypothesis.strategies")


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@hypothesis.given(_plain)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert pickle.loads(_serialize.encode_object(value, [])) == value


def _fill(array: Any, value: float) -> None:
    array[...] = value


_slices = st.tuples(
    st.slices(7) | st.integers(0, 6), st.slices(5), st.sampled_from([lambda a: a, lambda a: a.T])
)


@hypothesis.given(_slices)
@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_any_view_is_the_same_memory(processes: Any, view: Any) -> None:
    rows, columns, turn = view
    array = shared.array((7, 5), "i4")
    part = turn(array[rows, columns])
    back = processes.submit(tasks.identity, part).result(60)
    assert back.shape == part.shape
    assert np.shares_memory(back, part) or not part.size
    processes.submit(_fill, part, 3).result(60)
    assert (array == 3).sum() == part.size
    assert (part == 3).all()
