"""A pool's futures behave as the standard library's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk


def test_it_is_one_of_the_standard_librarys(pool: Any) -> None:
    future = pool.submit(tasks.square, 3)
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, ropewalk.Future)
    assert isinstance(pool, concurrent.futures.Executor)


def test_a_life(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    future = pool.submit(gate.hold, "task", 42)
    waiting = pool.submit(tasks.square, 3)
    until(gate.marks)
    until(future.running)
    assert not future.done()
    assert not future.cancelled()
    assert future.task is None
    assert not waiting.running()
    assert "state=running" in repr(future)
    assert "state=pending" in repr(waiting)
    gate.open()
    assert future.result(60) == 42
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert future.exception() is None
    assert future.result(0) == 42
    assert "state=finished returned int" in repr(future)
    assert waiting.result(60) == 9


def test_polling_done_is_enough(pool: Any) -> None:
    pool.submit(tasks.square, 1).result(60)
    futures = [pool.submit(tasks.square, n) for n in range(50)]
    until(lambda: all(future.done() for future in futures))
    assert [future.result(0) for future in futures] == [n * n for n in range(50)]


def test_an_exception(pool: Any) -> None:
    future = pool.submit(tasks.fail, "told")
    with pytest.raises(ValueError, match="told"):
        future.result(60)
    error = future.exception()
    assert isinstance(error, ValueError)
    assert future.exception() is error, "decoded once"
    assert "raised ValueError" in repr(future)


def test_a_result_is_decoded_once(pool: Any) -> None:
    future = pool.submit(list, "abc")
    assert future.result(60) is future.result(60)


def test_waiting_times_out(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    future = pool.submit(gate.hold, "task", 1)
    for timeout in (0, 0.02):
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout)
        with pytest.raises(TimeoutError):
            future.exception(timeout)
    gate.open()
    assert future.result(timeout=60) == 1


def test_cancelling_what_waits(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold, "task", 1)
    until(gate.marks)
    waiting = [pool.submit(gate.mark, "never") for _ in range(5)]
    called: list[object] = []
    waiting[0].add_done_callback(called.append)
    assert all(future.cancel() for future in waiting)
    assert all(future.cancel() for future in waiting), "cancelling twice is no error"
    assert not held.cancel()
    for future in waiting:
        assert future.cancelled()
        assert future.done()
        assert not future.running()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(60)
        with pytest.raises(concurrent.futures.CancelledError):
            future.exception(60)
        assert "state=cancelled" in repr(future)
    until(lambda: called == [waiting[0]])
    gate.open()
    assert held.result(60) == 1
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert gate.marks("never") == []


def test_callbacks(pool: Any) -> None:
    future = pool.submit(tasks.square, 3)
    called: list[tuple[str, object]] = []
    for name in "abc":
        future.add_done_callback(lambda f, name=name: called.append((name, f.result(0))))
    until(lambda: len(called) == 3)
    assert called == [("a", 9), ("b", 9), ("c", 9)], "in the order in which they were added"
    future.add_done_callback(lambda f: called.append(("late", f.result(0))))
    assert called[-1] == ("late", 9), "at once, when the future is done"


def test_callbacks_from_many_threads(pool: Any, gate: Gate) -> None:
    future = pool.submit(gate.hold, "task", 5)
    called: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: [future.add_done_callback(lambda f: called.append(f.result())) for _ in range(50)]
        )
        for _ in range(8)
    ]
    for thread in threads[:4]:
        thread.start()
    until(gate.marks)
    gate.open()
    for thread in threads[4:]:
        thread.start()
    for thread in threads:
        thread.join(60)
    until(lambda: len(called) == 400)
    assert set(called) == {5}


def test_callbacks_of_many_futures_that_nobody_keeps(pool: Any) -> None:
    called: list[int] = []
    for n in range(500):
        pool.submit(tasks.square, n).add_done_callback(lambda f: called.append(f.result()))
    until(lambda: len(called) == 500)
    assert sorted(called) == [n * n for n in range(500)]


def test_a_callback_that_raises_is_logged(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    called: list[object] = []
    future = pool.submit(tasks.square, 3)
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        future.add_done_callback(lambda f: 1 / 0)
        future.add_done_callback(called.append)
        until(lambda: called == [future])
    assert "exception calling callback" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "lambda f: 1 / 0" in caplog.text


def test_a_callback_that_submits(pool: Any) -> None:
    done: list[int] = []

    def again(future: Any) -> None:
        value = future.result()
        done.append(value)
        if value < 100:
            pool.submit(tasks.add, value, 1).add_done_callback(again)

    pool.submit(tasks.add, 0, 1).add_done_callback(again)
    until(lambda: len(done) == 100)
    assert done == list(range(1, 101))


def test_callbacks_run_though_the_pool_is_gone(make_pool: Callable[..., Any], kind: str) -> None:
    called: list[int] = []
    with make_pool(2, kind=kind) as pool:
        for n in range(50):
            pool.submit(tasks.square, n).add_done_callback(lambda f: called.append(f.result()))
    until(lambda: len(called) == 50)


def test_wait_and_as_completed_mix_with_others(make_pool: Callable[..., Any], gate: Gate) -> None:
    processes = make_pool(2, kind="process")
    threads = make_pool(2, kind="thread")
    with concurrent.futures.ThreadPoolExecutor(2) as stdlib:
        futures = [
            executor.submit(tasks.square, n) for n in range(10) for executor in (processes, threads, stdlib)
        ]
        done, pending = concurrent.futures.wait(futures, timeout=60)
        assert (len(done), len(pending)) == (30, 0)
        futures = [
            executor.submit(tasks.square, n) for n in range(10) for executor in (processes, threads, stdlib)
        ]
        assert sorted(f.result() for f in concurrent.futures.as_completed(futures, timeout=60)) == sorted(
            [n * n for n in range(10)] * 3
        )
        held = processes.submit(gate.hold)
        quick = stdlib.submit(tasks.square, 2)
        done, pending = concurrent.futures.wait([held, quick], return_when=concurrent.futures.FIRST_COMPLETED)
        assert (done, pending) == ({quick}, {held})
        done, pending = concurrent.futures.wait([held], timeout=0.02)
        assert (done, pending) == (set(), {held})
        bad = processes.submit(tasks.fail, "x")
        done, pending = concurrent.futures.wait([held, bad], return_when=concurrent.futures.FIRST_EXCEPTION)
        assert (done, pending) == ({bad}, {held})
        gate.open()
        assert concurrent.futures.wait([held], timeout=60).done == {held}


def test_wait_sees_a_cancellation(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    pool.submit(gate.hold)
    until(gate.marks)
    waiting = pool.submit(tasks.square, 2)
    seen: list[object] = []
    waiter = threading.Thread(
        target=lambda: seen.extend(concurrent.futures.as_completed([waiting], timeout=60))
    )
    waiter.start()
    waiting.cancel()
    waiter.join(60)
    assert seen == [waiting]


def test_asyncio_wraps_it(pool: Any) -> None:
    async def main() -> list[int]:
        futures = [asyncio.wrap_future(pool.submit(tasks.square, n)) for n in range(50)]
        with pytest.raises(ValueError, match="told"):
            await asyncio.wrap_future(pool.submit(tasks.fail, "told"))
        return await asyncio.gather(*futures)

    assert asyncio.run(main()) == [n * n for n in range(50)]


def test_its_record(make_pool: Callable[..., Any], kind: str) -> None:
    import dataclasses

    pool = make_pool(1, kind=kind)
    futures = [pool.submit(tasks.where) for _ in range(3)]
    for future in futures:
        pid, _ = future.result(60)
        record = future.task
        assert isinstance(record, ropewalk.TaskRecord)
        assert (record.kind, record.worker_pid, record.attempt) == (kind, pid, 1)
        assert record.queued_seconds >= 0
        assert record.busy_seconds >= 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.attempt = 2
    assert len({future.task.id for future in futures}) == 3


def test_only_its_pool_moves_it_on(pool: Any) -> None:
    future = pool.submit(tasks.square, 2)
    assert future.result(60) == 4
    for call in (
        lambda: future.set_result(1),
        lambda: future.set_exception(ValueError()),
        future.set_running_or_notify_cancel,
    ):
        with pytest.raises(concurrent.futures.InvalidStateError):
            call()
    assert future.result() == 4


def test_one_made_by_hand_says_so() -> None:
    with pytest.raises(RuntimeError, match="pool"):
        ropewalk.Future().result()


def test_it_is_collected_with_its_result(pool: Any) -> None:
    import gc
    import weakref

    class Big:
        pass

    future = pool.submit(tasks.square, 3)
    future.result(60)
    gone = weakref.ref(future)
    future.mark = Big()
    big = weakref.ref(future.mark)
    del future
    gc.collect()
    assert gone() is None
    assert big() is None


def test_a_future_can_be_awaited(pool: Any) -> None:
    async def main() -> None:
        assert await pool.submit(tasks.square, 3) == 9
        assert await asyncio.gather(*(pool.submit(tasks.square, n) for n in range(20))) == [
            n * n for n in range(20)
        ]
        done = pool.submit(tasks.square, 4)
        until(done.done)
        assert await done == await done == 16
        with pytest.raises(ValueError, match="wrong"):
            await pool.submit(tasks.fail, "wrong")

    asyncio.run(main())


def test_a_cancelled_await_leaves_a_task_that_runs(pool: Any, gate: Gate) -> None:
    async def main() -> None:
        future = pool.submit(gate.hold, "task", "kept")

        async def wait() -> Any:
            return await future

        waiting = asyncio.ensure_future(wait())
        while not gate.marks():
            await asyncio.sleep(0.002)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not future.cancelled()
        gate.open()
        assert await future == "kept"

    asyncio.run(main())
