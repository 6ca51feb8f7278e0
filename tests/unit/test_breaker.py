"""`ropewalk.CircuitBreaker`: its states, for sync and async code, threads and tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import signal
import threading
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
import ropewalk._breaker as module


class Clock:
    """Stands in for `time`, so that no test waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def fails() -> None:
    raise ConnectionError("down")


def works() -> str:
    return "up"


def fail(breaker: ropewalk.CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionError):
            breaker.call(fails)


def refused(breaker: ropewalk.CircuitBreaker) -> ropewalk.CircuitOpen:
    with pytest.raises(ropewalk.CircuitOpen) as caught:
        breaker.call(works)
    return caught.value


def opened(**given: Any) -> ropewalk.CircuitBreaker:
    breaker = ropewalk.CircuitBreaker(2, **given)
    fail(breaker, 2)
    assert breaker.state == "open"
    return breaker


def test_it_opens_after_failures_and_says_when_to_try_again(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(3, reset=30, name="search")
    fail(breaker, 2)
    assert (breaker.state, breaker.call(works)) == ("closed", "up")
    fail(breaker)
    assert breaker.state == "open"
    clock.now += 10
    error = refused(breaker)
    assert (error.code, error.breaker, error.retry_after) == ("RW-CIRCUIT-OPEN", "search", 20)
    assert "'search' is open" in str(error)
    assert "try again in 20 s" in str(error)
    now = breaker.statistics()
    assert (now.state, now.succeeded, now.failed, now.refused, now.opened) == ("open", 1, 3, 1, 1)
    assert now.retry_after == 20


def test_a_trial_closes_it_or_opens_it_again(clock: Clock) -> None:
    breaker = opened(reset=30)
    clock.now += 30
    assert (breaker.state, breaker.statistics().retry_after) == ("open", 0)
    fail(breaker)
    assert (breaker.state, breaker.statistics().opened) == ("open", 2)
    assert refused(breaker).retry_after == 30
    clock.now += 30
    assert breaker.call(works) == "up"
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "closed", "it has forgotten its failures"


def test_so_many_trials_at_once_must_succeed(clock: Clock) -> None:
    breaker = opened(reset=30, half_open=2)
    clock.now += 30
    with breaker:
        assert breaker.state == "half-open"
        with breaker:
            refused(breaker)
        assert breaker.state == "half-open"
        with breaker:
            pass
        assert breaker.state == "closed"
    assert breaker.state == "closed"


def test_a_trial_that_never_ends_does_not_keep_it_half_open_for_ever(clock: Clock) -> None:
    breaker = opened(reset=30)
    clock.now += 30
    lost = breaker.__enter__()
    assert lost.state == "half-open"
    assert refused(breaker).retry_after == 30
    clock.now += 30
    assert breaker.call(works) == "up"
    assert breaker.state == "closed"
    # What comes of the lost one says nothing any more.
    breaker.__exit__(ConnectionError, ConnectionError(), None)
    assert breaker.statistics().failures == 0


def test_failures_count_within_the_window_only(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(2, window=60)
    fail(breaker)
    clock.now += 61
    fail(breaker)
    assert (breaker.state, breaker.statistics().failures) == ("closed", 1)
    clock.now += 60
    fail(breaker)
    assert breaker.state == "open"


def test_a_call_from_before_a_change_does_not_count_after_it(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(1, reset=30)
    with contextlib.suppress(ConnectionError), breaker:
        fail(breaker)
        breaker.reset()
        raise ConnectionError
    assert (breaker.state, breaker.statistics().failed) == ("closed", 2)


def test_by_hand(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(reset=30)
    breaker.trip()
    assert (breaker.state, refused(breaker).retry_after) == ("open", 30)
    assert "is open, because trip() has opened it: try again in 30 s" in str(refused(breaker))
    clock.now += 10
    breaker.trip()
    assert refused(breaker).retry_after == 30
    breaker.reset()
    assert (breaker.state, breaker.call(works), breaker.statistics().opened) == ("closed", "up", 1)
    fail(breaker, 5)
    assert "because what it guards keeps failing" in str(refused(breaker))


@pytest.mark.parametrize(
    ("on", "error", "counts"),
    [
        (OSError, ConnectionError(), True),
        ((KeyError, OSError), ConnectionError(), True),
        (OSError, ValueError(), False),
        (lambda error: "down" in str(error), ValueError("down"), True),
        (lambda error: "down" in str(error), ValueError("wrong"), False),
        (lambda error: 1 / 0, ValueError("wrong"), False),
        (Exception, asyncio.CancelledError(), False),
        (Exception, KeyboardInterrupt(), False),
    ],
)
def test_what_counts_as_a_failure(clock: Clock, on: Any, error: BaseException, counts: bool) -> None:
    def raises() -> None:
        raise error

    breaker = ropewalk.CircuitBreaker(1, on=on)
    with pytest.raises(type(error)):
        breaker.call(raises)
    assert breaker.state == ("open" if counts else "closed")
    succeeded = not counts and isinstance(error, Exception)
    assert (breaker.statistics().succeeded, breaker.statistics().failed) == (succeeded, counts)


def test_another_exception_of_a_trial_is_an_answer_and_a_cancellation_is_none(clock: Clock) -> None:
    def cancelled() -> None:
        raise asyncio.CancelledError

    def wrong() -> None:
        raise ValueError

    breaker = opened(on=ConnectionError, reset=30)
    clock.now += 30
    with pytest.raises(asyncio.CancelledError):
        breaker.call(cancelled)
    assert breaker.state == "half-open"
    with pytest.raises(ValueError):
        breaker.call(wrong)
    assert breaker.state == "closed"


def test_decorators_of_functions_methods_and_coroutine_functions(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(2)

    class Service:
        @breaker
        def ask(self, word: str) -> str:
            """Its own text."""
            return word

        @breaker
        async def ask_later(self, word: str) -> str:
            if word == "fail":
                raise ConnectionError
            return word

    async def main() -> None:
        service = Service()
        assert await service.ask_later("x") == "x"
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await service.ask_later("fail")
        with pytest.raises(ropewalk.CircuitOpen):
            await service.ask_later("x")
        with pytest.raises(ropewalk.CircuitOpen):
            async with breaker:
                pytest.fail("the block was entered")
        breaker.reset()
        async with breaker:
            pass
        assert await breaker.call_async(service.ask_later, "y") == "y"

    assert Service().ask("x") == "x"
    assert Service.ask.__doc__ == "Its own text."
    asyncio.run(main())


def test_each_task_of_a_loop_leaves_its_own_block(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(3)

    async def one(fails: bool, turns: int) -> None:
        async with breaker:
            for _ in range(turns):
                await asyncio.sleep(0)
            if fails:
                raise ConnectionError

    async def main() -> None:
        calls = [one(number % 2 == 0, number % 3) for number in range(4)]
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(main())
    now = breaker.statistics()
    assert (now.succeeded, now.failed, now.failures) == (2, 2, 2)


def test_events_tell_of_each_change(clock: Clock) -> None:
    with ropewalk.events.subscribe("breaker.*") as changes:
        breaker = opened(reset=30, name="told")
        clock.now += 30
        fail(breaker)
        clock.now += 30
        breaker.call(works)
        breaker.trip()
        breaker.trip()
        breaker.reset()
        told = [changes.recv(timeout=30) for _ in range(7)]
    assert {event.breaker for event in told} == {"told"}
    assert [(event.topic, event.reason) for event in told] == [
        ("breaker.opened", "failures"),
        ("breaker.half_open", "time"),
        ("breaker.opened", "trial failed"),
        ("breaker.half_open", "time"),
        ("breaker.closed", "trials succeeded"),
        ("breaker.opened", "trip"),
        ("breaker.closed", "reset"),
    ]


def test_a_listener_without_room_and_one_that_uses_the_breaker(clock: Clock) -> None:
    with ropewalk.events.subscribe("breaker.*", capacity=1, overflow="error"):
        breaker = ropewalk.CircuitBreaker(1)
        for _ in range(5):
            breaker.trip()
            breaker.reset()
    seen = []

    def close(event: Any) -> None:
        seen.append((event.topic, breaker.state))
        breaker.reset()

    ropewalk.events.on("breaker.opened")(close)
    try:
        fail(breaker)
        until(lambda: seen)
        until(lambda: breaker.state == "closed")
    finally:
        ropewalk.events.off(close)
    assert seen == [("breaker.opened", "open")]


def test_a_predicate_and_a_signal_handler_may_use_the_breaker(clock: Clock) -> None:
    breaker: ropewalk.CircuitBreaker

    def asks(error: Exception) -> bool:
        # From another thread, too: the lock is not held.
        thread = threading.Thread(target=breaker.statistics)
        thread.start()
        thread.join(30)
        return not thread.is_alive()

    breaker = ropewalk.CircuitBreaker(1, on=asks)
    fail(breaker)
    assert breaker.state == "open"
    before = signal.signal(signal.SIGALRM, lambda *_: breaker.statistics())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(2000):
            breaker.reset()
            breaker.call(works)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_threads_lose_no_count() -> None:
    breaker = ropewalk.CircuitBreaker(10**6)

    def calls() -> None:
        for number in range(500):
            with contextlib.suppress(ConnectionError):
                breaker.call(fails if number % 2 else works)

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = breaker.statistics()
    assert (now.succeeded, now.failed, now.failures) == (2000, 2000, 2000)


def test_around_a_pool(make_pool: Any) -> None:
    pool = make_pool(1, kind="thread")
    breaker = ropewalk.CircuitBreaker(2, on=ValueError)

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="x"):
                await breaker.call_async(pool.run, tasks.fail, "x")
        with pytest.raises(ropewalk.CircuitOpen):
            await breaker.call_async(pool.run, tasks.square, 2)

    asyncio.run(main())
    assert pool.statistics().submitted == 2


def test_with_retries(clock: Clock) -> None:
    breaker = ropewalk.CircuitBreaker(2)
    retried = ropewalk.Retry(attempts=5, backoff=0, on=ConnectionError)(breaker(fails))
    with pytest.raises(ropewalk.CircuitOpen):
        retried()
    assert breaker.statistics().failed == 2


def test_a_copy_in_another_process_starts_closed(clock: Clock) -> None:
    breaker = opened(name="sent", on=(OSError,), reset=7, window=8, half_open=3)
    copy = pickle.loads(pickle.dumps(breaker))
    assert (copy.state, copy.name) == ("closed", "sent")
    fail(copy, 2)
    assert (copy.state, copy.statistics().retry_after) == ("open", 7)
    error = pickle.loads(pickle.dumps(refused(copy)))
    assert (error.breaker, error.retry_after) == ("sent", 7)


def test_it_can_be_collected() -> None:
    import weakref

    breaker = ropewalk.CircuitBreaker(1)
    with breaker:
        pass
    known = weakref.ref(breaker)
    del breaker
    gc.collect()
    assert known() is None


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"failures": 0}, ValueError, "failures must be 1 or more, not 0"),
        ({"window": -1}, ValueError, "window must be 0 or more seconds, not -1"),
        ({"reset": None}, TypeError, "reset must be a number of seconds, not None"),
        ({"half_open": 0}, ValueError, "half_open must be 1 or more, not 0"),
        ({"on": BaseException}, TypeError, "on must be subclasses of Exception"),
        ({"name": 3}, TypeError, "name must be a text or None, not 3"),
        (
            {"fail_max": 3},
            TypeError,
            r"CircuitBreaker\(\) has no argument 'fail_max': Ropewalk has failures=",
        ),
        ({"failure": 3}, TypeError, r"unexpected keyword argument 'failure': did you mean failures=\?"),
        ({"colour": 3}, TypeError, "It has failures, window, reset, half_open, on, name"),
    ],
)
def test_wrong_breakers(given: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        ropewalk.CircuitBreaker(**given)


def test_a_generator_function_cannot_be_decorated() -> None:
    def numbers() -> Any:
        yield 1

    with pytest.raises(TypeError, match="cannot decorate the generator function"):
        ropewalk.CircuitBreaker()(numbers)
    with pytest.raises(TypeError, match="CircuitBreaker decorates a function, not 3"):
        ropewalk.CircuitBreaker()(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [ropewalk.CircuitBreaker(failures=1), ropewalk.Retry(3, backoff=0)])
@pytest.mark.filterwarnings("error")
def test_call_runs_no_coroutine_function(policy: Any) -> None:
    async def fail() -> None:
        raise ConnectionError

    with pytest.raises(TypeError, match=r"fail is a coroutine: await call_async\(\.\.\.\) instead"):
        policy.call(fail)
