"""Running, stopping and closing a loop."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.loops import new_event_loop

Loop = asyncio.AbstractEventLoop


def _nothing(*_: Any) -> None:
    pass


def _drop(last_references: list[Any]) -> None:
    last_references.clear()
    gc.collect()


async def _answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_it_is_a_loop_of_asyncio_s(loop: Loop) -> None:
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert isinstance(loop, asyncio.BaseEventLoop)


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="these are Ropewalk's names")
def test_the_names_of_ropewalk() -> None:
    import ropewalk

    loop = ropewalk.new_event_loop()
    assert type(loop) is ropewalk.Loop
    loop.close()
    assert ropewalk.run(_answer()) == 42
    with asyncio.Runner(loop_factory=ropewalk.new_event_loop) as runner:
        assert runner.run(_answer()) == 42


def test_state(loop: Loop) -> None:
    seen: list[tuple[bool, bool, Loop]] = []

    async def main() -> None:
        seen.append((loop.is_running(), loop.is_closed(), asyncio.get_running_loop()))

    assert (loop.is_running(), loop.is_closed()) == (False, False)
    loop.run_until_complete(main())
    assert seen == [(True, False, loop)]
    assert (loop.is_running(), loop.is_closed()) == (False, False)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    loop.close()
    assert (loop.is_running(), loop.is_closed()) == (False, True)


def test_repr_tells_the_state(loop: Loop) -> None:
    assert "running=False closed=False debug=" in repr(loop)
    loop.close()
    assert "closed=True" in repr(loop)


def test_stop_before_the_run_lets_one_turn_pass(loop: Loop) -> None:
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "later")

    loop.call_soon(first)
    loop.stop()
    loop.run_forever()
    assert seen == ["first"]
    loop.stop()
    loop.run_forever()
    assert seen == ["first", "later"]


def test_stop_twice_stops_once(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_soon(loop.stop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.call_soon(seen.append, "runs")
    loop.call_later(0.0001, loop.stop)
    loop.run_forever()
    assert seen == ["runs"]


def test_results_and_errors_come_out(loop: Loop) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("out")

    assert loop.run_until_complete(_answer()) == 42
    with pytest.raises(ZeroDivisionError, match="out"):
        loop.run_until_complete(fail())
    assert loop.run_until_complete(_answer()) == 42


def test_futures_and_awaitables_may_be_run(loop: Loop) -> None:
    class Awaitable:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    future = loop.create_future()
    loop.call_soon(future.set_result, "set")
    assert loop.run_until_complete(future) == "set"
    assert loop.run_until_complete(future) == "set"
    assert loop.run_until_complete(Awaitable()) == "awaited"
    with pytest.raises(TypeError):
        loop.run_until_complete(42)  # type: ignore[arg-type]


def test_a_cancelled_task_comes_out_as_such(loop: Loop) -> None:
    async def main() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(main())


def test_a_future_of_another_loop_is_refused(loop: Loop) -> None:
    other = new_event_loop()
    try:
        with pytest.raises(ValueError):
            loop.run_until_complete(other.create_future())
    finally:
        other.close()


def test_a_stop_before_the_result_is_an_error(loop: Loop) -> None:
    loop.call_soon(loop.stop)
    future = loop.create_future()
    with pytest.raises(RuntimeError, match="Event loop stopped before Future completed"):
        loop.run_until_complete(future)
    # The future is let go of: when it is done later, nothing stops.
    future.set_result(None)
    seen: list[int] = []
    loop.call_later(0.001, seen.append, 1)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert seen == [1]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_an_exit_comes_out_of_a_callback_and_the_rest_stays(
    loop: Loop, error: type[BaseException], where: str
) -> None:
    seen: list[int] = []

    def leave() -> None:
        raise error

    def schedule(callback: Callable[..., Any], *args: Any) -> None:
        if where == "call_later":
            loop.call_later(0, callback, *args)
        else:
            getattr(loop, where)(callback, *args)

    for number in range(100):
        schedule(leave if number == 50 else seen.append, *([] if number == 50 else [number]))
    with pytest.raises(error):
        loop.run_forever()
    assert not loop.is_running()
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    # Timers with one deadline have no order among them; none of these is lost, whichever has run before.
    assert sorted(seen) == [number for number in range(100) if number != 50]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_comes_out_of_a_task(loop: Loop, error: type[BaseException]) -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        loop.run_until_complete(main())
    assert loop.run_until_complete(_answer()) == 42


@pytest.mark.parametrize("run", ["run_until_complete", "run_forever"])
def test_a_nested_run_is_refused(loop: Loop, run: str) -> None:
    if run == "run_forever" and loops.MODULE == "asyncio":
        pytest.skip("asyncio of 3.13.0 refuses, and takes itself for stopped then")
    errors: list[str] = []
    other = new_event_loop()

    async def main() -> None:
        for inner in (loop, other):
            coroutine = _answer()
            try:
                getattr(inner, run)(*([coroutine] if run == "run_until_complete" else []))
            except RuntimeError as error:
                errors.append(str(error))
            coroutine.close()
        assert loop.is_running()
        assert asyncio.get_running_loop() is loop
        assert not other.is_running()

    try:
        loop.run_until_complete(main())
    finally:
        other.close()
    assert errors == [
        "This event loop is already running",
        "Cannot run the event loop while another loop is running",
    ]


def test_a_loop_that_runs_in_another_thread_is_running(loop: Loop) -> None:
    started = threading.Event()
    loop.call_soon(started.set)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert started.wait(30)
    assert loop.is_running()
    with pytest.raises(RuntimeError, match="already running"):
        loop.run_forever()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert not loop.is_running()
    # And back in this one.
    assert loop.run_until_complete(_answer()) == 42


def test_of_many_threads_that_run_it_at_once_one_does(loop: Loop) -> None:
    def work(left: int) -> None:
        if left:
            loop.call_soon(work, left - 1)

    for _ in range(50):
        for _ in range(20):
            loop.call_soon(work, 100)
        start = threading.Barrier(4)
        refused: queue.SimpleQueue[str] = queue.SimpleQueue()

        def run(start: threading.Barrier = start, refused: Any = refused) -> None:
            start.wait()
            try:
                loop.run_forever()
            except RuntimeError as error:
                refused.put(str(error))
                if refused.qsize() == 3:
                    # Nothing stops the one that runs before all others have tried.
                    loop.call_soon_threadsafe(loop.stop)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert {refused.get() for _ in range(3)} == {"This event loop is already running"}
        assert not loop.is_running()


def test_one_loop_in_each_of_many_threads() -> None:
    results: list[int] = []

    def work(number: int) -> None:
        loop = new_event_loop()

        async def add() -> int:
            total = 0
            for step in range(50):
                await asyncio.sleep(0)
                total += step * number
            return total

        results.append(loop.run_until_complete(add()))
        loop.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1225 * number for number in range(8)]


def test_close_is_idempotent_and_not_for_a_running_loop(loop: Loop) -> None:
    errors: list[str] = []

    async def main() -> None:
        try:
            loop.close()
        except RuntimeError as error:
            errors.append(str(error))

    loop.run_until_complete(main())
    assert errors == ["Cannot close a running event loop"]
    loop.close()
    loop.close()
    assert loop.is_closed()


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("call_soon", (_nothing,)),
        ("call_soon_threadsafe", (_nothing,)),
        ("call_later", (1, _nothing)),
        ("call_at", (1, _nothing)),
        ("run_forever", ()),
        ("add_reader", (0, _nothing)),
        ("add_writer", (0, _nothing)),
        ("add_signal_handler", (10, _nothing)),
    ],
)
def test_a_closed_loop_refuses(loop: Loop, method: str, args: tuple[Any, ...]) -> None:
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        getattr(loop, method)(*args)


def test_a_closed_loop_runs_no_coroutine(loop: Loop) -> None:
    loop.close()
    coroutine = _answer()
    for run in (loop.run_until_complete, loop.create_task):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            run(coroutine)
    coroutine.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.run_in_executor(None, _nothing).cancel()


def test_a_closed_loop_has_no_readers(loop: Loop) -> None:
    loop.close()
    assert loop.remove_reader(0) is False
    assert loop.remove_writer(0) is False
    loop.stop()


def test_close_drops_what_is_pending(loop: Loop) -> None:
    seen: list[int] = []
    loop.call_soon(seen.append, 1)
    loop.call_later(0, seen.append, 2)
    loop.call_soon_threadsafe(seen.append, 3)
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.run_forever()
    assert seen == []


def test_a_loop_that_never_ran_closes() -> None:
    for _ in range(20):
        new_event_loop().close()


def test_a_loop_dropped_without_close_warns(reports: list[dict[str, Any]]) -> None:
    dropped = [new_event_loop()]
    dropped[0].call_soon(_nothing)
    dropped[0].call_later(60, _nothing)
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        _drop(dropped)


def test_a_loop_kept_only_by_its_own_callbacks_is_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.loop = new_event_loop()
            self.loop.call_soon(self.method)
            self.loop.call_later(60, self.method)

        def method(self) -> None:
            pass

    dropped = [Owner()]
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        _drop(dropped)


def test_attributes_and_subclasses(loop: Loop) -> None:
    class Child(type(loop)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scheduled = 0

        def call_soon(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Handle:
            self.scheduled += 1
            handle: asyncio.Handle = super().call_soon(callback, *args, **kwargs)
            return handle

    loop.anything = "kept"  # type: ignore[attr-defined]
    assert loop.anything == "kept"  # type: ignore[attr-defined]
    child = Child()
    try:
        assert child.run_until_complete(_answer()) == 42
        # The task's first step, its second, and the end of the run.
        assert child.scheduled == 3
    finally:
        child.close()


def test_many_short_runs(loop: Loop) -> None:
    assert [loop.run_until_complete(_answer()) for _ in range(500)] == [42] * 500


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio's loop tells of it when it is collected")
def test_a_loop_that_could_not_be_made_says_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    import ropewalk

    class Failing(ropewalk.Loop):
        def __init__(self) -> None:
            raise LookupError("nothing is made")

    with pytest.raises(LookupError):
        Failing()
    with pytest.raises(TypeError, match="positional argument"):
        ropewalk.Loop(5)  # type: ignore[call-arg]
    gc.collect()
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="of our function")
def test_run_takes_a_factory() -> None:
    import ropewalk

    class Own(ropewalk.Loop):
        pass

    async def kind() -> type:
        return type(asyncio.get_running_loop())

    assert ropewalk.run(kind(), loop_factory=Own) is Own
