"""`kind="ray"`: a pool on a Ray cluster behaves as one of processes does, and its docs say where it does not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.raycluster import local_cluster

import ropewalk

pytest.importorskip("ray")
np = pytest.importorskip("numpy")

# Ray's own code warns of what it does.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A small cluster that all tests here share: what is tested is the pool."""
    with local_cluster(cpus=4):
        yield


@pytest.fixture
def make(cluster: None, make_pool: Callable[..., Any]) -> Callable[..., Any]:
    """Makes pools on the cluster."""
    return lambda workers=1, **settings: make_pool(workers, kind="ray", **settings)


@pytest.fixture(scope="module")
def shared(cluster: None) -> Iterator[Any]:
    """A pool for tests that leave its workers as they are."""
    with ropewalk.Pool(2, kind="ray") as pool:
        yield pool


# --- calls and results ------------------------------------------------------------------------------------------------


def test_it_runs_what_it_says(shared: Any) -> None:
    future = shared.submit(tasks.where)
    assert future.result()[0] != os.getpid()
    assert (shared.kind, future.task.kind) == ("ray", "ray")
    assert future.task.worker_pid == future.result()[0]
    assert "actors of a Ray cluster" in shared.explain()


def test_every_way_to_submit(shared: Any) -> None:
    assert shared.submit(tasks.capture, 1, b=2).result() == ((1,), {"b": 2})
    assert shared.submit(tasks.identity, None).result() is None
    assert shared.submit_nowait(int).result() == 0
    assert list(shared.map(tasks.square, range(5))) == [0, 1, 4, 9, 16]
    assert list(shared.map(tasks.add, [1, 2], [3, 4])) == [4, 6]
    assert sorted(shared.map_unordered(tasks.square, range(5))) == [0, 1, 4, 9, 16]

    async def coroutine() -> list[int]:
        return [await shared.run(tasks.square, 7), *[each async for each in shared.map(tasks.square, [2])]]

    assert asyncio.run(coroutine()) == [49, 4]


def test_functions_of_any_kind(shared: Any) -> None:
    factor = 3
    assert shared.submit(lambda value: value * factor, 4).result() == 12
    factor = 5
    assert shared.submit(lambda value: value * factor, 4).result() == 20


def test_a_function_that_changes_is_sent_again(shared: Any) -> None:
    cell = [1]

    def read() -> int:
        return cell[0]

    assert shared.submit(read).result() == 1
    cell[0] = 2
    assert shared.submit(read).result() == 2


def test_functions_that_are_gone_are_forgotten(make: Any) -> None:
    pool = make()
    lane = pool._runners and next(each for each in _lanes(pool))
    for number in range(5):
        assert pool.submit(lambda number=number: number).result() == number
    until(lambda: pool.submit(tasks.square, 2).result() == 4 and len(lane._known) <= 2)
    assert len(lane._fleet.functions) <= 2


def _lanes(pool: Any) -> list[Any]:
    return [each._target.__self__ for each in pool._runners if "lane" in each.name]


def test_an_exception_arrives_as_itself_with_its_traceback(shared: Any) -> None:
    error = shared.submit(tasks.fail, "so").exception()
    assert type(error) is ValueError
    assert error.args == ("so",)
    assert "in fail" in str(error.__cause__)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_is_the_tasks(shared: Any, error: BaseException) -> None:
    def leave() -> None:
        raise error

    assert type(shared.submit(leave).exception()) is type(error)


def test_what_cannot_be_sent(shared: Any) -> None:
    assert type(shared.submit(tasks.identity, threading.Lock()).exception()) is ropewalk.EncodeError
    assert type(shared.submit(threading.Lock).exception()) is ropewalk.ResultEncodeError
    array = ropewalk.share(np.zeros(10))
    error = shared.submit(tasks.identity, array).exception()
    assert type(error) is ropewalk.EncodeError
    assert "may be on others" in str(error)


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_unpickled(shared: Any) -> None:
    assert type(shared.submit(tasks.identity, Unloadable()).exception()) is ropewalk.DecodeError
    assert type(shared.submit(lambda: Unloadable()).exception()) is ropewalk.DecodeError
    assert [result.is_ok() for result in shared.map(tasks.identity, [Unloadable(), 1], results=True)] == [
        False,
        True,
    ]


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 1000, 1_000_000])
def test_arrays_go_both_ways(shared: Any, count: int) -> None:
    given = np.arange(count)
    came = shared.submit(np.copy, given).result()
    assert np.array_equal(came, given)
    # A large result is a view of the object store.
    assert came.flags.writeable == (came.nbytes < 1 << 20)
    nested = shared.submit(tasks.capture, [given, {"a": given[::-1]}]).result()
    assert np.array_equal(nested[0][0][1]["a"], given[::-1])


def test_long_bytes_and_many_arrays(shared: Any) -> None:
    whole = bytes(range(256)) * 20_000
    assert shared.submit(tasks.identity, whole).result() == whole
    many = [np.full(2000, number) for number in range(300)]
    assert all(
        np.array_equal(*pair) for pair in zip(many, shared.submit(tasks.identity, many).result(), strict=True)
    )


def _write(array: Any) -> float:
    array[0] = 7
    return float(array[0])


@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_arguments_are_read_only_unless_the_task_may_write(shared: Any, count: int) -> None:
    given = np.zeros(count)
    error = shared.submit(_write, given).exception()
    assert isinstance(error, ValueError)
    assert "pool.options(writable=True)" in error.__notes__[0]
    assert shared.options(writable=True).submit(_write, given).result() == 7.0
    assert given[0] == 0


def test_what_the_caller_changes_later_does_not_reach_the_task(make: Any, gate: Any) -> None:
    pool = make()
    held = pool.submit(gate.hold)
    given = np.zeros(100_000)
    future = pool.submit(np.sum, given)
    given[:] = 1
    gate.open()
    held.result()
    assert future.result() == 0.0


# --- maps in chunks ---------------------------------------------------------------------------------------------------


def _square_or_fail(number: int) -> int:
    if number % 10 == 3:
        raise ValueError(number)
    return number * number


def test_inputs_that_fail_in_a_chunk_fail_alone(shared: Any) -> None:
    results = list(shared.map(_square_or_fail, range(200), chunksize=50, results=True))
    assert [number for number, result in enumerate(results) if not result.is_ok()] == list(range(3, 200, 10))
    assert results[103].unwrap_err().args == (103,)
    assert results[104].unwrap() == 104 * 104


_KEPT: list[int] = []


def _grow(number: int) -> list[int]:
    _KEPT.append(number)
    return _KEPT


def test_results_of_a_chunk_are_as_they_were_returned(shared: Any) -> None:
    results = list(shared.map(_grow, range(6), chunksize=6))
    assert [len(result) for result in results] == list(range(len(results[0]), len(results[0]) + 6))


_ARRAY = np.zeros(4096)


def _mark(number: int) -> Any:
    _ARRAY[:] = number
    return _ARRAY


def test_so_are_arrays(shared: Any) -> None:
    assert [int(array[-1]) for array in shared.map(_mark, range(1, 6), chunksize=5)] == [1, 2, 3, 4, 5]


def test_chunks_grow_by_themselves(shared: Any) -> None:
    before = shared.statistics().submitted
    assert list(shared.map(tasks.square, range(3000))) == [number * number for number in range(3000)]
    assert shared.statistics().submitted - before < 1000


# --- limits, retries, cancellation ------------------------------------------------------------------------------------


def test_a_task_is_run_again(make: Any, gate: Any) -> None:
    def fails_twice() -> int:
        gate.mark("run")
        if len(gate.marks("run")) < 3:
            raise OSError("not yet")
        return len(gate.marks("run"))

    future = make().options(retries=2).submit(fails_twice)
    assert future.result() == 3
    assert future.task.attempt == 3


def test_a_run_that_is_too_long_ends_with_its_actor(make: Any, gate: Any) -> None:
    pool = make()
    first = pool.submit(os.getpid).result()
    error = pool.options(task_timeout=0.3).submit(gate.hold).exception(60)
    assert isinstance(error, ropewalk.TaskTimeout)
    assert (error.limit, error.phase) == ("task_timeout", "running")
    assert pool.submit(os.getpid).result(60) != first
    until(lambda: not _alive(first))
    now = pool.statistics()
    assert (now.timed_out, now.crashed, now.restarted) == (1, 0, 1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_deadline_counts_the_wait(make: Any, gate: Any) -> None:
    pool = make()
    held = pool.submit(gate.hold)
    error = pool.options(deadline=0.1).submit(tasks.square, 2).exception(60)
    assert isinstance(error, ropewalk.TaskTimeout)
    assert (error.limit, error.phase) == ("deadline", "queued")
    gate.open()
    assert held.result()


def test_cancellation(make: Any, gate: Any) -> None:
    pool = make()
    running, waiting = pool.submit(gate.hold), pool.submit(tasks.square, 2)
    until(lambda: gate.marks())
    assert waiting.cancel()
    assert not running.cancel()
    assert running.cancel(running=True)
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert pool.statistics().cancelled == 2


def test_a_cancelled_await_ends_the_task(make: Any, gate: Any) -> None:
    pool = make()

    async def coroutine() -> None:
        task = asyncio.ensure_future(pool.run(gate.hold))
        while not gate.marks():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(coroutine())
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_a_full_queue(make: Any, gate: Any) -> None:
    pool = make(capacity=1, overflow="error")
    held = pool.submit(gate.hold)
    until(held.running)
    waiting = pool.submit(tasks.square, 2)
    with pytest.raises(ropewalk.QueueFull):
        pool.submit(tasks.square, 3)
    gate.open()
    assert waiting.result(60) == 4


def test_priorities(make: Any, gate: Any) -> None:
    pool = make()
    until(pool.submit(gate.hold).running)
    low = pool.options(priority=-1).submit(gate.mark, "order")
    high = pool.options(priority=1).submit(tasks.identity, 1)
    gate.open()
    assert high.result(60) == 1
    assert low.result(60)
    assert high.task.queued_seconds < low.task.queued_seconds


# --- streams ----------------------------------------------------------------------------------------------------------


def _changing() -> Iterator[Any]:
    array = np.zeros(200_000)
    for number in range(4):
        array[:] = number
        yield array


def test_items_are_as_they_were_yielded(shared: Any) -> None:
    assert [int(array[-1]) for array in shared.stream(_changing)] == [0, 1, 2, 3]


def _large(gate: Any) -> Iterator[bytes]:
    for _ in range(20):
        gate.mark("made")
        yield bytes(4 << 20)


def test_large_items_are_bounded_by_their_bytes(make: Any, gate: Any) -> None:
    stream = make().stream(_large, gate)
    assert len(next(stream)) == 4 << 20
    until(lambda: len(gate.marks("made")) >= 4)
    # The first may have been counted as read by now.
    assert len(gate.marks("made")) <= 5
    assert sum(len(item) for item in stream) == 19 * (4 << 20)


def _bad(item: Any, gate: Any) -> Iterator[Any]:
    try:
        yield 1
        yield item()
        yield 3
    finally:
        gate.mark("closed")


@pytest.mark.parametrize(
    ("item", "error"),
    [(threading.Lock, ropewalk.ResultEncodeError), (lambda: Unloadable(), ropewalk.DecodeError)],
)
def test_an_item_that_cannot_travel_ends_the_stream(
    shared: Any, gate: Any, item: Callable[[], Any], error: type[Exception]
) -> None:
    stream = shared.stream(_bad, item, gate)
    assert next(stream) == 1
    with pytest.raises(error):
        next(stream)
    assert len(gate.marks("closed")) == 1
    assert shared.submit(tasks.square, 3).result(60) == 9


def _hold(gate: Any) -> Iterator[int]:
    yield 1
    gate.hold("held")


@pytest.mark.parametrize("how", ["task_timeout", "cancel", "terminate"])
def test_a_stream_that_does_not_stop_ends_with_its_actor(make: Any, gate: Any, how: str) -> None:
    pool = make(task_timeout=2 if how == "task_timeout" else None)
    stream = pool.stream(_hold, gate)
    assert next(stream) == 1
    (pid,) = until(lambda: gate.marks("held"))
    if how == "cancel":
        assert stream.future.cancel(running=True)
    elif how == "terminate":
        pool.terminate()
    assert (
        type(stream.future.exception(60) if how != "cancel" else None)
        is {
            "task_timeout": ropewalk.TaskTimeout,
            "cancel": type(None),
            "terminate": ropewalk.PoolTerminated,
        }[how]
    )
    until(lambda: not _alive(pid))


def _wait_for_argument(number: int) -> Iterator[int]:
    yield from [number] * 5


def test_many_streams_wait_for_workers(shared: Any) -> None:
    streams = [shared.stream(_wait_for_argument, number) for number in range(8)]
    assert [list(stream) for stream in streams] == [[number] * 5 for number in range(8)]


def test_the_end_of_a_pool_stops_its_streams(make: Any, gate: Any) -> None:
    pool = make()
    stream = pool.stream(_bad, int, gate)
    with pool:
        assert next(stream) == 1
        never = pool.stream(iter, int, 1)
        until(lambda: gate.marks("closed"))
    assert gate.marks("closed")
    assert never.future.cancelled()


# --- the life of a pool -----------------------------------------------------------------------------------------------


def test_an_initializer(make: Any) -> None:
    pool = make(2, initializer=tasks.set_status, initargs=("made",))
    assert {pool.submit(tasks.status).result() for _ in range(8)} == {"made"}


def test_an_initializer_that_fails_breaks_the_pool(make: Any) -> None:
    pool = make(initializer=tasks.fail, initargs=("so",))
    error = pool.submit(tasks.square, 2).exception(60)
    assert isinstance(error, ropewalk.InitializerFailed)
    assert isinstance(error.__cause__, ValueError)


def test_a_worker_that_dies_costs_its_task_alone(make: Any) -> None:
    pool = make(2)
    first = pool.submit(os._exit, 3)
    error = first.exception(60)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert "Ray actor is lost" in str(error)
    assert error.call == "posix._exit(3)"
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert pool.statistics().crashed == 1


def test_a_task_with_retries_survives_its_worker(make: Any, gate: Any) -> None:
    future = make().options(retries=1).submit(tasks.die_until, gate, 2, 9)
    assert future.result(60) == 2
    assert future.task.attempt == 2


def test_a_task_that_costs_actor_after_actor_is_quarantined(make: Any) -> None:
    pool = make(retries=9, poison_after=2)
    error = pool.submit(os._exit, 3).exception(60)
    assert isinstance(error, ropewalk.PoisonTask)
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert pool.statistics().crashed == 2


def test_too_many_lost_actors_break_the_pool(make: Any) -> None:
    pool = make(max_restarts=(0, 60))
    future = pool.submit(os._exit, 3)
    assert isinstance(future.exception(60), ropewalk.PoolBroken)
    with pytest.raises(ropewalk.PoolUnhealthy):
        pool.submit(tasks.square, 3)


def test_a_crash_may_break_the_pool(make: Any) -> None:
    pool = make(on_crash="break")
    futures = [pool.submit(os._exit, 3), pool.submit(tasks.square, 2)]
    assert [type(future.exception(60)) for future in futures] == [ropewalk.WorkerCrashed] * 2
    with pytest.raises(ropewalk.PoolBroken):
        pool.submit(tasks.square, 2)


def test_shutdown_finishes_what_was_accepted(make: Any) -> None:
    with make(2) as pool:
        futures = [pool.submit(tasks.square, number) for number in range(10)]
    assert [future.result() for future in futures] == [number * number for number in range(10)]
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 2)


def test_an_end_kills_the_actors(make: Any, gate: Any) -> None:
    pool = make(2)
    running = [pool.submit(gate.hold), pool.submit(gate.hold)]
    until(lambda: len(gate.marks()) == 2)
    waiting = pool.submit(tasks.square, 2)
    pool.terminate()
    assert waiting.cancelled()
    assert [type(future.exception(60)) for future in running] == [ropewalk.PoolTerminated] * 2
    pids = gate.marks()
    until(lambda: not any(map(_alive, pids)))


def test_statistics(make: Any) -> None:
    pool = make(2)
    pids = {pool.submit(os.getpid).result() for _ in range(20)}
    until(lambda: len(pool.statistics().worker_pids) == 2)
    now = pool.statistics()
    assert (now.kind, now.workers, now.completed, now.failed) == ("ray", 2, 20, 0)
    assert pids <= set(now.worker_pids)
    assert [each.private_bytes for each in now.workers_detail] == [0, 0]


def test_a_pool_in_a_runtime(cluster: None) -> None:
    with ropewalk.Runtime(
        {"far": {"kind": "ray", "workers": 1}, "near": {"kind": "thread"}}, default="near"
    ) as runtime:
        assert runtime["far"].submit(os.getpid).result() != os.getpid()


def test_a_pool_waits_for_room_in_the_cluster_and_says_so(make: Any) -> None:
    pool = make(ray_options={"num_cpus": 1000})
    future = pool.submit(tasks.square, 2)
    until(lambda: "waits for a node with room for it (num_cpus=1000)" in pool.explain())
    assert not future.done()
    begin = time.monotonic()
    pool.terminate()
    assert time.monotonic() - begin < 60
    assert future.cancelled()


def _mark_warm() -> None:
    tasks.set_status("warm")


def test_a_worker_is_warmed_up_and_probed(make: Any) -> None:
    pool = make(warmup=_mark_warm, probe=lambda: tasks.status() == "warm")
    assert pool.submit(tasks.status).result() == "warm"


def test_a_worker_that_is_not_fit_gets_no_task(make: Any) -> None:
    pool = make(probe=lambda: False)
    future = pool.submit(tasks.square, 2)
    until(lambda: "its probe returned False" in pool.explain() or future.done())
    assert "its probe returned False" in str(future.exception(60))


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"max_rss": 2}, ValueError, "Use max_tasks or max_age"),
        ({"min_workers": 1, "max_workers": 2}, ValueError, "Call resize() instead"),
        ({"hang_timeout": 2}, ValueError, "Use task_timeout"),
        ({"threads": 2}, ValueError, 'threads must be 1 with kind="ray", not 2'),
        ({"address": 3}, TypeError, "address must be a text"),
        ({"ray_options": 3}, TypeError, "ray_options must be a mapping"),
        ({"ray_options": {"max_restarts": 3}}, ValueError, "cannot have 'max_restarts'"),
        ({"ray_options": {"num_cpu": 3}}, ValueError, "num_cpu"),
        ({"address": "10.0.0.1:1"}, ropewalk.ClusterUnreachable, "a process has one connection"),
    ],
)
def test_settings_that_are_wrong(
    cluster: None, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        ropewalk.Pool(kind="ray", **({} if "max_workers" in settings else {"workers": 1}), **settings)
    assert words in str(caught.value)
