"""Tasks that call functions of the program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import queue
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.kinds import WITHOUT_NUMPY
from tests.polling import until
from tests.tasks import Gate, Unpicklable

import ropewalk
from ropewalk import current_task


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    task = current_task()
    assert task is not None
    return task.call(name, *args, **kwargs)


def call_often(name: str, n: int) -> list[Any]:
    return [call(name, number) for number in range(n)]


def capture(*args: Any, **kwargs: Any) -> Any:
    return os.getpid(), args, kwargs


def fail(message: str) -> None:
    raise KeyError(message)


@pytest.fixture
def calling(make_pool: Any, kind: str) -> Any:
    return make_pool(2, kind=kind, calls={"capture": capture, "fail": fail, "double": lambda n: 2 * n})


def test_a_function_of_the_program_is_called_and_answers(calling: Any) -> None:
    assert calling.submit(call, "capture").result(60) == (os.getpid(), (), {})
    expected = (os.getpid(), (1, "two"), {"three": [3]})
    assert calling.submit(call, "capture", 1, "two", three=[3]).result(60) == expected
    assert calling.submit(call_often, "double", 200).result(60) == [2 * n for n in range(200)]


def test_many_tasks_call_at_once(calling: Any) -> None:
    futures = [calling.submit(call_often, "double", 20) for _ in range(30)]
    assert all(future.result(60) == [2 * n for n in range(20)] for future in futures)


def test_large_arguments_and_answers_travel(calling: Any) -> None:
    calling.expose("echo", lambda value: value)
    for size in (10, 3000, 3073, 5000, 100_000, 3_000_000):
        assert calling.submit(call, "echo", bytes(size)).result(60) == bytes(size)
    numpy = pytest.importorskip("numpy")
    if calling.kind in WITHOUT_NUMPY:
        return
    for size in (10, 1000, 1_000_000):
        echoed = calling.submit(call, "echo", numpy.arange(size)).result(60)
        assert (echoed == numpy.arange(size)).all()
        answer = calling.submit(lambda size: call("echo", numpy.arange(size)) * 2, size).result(60)
        assert (answer == 2 * numpy.arange(size)).all()


def test_what_it_raises_is_raised_in_the_task(calling: Any) -> None:
    with pytest.raises(KeyError, match="not there"):
        calling.submit(call, "fail", "not there").result(60)

    def survive() -> str:
        try:
            call("fail", "why")
        except KeyError as error:
            return f"{error} {type(error.__cause__).__name__}"
        return "nothing"

    assert calling.submit(survive).result(60).startswith("'why'")


def test_a_name_that_is_not_exposed_is_an_error_that_names_the_others(calling: Any) -> None:
    with pytest.raises(ropewalk.NotExposed, match=r"no function 'other' \(it has capture, double, fail\)"):
        calling.submit(call, "other").result(60)
    calling.expose("other", abs)
    assert calling.submit(call, "other", -4).result(60) == 4
    calling.expose("other", str)
    assert calling.submit(call, "other", -4).result(60) == "-4"


def test_a_pool_that_exposes_nothing_answers_too(pool: Any) -> None:
    with pytest.raises(ropewalk.NotExposed):
        pool.submit(call, "anything").result(60)
    pool.expose("anything", abs)
    assert pool.submit(call, "anything", -4).result(60) == 4


def test_wrong_arguments_of_expose_are_errors(pool: Any) -> None:
    for name, function, said in [
        (3, abs, "by a name, not by 3"),
        ("", abs, "one character"),
        ("a", 3, "'a' is 3"),
    ]:
        with pytest.raises((TypeError, ValueError), match=said):
            pool.expose(name, function)
    with pytest.raises(TypeError, match="mapping of names"):
        ropewalk.Pool(1, calls=[abs])  # type: ignore[arg-type]


def test_what_cannot_be_pickled_is_an_error_of_the_call(make_pool: Any) -> None:
    pool = make_pool(1, kind="process", calls={"take": lambda _: 1, "give": Unpicklable})

    def try_both() -> list[str]:
        said = []
        for name, arguments in (("take", (Unpicklable(),)), ("give", ())):
            try:
                call(name, *arguments)
            except ropewalk.EncodeError as error:
                said.append(type(error).__name__)
        return [*said, call("take", 1)]

    assert pool.submit(try_both).result(60) == ["EncodeError", "EncodeError", 1]


def test_a_function_may_submit_to_the_pool_and_wait(make_pool: Any, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    pool.expose("nested", lambda n: pool.submit(abs, -n).result(60))
    assert pool.submit(call_often, "nested", 20).result(60) == list(range(20))


def test_a_wait_that_cannot_end_is_an_error(make_pool: Any) -> None:
    pool = make_pool(1, kind="process")
    pool.expose("nested", lambda: pool.submit(abs, -1).result(60))
    with pytest.raises(ropewalk.PoolError, match="cannot start"):
        pool.submit(call, "nested").result(60)
    assert pool.submit(abs, -1).result(60) == 1


def test_functions_that_wait_for_each_other_are_errors(make_pool: Any) -> None:
    pool = make_pool(2, kind="process")
    pool.expose("nested", lambda: pool.submit(abs, -1).result(60))
    futures = [pool.submit(call, "nested") for _ in range(2)]
    # One that has failed makes room for the other's task.
    failed = [future.exception(60) for future in futures]
    assert any(isinstance(error, ropewalk.PoolError) for error in failed)
    assert pool.submit(abs, -1).result(60) == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_chain_of_calls_without_end_is_an_error(make_pool: Any, workers: int) -> None:
    pool = make_pool(workers, kind="process")
    pool.expose("a", lambda: pool.submit(call, "b").result(60))
    pool.expose("b", lambda: pool.submit(call, "a").result(60))
    with pytest.raises(ropewalk.PoolError, match="cannot start"):
        pool.submit(call, "a").result(60)
    assert pool.submit(abs, -1).result(60) == 1


def test_a_chain_of_calls_that_fits_works(make_pool: Any) -> None:
    pool = make_pool(4, kind="process", calls={"leaf": abs})

    def down(depth: int) -> int:
        future = pool.submit(call, "down", depth - 1) if depth else pool.submit(call, "leaf", -7)
        result: int = future.result(60)
        return result

    pool.expose("down", down)
    assert [pool.submit(call, "down", 2).result(60) for _ in range(20)] == [7] * 20


def test_a_wait_that_ends_when_another_function_does_is_no_error(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(2, kind="process", calls={"slow": gate.hold})

    def nested() -> int:
        future = pool.submit(abs, -1)
        gate.mark("nested")
        result: int = future.result(60)
        return result

    pool.expose("nested", nested)
    slow = pool.submit(call, "slow")
    until(lambda: gate.marks())
    waits = pool.submit(call, "nested")
    until(lambda: gate.marks("nested"))
    # Both workers call now, and for longer than a wait takes to look.
    assert not concurrent.futures.wait([waits], 0.5).done
    gate.open()
    assert waits.result(60) == 1
    slow.result(60)


def test_a_call_within_a_call(make_pool: Any, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    pool.expose("leaf", lambda n: n + 1)
    pool.expose("branch", lambda n: pool.submit(call, "leaf", n).result(60) * 10)
    assert pool.submit(call, "branch", 1).result(60) == 20


def test_a_slow_function_holds_up_no_other(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(2, kind="process", calls={"slow": gate.hold, "fast": abs})
    slow = pool.submit(call, "slow")
    assert pool.submit(call_often, "fast", 50).result(60) == list(range(50))
    assert not slow.done()
    gate.open()
    assert slow.result(60) == os.getpid()


def test_tasks_behind_a_call_run_elsewhere(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(2, kind="process", calls={"slow": gate.hold})
    slow = pool.submit(call, "slow")
    futures = [pool.submit(abs, -n) for n in range(100)]
    assert [future.result(60) for future in futures] == list(range(100))
    gate.open()
    slow.result(60)


def test_only_the_tasks_own_thread_calls(pool: Any) -> None:
    def from_a_thread() -> str:
        task = current_task()
        assert task is not None
        said: list[str] = []

        def attempt() -> None:
            try:
                task.call("abs", -1)
            except ropewalk.PoolError as error:
                said.append(str(error))

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        return said[0]

    pool.expose("abs", abs)
    assert "only the thread that runs a task" in pool.submit(from_a_thread).result(60)


def test_a_thread_does_not_make_the_calls_of_another_threads_task(make_pool: Any) -> None:
    given: queue.Queue[Any] = queue.Queue()
    done = threading.Event()

    def give() -> None:
        given.put(current_task())
        done.wait(60)

    def use() -> Any:
        try:
            return given.get().call("abs", -1)
        finally:
            done.set()

    pool = make_pool(2, kind="thread", calls={"abs": abs})
    futures = [pool.submit(give), pool.submit(use)]
    assert isinstance(futures[1].exception(60), ropewalk.PoolError)
    assert futures[0].result(60) is None


def test_a_call_in_a_signals_handler_is_an_error_while_the_task_waits(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def calls_within() -> Any:
        signal.signal(signal.SIGUSR1, lambda *_: call("capture"))
        return call("interrupt", os.getpid())

    def interrupt(pid: int) -> None:
        os.kill(pid, signal.SIGUSR1)
        gate.hold("served")

    pool = make_pool(1, kind="process", calls={"capture": capture, "interrupt": interrupt})
    error = pool.submit(calls_within).exception(60)
    assert isinstance(error, ropewalk.PoolError)
    assert "one call at a time" in str(error)
    gate.open()
    assert pool.submit(call, "capture").result(60)[0] == os.getpid()


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_functions_that_refer_to_their_pool_are_collected_with_it(make_pool: Any, kind: str) -> None:
    def make() -> weakref.ref[Any]:
        pool = ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
        pool.expose("kind", lambda: pool.kind)
        assert pool.submit(call, "kind").result(60) == kind
        return weakref.ref(pool)

    there = make()

    def is_gone() -> bool:
        gc.collect()
        return there() is None

    until(is_gone)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_tasks_of_a_dropped_pool_call_its_functions(kind: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def hold_and_call() -> Any:
        gate.hold("task")
        return call("kind")

    def submitted() -> Any:
        pool = ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
        pool.expose("kind", lambda: pool.kind)
        return pool.submit(hold_and_call)

    future = submitted()
    until(lambda: gate.marks("task"))
    gc.collect()
    gate.open()
    assert future.result(60) == kind


def test_calls_are_served_by_one_thread_if_there_is_no_other(
    make_pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) > 1:
            raise ropewalk.OutOfProcesses("no thread left")
        thread.start()

    monkeypatch.setattr("ropewalk.pool.parent._calls.start", start)
    pool = make_pool(1, kind="process", calls={"double": lambda n: 2 * n})
    assert pool.submit(call_often, "double", 5).result(60) == [0, 2, 4, 6, 8]
    assert len(begun) > 1


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_coroutine_whose_loop_is_closed_is_an_error(make_pool: Any, kind: str) -> None:
    begun = threading.Event()
    pool = make_pool(1, kind=kind)

    async def begin() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> Any:
        await pool.__aenter__()
        pool.expose("begin", begin)
        future = pool.submit(call, "begin")
        while not begun.is_set():
            await asyncio.sleep(0.001)
        return future

    loop = asyncio.new_event_loop()
    future = loop.run_until_complete(main())
    loop.close()
    assert isinstance(future.exception(60), ropewalk.NotExposed)
    gc.collect()


def test_a_stream_calls(pool: Any) -> None:
    def doubled(n: int) -> Any:
        for number in range(n):
            yield call("double", number)

    pool.expose("double", lambda n: 2 * n)
    assert list(pool.stream(doubled, 20)) == [2 * n for n in range(20)]


def test_a_coroutine_function_runs_on_the_pools_event_loop(make_pool: Any, kind: str) -> None:
    ran: list[object] = []

    async def slowly(n: int) -> int:
        await asyncio.sleep(0.001)
        ran.append(asyncio.get_running_loop())
        return n + 1

    pool = make_pool(2, kind=kind, calls={"slowly": slowly})
    with pytest.raises(ropewalk.NotExposed, match="async with"):
        pool.submit(call, "slowly", 1).result(60)

    async def main() -> None:
        async with pool:
            assert await pool.run(call, "slowly", 1) == 2
            assert ran == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_a_worker_that_dies_while_it_waits(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(1, kind="process", calls={"slow": gate.hold, "fast": abs})
    future = pool.options(task_timeout=0.3).submit(call, "slow")
    with pytest.raises(ropewalk.TaskTimeout):
        future.result(60)
    # Its answer comes when another worker runs other calls.
    again = pool.submit(call_often, "fast", 20)
    gate.open()
    assert again.result(60) == list(range(20))


def test_a_pool_ends_while_a_function_runs(make_pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(1, kind="process", calls={"slow": gate.hold})
    future = pool.submit(call, "slow")
    while not gate.marks():
        pass
    pool.terminate()
    with pytest.raises(ropewalk.PoolTerminated):
        future.result(60)
    gate.open()


def test_a_called_function_cannot_wait_for_the_end_of_its_pool(make_pool: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    pool.expose("end", pool.shutdown)
    with pytest.raises(RuntimeError, match=r"shutdown\(wait=False\)"):
        pool.submit(call, "end").result(60)
    # It accepts no more tasks, as the message says, and another thread may wait.
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(len, "abc")
    pool.shutdown()


def test_what_a_called_coroutine_starts_may_wait_for_the_end_of_its_pool(make_pool: Any) -> None:
    pool = make_pool(1, kind="process")
    later: list[asyncio.Task[None]] = []
    answered = asyncio.Event()

    async def end_later() -> None:
        await answered.wait()
        await asyncio.to_thread(pool.shutdown)

    async def end() -> None:
        later.append(asyncio.create_task(end_later()))
        pool.shutdown()

    async def main() -> None:
        await pool.__aenter__()
        pool.expose("end", end)
        future = pool.submit(call, "end")
        with pytest.raises(RuntimeError, match=r"shutdown\(wait=False\)"):
            await asyncio.wrap_future(future)
        answered.set()
        await asyncio.wait_for(later[0], 60)

    asyncio.run(main())
