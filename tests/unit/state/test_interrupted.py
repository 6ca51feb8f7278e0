"""Interrupts at any line, transactions within others, and forks: no claim and no effect is lost by them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.polling import until

from ropewalk import Conflict, StoreClosed
from ropewalk.state import Store, paths, task

#: Interrupts of each test.
TIMES = 150


@dataclass(frozen=True, slots=True)
class Two:
    x: int = 0
    y: int = 0


P = paths(Two)


def grow(draft: Two) -> None:
    draft.x += 1  # type: ignore[misc]


def interrupted(after: float, call: Callable[[], None]) -> None:
    """Calls something that an interrupt may end after so many seconds."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass


def can_commit(store: Store[Two]) -> bool:
    """Whether another thread can commit."""
    done = threading.Event()

    def work() -> None:
        store.run(grow)
        done.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return done.wait(30)


def leave_no_claim() -> None:
    store = Store(Two())

    def exclusive() -> None:
        for _ in range(50):
            with store.transaction(exclusive=True) as tx:
                tx.draft.x += 1

    for number in range(TIMES):
        interrupted(0.00002 + 0.000007 * (number % 60), exclusive)
        assert not store._has_claims, number
    assert can_commit(store)


def hold_up_no_effect() -> None:
    store = Store(Two())
    begun: list[int] = []

    def commit() -> None:
        for _ in range(50):
            with store.transaction() as tx:
                tx.draft.x += 1
                tx.on_commit(begun.append, tx.draft.x)

    for number in range(TIMES):
        interrupted(0.00002 + 0.000007 * (number % 60), commit)
    with store.transaction() as tx:
        tx.on_commit(begun.append, -1)
    store.flush()
    # A function in C is called whole or not at all, so nothing is missing.
    assert begun == [*range(1, store.snapshot().x + 1), -1]


@pytest.mark.parametrize("program", [leave_no_claim, hold_up_no_effect], ids=lambda program: program.__name__)
def test_interrupts(program: Callable[[], None]) -> None:
    # In a process of its own: here an interrupt might hit what the test's framework runs in between.
    command = [sys.executable, "-m", "tests.unit.state.test_interrupted", program.__name__]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_tasks_that_run_tasks_in_opposite_order_end() -> None:
    store = Store(Two(), retries=0)
    both = threading.Barrier(2)

    @task(writes=[P.x])
    def inner_x(draft: Two) -> None:
        draft.x += 1  # type: ignore[misc]

    @task(writes=[P.y])
    def inner_y(draft: Two) -> None:
        draft.y += 1  # type: ignore[misc]

    def meet() -> None:
        # The first times both are inside, with their claims, before either goes on.
        try:
            both.wait(0.2)
        except threading.BrokenBarrierError:
            both.reset()

    @task(writes=[P.x])
    def outer_x(draft: Two) -> None:
        draft.x += 1  # type: ignore[misc]
        meet()
        store.run(inner_y)

    @task(writes=[P.y])
    def outer_y(draft: Two) -> None:
        draft.y += 1  # type: ignore[misc]
        meet()
        store.run(inner_x)

    failures: list[BaseException] = []

    def work(run: object) -> None:
        for _ in range(3):
            try:
                store.run(run)  # type: ignore[arg-type]
            except Conflict as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in (outer_x, outer_y)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "they wait for each other"
    assert not store._has_claims
    assert store.snapshot().x >= 3
    assert store.snapshot().y >= 3


def test_two_stores_in_opposite_order_end() -> None:
    one, two = Store(Two()), Store(Two())
    inside = threading.Barrier(2)
    ended: list[object] = []

    def work(first: Store[Two], second: Store[Two]) -> None:
        try:
            with first.transaction(exclusive=True) as tx:
                tx.draft.x += 1
                inside.wait(30)
                second.run(grow)
        except Conflict as error:
            ended.append(error)
        else:
            ended.append(None)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 2, "they wait for each other"
    refused = [error for error in ended if error is not None]
    assert refused
    assert "same order" in str(refused[0])


def place_of(thread: threading.Thread) -> str:
    """The innermost function of Python's that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame.f_code.co_qualname if frame is not None else ""


def test_close_wakes_those_who_wait_for_a_claim() -> None:
    store = Store(Two())
    inside, leave = threading.Event(), threading.Event()
    seen: list[type[BaseException]] = []

    def hold() -> None:
        try:
            with store.transaction(exclusive=True) as tx:
                tx.draft.x += 1
                inside.set()
                leave.wait(60)
        except StoreClosed:
            pass

    def wait(exclusive: bool) -> None:
        try:
            if exclusive:
                with store.transaction(exclusive=True):
                    pass
            else:
                store.run(grow)
        except BaseException as error:
            seen.append(type(error))

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(30)
    waiting = [threading.Thread(target=wait, args=(exclusive,), daemon=True) for exclusive in (False, True)]
    for thread in waiting:
        thread.start()
    until(lambda: [place_of(thread) for thread in waiting] == ["Store.run", "Store._begin_claim"])
    store.close()
    for thread in waiting:
        thread.join(30)
    leave.set()
    holder.join()
    assert seen == [StoreClosed, StoreClosed]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="it forks")
def test_a_forked_child_does_not_wait_for_the_claims_of_its_parent() -> None:
    store = Store(Two())
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction(exclusive=True):
            inside.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(30)
    child = multiprocessing.get_context("fork").Process(target=_commit_and_leave, args=(store,))
    child.start()
    child.join(30)
    status = child.exitcode
    if status is None:
        child.kill()
        child.join()
    leave.set()
    holder.join()
    assert status == 0


def _commit_and_leave(store: Store[Two]) -> None:
    store.run(grow)
    os._exit(0 if store.snapshot().x == 1 else 3)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    {"leave_no_claim": leave_no_claim, "hold_up_no_effect": hold_up_no_effect}[sys.argv[1]]()
