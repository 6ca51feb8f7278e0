"""The laws of the queue, of delays and of circuit breakers, tried with many examples."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from tests.unit.test_breaker import Clock, fails, refused, works
from tests.unit.test_queueing import Order

import ropewalk
import ropewalk._breaker as module

hypothesis: Any = pytest.importorskip("hypothesis")
st: Any = pytest.importorskip("hypothesis.strategies")
stateful: Any = pytest.importorskip("hypothesis.stateful")


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.integers(-1, 1)), max_size=40),
    st.sampled_from(["block", "drop_oldest"]),
)
def test_nothing_is_lost_and_each_client_keeps_its_order(
    submitted: list[tuple[str | None, int]], overflow: Any
) -> None:
    order = Order()
    opened = threading.Event()
    capacity = 10 if overflow == "drop_oldest" else None
    with ropewalk.Pool(1, kind="thread", capacity=capacity, overflow=overflow) as pool:
        started = threading.Event()
        pool.submit(lambda: (started.set(), opened.wait(60)))
        started.wait(60)
        futures = [
            pool.options(client=client, priority=priority).submit(order.note, (client, priority, number))
            for number, (client, priority) in enumerate(submitted)
        ]
        opened.set()
        ended = [future.exception(60) for future in futures]
        now = pool.statistics()
    ran = {number for _, _, number in order.came}
    dropped = {n for n, error in enumerate(ended) if isinstance(error, ropewalk.TaskDropped)}
    assert len(order.came) == len(ran)
    assert ran | dropped == set(range(len(submitted)))
    assert not ran & dropped
    assert len(dropped) == now.dropped == max(0, len(submitted) - (capacity or len(submitted)))
    for key in set(submitted):
        numbers = [n for client, priority, n in order.came if (client, priority) == key]
        assert numbers == sorted(numbers)
    priorities = [priority for _, priority, _ in order.came]
    assert priorities == sorted(priorities, reverse=True)


@hypothesis.settings(max_examples=200)
@hypothesis.given(
    backoff=st.floats(0, 100),
    most=st.floats(0, 1000),
    attempts=st.integers(1, 30),
    jitter=st.sampled_from(["full", "equal", "decorrelated", "none"]),
)
def test_the_laws_of_delays(backoff: float, most: float, attempts: int, jitter: Any) -> None:
    retry = ropewalk.Retry(attempts, backoff=backoff, max_delay=most, jitter=jitter)
    delays = list(retry.delays())
    assert len(delays) == attempts - 1
    last = 0.0
    for number, delay in enumerate(delays):
        whole = min(most, backoff * 2**number)
        least, longest = {
            "none": (whole, whole),
            "full": (0.0, whole),
            "equal": (whole / 2, whole),
            "decorrelated": (min(backoff, most), min(most, 3 * max(last, backoff))),
        }[jitter]
        assert least * 0.999999 <= delay <= longest * 1.000001
        last = delay


class Machine(stateful.RuleBasedStateMachine):
    """A breaker beside a plain model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.before, module.time = module.time, self.clock  # type: ignore[assignment]
        self.breaker = ropewalk.CircuitBreaker(3, window=10, reset=5, half_open=2)
        self.state, self.failures, self.since, self.good = "closed", list[float](), 0.0, 0

    def teardown(self) -> None:
        module.time = self.before

    @stateful.rule(seconds=st.integers(0, 12))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @stateful.rule(fail=st.booleans())
    def call(self, fail: bool) -> None:
        now = self.clock.now
        if self.state == "open" and now >= self.since + 5:
            self.state, self.good = "half-open", 0
        if self.state == "open":
            assert refused(self.breaker).retry_after == self.since + 5 - now
            return
        with contextlib.suppress(ConnectionError):
            self.breaker.call(fails if fail else works)
        if self.state == "half-open":
            self.good += 1
            if fail:
                self.state, self.since = "open", now
            elif self.good == 2:
                self.state, self.failures = "closed", []
        elif fail:
            self.failures = [*(at for at in self.failures if now - at <= 10), now][-3:]
            if len(self.failures) == 3:
                self.state, self.since, self.failures = "open", now, []

    @stateful.rule()
    def trip(self) -> None:
        self.breaker.trip()
        self.state, self.since, self.failures = "open", self.clock.now, []

    @stateful.rule()
    def reset(self) -> None:
        self.breaker.reset()
        self.state, self.failures = "closed", []

    @stateful.invariant()
    def agrees(self) -> None:
        assert self.breaker.state == self.state


TestMachine = Machine.TestCase
TestMachine.settings = hypothesis.settings(max_examples=100, stateful_step_count=40, deadline=None)
