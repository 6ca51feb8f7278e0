"""Objects that cannot be pickled fail their own task, with an error that names the cause, and no other task."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from tests import tasks

import ropewalk


@pytest.fixture
def still_works(processes: Any) -> Any:
    """The pool, which after the test still has the workers that it had, and runs tasks."""
    yield processes
    assert processes.submit(tasks.square, 12).result(60) == 144
    assert processes.statistics().crashed == 0


def test_an_argument(still_works: Any) -> None:
    future = still_works.submit(tasks.identity, tasks.Unpicklable())
    with pytest.raises(ropewalk.EncodeError) as caught:
        future.result(60)
    assert isinstance(caught.value, pickle.PicklingError)
    assert not isinstance(caught.value, ropewalk.ResultEncodeError)
    assert caught.value.code == "RW-ENCODE"
    assert "this one stays at home" in str(caught.value)


def test_an_argument_that_belongs_to_this_process(still_works: Any) -> None:
    for thing in (threading.Lock(), sys._getframe(), (n for n in range(3))):
        with pytest.raises(ropewalk.EncodeError):
            still_works.submit(tasks.identity, thing).result(60)


def test_a_function(still_works: Any) -> None:
    lock = threading.Lock()
    with pytest.raises(ropewalk.EncodeError):
        still_works.submit(lambda: lock).result(60)


def test_an_argument_of_map_fails_alone(still_works: Any) -> None:
    results = still_works.map(tasks.identity, [1, tasks.Unpicklable(), 3])
    assert next(results) == 1
    with pytest.raises(ropewalk.EncodeError):
        next(results)
    assert next(results) == 3
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("chunksize", [1, 2, 5])
def test_an_argument_in_a_batch_fails_alone(still_works: Any, chunksize: int) -> None:
    results = still_works.map(tasks.identity, [1, 2, tasks.Unpicklable(), 4], chunksize=chunksize)
    seen: list[object] = []
    for _ in range(4):
        try:
            seen.append(next(results))
        except ropewalk.EncodeError:
            seen.append("refused")
    assert seen == [1, 2, "refused", 4]


def test_a_result(still_works: Any) -> None:
    with pytest.raises(ropewalk.ResultEncodeError) as caught:
        still_works.submit(tasks.make, tasks.Unpicklable).result(60)
    assert caught.value.code == "RW-ENCODE-RESULT"
    assert "this one stays at home" in str(caught.value)


def test_a_result_that_belongs_to_its_process(still_works: Any) -> None:
    with pytest.raises(ropewalk.ResultEncodeError):
        still_works.submit(threading.Lock).result(60)


def test_a_result_in_a_batch_fails_alone(still_works: Any) -> None:
    results = still_works.map(tasks.make, [int, tasks.Unpicklable, str], chunksize=3)
    assert next(results) == 0
    with pytest.raises(ropewalk.ResultEncodeError):
        next(results)
    assert next(results) == ""


def test_an_exception(still_works: Any) -> None:
    with pytest.raises(ropewalk.RemoteError) as caught:
        still_works.submit(tasks.raise_unpicklable).result(60)
    assert "UnpicklableError" in str(caught.value)
    assert "the text of it" in str(caught.value)
    assert "raise_unpicklable" in str(caught.value.__cause__)


def test_an_exception_that_does_not_unpickle(still_works: Any) -> None:
    error = still_works.submit(tasks.raise_what_does_not_unpickle).exception(60)
    # With the standard library's executor, this one breaks the pool.
    assert isinstance(error, ropewalk.RopewalkError)
    assert "the text of it" in f"{error} {error.__cause__}"


def test_an_exception_in_a_batch_that_does_not_unpickle(still_works: Any) -> None:
    results = still_works.map(_maybe_raise, [0, 1, 0], chunksize=3)
    assert next(results) == 0
    with pytest.raises(ropewalk.RopewalkError):
        next(results)
    assert next(results) == 0


def _maybe_raise(number: int) -> int:
    if number:
        tasks.raise_what_does_not_unpickle()
    return number


def test_an_argument_that_does_not_unpickle(still_works: Any) -> None:
    with pytest.raises(ropewalk.DecodeError) as caught:
        still_works.submit(tasks.identity, tasks.OnlyHere()).result(60)
    assert caught.value.code == "RW-DECODE"
    assert isinstance(caught.value, BrokenProcessPool)
    assert "far from home" in f"{caught.value} {caught.value.__cause__}"


def test_a_result_that_does_not_unpickle(still_works: Any) -> None:
    future = still_works.submit(tasks.make, tasks.OnlyHere)
    for _ in range(2):
        with pytest.raises(ropewalk.DecodeError) as caught:
            future.result(60)
    assert "far from home" in f"{caught.value} {caught.value.__cause__}"
    assert isinstance(future.exception(), ropewalk.DecodeError)
    assert future.done()


def test_a_function_whose_module_fails_to_import(
    make_pool: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imports_only_at_home.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise OSError('not at home')\ndef f():\n    return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import imports_only_at_home  # type: ignore[import-not-found]

    pool = make_pool(2, kind="process")
    for _ in range(3):
        with pytest.raises(ropewalk.FunctionLoadError) as caught:
            pool.submit(imports_only_at_home.f).result(60)
        assert isinstance(caught.value, ImportError)
        assert "not at home" in f"{caught.value} {caught.value.__cause__}"
    with pytest.raises(ropewalk.FunctionLoadError):
        list(pool.map(imports_only_at_home.f, [1], chunksize=1))
    assert pool.submit(tasks.square, 12).result(60) == 144
    assert pool.statistics().crashed == 0


def test_a_function_whose_module_is_not_there(still_works: Any, tmp_path: Path) -> None:
    import types

    module = types.ModuleType("made_of_thin_air")
    exec("def f(): return 1", module.__dict__)
    sys.modules["made_of_thin_air"] = module
    try:
        # No worker can import it: it goes by value, as a function of __main__ does.
        assert still_works.submit(module.f).result(60) == 1
    finally:
        del sys.modules["made_of_thin_air"]


def test_remote_tracebacks_are_chained(still_works: Any) -> None:
    future = still_works.submit(tasks.fail, "what went wrong")
    with pytest.raises(ValueError, match="what went wrong") as caught:
        future.result(60)
    cause = caught.value.__cause__
    assert isinstance(cause, ropewalk.RemoteTraceback)
    assert "raise ValueError(message)" in str(cause)
    assert "in fail" in str(cause)
    assert "ValueError: what went wrong" in str(cause)


def test_remote_causes_stay(still_works: Any) -> None:
    error = still_works.submit(_fail_twice).exception(60)
    assert isinstance(error, RuntimeError)
    assert "KeyError" in str(error.__cause__)
    assert "direct cause" in str(error.__cause__)


def _fail_twice() -> None:
    try:
        {}["missing"]  # type: ignore[index]
    except KeyError as error:
        raise RuntimeError("second") from error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__
)
def test_exits_come_back_as_themselves(still_works: Any, error: BaseException) -> None:
    got = still_works.submit(_raise, error).exception(60)
    assert type(got) is type(error)
    assert got.args == error.args


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("workers", [1, 3])
def test_an_initializer_that_fails(make_pool: Callable[..., Any], workers: int, capfd: Any) -> None:
    pool = make_pool(workers, kind="process", initializer=tasks.fail, initargs=("no such thing",))
    try:
        error = pool.submit(tasks.square, 2).exception(60)
    except BrokenProcessPool as refused:
        error = refused
    assert isinstance(error, ropewalk.InitializerFailed)
    assert isinstance(error, BrokenProcessPool)
    assert error.code == "RW-INITIALIZER"
    assert isinstance(error.__cause__, ValueError)
    assert "no such thing" in str(error.__cause__)
    with pytest.raises(BrokenProcessPool):  # noqa: PT012 -- it is broken soon, not at once
        for _ in range(1000):
            pool.submit(tasks.square, 2).result(60)
    pool.shutdown()


def test_an_initializer_that_dies(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", initializer=tasks.leave, initargs=(4,))
    # Forking workers without end that die without end would be no better than hanging.
    with pytest.raises(ropewalk.PoolBroken):
        pool.submit(tasks.square, 2).result(60)


def test_a_few_starts_that_fail_break_nothing(make_pool: Callable[..., Any], tmp_path: Path) -> None:
    # A killer that hits workers before they are ready, as the kernel does for want of memory.
    pool = make_pool(
        5, kind="process", initializer=tasks.die_until, initargs=(tasks.Gate(tmp_path), 8, signal.SIGKILL)
    )
    assert [pool.submit(tasks.square, n).result(60) for n in range(20)] == [n * n for n in range(20)]
    assert 0 < pool.statistics().crashed < 8


def test_an_initializer_that_cannot_be_sent(make_pool: Callable[..., Any]) -> None:
    with pytest.raises(ropewalk.EncodeError):
        make_pool(2, kind="process", initializer=tasks.identity, initargs=(tasks.Unpicklable(),))


def test_an_initializer_that_fails_in_a_thread(make_pool: Callable[..., Any], caplog: Any) -> None:
    pool = make_pool(2, kind="thread", initializer=tasks.fail, initargs=("no such thing",))
    with pytest.raises(ropewalk.PoolBroken):  # noqa: PT012 -- it is broken soon, not at once
        for _ in range(1000):
            pool.submit(tasks.square, 2).result(60)


def test_a_preload_that_fails_is_told_and_nothing_more(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", preload=["no_such_module_anywhere", "json"])
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert "no_such_module_anywhere" in pool.explain()
