"""A Ctrl-C that comes while a dropped object is finalized is raised, and the object is finalized all the same."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk import _core
from ropewalk.pool.parent import _exit
from ropewalk.pool.parent._map import _Bar


def _once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Makes the first call of a function raise as if a signal had come at its first step."""
    function: Callable[..., Any] = getattr(owner, name)
    calls: list[None] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


def _drop(objects: list[Any]) -> None:
    """Drops objects, and goes on until the interrupt that their finalizers put off is raised."""
    objects.clear()
    time.sleep(0)
    pytest.fail("the interrupt was lost")


def test_a_pool_that_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    _once(monkeypatch, _exit, "abandon")
    pools = [ropewalk.Pool(1, kind="thread")]
    engine = pools[0]._engine
    with pytest.raises(KeyboardInterrupt):
        _drop(pools)
    until(lambda: engine.ended)


def test_a_pool_whose_map_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [ropewalk.Pool(1, kind="thread", capacity=1)]
    engine = pools[0]._engine
    results = pools[0].map(tasks.square, range(3))
    _once(monkeypatch, ropewalk.Pool, "_is_forked")
    with pytest.raises(KeyboardInterrupt):
        _drop(pools)
    until(lambda: engine.ended)
    assert list(results) == [0, 1, 4]


def test_a_progress_bar_whose_end_is_interrupted() -> None:
    stops: list[None] = []

    class Progress:
        def update(self, _task: object, **_changes: object) -> None: ...

        def stop(self) -> None:
            stops.append(None)
            if len(stops) == 1:
                raise KeyboardInterrupt

    bar = _Bar(3, lambda: None)
    bar._progress, bar._task = Progress(), 0  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        bar.close()
    bar.close()
    bar.close()
    assert len(stops) == 2


def test_every_interrupt_ends_after_some_calls() -> None:
    calls: list[int] = []

    def interrupted(_: object) -> None:
        calls.append(len(calls))
        raise KeyboardInterrupt(len(calls))

    class Thing:
        __del__ = _core.Finalizer(interrupted)

    with pytest.raises(KeyboardInterrupt) as raised:
        _drop([Thing()])
    assert (raised.value.args, calls) == ((1,), [0, 1, 2, 3])


def test_a_thread_that_is_ended_in_a_finalizer_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Thing:
        @_core.Finalizer
        def __del__(self) -> None:
            raise SystemExit

    reports: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reports.append(report.exc_type))
    thread = threading.Thread(target=Thing)
    thread.start()
    thread.join()
    time.sleep(0)
    assert reports == [SystemExit]


def test_other_errors_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thing:
        @_core.Finalizer
        def __del__(self) -> None:
            raise LookupError("no")

    reports: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reports.append)
    Thing()
    assert [str(report.exc_value) for report in reports] == ["no"]
    assert isinstance(Thing.__del__, _core.Finalizer)


def test_an_error_after_an_interrupt_is_reported_too(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [KeyboardInterrupt(), LookupError("no")]

    class Thing:
        @_core.Finalizer
        def __del__(self) -> None:
            raise errors.pop(0)

    reports: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reports.append(report.exc_value))
    with pytest.raises(KeyboardInterrupt):
        _drop([Thing()])
    assert [str(error) for error in reports] == ["no"]


def test_a_cycle_through_a_finalizer_is_collected() -> None:
    class Function:
        finalizer: _core.Finalizer

        def __call__(self) -> None: ...

    function = Function()
    function.finalizer = _core.Finalizer(function)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None
