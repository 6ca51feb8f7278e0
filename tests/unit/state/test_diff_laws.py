"""The difference of two values makes one of the other."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.state import PMap, PVector
from ropewalk.state._diff import between
from ropewalk.state._replay import applied

pytest.importorskip("hypothesis")
from hypothesis import given, strategies as st

VALUES = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=1),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(PMap)
        | st.lists(inner, max_size=4).map(PVector)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_the_changes_between_two_values_make_one_of_the_other(old: Any, new: Any) -> None:
    assert applied(old, [(int(change), path, value) for change, path, value in between(old, new)]) == new
