"""Coroutines that wait for the claims of other transactions, and tasks that meet their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.polling import until

from ropewalk._errors import Conflict, StoreClosed
from ropewalk.state import Store


def add(b: Any, name: str = "n") -> int:
    b[name] += 1
    return int(b[name])


@contextmanager
def claimed(store: Store[Any]) -> Iterator[Callable[[], None]]:
    """Another thread is in an exclusive block until what this yields is called."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        # The store may be closed meanwhile.
        with suppress(StoreClosed), store.transaction(exclusive=True):
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


def test_a_claim_that_is_dropped_wakes_coroutines() -> None:
    store = Store({"n": 0}, retries=0)

    async def main() -> None:
        # As an interrupt leaves it: nothing says that it has ended.
        taken = store._claim(store._whole, 1.0)
        assert taken is not None
        waiting = [asyncio.create_task(store.arun(add)) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        del taken
        assert sorted([await task for task in waiting]) == [1, 2]

    within(main())


def test_a_coroutine_that_is_dropped_gives_its_claim_up() -> None:
    store = Store({"n": 0}, retries=0)
    with claimed(store) as end:
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(store.arun(add))
        while not store._turns.events:
            loop.run_until_complete(asyncio.sleep(0))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(waiting)
        loop.close()
        end()
    assert not store._turns.events
    assert not store._has_claims


def test_close_ends_the_wait_of_coroutines() -> None:
    for retries in (0, 3):
        store = Store({"n": 0}, retries=retries)

        async def main(store: Store[Any] = store) -> None:
            with claimed(store):
                waiting = asyncio.create_task(store.arun(add))
                while not store._turns.events:
                    await asyncio.sleep(0)
                store.close()
                with pytest.raises(StoreClosed):
                    await waiting

        within(main())


def test_a_coroutine_within_a_claimed_task_commits_under_its_claim() -> None:
    store = Store({"n": 0, "m": 0}, retries=0)
    ran: list[int] = []

    def outer(b: Any) -> None:
        before = b["n"]
        ran.append(before)
        if len(ran) == 1:
            other = threading.Thread(target=lambda: store.run(add))
            other.start()
            other.join()
        else:
            asyncio.run(store.arun(add, "m"))
        b["n"] = before + 1

    store.run(outer)
    assert ran == [0, 1]
    assert store.snapshot() == {"n": 2, "m": 1}


def test_a_coroutine_and_a_thread_that_hold_what_the_other_waits_for_end() -> None:
    one, two = Store({"n": 0}, retries=0), Store({"n": 0}, retries=0)
    inside, entered = threading.Event(), threading.Event()
    ran: list[int] = []

    def work() -> None:
        # It waits for ever, so the coroutine is to give in.
        taken = two._claim(two._whole, 1e6)
        assert taken is not None
        inside.set()
        assert entered.wait(60)
        one.run(add)
        two._release(taken[1])

    def outer(b: Any) -> None:
        before = b["n"]
        ran.append(before)
        if len(ran) == 1:
            other = threading.Thread(target=lambda: one.run(add))
            other.start()
            other.join()
        else:
            entered.set()
            two.run(add)
        b["n"] = before + 1

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(60)
    within(one.arun(outer))
    thread.join(60)
    assert not thread.is_alive()
    assert one.snapshot()["n"] == 3
    assert two.snapshot()["n"] == 1
    assert not one._has_claims
    assert not two._has_claims


def test_a_claim_of_a_coroutine_is_no_reason_for_its_thread_to_give_up_elsewhere() -> None:
    store, other = Store({"n": 0}), Store({"n": 0})
    asked = store._ask(store._whole)
    entered = threading.Event()

    def hold() -> None:
        with other.transaction(exclusive=True):
            entered.set()
            # Longer than a thread with a claim of its own would wait.
            threading.Event().wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    assert other.run(add) == 1
    thread.join()
    store._release(asked[1])
    assert not store._has_claims
