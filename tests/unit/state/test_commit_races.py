"""What may come between the steps of a commit: another commit, a disk that is full, a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.unit.state._bank import bank

from ropewalk.state import Store


def count(b: Any) -> None:
    b.hits += 1


def charge(b: Any, name: str) -> None:
    b.accounts[name].balance += 1


def test_a_commit_between_the_making_of_a_state_and_its_step_is_kept() -> None:
    threads: list[threading.Thread] = []

    def check(_: Any) -> None:
        """Is called with the state that was made, before it takes the place of the newest one."""
        if not threads and store:
            threads.append(threading.Thread(target=store[0].run, args=(charge, "a1")))
            threads[0].start()
            threads[0].join(60)

    store: list[Store[Any]] = []
    with Store(bank(2), invariants=[check]) as opened:
        store.append(opened)
        opened.run(charge, "a0")
        state = opened.snapshot()
        assert (state.accounts["a0"].balance, state.accounts["a1"].balance, opened.version) == (101, 101, 2)


#: The only version that the store keeps is on its way when the disk is full.
_FULL = """
import resource, signal, sys
from ropewalk._errors import JournalError
from ropewalk.state import PMap, Store

def put(b, value):
    b["x"] = value

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store(PMap(x=0), journal=sys.argv[1], history=1) as store:
    store.run(put, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        store.run(put, b"2" * 3_000_000)
    except JournalError as error:
        print(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    print(store.version, store.snapshot()["x"], [version.number for version in store.history()])
    store.run(put, 3)
    print(store.version, store.snapshot()["x"])
"""


def test_a_store_that_keeps_one_version_goes_back_to_the_one_on_the_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FULL, str(tmp_path / "wal")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["OutOfDisk", "1 1 [1]", "2 3"]


class Interrupted(Exception):
    """What the signal's handler raises."""


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_a_claim_that_a_signal_ends_is_in_nobodys_way() -> None:
    waits, is_over = threading.Event(), threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Only one that waits for its claim: its frame is that of the wait.
        if frame is not None and frame.f_code.co_name == "_begin_claim" and not is_over.is_set():
            is_over.set()
            raise Interrupted

    with Store(bank(2)) as store:

        def hold() -> None:
            with store.transaction(exclusive=True) as tx:
                tx.draft.hits += 1
                waits.set()
                while not is_over.wait(0.02):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            holder = threading.Thread(target=hold)
            holder.start()
            assert waits.wait(60)
            with pytest.raises(Interrupted), store.transaction(exclusive=True):
                pytest.fail("the other one holds its claim")
            holder.join(60)
        finally:
            is_over.set()
            signal.signal(signal.SIGUSR1, before)
        worker = threading.Thread(target=store.run, args=(count,), daemon=True)
        worker.start()
        worker.join(60)
        assert not worker.is_alive(), "a claim that nobody has is in its way"
        assert store.snapshot().hits == 2
