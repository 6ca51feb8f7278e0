"""What the tests of `Store.run_all` share: a state, tasks that add to its fields, and a journal in memory."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.state import AppendOnly, Counter, PVector, paths, task

EMPTY: PVector[Any] = PVector()
#: Seconds after which a test that waits for another thread fails.
LONG = 30


@dataclass(frozen=True, slots=True)
class State:
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    log: AppendOnly[Any] = EMPTY
    hits: Counter = 0


P = paths(State)
NAMES = ("a", "b", "c", "d")


def adder(name: str, **options: Any) -> Any:
    """A task that adds to one field, counts its calls, and first calls what it is given."""
    calls: list[int] = []

    @task(writes=[getattr(P, name)], label=name, **options)
    def add(s: Any, before: Callable[[], object] | None = None) -> int:
        calls.append(1)
        value = getattr(s, name)
        if before is not None:
            before()
        setattr(s, name, value + 1)
        return int(value + 1)

    add.calls = calls  # type: ignore[attr-defined]
    return add


@contextmanager
def journal_file() -> Iterator[Path]:
    """A journal in memory, where a sync costs nothing: nothing loses power here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder) / "state.wal"


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ropewalk-jobs")]


def fail(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))
