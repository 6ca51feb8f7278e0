"""Idle connections hold no call up."""

from __future__ import annotations

import pytest
from tests.faults.idle_connections import room, run


def test_calls_are_answered_beside_idle_connections() -> None:
    pytest.importorskip("pydantic")
    found = run(min(1000, room()), 20)
    assert len(found.beside) == 20
    assert found.ended == 0
