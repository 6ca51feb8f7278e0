"""Fixtures of the tests of flows, and what brings a run from one opening of its journal to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Noted

from ropewalk.flows import Flows, _execution


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flows.wal"


@pytest.fixture
def double(tmp_path: Path) -> Noted:
    """Doubles a number, and notes each call."""
    return Noted(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets runs that wait give their threads back at once."""
    monkeypatch.setattr(_execution, "_PATIENCE", 0.0)


def begin(path: Path, flow: Any, *args: Any, id: str = "run", **options: Any) -> None:
    """Starts a run, and closes the journal once it waits for an event or sleeps."""
    with Flows(path, **options) as flows:
        run = flows.start(flow, *args, id=id)
        until(lambda: run.state in ("waiting", "sleeping"))
        flows.close(finish=False)


def go_on(path: Path, id: str = "run", **options: Any) -> Any:
    """Opens the journal, sends the event ``"go"``, and returns the run's result."""
    with Flows(path, **options) as flows:
        flows.send("go")
        return flows.get(id).result(30)
