"""Errors that no coroutine awaits: the loop's exception handlers."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

Loop = asyncio.AbstractEventLoop


def _fail(*_: Any) -> None:
    raise ZeroDivisionError("in the callback")


def _run(loop: Loop) -> None:
    loop.call_later(0.002, loop.stop)
    loop.run_forever()


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_a_callback_s_error_is_reported_and_the_loop_goes_on(
    loop: Loop, reports: list[dict[str, Any]], schedule: str
) -> None:
    seen: list[int] = []
    delay = [0] if schedule == "call_later" else []
    handle = getattr(loop, schedule)(*delay, _fail)
    loop.call_later(0.001, seen.append, 1)
    _run(loop)
    (report,) = reports
    assert report["message"].startswith("Exception in callback _fail(")
    assert isinstance(report["exception"], ZeroDivisionError)
    assert report["handle"] is handle
    assert seen == [1]
    reports.clear()


def test_the_traceback_starts_in_the_callback_s_code(loop: Loop, reports: list[dict[str, Any]]) -> None:
    loop.call_soon(_fail)
    _run(loop)
    traceback = reports.pop()["exception"].__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback.tb_frame.f_code is _fail.__code__


def test_every_failing_callback_is_reported(loop: Loop, reports: list[dict[str, Any]]) -> None:
    for _ in range(100):
        loop.call_soon(_fail)
    _run(loop)
    assert len(reports) == 100
    reports.clear()


def test_a_callback_that_cannot_be_called(loop: Loop, reports: list[dict[str, Any]]) -> None:
    loop.set_debug(False)
    loop.call_soon(int.bit_length, 1, 2)
    _run(loop)
    assert isinstance(reports.pop()["exception"], TypeError)


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, StopIteration])
def test_other_base_exceptions_are_reported_too(
    loop: Loop, reports: list[dict[str, Any]], error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    loop.call_soon(fail)
    _run(loop)
    assert isinstance(reports.pop()["exception"], error)


def test_without_a_handler_it_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_exception_handler(None)
    loop.call_soon(_fail)
    _run(loop)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("asyncio", logging.ERROR)
    assert "Exception in callback _fail(" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_handler_is_called_with_the_loop(loop: Loop) -> None:
    calls: list[Any] = []
    handler = lambda *args: calls.append(args)  # noqa: E731
    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    loop.call_exception_handler({"message": "by hand"})
    assert calls == [(loop, {"message": "by hand"})]
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None
    with pytest.raises(TypeError):
        loop.set_exception_handler("not callable")  # type: ignore[arg-type]


def test_a_failing_handler_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_exception_handler(_fail)
    loop.call_soon(_fail)
    _run(loop)
    assert "Unhandled error in exception handler" in caplog.text


def test_a_handler_may_leave(loop: Loop) -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    loop.set_exception_handler(leave)
    loop.call_soon(_fail)
    with pytest.raises(SystemExit):
        loop.run_forever()


def test_the_default_handler_can_be_called(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_exception_handler(lambda loop, context: loop.default_exception_handler(context))
    loop.call_soon(_fail)
    _run(loop)
    assert "Exception in callback _fail(" in caplog.text


def test_an_overridden_default_handler_is_called(loop: Loop) -> None:
    seen: list[str] = []

    class Child(type(loop)):  # type: ignore[misc]
        def default_exception_handler(self, context: dict[str, Any]) -> None:
            seen.append(context["message"])

    child = Child()
    child.call_soon(_fail)
    _run(child)
    child.close()
    assert len(seen) == 1


async def test_a_task_s_error_that_nobody_takes(loop: Loop, reports: list[dict[str, Any]]) -> None:
    async def fail() -> None:
        _fail()

    task = loop.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    report = reports.pop()
    assert report["message"] == "Task exception was never retrieved"
    assert isinstance(report["exception"], ZeroDivisionError)


async def test_a_task_dropped_while_pending(loop: Loop, reports: list[dict[str, Any]]) -> None:
    async def wait() -> None:
        await loop.create_future()

    task = loop.create_task(wait())
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert reports.pop()["message"] == "Task was destroyed but it is pending!"


async def test_a_reader_s_error_is_reported_each_time(
    loop: Loop, reports: list[dict[str, Any]], pair: Any
) -> None:
    left, right = pair
    loop.add_reader(left, _fail)
    right.send(b"x")
    while len(reports) < 3:
        await asyncio.sleep(0.001)
    loop.remove_reader(left)
    assert {type(report["exception"]) for report in reports} == {ZeroDivisionError}
    reports.clear()
