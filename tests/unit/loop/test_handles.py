"""The handles of `call_soon`, `call_later` and `call_at`, and the order of callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest


class Target:
    """An object that a weak reference can watch."""

    handle: asyncio.Handle | None = None

    def method(self) -> None:
        pass


def _nothing(*args: Any) -> None:
    pass


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
    return loop.call_soon(callback, *args)


def _threadsafe(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
    return loop.call_soon_threadsafe(callback, *args)


def _later(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
    return loop.call_later(0.0001, callback, *args)


def _at(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
    return loop.call_at(loop.time(), callback, *args)


ways = pytest.mark.parametrize("schedule", [_soon, _threadsafe, _later, _at])


def _run_once(loop: asyncio.AbstractEventLoop) -> None:
    """Runs whatever is due, and the timers of this module."""
    loop.call_later(0.002, loop.stop)
    loop.run_forever()


def test_callbacks_run_in_the_order_of_scheduling(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[int] = []
    for number in range(1000):
        schedule = loop.call_soon_threadsafe if number % 7 == 0 else loop.call_soon
        schedule(seen.append, number)
    _run_once(loop)
    assert seen == list(range(1000))


def test_a_callback_scheduled_by_a_callback_waits_for_the_next_turn(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "inner")

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["first", "second"]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["first", "second", "inner"]


@ways
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 8, 9, 40])
def test_any_number_of_arguments(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle], count: int
) -> None:
    seen: list[Any] = []
    schedule(loop, lambda *args: seen.append(args), *range(count))
    _run_once(loop)
    assert seen == [tuple(range(count))]


def test_every_kind_of_callable(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[Any] = []

    class Callee:
        def __call__(self, value: int) -> None:
            seen.append(value)

        def method(self, value: int) -> None:
            seen.append(value)

        @classmethod
        def of_class(cls, value: int) -> None:
            seen.append(value)

    loop.call_soon(Callee(), 1)
    loop.call_soon(Callee().method, 2)
    loop.call_soon(Callee.of_class, 3)
    loop.call_soon(functools.partial(lambda a, *, b: seen.append(a + b), b=3), 1)
    loop.call_soon(seen.append, 5)
    loop.call_soon(list.append, seen, 6)
    _run_once(loop)
    assert seen == [1, 2, 3, 4, 5, 6]


@ways
def test_a_handle_is_asyncio_s(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    handle = schedule(loop, _nothing)
    assert isinstance(handle, asyncio.Handle)
    assert isinstance(handle, asyncio.TimerHandle) == (schedule in (_later, _at))
    assert not handle.cancelled()
    assert weakref.ref(handle)() is handle


@ways
def test_a_cancelled_callback_does_not_run(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    seen: list[str] = []
    schedule(loop, seen.append, "before")
    handle = schedule(loop, seen.append, "cancelled")
    schedule(loop, seen.append, "after")
    handle.cancel()
    handle.cancel()
    assert handle.cancelled()
    _run_once(loop)
    assert sorted(seen) == ["after", "before"]


@ways
def test_a_handle_may_be_cancelled_after_its_run(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    seen: list[int] = []
    handle = schedule(loop, seen.append, 1)
    _run_once(loop)
    assert not handle.cancelled()
    handle.cancel()
    assert handle.cancelled()
    _run_once(loop)
    assert seen == [1]


def test_a_callback_may_cancel_one_of_the_same_turn(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[str] = []
    handles: list[asyncio.Handle] = []
    loop.call_soon(lambda: handles[0].cancel())
    handles.append(loop.call_soon(seen.append, "cancelled"))
    loop.call_soon(seen.append, "kept")
    _run_once(loop)
    assert seen == ["kept"]


def test_a_callback_may_cancel_itself(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[bool] = []
    handles: list[asyncio.Handle] = []

    def callback(target: Target) -> None:
        handles[0].cancel()
        seen.append(isinstance(target, Target))

    handles.append(loop.call_soon(callback, Target()))
    _run_once(loop)
    assert seen == [True]


@ways
def test_cancel_frees_the_arguments_at_once(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    target = Target()
    alive = weakref.ref(target)
    handle = schedule(loop, _nothing, target)
    del target
    assert alive() is not None
    handle.cancel()
    gc.collect()
    assert alive() is None
    _run_once(loop)


@ways
def test_what_has_run_holds_nothing(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    target = Target()
    alive = weakref.ref(target)
    schedule(loop, _nothing, target)
    del target
    _run_once(loop)
    gc.collect()
    assert alive() is None


@ways
@pytest.mark.parametrize("run", [True, False])
def test_a_cycle_through_a_handle_is_collected(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle], run: bool
) -> None:
    target = Target()
    alive = weakref.ref(target)
    target.handle = schedule(loop, target.method)
    del target
    if run:
        _run_once(loop)
    else:
        loop.close()
    gc.collect()
    assert alive() is None


@ways
def test_repr_names_the_callback(
    loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]
) -> None:
    handle = schedule(loop, _nothing, 7)
    timer = isinstance(handle, asyncio.TimerHandle)
    # Since 3.14 asyncio has a class of its own for `call_soon_threadsafe`.
    assert re.match("<TimerHandle when=" if timer else r"<\w*Handle ", repr(handle))
    assert "_nothing(" in repr(handle)
    assert "cancelled" not in repr(handle)
    handle.cancel()
    assert "cancelled" in repr(handle)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context is new in 3.12")
@ways
def test_get_context(loop: asyncio.AbstractEventLoop, schedule: Callable[..., asyncio.Handle]) -> None:
    variable = contextvars.ContextVar[int]("variable")
    variable.set(1)
    handle = schedule(loop, _nothing)
    variable.set(2)
    assert handle.get_context()[variable] == 1  # type: ignore[attr-defined]
    context = contextvars.copy_context()
    handles = [loop.call_soon(_nothing, context=context), loop.call_later(9, _nothing, context=context)]
    assert all(handle.get_context() is context for handle in handles)  # type: ignore[attr-defined]


def test_when(loop: asyncio.AbstractEventLoop) -> None:
    assert loop.call_at(1234.5, _nothing).when() == 1234.5
    before = loop.time()
    handle = loop.call_later(10, _nothing)
    assert before + 10 <= handle.when() <= loop.time() + 10


def test_timer_handles_compare_by_their_deadline(loop: asyncio.AbstractEventLoop) -> None:
    early, late, same = (loop.call_at(loop.time() + 60 + when, _nothing) for when in (0, 1, 0))
    assert early < late
    assert late > early
    assert sorted([late, early]) == [early, late]
    moment = loop.time() + 60
    left, right, other = (
        loop.call_at(moment, callback, 1) for callback in (_nothing, _nothing, lambda _: None)
    )
    assert left <= right
    assert left >= right
    assert left == right
    assert hash(left) == hash(right)
    assert left != other
    assert left != 1
    right.cancel()
    assert left != right
    with pytest.raises(TypeError):
        _ = left < 1
    assert same != late


@pytest.mark.parametrize("name", ["call_soon", "call_soon_threadsafe", "call_later", "call_at"])
def test_a_wrong_call_is_refused(loop: asyncio.AbstractEventLoop, name: str) -> None:
    schedule = getattr(loop, name)
    with pytest.raises(TypeError):
        schedule()
    with pytest.raises(TypeError):
        schedule(0, _nothing, unknown=1)


def test_handles_of_a_closed_loop_can_be_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    handles = [loop.call_soon(_nothing), loop.call_later(9, _nothing), loop.call_soon_threadsafe(_nothing)]
    loop.close()
    for handle in handles:
        handle.cancel()
        assert handle.cancelled()


def test_handles_survive_their_loop(loop: asyncio.AbstractEventLoop) -> None:
    handle = loop.call_soon(_nothing, "argument")
    timer = loop.call_later(9, _nothing, "argument")
    loop.close()
    del loop
    gc.collect()
    assert "Handle" in repr(handle)
    assert "Handle" in repr(timer)
    timer.cancel()
