"""The mail by which futures that are done tell an event loop: once for a burst, in the loop's own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk.pool.parent._future import LoopMail, by_mail, mail_of


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
        until(lambda: len(mail_of(loop)._box) == 101)
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

    mail = LoopMail(loop)
    for number in range(4):
        mail.post(number, tell)(None)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert told == [0, 1, 2, 3]


def test_a_closed_loop_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    mail = mail_of(loop)
    assert mail is mail_of(loop)
    loop.close()
    mail.post(loop.create_future())(None)


def test_the_mail_keeps_no_loop_alive() -> None:
    loop = asyncio.new_event_loop()
    mail = mail_of(loop)
    loop.close()
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None
    mail.post(None)(None)


def test_callbacks_of_others_are_called_as_they_are() -> None:
    def _call_set_state(_future: object) -> None: ...

    assert by_mail(_call_set_state) is _call_set_state  # type: ignore[arg-type] # pyright: ignore
    # Of asyncio's, one that carries a result to a future of no loop.
    found: list[object] = []

    class Source(concurrent.futures.Future[int]):
        def add_done_callback(self, fn: Any) -> None:
            found.append(fn)

    asyncio.futures._chain_future(Source(), concurrent.futures.Future())  # type: ignore[attr-defined] # pyright: ignore
    assert by_mail(found[0]) is found[0]  # type: ignore[arg-type] # pyright: ignore


def test_asyncios_own_callback_is_known_on_this_python() -> None:
    found: list[object] = []

    class Source(concurrent.futures.Future[int]):
        def add_done_callback(self, fn: Any) -> None:
            found.append(fn)

    async def main() -> None:
        asyncio.wrap_future(Source())

    asyncio.run(main())
    assert by_mail(found[0]) is not found[0]  # type: ignore[arg-type] # pyright: ignore


def test_a_finalizer_may_post_while_another_post_is_under_way() -> None:
    loop = asyncio.new_event_loop()
    told: list[object] = []
    deliver = LoopMail(loop).post(None, lambda _waiter, future: told.append(future))

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
