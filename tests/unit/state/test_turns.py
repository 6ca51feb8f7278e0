"""Coroutines that wait for the claims of other transactions, and tasks that meet their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.polling import until

from ropewalk._errors import Conflict
from ropewalk.state import Store


def add(b: Any, name: str = "n") -> int:
    b[name] += 1
    return int(b[name])


@contextmanager
def claimed(store: Store[Any]) -> Iterator[Callable[[], None]]:
    """Another thread is in an exclusive block until what this yields is called."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction(exclusive=True):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    try:
        yield leave.set
    finally:
        leave.set()
        thread.join()


def within(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_the_loop_goes_on_while_a_coroutine_waits_for_a_claim() -> None:
    store = Store({"n": 0})

    async def main() -> None:
        with claimed(store) as end:
            waiting = [asyncio.create_task(store.arun(add)) for _ in range(3)]
            # The loop comes here again and again.
            for _ in range(20):
                await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            end()
            assert sorted([await task for task in waiting]) == [1, 2, 3]

    within(main())


def test_a_cancelled_coroutine_gives_its_claim_up() -> None:
    store = Store({"n": 0}, retries=0)

    async def main() -> None:
        with claimed(store) as end:
            waiting = asyncio.create_task(store.arun(add))
            later = asyncio.create_task(store.arun(add))
            for _ in range(20):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not later.done()
            end()
            assert await later == 1

    within(main())
    # Nothing is claimed any more.
    assert store.run(add) == 2
    with store.transaction(exclusive=True) as tx:
        tx.draft["n"] = 7


def test_claims_of_coroutines_and_threads_are_granted_in_their_order() -> None:
    store = Store({"n": 0}, retries=0)
    seen: list[str] = []

    def note(b: Any, name: str) -> int:
        seen.append(name)
        b["n"] += 1
        return int(b["n"])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with claimed(store) as end:
            first = asyncio.create_task(store.arun(note, "coroutine"))
            while "coroutine" not in seen:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            # It ran once in vain, and has claimed since.
            second = threading.Thread(target=lambda: store.run(note, "thread"))
            second.start()
            end()
            # The thread came later, and its commit waits.
            assert await first == 1
            await loop.run_in_executor(None, second.join)
        assert store.snapshot()["n"] == 2

    within(main())


def test_coroutines_of_two_loops_wait() -> None:
    store = Store({"n": 0})
    with claimed(store) as end:
        threads = [threading.Thread(target=lambda: asyncio.run(store.arun(add))) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(store._turns.events) == 2)
        end()
        for thread in threads:
            thread.join()
    assert store.snapshot()["n"] == 2
    assert not store._turns.events


def test_a_task_that_meets_its_own_transaction_ends_at_once() -> None:
    store = Store({"n": 0, "m": 0})
    ran: list[int] = []

    def inner(b: Any) -> None:
        ran.append(1)
        b["n"] += 1

    def outer(b: Any) -> None:
        before = b["n"]
        store.run(inner)
        b["n"] = before + 1

    for call in (lambda: store.run(outer), lambda: asyncio.run(store.arun(outer))):
        ran.clear()
        with pytest.raises(Conflict, match="Run them before or after it"):
            call()
        assert ran == [1]


def test_a_task_that_meets_another_thread_runs_again_though_it_has_committed_elsewhere() -> None:
    store = Store({"n": 0, "m": 0})
    ran: list[int] = []

    def outer(b: Any) -> None:
        before = b["n"]
        store.run(add, "m")
        if not ran:
            other = threading.Thread(target=lambda: store.run(add))
            other.start()
            other.join()
        ran.append(before)
        b["n"] = before + 1

    store.run(outer)
    assert ran == [0, 1]
    assert store.snapshot() == {"n": 2, "m": 2}
