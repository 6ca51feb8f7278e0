"""Fixtures and hooks for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kinds import KINDS
from tests.tasks import Gate

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job inherits that, and so would the programs that these tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests that make interpreters last: a child that this process forks after them dies in CPython."""
    items.sort(key=lambda item: "interpreter" in item.nodeid.lower())


def pytest_collection_finish() -> None:
    """Takes the thousands of tests from what each collection of garbage looks at: many tests make some."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Leaves the test's name where CI looks for it when a signal has ended this process."""
    if path := os.environ.get("ROPEWALK_LAST_TEST"):
        Path(path).write_text(nodeid + "\n")


@pytest.fixture(scope="module", autouse=True)
def path_as_it_was() -> Iterator[None]:
    """Takes from `sys.path` what a test has put there: once it has changed, pools send it with each function."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Holds tasks until the test opens it; opened at the end in any case."""
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(folder)
    yield gate
    gate.open()


@pytest.fixture
def make_pool(gate: Gate) -> Iterator[Callable[..., Any]]:
    """Makes pools that are gone after the test, whatever it has left running in them."""
    import ropewalk

    pools: list[ropewalk.Pool] = []

    def make(*args: Any, **kwargs: Any) -> ropewalk.Pool:
        pool = ropewalk.Pool(*args, **kwargs)
        pools.append(pool)
        return pool

    yield make
    gate.open()
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
        for pid in pool.statistics().worker_pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        pool.shutdown(wait=True, cancel_futures=True)


_PLAIN = [kind.name for kind in KINDS if kind.is_plain and not kind.missing and not kind.is_remote]


@pytest.fixture(params=_PLAIN)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of pool whose workers are on this machine, for what they have in common."""
    value: str = request.param
    return value


@pytest.fixture
def pool(make_pool: Callable[..., Any], kind: str) -> Any:
    """Two workers of each kind."""
    return make_pool(2, kind=kind)


@pytest.fixture
def processes(make_pool: Callable[..., Any]) -> Any:
    """Two worker processes."""
    return make_pool(2, kind="process")
