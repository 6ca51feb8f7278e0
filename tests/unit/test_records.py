"""The records of tasks that have ended, and the histograms of their times."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk.pool.parent._records import Histogram, histogram_of


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def kill_own(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Callable_:
    def __call__(self) -> int:
        return 1


def test_the_last_tasks_have_records(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind, records=3)
    before = time.time()
    futures = [pool.submit(tasks.square, n) for n in range(5)]
    assert [future.result(60) for future in futures] == [0, 1, 4, 9, 16]
    records = pool.records()
    assert records == tuple(future.task for future in futures[2:]), (
        "the newest at the end, and no other class"
    )
    for record in records:
        assert (record.kind, record.attempt, record.outcome, record.cause) == (kind, 1, "returned", None)
        assert record.function == f"{tasks.__name__}.square"
        assert before - 1 <= record.queued_at <= record.started_at <= record.finished_at <= time.time() + 1
        assert record.finished_at >= record.started_at + record.busy_seconds * 0.99 - 1e-5
        assert (record.bytes_sent > 0, record.bytes_received > 0) == (kind != "thread",) * 2
        assert (record.worker_id is None) == (kind == "thread")
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.outcome = "raised"
    assert futures[0].task.id == 1, "a future keeps its own"


def test_a_pool_may_keep_none(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind, records=0)
    future = pool.submit(tasks.square, 3)
    assert future.result(60) == 9
    assert pool.records() == ()
    assert future.task.outcome == "returned"
    assert pool.statistics().total_times.count == 1


@pytest.mark.parametrize("records", [-1, 1_000_001, 1.5, "all", None])
def test_their_number_is_checked(records: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="records"):
        ropewalk.Pool(1, records=records)


def test_other_names_are_understood() -> None:
    with pytest.raises(TypeError, match="records="):
        ropewalk.Pool(1, history=10)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cpu_time"):
        ropewalk.Pool(1, cpu_time="yes")  # type: ignore[arg-type]


def test_outcomes(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind, retries=1)
    with pytest.raises(ValueError, match="told"):
        pool.submit(tasks.fail, "told").result(60)
    raised = pool.records()[-1]
    assert (raised.outcome, raised.cause, raised.attempt) == ("raised", None, 2)
    late = pool.options(deadline=0.05).submit(time.sleep, 0.5)
    with pytest.raises(ropewalk.TaskTimeout):
        late.result(60)
    record = late.task
    assert (record.outcome, record.started_at is not None) == ("timed out", True)
    assert record.cause is not None
    assert "deadline" in record.cause
    assert record.finished_at - record.queued_at >= 0.05


def test_a_crash_is_told(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    before = pool.submit(os.getpid).result(60)
    worker = pool.statistics().workers_detail[0].id
    future = pool.submit(kill_own)
    with pytest.raises(ropewalk.WorkerCrashed):
        future.result(60)
    record = pool.records()[-1]
    assert record == future.task
    assert (record.outcome, record.worker_pid, record.worker_id) == ("crashed", before, worker)
    assert record.function == f"{__name__}.kill_own"
    assert record.cause is not None
    assert "signal 9" in record.cause
    assert record.started_at is not None
    assert record.queued_at <= record.started_at <= record.finished_at


def test_processor_time(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    for _ in range(2):
        burnt = pool.submit(burn, 0.02)
        slept = pool.submit(time.sleep, 0.02)
        burnt.result(60), slept.result(60)
        assert 0.02 <= burnt.task.cpu_seconds <= burnt.task.busy_seconds
        assert slept.task.cpu_seconds < slept.task.busy_seconds


def test_short_calls_are_not_measured_unless_they_are_to_be(make_pool: Callable[..., Any], kind: str) -> None:
    always = make_pool(1, kind=kind, cpu_time=True)
    seldom = make_pool(1, kind=kind)
    # Each call takes a microsecond; a busy machine may stretch some of them.
    until(lambda: seldom.submit(abs, -1).result(60) == 1 and seldom.records()[-1].cpu_seconds is None)
    for _ in range(300):
        always.submit(abs, -1).result(60)
    assert all(record.cpu_seconds is not None for record in always.records())


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (abs, "abs"),
        (tasks.square, f"{tasks.__name__}.square"),
        (functools.partial(tasks.square, 3), f"functools.partial({tasks.__name__}.square, ...)"),
        (dict, "dict"),
        ("".join, "str.join"),
    ],
)
def test_names(make_pool: Callable[..., Any], kind: str, call: Any, name: str) -> None:
    pool = make_pool(1, kind=kind)
    arguments = {abs: (-1,), tasks.square: (2,), dict: ()}.get(
        call, () if isinstance(call, functools.partial) else ("ab",)
    )
    for _ in range(2):
        pool.submit(call, *arguments).result(60)
    assert [record.function for record in pool.records()] == [name, name]


def test_functions_of_one_name_are_told_apart(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    for module in ("a", "b"):
        function = eval("lambda: 1")
        function.__qualname__ = sys.intern("same")
        function.__module__ = module
        pool.submit(function).result(60)
    assert [record.function for record in pool.records()] == ["a.same", "b.same"]


def test_a_thread_calls_an_object_by_its_class(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    pool.submit(Callable_()).result(60)
    assert pool.records()[-1].function == f"{__name__}.Callable_"


def test_bytes_beside_the_record_count(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    data = bytearray(3 << 20)
    assert pool.submit(len, data).result(60) == len(data)
    assert pool.submit(bytes, 2 << 20).result(60) == bytes(2 << 20)
    sent, received = pool.records()
    assert len(data) <= sent.bytes_sent < len(data) + 2000
    assert sent.bytes_received < 100
    assert 2 << 20 <= received.bytes_received < (2 << 20) + 2000
    assert received.bytes_sent < 2000
    small = pool.submit(tasks.square, 3)
    small.result(60)
    assert small.task.bytes_received < 20, "the times of the call are not part of the result"


# --- histograms -------------------------------------------------------------------------------------------------------


def test_statistics_have_histograms(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    for _ in range(3):
        pool.submit(time.sleep, 0.01).result(60)
    pool.submit(tasks.square, 2).result(60)
    statistics = pool.statistics()
    for times in (statistics.queueing_times, statistics.run_times, statistics.total_times):
        assert times.count == 4
        assert times.min <= times.quantile(0.5) <= times.max
        assert times.buckets()[-1] == (math.inf, 4)
    run = statistics.run_times
    assert 0.03 <= run.sum == pytest.approx(statistics.busy_seconds)
    assert run.min < 0.01 <= run.quantile(0.5)
    assert statistics.total_times.sum >= run.sum


def test_an_empty_histogram() -> None:
    empty = histogram_of((0, 0, 0, 0, []))
    assert (empty.count, empty.sum, empty.min, empty.max) == (0, 0.0, None, None)
    assert (empty.quantile(0.5), {count for _, count in empty.buckets()}) == (None, {0})


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_is_a_part(q: float) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        histogram_of((0, 0, 0, 0, [])).quantile(q)


def filled(times: list[int]) -> Histogram:
    """Makes a histogram of times in nanoseconds, with the widest buckets that there are."""
    counts: dict[tuple[int, int], int] = {}
    for time_ in times:
        shift = max(0, (time_ - 1).bit_length() - 5)
        above = (time_ - 1) >> shift << shift
        bounds = (above, above + (1 << shift))
        counts[bounds] = counts.get(bounds, 0) + 1
    buckets = [(above, upto, count) for (above, upto), count in sorted(counts.items())]
    return histogram_of((len(times), sum(times), min(times), max(times), buckets))


def test_quantiles_are_close() -> None:
    times = [n * n * 7 + 1 for n in range(1, 5000)]
    histogram = filled(times)
    for q in (0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1):
        exact = sorted(times)[max(0, math.ceil(q * len(times)) - 1)] / 1e9
        assert histogram.quantile(q) == pytest.approx(exact, rel=0.033)


def test_counts_are_cumulative_and_exact_at_the_bounds() -> None:
    times = [1, 1024, 1025, 2048, 5000, 1 << 40, (1 << 40) + 1, 1 << 50]
    bounds = filled(times).buckets()
    assert len(bounds) == 32
    for bound, count in bounds:
        assert count == sum(time_ / 1e9 <= bound for time_ in times)
    assert [bound for bound, _ in bounds] == [bound for bound, _ in histogram_of((0, 0, 0, 0, [])).buckets()]
