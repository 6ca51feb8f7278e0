"""Each callback runs in the context in which it was scheduled, as its own copy, unless it is given another."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop.recording import until

VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE", default="default")
OTHER: contextvars.ContextVar[Any] = contextvars.ContextVar("OTHER", default="default")

Loop = asyncio.AbstractEventLoop
Schedule = Callable[..., asyncio.Handle]


def _soon(loop: Loop, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Handle:
    return loop.call_soon(callback, *args, **kwargs)


def _threadsafe(loop: Loop, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Handle:
    return loop.call_soon_threadsafe(callback, *args, **kwargs)


def _at(loop: Loop, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Handle:
    return loop.call_at(loop.time() + 0.0001, callback, *args, **kwargs)


ways = pytest.mark.parametrize("schedule", [_soon, _threadsafe, _at])


@pytest.fixture(autouse=True)
def own_context() -> Any:
    """What a test sets is unset for the next."""
    tokens = [(variable, variable.set("test")) for variable in (VARIABLE, OTHER)]
    yield
    for variable, token in tokens:
        variable.reset(token)


def _run(loop: Loop) -> None:
    loop.call_later(0.005, loop.stop)
    loop.run_forever()


def _note(seen: list[Any]) -> None:
    seen.append(VARIABLE.get())


@ways
def test_a_callback_sees_the_values_of_its_scheduling(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []
    for number in range(5):
        VARIABLE.set(number)
        schedule(loop, _note, seen)
    VARIABLE.set("later")
    _run(loop)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@ways
def test_what_a_callback_sets_stays_in_it(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []

    def change() -> None:
        _note(seen)
        VARIABLE.set("changed")
        OTHER.set("changed")

    # Nothing changes between these two, so they might share a snapshot; they must not.
    schedule(loop, change)
    schedule(loop, change)
    _run(loop)
    schedule(loop, change)
    _run(loop)
    assert seen == ["test", "test", "test"]
    assert (VARIABLE.get(), OTHER.get()) == ("test", "test")


@ways
def test_callbacks_scheduled_by_one_callback_are_apart(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []

    def change(value: str) -> None:
        _note(seen)
        VARIABLE.set(value)

    def outer() -> None:
        VARIABLE.set("outer")
        schedule(loop, change, "first")
        schedule(loop, change, "second")
        VARIABLE.set("after")
        schedule(loop, change, "third")

    loop.call_soon(outer)
    _run(loop)
    assert sorted(seen) == ["after", "outer", "outer"]
    assert VARIABLE.get() == "test"


@ways
def test_a_chain_inherits_what_its_links_set(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []

    def link(left: int) -> None:
        _note(seen)
        VARIABLE.set(left)
        if left:
            schedule(loop, link, left - 1)
        else:
            loop.stop()

    schedule(loop, link, 5)
    loop.run_forever()
    assert seen == ["test", 5, 4, 3, 2, 1]
    assert VARIABLE.get() == "test"


def test_hundreds_of_callbacks_with_alternating_contexts(loop: Loop) -> None:
    seen: list[Any] = []
    contexts = [contextvars.copy_context() for _ in range(3)]
    for number, context in enumerate(contexts):
        context.run(VARIABLE.set, f"context {number}")

    def visit(expected: str, value: int) -> None:
        seen.append((expected, VARIABLE.get(), OTHER.get()))
        OTHER.set(value)

    for number in range(600):
        if number % 4 == 3:
            VARIABLE.set(number)
            loop.call_soon(visit, number, number)
        else:
            loop.call_soon(visit, f"context {number % 4}", number, context=contexts[number % 4])
    _run(loop)
    assert [expected for expected, _, _ in seen] == [found for _, found, _ in seen]
    # One that was given its context sees what the one before it in that context has set; the others do not.
    assert [other for _, _, other in seen[:8]] == ["test", "test", "test", "test", 0, 1, 2, "test"]
    assert [context[OTHER] for context in contexts] == [596, 597, 598]


@ways
def test_a_given_context_is_entered_itself(loop: Loop, schedule: Schedule) -> None:
    context = contextvars.copy_context()
    schedule(loop, VARIABLE.set, "in the context", context=context)
    _run(loop)
    assert context[VARIABLE] == "in the context"
    assert VARIABLE.get() == "test"


@ways
def test_an_empty_context(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []
    schedule(loop, _note, seen, context=contextvars.Context())
    _run(loop)
    assert seen == ["default"]


@ways
def test_none_is_the_current_context(loop: Loop, schedule: Schedule) -> None:
    seen: list[Any] = []
    VARIABLE.set("current")
    schedule(loop, _note, seen, context=None)
    VARIABLE.set("later")
    _run(loop)
    assert seen == ["current"]


def test_nested_changes(loop: Loop) -> None:
    seen: list[Any] = []

    def inner() -> None:
        VARIABLE.set("inner")
        loop.call_soon(_note, seen)

    def outer() -> None:
        VARIABLE.set("outer")
        loop.call_soon(_note, seen)
        contextvars.copy_context().run(inner)
        loop.call_soon(_note, seen)

    loop.call_soon(outer)
    _run(loop)
    assert seen == ["outer", "inner", "outer"]


def test_a_callback_copies_its_context(loop: Loop) -> None:
    copies: list[contextvars.Context] = []

    def copy() -> None:
        copies.append(contextvars.copy_context())
        VARIABLE.set("set in the callback")
        copies.append(contextvars.copy_context())
        copies[0].run(VARIABLE.set, "set in the copy")
        assert VARIABLE.get() == "set in the callback"

    loop.call_soon(copy)
    _run(loop)
    assert [copied[VARIABLE] for copied in copies] == ["set in the copy", "set in the callback"]


def test_tokens(loop: Loop) -> None:
    seen: list[Any] = []
    tokens: list[contextvars.Token[Any]] = []

    def resets() -> None:
        token = VARIABLE.set("changed")
        seen.append(VARIABLE.get())
        VARIABLE.reset(token)
        seen.append(VARIABLE.get())
        tokens.append(VARIABLE.set("again"))

    def resets_another_s() -> None:
        with pytest.raises(ValueError, match="different Context"):
            VARIABLE.reset(tokens[0])
        seen.append(VARIABLE.get())

    loop.call_soon(resets)
    loop.call_soon(resets_another_s)
    _run(loop)
    assert seen == ["changed", "test", "test"]


def test_a_context_that_is_entered_already_is_reported(
    loop: Loop, reports: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    context = contextvars.copy_context()
    seen: list[Any] = []

    def run() -> None:
        loop.call_soon(_note, seen, context=context)
        loop.call_soon(loop.stop)
        loop.run_forever()

    context.run(run)
    # Since 3.12 the handler runs in the callback's context, so it fails in its turn, which is logged.
    reported = [str(report["exception"]) for report in reports] + caplog.messages
    assert any("cannot enter context" in message for message in reported)
    assert seen == []
    reports.clear()


def test_an_error_leaves_the_context(loop: Loop, reports: list[dict[str, Any]]) -> None:
    seen: list[Any] = []

    def fail() -> None:
        VARIABLE.set("failing")
        raise ZeroDivisionError

    loop.call_soon(fail)
    loop.call_soon(_note, seen)
    _run(loop)
    assert isinstance(reports.pop()["exception"], ZeroDivisionError)
    assert seen == ["test"]
    assert VARIABLE.get() == "test"

    def leave() -> None:
        VARIABLE.set("leaving")
        raise SystemExit

    loop.call_soon(leave)
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert VARIABLE.get() == "test"


def test_each_thread_gives_its_own_context(loop: Loop) -> None:
    seen: list[Any] = []

    def schedule(number: int) -> None:
        for step in range(100):
            VARIABLE.set((number, step))
            loop.call_soon_threadsafe(lambda value: seen.append((value, VARIABLE.get())), (number, step))
        VARIABLE.set("over")

    threads = [threading.Thread(target=schedule, args=(number,)) for number in range(6)]

    async def main() -> None:
        for thread in threads:
            thread.start()
        await until(lambda: len(seen) == 600)

    loop.run_until_complete(main())
    for thread in threads:
        thread.join()
    assert [value for value, _ in seen] == [found for _, found in seen]


async def test_a_task_has_one_context_for_all_its_steps(loop: Loop) -> None:
    async def steps(number: int) -> list[Any]:
        found = [VARIABLE.get()]
        for step in range(3):
            VARIABLE.set((number, step))
            await asyncio.sleep(0 if step else 0.001)
            found.append(VARIABLE.get())
        return found

    VARIABLE.set("parent")
    results = await asyncio.gather(*(steps(number) for number in range(50)))
    assert results == [["parent", (number, 0), (number, 1), (number, 2)] for number in range(50)]
    assert VARIABLE.get() == "parent"


async def test_a_future_s_callback_has_the_context_of_its_registration(loop: Loop) -> None:
    seen: list[Any] = []
    future = loop.create_future()
    VARIABLE.set("registered")
    future.add_done_callback(lambda _: _note(seen))
    given = contextvars.Context()
    future.add_done_callback(lambda _: _note(seen), context=given)
    VARIABLE.set("done")
    future.set_result(None)
    await until(lambda: len(seen) == 2)
    assert seen == ["registered", "default"]


async def test_a_reader_s_calls_share_one_context(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    seen: list[Any] = []

    def read() -> None:
        left.recv(1)
        _note(seen)
        VARIABLE.set(len(seen))

    VARIABLE.set("registered")
    loop.add_reader(left, read)
    VARIABLE.set("later")
    for count in (1, 2, 3):
        right.send(b"x")
        await until(lambda count=count: len(seen) == count)
    loop.remove_reader(left)
    assert seen == ["registered", 1, 2]
    assert VARIABLE.get() == "later"


def test_values_are_let_go(loop: Loop) -> None:
    class Value:
        pass

    def change() -> None:
        VARIABLE.set(value := Value())
        alive.append(weakref.ref(value))

    alive: list[weakref.ref[Value]] = []
    VARIABLE.set(value := Value())
    alive.append(weakref.ref(value))
    loop.call_soon(change)
    loop.call_soon(_nothing)
    loop.call_later(0, _nothing).cancel()
    _run(loop)
    VARIABLE.set(None)
    del value
    loop.call_soon(_nothing)
    _run(loop)
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def _nothing() -> None:
    pass


def test_finalizers_that_schedule_while_contexts_come_and_go(loop: Loop) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    seen: list[int] = []
    ended: list[int] = []

    class Cycle:
        def __init__(self, number: int) -> None:
            self.me, self.number = self, number

        def __del__(self) -> None:
            loop.call_soon(ended.append, self.number)

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for number in range(300):
            Cycle(number)
            variable.set(number)
            loop.call_soon(lambda: seen.append(variable.get()))
        gc.collect()
        loop.call_soon(loop.stop)
        loop.run_forever()
    finally:
        gc.set_threshold(*before)
    assert seen == list(range(300))
    gc.collect()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert sorted(ended) == list(range(300))


def test_an_error_in_a_signals_callback_is_reported_outside_of_its_context(loop: Loop) -> None:
    handled: list[str] = []
    loop.set_exception_handler(lambda _, context: handled.append(VARIABLE.get()))

    def fail() -> None:
        VARIABLE.set("callback")
        raise ZeroDivisionError

    async def work() -> None:
        VARIABLE.set("adder")
        loop.add_signal_handler(signal.SIGUSR1, fail)
        VARIABLE.set("later")
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda: handled)
        loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(work())
    # From 3.12 on the handler runs in the context of the handle that failed.
    assert handled == ["callback" if sys.version_info >= (3, 12) else "test"]
