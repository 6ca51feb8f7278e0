"""Mistakes that people make on their first day: the error says what to write instead."""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import os
import threading
import traceback
import warnings
from typing import Any, Never

import pytest
from tests.polling import until

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.pool.parent import _options
from ropewalk.pool.wire import _serialize

# --- buses ------------------------------------------------------------------------------------------------------------


def test_on_without_parentheses() -> None:
    on: Any = ropewalk.Bus().on
    with pytest.raises(TypeError, match=r'use @bus\.on\("orders\.\*"\)$'):

        @on
        def handler(message: object) -> None: ...

    with pytest.raises(TypeError, match="not 3"):
        on(3)


def test_on_with_the_handler_beside_the_pattern() -> None:
    on: Any = ropewalk.Bus().on
    with pytest.raises(TypeError, match=r"use bus\.on\('x'\)\(handler\)$"):
        on("x", print)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("on_full", "Ropewalk has overflow="),
        ("max_queue", "Ropewalk has capacity="),
        ("maxsize", "Ropewalk has capacity="),
        ("capacty", r"did you mean capacity=\?"),
        ("nonsense", "It has capacity, overflow"),
    ],
)
def test_arguments_that_subscriptions_do_not_have(name: str, ours: str) -> None:
    bus: Any = ropewalk.Bus()
    for call in ("subscribe", "on"):
        with pytest.raises(TypeError, match=rf"^{call}\(\) .*'{name}'.*{ours}"):
            getattr(bus, call)("x", **{name: 3})


def test_a_full_subscription_and_a_call_that_does_not_wait() -> None:
    bus = ropewalk.Bus()
    with bus.subscribe("x", capacity=1):
        bus.publish("x", 1)
        with pytest.raises(
            ropewalk.BusFull, match="`publish` waits, `publish_nowait` and a timeout of 0 do not"
        ):
            bus.publish_nowait("x", 2)
        with pytest.raises(ropewalk.BusFull, match="no room within the publisher's timeout"):
            bus.publish("x", 2, timeout=0.01)


def test_missing_arguments_are_named() -> None:
    bus: Any = ropewalk.Bus()
    with pytest.raises(TypeError, match=r"^publish\(\) missing 1 required positional argument: 'message'$"):
        bus.publish("x")
    with pytest.raises(
        TypeError, match=r"^publish\(\) missing 2 required positional arguments: 'topic' and 'message'$"
    ):
        bus.publish()
    with pytest.raises(TypeError, match=r"^recv_many\(\) missing 1 required positional argument: 'n'$"):
        bus.subscribe("x").recv_many(timeout=1)


# --- loops ------------------------------------------------------------------------------------------------------------


def test_run_inside_a_running_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        ropewalk.run(inner())

    def made() -> Never:
        raise AssertionError("a loop was made")

    monkeypatch.setattr("ropewalk.loop._policy.new_event_loop", made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            RuntimeError, match="cannot be called from a running event loop: await "
        ) as raised:
            asyncio.run(outer())
        assert "run_coroutine_threadsafe" in str(raised.value)
        del raised
        gc.collect()


# --- pools ------------------------------------------------------------------------------------------------------------


def test_options_know_the_arguments_of_pools() -> None:
    names = {*(ropewalk.Pool.__init__.__kwdefaults__ or ()), "workers"}
    assert names == set(_options._ARGUMENTS)
    with ropewalk.Pool(1, kind="thread") as pool:
        options: Any = pool.options
        for name in ("capacity", "max_queue", "maxsize"):
            with pytest.raises(
                TypeError, match=rf"^options\(\) has no .*'{name}': Ropewalk has capacity= of Pool$"
            ):
                options(**{name: 3})
        with pytest.raises(TypeError, match=r"Ropewalk has chunksize= of map$"):
            options(chunksize=3)
    make: Any = ropewalk.Pool
    with pytest.raises(TypeError, match=r"^Pool\(\) has no argument 'maxsize': Ropewalk has capacity=$"):
        make(maxsize=3)


def test_a_full_queue_names_the_calls_that_wait() -> None:
    over = threading.Event()
    with ropewalk.Pool(1, kind="thread", capacity=1) as pool:
        pool.submit(over.wait, 60)
        until(lambda: pool.statistics().queued == 0)
        pool.submit_nowait(abs, -1)
        with pytest.raises(ropewalk.QueueFull, match="`submit` and `submit_async` do") as raised:
            pool.submit_nowait(abs, -1)
        over.set()
    assert "or use" not in str(raised.value)


def test_the_results_of_a_map_have_no_index() -> None:
    with ropewalk.Pool(1, kind="thread") as pool:
        results: Any = pool.map(abs, [-1, 2])
        with pytest.raises(TypeError, match=r"use list\(pool\.map\(\.\.\.\)\)$"):
            _ = results[0]
        assert list(results) == [1, 2]


def test_a_broken_pool_says_so_and_why() -> None:
    with ropewalk.Pool(1, kind="process", on_crash="break") as pool:
        assert type(pool.submit(os._exit, 3).exception(60)) is ropewalk.WorkerCrashed

        def refused() -> ropewalk.PoolBroken | None:
            try:
                pool.submit(abs, -1)
            except ropewalk.PoolBroken as error:
                return error
            return None

        error = until(refused)
    assert type(error) is ropewalk.PoolBroken
    assert "the pool is broken: its worker" in str(error)
    assert isinstance(error.__cause__, ropewalk.WorkerCrashed)
    assert error.__cause__.exit_code == 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("name", ["Lock", "Queue", "Event"])
def test_synchronization_of_multiprocessing_as_an_argument(method: str, name: str) -> None:
    thing = getattr(multiprocessing.get_context(method), name)()
    with pytest.raises(ropewalk.EncodeError, match=r"initializer=\.\.\., initargs=\(\.\.\.\)") as raised:
        _serialize.encode_object(((thing,), {}), [])
    assert 'multiprocessing.get_context("spawn")' in str(raised.value)


def test_the_cause_shows_no_frames_of_the_runtime() -> None:
    with pytest.raises(ropewalk.EncodeError) as raised:
        _serialize.encode_object(((threading.Lock(),), {}), [])
    cause = raised.value.__cause__
    assert cause is not None
    assert cause.__traceback__ is None
    assert "cannot pickle '_thread.lock' object" in str(cause)


class _Mistaken:
    def __reduce__(self) -> Never:
        raise LookupError("no such key")


def test_the_cause_keeps_the_frames_of_the_program() -> None:
    with pytest.raises(ropewalk.EncodeError) as raised:
        _serialize.encode_object(((_Mistaken(),), {}), [])
    cause = raised.value.__cause__
    assert isinstance(cause, LookupError)
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["__reduce__"]


async def _later(number: int) -> int:
    return number


def test_an_async_function_as_a_task() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        error = pool.submit(_later, 3).exception(60)
    assert isinstance(error, ropewalk.ResultEncodeError)
    assert "The function is async: submit one that calls asyncio.run, or await it in the loop." in str(error)
    result = _later(3)
    with pytest.raises(ropewalk.ResultEncodeError):
        _serialize.encode_result(result, [])
    assert inspect.getcoroutinestate(result) == inspect.CORO_CLOSED


# --- messaging --------------------------------------------------------------------------------------------------------


def test_text_for_an_option() -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        wrong: Any = "5"
        with pytest.raises(TypeError, match=r"^the option takes an int, not '5'$"):
            socket.setsockopt(zmq.LINGER, wrong)
        with pytest.raises(TypeError, match="takes bytes, not str: encode it, or use setsockopt_string"):
            socket.setsockopt(zmq.SUBSCRIBE, wrong)
