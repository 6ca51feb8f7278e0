"""`ropewalk.Retry`: as a decorator, and as the setting of a pool's tasks."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import math
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

#: Longer than any test, and ended by it.
LONG = 3600.0


class Flaky:
    """Raises until it is called for the `times`th time, whose number it returns."""

    def __init__(self, times: int, error: BaseException | None = None) -> None:
        self.times = times
        self.error = error or ConnectionError("not yet")
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls < self.times:
            raise self.error
        return self.calls

    async def later(self) -> int:
        return self()


def at_once(**given: Any) -> ropewalk.Retry:
    return ropewalk.Retry(**{"backoff": 0, **given})


# --- the decorator ----------------------------------------------------------------------------------------------------


def test_a_function_is_tried_until_it_returns() -> None:
    flaky = Flaky(3)
    assert at_once()(flaky)() == 3
    flaky = Flaky(3)

    @at_once(attempts=5)
    def named(first: int, *, second: int) -> tuple[int, int, int]:
        """Its own text."""
        return flaky(), first, second

    assert named(1, second=2) == (3, 1, 2)
    assert (named.__name__, named.__doc__) == ("named", "Its own text.")


def test_the_last_exception_is_raised_with_a_note() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="not yet") as caught:
        at_once(attempts=3).call(flaky)
    assert flaky.calls == 3
    (note,) = caught.value.__notes__
    assert note.startswith("ropewalk.Retry tried 3 times in ")
    assert note.endswith("it has no more attempts.")


def test_one_attempt_is_no_retry_and_has_no_note() -> None:
    with pytest.raises(ConnectionError) as caught:
        at_once(attempts=1).call(Flaky(2))
    assert not hasattr(caught.value, "__notes__")


def test_a_method_and_a_coroutine_function_and_a_partial() -> None:
    class Service:
        def __init__(self) -> None:
            self.flaky = Flaky(2)

        @at_once()
        def ask(self, more: int) -> int:
            return self.flaky() + more

        @at_once()
        async def ask_later(self) -> int:
            return await self.flaky.later()

    assert Service().ask(10) == 12
    assert asyncio.run(Service().ask_later()) == 2
    bound = Flaky(2)
    assert asyncio.run(at_once()(functools.partial(bound.later))()) == 2
    assert asyncio.run(at_once().call_async(Flaky(2).later)) == 2


def run(coroutine: Any) -> None:
    """Runs it without asyncio's loop, which treats the ends of a program in its own way."""
    for _ in range(100):
        coroutine.send(None)


@pytest.mark.parametrize(
    ("on", "error", "calls"),
    [
        (OSError, ConnectionError(), 3),
        ((KeyError, OSError), ConnectionError(), 3),
        (KeyError, ConnectionError(), 1),
        (lambda error: "again" in str(error), ValueError("again"), 3),
        (lambda error: "again" in str(error), ValueError("never"), 1),
        (Exception, asyncio.CancelledError(), 1),
        (Exception, KeyboardInterrupt(), 1),
        (Exception, SystemExit(), 1),
        (lambda error: True, asyncio.CancelledError(), 1),
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
def test_which_exceptions_are_tried_again(on: Any, error: BaseException, calls: int, awaited: bool) -> None:
    flaky = Flaky(9, error)
    retry = at_once(on=on)
    with pytest.raises(type(error)):
        run(retry.call_async(flaky.later)) if awaited else retry.call(flaky)
    assert flaky.calls == calls


def test_a_predicate_that_raises_is_noted() -> None:
    with pytest.raises(ConnectionError) as caught:
        at_once(on=lambda error: 1 / 0).call(Flaky(9))
    assert "ZeroDivisionError" in caught.value.__notes__[0]


def test_an_await_is_cancelled_during_the_delay() -> None:
    flaky = Flaky(9)

    async def main() -> None:
        task = asyncio.ensure_future(
            ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none")(flaky.later)()
        )
        while flaky.calls == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert flaky.calls == 1


def test_no_try_begins_after_the_deadline() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError):
        ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none", deadline=60).call(flaky)
    assert flaky.calls == 1
    with pytest.raises(ConnectionError) as caught:
        at_once(attempts=None, deadline=0.05).call(Flaky(10**9))
    assert "its deadline of 0.05 s would pass" in caught.value.__notes__[0]


def test_delays_without_end_stay_below_the_longest() -> None:
    retry = ropewalk.Retry(attempts=None, backoff=1, max_delay=5, jitter="none")
    assert list(itertools.islice(retry.delays(), 2000))[-3:] == [5, 5, 5]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"attempts": 0}, ValueError, "attempts must be 1 or more, not 0"),
        ({"attempts": 1.5}, TypeError, "attempts must be a whole number, not 1.5"),
        ({"backoff": -1}, ValueError, "backoff must be 0 or more seconds, not -1"),
        ({"max_delay": "1"}, TypeError, "max_delay must be a number of seconds, not '1'"),
        (
            {"jitter": "half"},
            ValueError,
            "jitter must be 'full', 'equal', 'decorrelated' or 'none', not 'half'",
        ),
        ({"on": 3}, TypeError, "on must be subclasses of Exception, or a predicate, not 3"),
        ({"on": (OSError, 3)}, TypeError, "on must be subclasses of Exception"),
        ({"on": ()}, ValueError, "on must be one class of exceptions or more"),
        ({"on": BaseException}, TypeError, "the end of the program are never tried again"),
        ({"on": (OSError, KeyboardInterrupt)}, TypeError, "are never tried again"),
        ({"crashes": 1}, TypeError, "crashes must be True or False, not 1"),
        ({"deadline": -1}, ValueError, "deadline must be 0 or more seconds"),
        ({"backoff": 10**400}, ValueError, "backoff must be a number of seconds that a float can hold"),
        ({"max_attempts": 3}, TypeError, r"Retry\(\) has no argument 'max_attempts': Ropewalk has attempts="),
        ({"retries": 3}, TypeError, "Ropewalk has attempts=, which counts the first time, too"),
        ({"backof": 3}, TypeError, r"unexpected keyword argument 'backof': did you mean backoff=\?"),
    ],
)
def test_wrong_policies(given: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        ropewalk.Retry(**given)


def test_a_generator_function_cannot_be_decorated() -> None:
    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for function in (numbers, later, functools.partial(numbers)):
        with pytest.raises(TypeError, match="cannot decorate the generator function"):
            at_once()(function)
    with pytest.raises(TypeError, match="Retry decorates a function, not 3"):
        at_once()(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("jitter", ["full", "equal", "decorrelated", "none"])
def test_without_a_longest_delay_a_delay_can_be_slept(jitter: Any) -> None:
    for backoff in (1.0, math.inf):
        retry = ropewalk.Retry(attempts=1100, backoff=backoff, max_delay=math.inf, jitter=jitter)
        assert all(0 <= delay <= 1e9 for delay in retry.delays())


def test_a_policy_is_a_value() -> None:
    retry = ropewalk.Retry(attempts=5, on=(OSError, KeyError))
    assert pickle.loads(pickle.dumps(retry)) == retry
    assert "attempts=5" in repr(retry)
    with pytest.raises(AttributeError):
        retry.attempts = 6  # type: ignore[misc]


def test_a_worker_that_decorates_functions_does_not_import_asyncio() -> None:
    code = "import ropewalk, sys; ropewalk.Retry(backoff=0)(len)([]); assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- in a pool --------------------------------------------------------------------------------------------------------


class Temporary(Exception):
    """One after which a task may be run again."""


def raises_temporarily(gate: Gate, attempts: int) -> int:
    gate.mark("attempt")
    count = len(gate.marks("attempt"))
    if count < attempts:
        raise Temporary(count)
    return count


def is_temporary(error: Exception) -> bool:
    return isinstance(error, Temporary)


@pytest.mark.parametrize("on", [Exception, Temporary, (OSError, Temporary), is_temporary, lambda e: True])
def test_a_task_is_run_until_it_returns(pool: Any, gate: Gate, on: Any) -> None:
    future = pool.options(retries=at_once(attempts=5, on=on)).submit(raises_temporarily, gate, 4)
    assert future.result(60) == 4
    assert future.task.attempt == 4
    now = pool.statistics()
    assert (now.retried, now.completed, now.failed, now.delayed) == (3, 1, 0, 0)


@pytest.mark.parametrize("on", [ValueError, (OSError, KeyError), lambda error: False, lambda error: 1 / 0])
def test_a_task_that_raises_something_else_is_not_run_again(pool: Any, gate: Gate, on: Any) -> None:
    future = pool.options(retries=at_once(attempts=5, on=on)).submit(raises_temporarily, gate, 4)
    with pytest.raises(Temporary):
        future.result(60)
    assert future.task.attempt == len(gate.marks("attempt")) == 1
    assert pool.statistics().retried == 0


def cancels(gate: Gate) -> None:
    gate.mark("attempt")
    raise asyncio.CancelledError


def test_a_cancellation_inside_of_a_task_is_not_tried_again(pool: Any, gate: Gate) -> None:
    future = pool.options(retries=at_once(attempts=5)).submit(cancels, gate)
    with pytest.raises(asyncio.CancelledError):
        future.result(60)
    assert len(gate.marks("attempt")) == 1


def test_a_pool_has_a_policy_for_all_its_tasks(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, retries=at_once(attempts=3, on=Temporary))
    assert pool.submit(raises_temporarily, gate, 3).result(60) == 3
    with pytest.raises(ValueError, match="other"):
        pool.submit(tasks.fail, "other").result(60)
    assert pool.statistics().retried == 2
    # A call without arguments, too.
    with pytest.raises(TypeError):
        pool.submit(tasks.fail).result(60)
    assert asyncio.run(pool.run(tasks.square, 3)) == 9


def test_each_input_of_a_map_has_its_own_attempts(pool: Any, gate: Gate) -> None:
    view = pool.options(retries=at_once(attempts=2, on=Temporary))
    assert list(view.map(fails_first, itertools.repeat(gate, 5), range(5))) == list(range(5))
    with pytest.raises(ValueError, match="x"):
        list(view.map(tasks.fail, ["x"]))
    assert pool.statistics().retried == 5


def fails_first(gate: Gate, number: int) -> int:
    gate.mark(f"input{number}")
    if len(gate.marks(f"input{number}")) == 1:
        raise Temporary(number)
    return number


def test_no_worker_is_held_during_a_delay(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    retry = ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none")
    future = pool.options(retries=retry).submit(raises_temporarily, gate, 2)
    until(lambda: pool.statistics().delayed == 1)
    assert pool.submit(tasks.square, 3).result(60) == 9
    now = pool.statistics()
    assert (now.queued, now.running, now.delayed, now.retried) == (0, 0, 1, 0)
    assert not future.done()
    assert not future.running()
    # Neither the wait for it nor its pool hangs: a delayed task can be cancelled.
    with pytest.raises(TimeoutError):
        future.result(0.01)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(60)
    assert pool.statistics().delayed == 0


def test_the_end_of_a_pool_cancels_what_is_delayed(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    for end in ("terminate", "shutdown"):
        pool = make_pool(1, kind=kind)
        retry = ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none")
        future = pool.options(retries=retry).submit(tasks.fail, "x")
        until(lambda: pool.statistics().delayed == 1)  # noqa: B023
        if end == "terminate":
            pool.terminate()
        else:
            pool.shutdown(cancel_futures=True)
        assert future.cancelled()


def test_a_shutdown_waits_for_the_last_run(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    retry = ropewalk.Retry(backoff=0.1, jitter="none")
    future = pool.options(retries=retry).submit(raises_temporarily, gate, 3)
    pool.shutdown()
    assert future.result(0) == 3


def test_a_task_ends_with_its_error_if_its_limit_comes_before_the_next_run(pool: Any, gate: Gate) -> None:
    retry = ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none")
    for view in (
        pool.options(retries=retry, deadline=60),
        pool.options(retries=ropewalk.Retry(backoff=LONG, max_delay=LONG, jitter="none", deadline=60)),
    ):
        future = view.submit(tasks.fail, "x")
        with pytest.raises(ValueError, match="x"):
            future.result(60)
        assert future.task.attempt == 1


def test_a_crash_is_a_failure_unless_told_otherwise(processes: Any, gate: Gate) -> None:
    view = processes.options(retries=at_once(attempts=3))
    assert view.submit(tasks.die_until, gate, 3, 9).result(60) == 3
    future = processes.options(retries=at_once(crashes=False)).submit(os._exit, 3)
    assert isinstance(future.exception(60), ropewalk.WorkerCrashed)
    assert future.task.attempt == 1


def test_a_result_that_cannot_be_pickled_is_judged_as_an_exception(processes: Any, gate: Gate) -> None:
    view = processes.options(retries=at_once(on=ValueError))
    future = view.submit(tasks_result, gate)
    assert isinstance(future.exception(60), ropewalk.ResultEncodeError)
    assert len(gate.marks("attempt")) == 1


def tasks_result(gate: Gate) -> Any:
    gate.mark("attempt")
    return open(os.devnull)


def test_a_plain_number_of_retries_stays_as_it_is(pool: Any, gate: Gate) -> None:
    future = pool.options(retries=2).submit(tasks.raise_until, gate, 3)
    assert future.result(60) == 3
    for wrong in ("2", 1.5, None):
        with pytest.raises(TypeError, match=r"retries must be a whole number or a ropewalk\.Retry, not "):
            pool.options(retries=wrong)
    with pytest.raises(TypeError, match="retries="):
        pool.options(retry=2)


def test_a_predicate_that_refers_to_its_pool_is_collected_with_it() -> None:
    def made() -> weakref.ref[Any]:
        held: list[Any] = []
        pool = ropewalk.Pool(1, kind="thread", retries=at_once(on=lambda error: bool(held)))
        held.append(pool)
        pool.shutdown()
        return weakref.ref(pool)

    known = made()
    until(lambda: (gc.collect(), known() is None)[1])


def test_a_map_and_its_predicate_are_collected(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")

    def made() -> weakref.ref[Any]:
        held: list[Any] = []
        results = pool.options(retries=at_once(on=lambda error: bool(held))).map(tasks.square, range(3))
        held.append(results)
        assert next(results) == 0
        return weakref.ref(results)

    known = made()
    until(lambda: (gc.collect(), known() is None)[1])


def test_a_late_task_behind_another_in_its_worker_is_never_run(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    limited = pool.options(deadline=0.05)
    late = [limited.submit(gate.mark, "late") for _ in range(3)]
    late_map = limited.map(gate.mark, ["late"] * 4, chunksize=2, results=True)
    time.sleep(0.05)  # The deadline itself; what is asserted holds however long it takes.
    gate.open()
    held.result(60)
    for future in late:
        error = future.exception(60)
        assert isinstance(error, ropewalk.TaskTimeout)
        assert (error.limit, error.phase) == ("deadline", "queued")
        assert future.task.attempt == 0
    assert all(isinstance(result.unwrap_err(), ropewalk.TaskTimeout) for result in late_map)
    assert gate.marks("late") == []


@pytest.mark.parametrize("retries", [True, False])
def test_a_number_of_retries_is_no_switch(make_pool: Any, retries: bool) -> None:
    with pytest.raises(TypeError, match=f"retries must be a whole number or a ropewalk.Retry, not {retries}"):
        make_pool(1, kind="thread", retries=retries)
    pool = make_pool(1, kind="thread")
    with pytest.raises(TypeError, match="retries must be a whole number"):
        pool.options(retries=retries)


def test_an_exception_that_is_raised_many_times_has_one_note() -> None:
    error = ConnectionError("the same")
    error.add_note("of the program")

    def fail() -> None:
        raise error

    for _ in range(10):
        with pytest.raises(ConnectionError):
            at_once(attempts=2).call(fail)
        with pytest.raises(ConnectionError):
            at_once(on=broken_predicate).call(fail)
    kept, tries, predicate = error.__notes__
    assert kept == "of the program"
    assert tries.startswith("ropewalk.Retry tried 2 times")
    assert "ZeroDivisionError" in predicate


def broken_predicate(_error: Exception) -> bool:
    raise ZeroDivisionError


class WithoutNotes(Exception):
    """An exception that takes no notes."""

    __notes__ = "x"  # type: ignore[assignment]


def test_a_note_never_replaces_the_exception() -> None:
    def fail() -> None:
        raise WithoutNotes

    for on in (Exception, broken_predicate):
        with pytest.raises(WithoutNotes):
            at_once(attempts=2, on=on).call(fail)


@pytest.mark.parametrize("policy", [ropewalk.Retry, ropewalk.CircuitBreaker])
def test_a_decorator_without_parentheses(policy: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"^{policy.__name__} needs parentheses, as in @{policy.__name__}\(\)"
    ):
        policy(at_once)
