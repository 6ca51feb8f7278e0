"""The mailbox of an event loop: what threads post is delivered in the loop's own thread, for one wake-up a burst."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import weakref
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk._core import mailbox_of
from ropewalk.pool.parent._future import by_mailbox


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_asyncios_own_way_brings_results_and_errors(kind: str) -> None:
    async def main(pool: ropewalk.Pool) -> None:
        loop = asyncio.get_running_loop()
        many = await asyncio.gather(*(loop.run_in_executor(pool, tasks.square, n) for n in range(300)))
        assert many == [n * n for n in range(300)]
        with pytest.raises(TypeError):
            await asyncio.wrap_future(pool.submit(len, 3))  # type: ignore[arg-type] # pyright: ignore

    with ropewalk.Pool(2, kind=kind) as pool:  # type: ignore[arg-type] # pyright: ignore
        asyncio.run(main(pool))


def test_a_burst_wakes_the_loop_once() -> None:
    calls: list[object] = []

    class Counting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            calls.append(callback)
            return super().call_soon_threadsafe(callback, *args, context=context)

    async def main(pool: ropewalk.Pool, gate: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        first = loop.run_in_executor(pool, gate.wait, 60)
        rest = [loop.run_in_executor(pool, abs, -n) for n in range(100)]
        calls.clear()
        gate.set()
        # The loop looks at nothing before all of them have been posted.
        until(lambda: len(mailbox_of(loop)) == 101)
        assert await asyncio.gather(first, *rest) == [True, *range(100)]

    with ropewalk.Pool(1, kind="thread") as pool, asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(main(pool, threading.Event()))
    assert len(calls) == 1


def test_an_interrupt_in_the_loop_leaves_nobody_waiting() -> None:
    loop = asyncio.new_event_loop()
    told: list[int] = []

    def tell(number: int, _future: object) -> None:
        told.append(number)
        if number == 1:
            raise KeyboardInterrupt

    mailbox = mailbox_of(loop)
    for number in range(4):
        mailbox.post(number, tell, None)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert told == [0, 1, 2, 3]


def test_a_closed_loop_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    mailbox = mailbox_of(loop)
    assert mailbox is mailbox_of(loop)
    loop.close()
    for _ in range(3):
        mailbox.post(loop.create_future(), None, None)
    assert len(mailbox) == 0


def test_a_mailbox_keeps_no_loop_alive() -> None:
    loop = asyncio.new_event_loop()
    mailbox = mailbox_of(loop)
    loop.close()
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None
    mailbox.post(None, print, None)
    assert len(mailbox) == 0


def test_what_a_closed_loop_never_took_is_collected_with_it() -> None:
    loop = asyncio.new_event_loop()
    mailbox_of(loop).post(loop.create_future(), None, None)
    loop.close()
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None


def test_a_loop_that_takes_no_attributes_is_told_all_the_same() -> None:
    class Bare(asyncio.SelectorEventLoop):
        """A loop that takes no attributes."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "_ropewalk_mailbox":
                raise AttributeError(name)
            super().__setattr__(name, value)

    told: list[object] = []
    loop = Bare()
    for number in range(3):
        mailbox_of(loop).post(number, lambda waiter, subject: told.append((waiter, subject)), "subject")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert told == [(number, "subject") for number in range(3)]


def test_what_stands_in_for_a_mailbox_is_not_taken_for_one() -> None:
    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    for wrong in (object(), mailbox_of(other)):
        loop._ropewalk_mailbox = wrong  # type: ignore[attr-defined] # pyright: ignore
        mailbox = mailbox_of(loop)
        assert mailbox is not wrong
        assert mailbox_of(loop) is mailbox
    loop.close()
    other.close()


def test_a_pool_a_bus_and_a_map_wake_a_loop_once() -> None:
    calls: list[object] = []

    class Counting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            calls.append(callback)
            return super().call_soon_threadsafe(callback, *args, context=context)

    async def main(pool: ropewalk.Pool, gate: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        bus = ropewalk.Bus()
        first, second = bus.subscribe("a"), bus.subscribe("b")

        async def receive(subscription: ropewalk.Subscription[int]) -> int:
            return await subscription.recv_async()

        async def mapped() -> list[int]:
            return [square async for square in pool.map(tasks.square, range(1, 4))]

        gated = loop.run_in_executor(pool, gate.wait, 60)
        waiting = [asyncio.ensure_future(one) for one in (receive(first), receive(second), mapped())]
        await asyncio.sleep(0.01)
        calls.clear()
        publisher = threading.Thread(target=lambda: (bus.publish("a", 1), bus.publish("b", 2), gate.set()))
        publisher.start()
        publisher.join()
        # The loop looks at nothing before both posts of the bus and the first of the pool are there.
        until(lambda: len(mailbox_of(loop)) >= 3)
        assert len(calls) == 1
        assert await gated
        assert await asyncio.gather(*waiting) == [1, 2, [1, 4, 9]]

    with ropewalk.Pool(1, kind="thread") as pool, asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(main(pool, threading.Event()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From Python 3.12 on: of forks beside threads.
def test_a_forked_child_has_a_mailbox_of_its_own() -> None:
    loop = asyncio.new_event_loop()
    told: list[str] = []
    mailbox = mailbox_of(loop)
    mailbox.post("posted by the parent", lambda waiter, _: told.append(waiter), None)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # The wake-up of a post would be the parent's to read.
            mailbox.post("posted to the parent's", lambda waiter, _: told.append(waiter), None)
            assert len(mailbox) == 1
            assert mailbox_of(loop) is not mailbox
            fresh = asyncio.new_event_loop()
            mailbox_of(fresh).post("the child's", lambda waiter, _: told.append(waiter), None)
            fresh.run_until_complete(asyncio.sleep(0))
            assert told == ["the child's"]
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert told == ["posted by the parent"]


def test_an_interrupt_while_the_loop_is_woken_loses_no_post() -> None:
    class Interrupted(asyncio.SelectorEventLoop):
        interrupts = 1

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            return super().call_soon_threadsafe(callback, *args, context=context)

    loop = Interrupted()
    told: list[int] = []
    mailbox = mailbox_of(loop)

    def post() -> None:
        mailbox.post(1, lambda waiter, _: told.append(waiter), None)
        for _ in range(1000):  # The interrupt comes where Python goes on.
            pass

    with pytest.raises(KeyboardInterrupt):
        post()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert told == [1]


def test_what_could_not_be_posted_waits_for_the_next_post() -> None:
    class Failing(asyncio.SelectorEventLoop):
        fails = True

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            if self.fails:
                raise MemoryError("on purpose")
            return super().call_soon_threadsafe(callback, *args, context=context)

    loop = Failing()
    told: list[int] = []
    mailbox = mailbox_of(loop)
    unraisable: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda report: unraisable.append(report.exc_type)
    try:
        mailbox.post(1, lambda waiter, _: told.append(waiter), None)
    finally:
        sys.unraisablehook = hook
    assert unraisable == [MemoryError]
    loop.fails = False
    mailbox.post(2, lambda waiter, _: told.append(waiter), None)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert told == [1, 2]


def test_callbacks_of_others_are_called_as_they_are() -> None:
    def _call_set_state(_future: object) -> None: ...

    assert by_mailbox(_call_set_state) is _call_set_state  # type: ignore[arg-type] # pyright: ignore
    # Of asyncio's, one that carries a result to a future of no loop.
    found: list[object] = []

    class Source(concurrent.futures.Future[int]):
        def add_done_callback(self, fn: Any) -> None:
            found.append(fn)

    asyncio.futures._chain_future(Source(), concurrent.futures.Future())  # type: ignore[attr-defined] # pyright: ignore
    assert by_mailbox(found[0]) is found[0]  # type: ignore[arg-type] # pyright: ignore


def test_asyncios_own_callback_is_known_on_this_python() -> None:
    found: list[object] = []

    class Source(concurrent.futures.Future[int]):
        def add_done_callback(self, fn: Any) -> None:
            found.append(fn)

    async def main() -> None:
        asyncio.wrap_future(Source())

    asyncio.run(main())
    assert by_mailbox(found[0]) is not found[0]  # type: ignore[arg-type] # pyright: ignore


def test_a_finalizer_may_post_while_another_post_is_under_way() -> None:
    loop = asyncio.new_event_loop()
    told: list[object] = []
    mailbox = mailbox_of(loop)

    def deliver(subject: object) -> None:
        mailbox.post(None, lambda _waiter, subject: told.append(subject), subject)

    class Node:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            deliver("from a collection")

    def post() -> None:
        for number in range(300):
            Node()
            deliver(number)

    before = gc.get_threshold()
    thread = threading.Thread(target=post, daemon=True)
    gc.set_threshold(1, 1, 1)
    try:
        thread.start()
        thread.join(30)
    finally:
        gc.set_threshold(*before)
    assert not thread.is_alive()
    gc.collect()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert [one for one in told if one != "from a collection"] == list(range(300))
    assert len(told) == 600
