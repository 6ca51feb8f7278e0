"""One suite over every kind of pool: what they have in common, and each difference that the docs list.

A new kind adds its line to `tests/kinds.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.kinds import DIFFERENCES, KINDS, Kind
from tests.polling import until
from tests.raycluster import local_cluster
from tests.tasks import Gate

import ropewalk

SOON = 60
# Ray's own code warns of what it does.
_OF_RAY = pytest.mark.filterwarnings("default")
_HERE = [
    pytest.param(kind, marks=_OF_RAY if kind.is_remote else (), id=kind.name)
    for kind in KINDS
    if not kind.missing
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with local_cluster(cpus=4):
        yield


@pytest.fixture(params=_HERE)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    if value.is_remote:
        request.getfixturevalue("cluster")
    return value


@pytest.fixture
def make(make_pool: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    """Makes pools of a kind."""
    return lambda workers=2, **settings: make_pool(workers, **kind.settings, **settings)


def has(what: str, kind: Kind) -> bool:
    return kind.settings["kind"] in DIFFERENCES[what]


# --- what is alike ----------------------------------------------------------------------------------------------------


def test_a_pool_is_an_executor_that_says_its_kind(make: Callable[..., Any], kind: Kind) -> None:
    pool = make()
    assert isinstance(pool, concurrent.futures.Executor)
    future = pool.submit(tasks.add, 1, right=2)
    assert future.result(SOON) == 3
    assert pool.kind == future.task.kind == pool.statistics().kind == kind.settings["kind"]


def test_functions_of_every_sort(make: Callable[..., Any]) -> None:
    base = 10
    pool = make()
    futures = [pool.submit(pow, 2, 5), pool.submit(lambda n: n + base, 5), pool.submit("a-b".split, "-")]
    assert [future.result(SOON) for future in futures] == [32, 15, ["a", "b"]]


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_map_is_the_builtin_map(make: Callable[..., Any], count: int) -> None:
    pool = make()
    inputs = range(count)
    assert list(pool.map(tasks.square, inputs)) == list(map(tasks.square, inputs))
    assert list(pool.map(tasks.add, inputs, reversed(inputs), chunksize=3)) == [count - 1] * count
    assert sorted(pool.map_unordered(tasks.square, inputs)) == list(map(tasks.square, inputs))
    results = pool.map(tasks.square, inputs)
    assert len(results) == count
    results.close()
    assert list(results) == []


def test_a_failed_input_raises_in_its_turn(make: Callable[..., Any]) -> None:
    results = make().map(lambda n: 6 // n, [3, 0, 2])
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert next(results) == 3


def test_an_exception_is_itself_and_names_the_users_line(make: Callable[..., Any], kind: Kind) -> None:
    error = make().submit(tasks.fail, "as it is").exception(SOON)
    assert (type(error), error.args) == (ValueError, ("as it is",))
    if has("workers have objects of their own", kind):
        assert 'tasks.py", line' in str(error.__cause__)


def test_what_waits_is_cancelled_and_goes_by_priority(
    make: Callable[..., Any], kind: Kind, gate: Gate
) -> None:
    pool = make(1)
    held = [pool.submit(gate.hold, "held") for _ in range(kind.settings.get("threads", 1))]
    until(lambda: len(gate.marks("held")) == len(held))
    # The first that waits may lie with the worker already.
    first = pool.submit(gate.mark, "first")
    low = pool.options(priority=-1).submit(gate.mark, "low")
    high = pool.options(priority=1).submit(gate.mark, "high")
    dropped = pool.submit(gate.mark, "dropped")
    assert dropped.cancel()
    assert not held[0].cancel()
    gate.open()
    assert (first.exception(SOON), low.exception(SOON), high.exception(SOON)) == (None, None, None)
    assert gate.marks("dropped") == []
    if len(held) == 1:
        assert high.task.queued_seconds < low.task.queued_seconds


def test_limits_of_time(make: Callable[..., Any], gate: Gate) -> None:
    pool = make(1)
    late = pool.options(task_timeout=0.05).submit(gate.hold, "late")
    with pytest.raises(ropewalk.TaskTimeout, match="task_timeout"):
        late.result(SOON)
    held = pool.submit(gate.hold, "held")
    overdue = pool.options(deadline=0.05).submit(gate.hold, "overdue")
    with pytest.raises(ropewalk.TaskTimeout) as raised:
        overdue.result(SOON)
    assert raised.value.limit == "deadline"
    gate.open()
    assert held.exception(SOON) is None


def test_retries_run_again_and_count(make: Callable[..., Any], gate: Gate) -> None:
    pool = make()
    future = pool.options(retries=3).submit(tasks.raise_until, gate, 3)
    assert (future.result(SOON), future.task.attempt) == (3, 3)
    assert pool.options(retries=1).submit(tasks.raise_until, gate, 99).exception(SOON) is not None


def test_initializers(make: Callable[..., Any]) -> None:
    before = tasks.STATUS
    try:
        pool = make(initializer=tasks.set_status, initargs=("set",))
        assert {pool.submit(tasks.status).result(SOON) for _ in range(10)} == {"set"}
        broken = make(initializer=tasks.fail, initargs=("no",))
        with pytest.raises(ropewalk.PoolBroken):
            broken.submit(tasks.square, 1).result(SOON)
    finally:
        tasks.STATUS = before


def test_ends(make: Callable[..., Any], gate: Gate) -> None:
    with make() as pool:
        futures = [pool.submit(tasks.square, n) for n in range(100)]
    assert [future.result(0) for future in futures] == [n * n for n in range(100)]
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 1)
    pool = make(1)
    held = pool.submit(gate.hold, "ends")
    until(lambda: gate.marks("ends"))
    # They hold the other threads of the worker, too.
    waiting = [pool.submit(gate.hold, "behind") for _ in range(50)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert any(future.cancelled() for future in waiting)
    gate.open()
    assert held.exception(SOON) is None
    pool.shutdown()


def test_terminate_fails_what_runs(make: Callable[..., Any], gate: Gate) -> None:
    pool = make(1)
    held = pool.submit(gate.hold, "terminated")
    until(lambda: gate.marks("terminated"))
    waiting = [pool.submit(tasks.square, n) for n in range(50)]
    pool.terminate()
    assert isinstance(held.exception(SOON), ropewalk.PoolTerminated)
    assert all(future.done() for future in waiting)


def test_counters_add_up(make: Callable[..., Any]) -> None:
    pool = make()
    done = [pool.submit(tasks.square, n) for n in range(20)] + [pool.submit(tasks.fail, "x")]
    concurrent.futures.wait(done, SOON)
    now = pool.statistics()
    assert (now.submitted, now.completed, now.failed, now.running, now.queued) == (21, 20, 1, 0, 0)


def _count(n: int) -> Generator[int, None, str]:
    yield from range(n)
    return f"counted {n}"


async def _count_asynchronously(n: int) -> AsyncIterator[int]:
    for number in range(n):
        await asyncio.sleep(0)
        yield number


def _fail_after(n: int) -> Iterator[int]:
    yield from range(n)
    raise KeyError("after the items")


def _endless(gate: Gate) -> Iterator[int]:
    number = 0
    try:
        while True:
            gate.mark("made")
            yield number
            number += 1
    finally:
        gate.mark("closed")


def _hold_after(gate: Gate) -> Iterator[int]:
    yield 1
    gate.hold("between")
    yield 2


def test_streams_have_their_items_in_order_and_a_value(make: Callable[..., Any]) -> None:
    pool = make()
    with pool.stream(_count, 3000) as stream:
        assert list(stream) == list(range(3000))
        assert stream.value == stream.future.result(SOON) == "counted 3000"
    assert list(pool.stream(_count_asynchronously, 10)) == list(range(10))
    assert list(pool.stream(map, tasks.square, range(3))) == [0, 1, 4]
    assert list(pool.stream(iter, [])) == []


def test_an_item_comes_before_the_next_one_is_made(make: Callable[..., Any], gate: Gate) -> None:
    stream = make().stream(_hold_after, gate)
    assert next(stream) == 1
    until(lambda: gate.marks("between"))
    gate.open()
    assert list(stream) == [2]


def test_an_error_comes_after_the_items_before_it(make: Callable[..., Any]) -> None:
    pool = make()
    stream = pool.options(retries=3).stream(_fail_after, 5)
    assert [next(stream) for _ in range(5)] == list(range(5))
    with pytest.raises(KeyError, match="after the items"):
        next(stream)
    assert list(stream) == []
    with pytest.raises(TypeError, match="a stream needs a generator function"):
        list(pool.stream(abs, 1))


def test_a_generator_is_only_so_far_ahead_of_its_reader(make: Callable[..., Any], gate: Gate) -> None:
    with make().options(buffersize=10).stream(_endless, gate) as stream:
        for number in range(30):
            assert next(stream) == number
            assert len(gate.marks("made")) - (number + 1) <= 10
        until(lambda: len(gate.marks("made")) >= 40 - 10 // 4)
        assert len(gate.marks("made")) <= 40
    until(lambda: gate.marks("closed"))


@pytest.mark.parametrize("leave", ["close", "drop", "request_cancel"])
def test_a_reader_that_leaves_stops_the_generator(make: Callable[..., Any], gate: Gate, leave: str) -> None:
    pool = make(1)
    stream = pool.stream(_endless, gate)
    future = stream.future
    assert next(stream) == 0
    if leave == "close":
        stream.close()
        assert list(stream) == []
    elif leave == "request_cancel":
        assert future.request_cancel()
    del stream
    until(lambda: gate.marks("closed"))
    until(future.cancelled)
    assert pool.submit(tasks.square, 3).result(SOON) == 9
    assert pool.statistics().cancelled == 1


def test_a_loop_reads_streams(make: Callable[..., Any], gate: Gate) -> None:
    pool = make()

    async def read() -> list[int]:
        endless = pool.stream(_endless, gate)
        async for number in endless:
            if number == 50:
                break
        await endless.aclose()
        return [number async for number in pool.stream(_count, 200)]

    assert asyncio.run(read()) == list(range(200))
    until(lambda: gate.marks("closed"))


def test_records_know_the_begin_and_the_process(make: Callable[..., Any]) -> None:
    pool = make(records=10)
    assert pool.submit(tasks.square, 3).result(SOON) == 9
    list(pool.stream(_count, 3))
    pool.submit(tasks.fail, "x").exception(SOON)
    assert [record.outcome for record in pool.records()] == ["returned", "returned", "raised"]
    for record in pool.records():
        assert record.worker_pid > 0
        assert record.started_at is not None
        assert record.queued_at <= record.started_at <= record.finished_at
    known = {worker.id for worker in pool.statistics().workers_detail}
    assert {record.worker_id for record in pool.records()} <= (known or {None})


def _append(number: int) -> list[int]:
    state: list[int] = ropewalk.current_session().state
    state.append(number)
    return list(state)


def test_sessions(make: Callable[..., Any]) -> None:
    pool = make()
    with pool.session("one", list, mode="queue") as session:
        assert [session.submit(_append, number).result(SOON) for number in range(3)] == [
            [0],
            [0, 1],
            [0, 1, 2],
        ]
    with pytest.raises(ropewalk.SessionClosed):
        session.submit(_append, 3)
    with pytest.raises(RuntimeError, match="there is no session here"):
        pool.submit(_append, 1).result(SOON)


def test_actors(make: Callable[..., Any]) -> None:
    with make().actor(list, [3, 1, 2]) as actor:
        actor.sort()
        assert [actor.pop().result(SOON) for _ in range(3)] == [3, 2, 1]
        with pytest.raises(IndexError):
            actor.pop().result(SOON)


def _double(n: int) -> int:
    return 2 * n


def _ask(n: int) -> tuple[int, int]:
    task = ropewalk.current_task()
    assert task is not None
    task.progress(n, 10)
    answer: int = task.call("double", n)
    return task.attempt, answer


def test_tasks_know_themselves_and_call_the_program(make: Callable[..., Any]) -> None:
    pool = make(calls={"double": _double})
    futures = [pool.submit(_ask, n) for n in range(20)]
    assert [future.result(SOON) for future in futures] == [(1, 2 * n) for n in range(20)]
    assert [future.progress.done for future in futures] == list(range(20))
    pool.expose("later", _double)
    assert pool.submit(_ask, 4).result(SOON) == (1, 8)


def _thread(gate: Gate) -> int:
    gate.hold("thread")
    return threading.get_native_id()


def test_a_threads_tasks_stay_on_one_thread_of_the_system(
    make: Callable[..., Any], kind: Kind, gate: Gate
) -> None:
    # Libraries keep state by thread of the operating system: NumPy's error modes, torch's streams.
    lanes = kind.settings.get("threads", 1)
    pool = make(1)
    first = [pool.submit(_thread, gate) for _ in range(lanes)]
    until(lambda: len(gate.marks("thread")) == lanes)
    gate.open()
    threads = {future.result(SOON) for future in first}
    assert len(threads) == lanes
    assert {pool.submit(threading.get_native_id).result(SOON) for _ in range(50)} <= threads


_INTERRUPTED = """
import os, signal, sys, threading, time
import ropewalk
from tests.polling import until
from tests.raycluster import local_cluster

def run(path):
    open(path, "w").close()
    time.sleep(3)

if __name__ == "__main__":
    settings, path = eval(sys.argv[1]), sys.argv[2]
    with ropewalk.Pool(1, grace=0.1, **settings) as pool:
        future = pool.submit(run, path)
        until(lambda: os.path.exists(path))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        future.result()
"""


def test_an_interrupt_ends_the_program(kind: Kind, tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    done = subprocess.run(
        [sys.executable, str(script), repr(kind.settings), str(tmp_path / "runs")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert "KeyboardInterrupt" in done.stderr


# --- the differences --------------------------------------------------------------------------------------------------


def test_a_running_task_can_be_ended(make: Callable[..., Any], kind: Kind, gate: Gate) -> None:
    pool = make(1)
    held = pool.submit(gate.hold, "running")
    until(lambda: gate.marks("running"))
    assert held.cancel(running=True) == has("a running task can be ended", kind)
    gate.open()
    assert pool.submit(tasks.square, 2).result(SOON) == 4


def test_a_crash(make: Callable[..., Any], kind: Kind) -> None:
    if not has("a worker that crashes costs only its tasks", kind):
        return  # It would end the tests.
    pool = make(1)
    assert isinstance(pool.submit(tasks.segfault).exception(SOON), ropewalk.WorkerCrashed)
    assert pool.submit(tasks.square, 2).result(SOON) == 4


def test_objects(make: Callable[..., Any], kind: Kind) -> None:
    given: list[int] = []
    make().submit(given.append, 1).result(SOON)
    assert given == ([] if has("workers have objects of their own", kind) else [1])


def _setenv(name: str) -> None:
    os.environ[name] = "of a task"


def test_the_environment(make: Callable[..., Any], kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ROPEWALK_TEST_OF_KINDS"
    monkeypatch.setenv(name, "of the program")
    make(1).submit(_setenv, name).result(SOON)
    # The process's own, which an interpreter's `os.environ` has changed behind ours.
    seen = subprocess.run(
        ["/bin/sh", "-c", f"echo ${name}"], env=None, capture_output=True, text=True, check=True
    )
    is_own = has("a task has an environment and a folder of its own", kind)
    assert os.getenv(name) == ("of a task" if kind.name == "thread" else "of the program")
    assert is_own or kind.name == "interpreter" or seen.stdout == "of a task\n"


def _set_handler() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def test_handlers_of_signals(make: Callable[..., Any], kind: Kind) -> None:
    if not kind.is_plain:
        return  # One thread of such a worker is its main thread.
    failed = make(1).submit(_set_handler).exception(SOON)
    assert (failed is None) == has("a task can set handlers of signals", kind)


def test_numpy(make: Callable[..., Any], kind: Kind) -> None:
    pytest.importorskip("numpy")
    failed = make(1).submit(eval, "__import__('numpy').arange(3).sum()").exception(SOON)
    assert (failed is None) == has("NumPy loads in a worker", kind)


def test_forks_and_pools_in_tasks(make: Callable[..., Any], kind: Kind) -> None:
    program = "__import__('ropewalk').Pool(1, kind='process').__exit__(None, None, None)"
    failed = make(1).submit(eval, program).exception(SOON)
    assert (failed is None) == has("a task can fork, and make a pool", kind)


def test_settings(kind: Kind) -> None:
    for what, given in (
        ("`threads=`, `max_rss=`", {"max_rss": 1 << 40}),
        ("`threads=`, `max_rss=`", {"threads": 2}),
        ("`hang_timeout=`", {"hang_timeout": 60}),
        ("`max_tasks=`, `max_age=`, `recycle()`", {"max_tasks": 1000}),
        ("`max_tasks=`, `max_age=`, `recycle()`", {"max_age": 1000}),
        ("`min_workers=`", {"min_workers": 1, "max_workers": 2}),
    ):
        settings = kind.settings | given
        if has(what, kind):
            ropewalk.Pool(**settings).shutdown()
        else:
            with pytest.raises(ValueError, match=next(iter(given))):
                ropewalk.Pool(**settings)


def test_workers_are_replaced(make: Callable[..., Any], kind: Kind) -> None:
    pool = make(1)
    pool.submit(tasks.square, 1).result(SOON)
    if not has("`max_tasks=`, `max_age=`, `recycle()`", kind):
        with pytest.raises(ValueError, match="no worker processes to recycle"):
            pool.recycle()
        return
    (before,) = (worker.id for worker in pool.statistics().workers_detail)
    assert pool.recycle(before) == 1
    until(lambda: [worker.id for worker in pool.statistics().workers_detail] == [before + 1], SOON)
    assert pool.submit(tasks.square, 2).result(SOON) == 4
    assert pool.statistics().recycled["asked"] == 1


def test_a_pool_of_another_size(make: Callable[..., Any]) -> None:
    pool = make(1)
    for workers in (3, 1, 2):
        pool.resize(workers)
        until(lambda workers=workers: pool.statistics().ready == workers, SOON)
        assert pool.statistics().workers == workers
        assert list(pool.map(tasks.square, range(10))) == [n * n for n in range(10)]
    assert pool.statistics().crashed == 0


def test_process_ids(make: Callable[..., Any], kind: Kind) -> None:
    pool = make()
    pool.submit(tasks.square, 1).result(SOON)
    assert bool(pool.statistics().worker_pids) == has("`statistics().worker_pids`", kind)


def test_the_docs_have_this_table() -> None:
    section = (
        Path("docs/pools.md").read_text(encoding="utf-8").split("\n## Kinds of pool\n")[1].split("\n## ")[0]
    )
    head, *rows = re.findall(r"^\| (.*?) ?\| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", section, re.MULTILINE)
    kinds = head[1:]
    assert set(kinds) == {kind.name for kind in KINDS if kind.is_plain}
    told = {
        what: {kind for kind, cell in zip(kinds, cells, strict=True) if cell == "yes"}
        for what, *cells in rows
    }
    assert told == DIFFERENCES
    assert {cell for _, *cells in rows for cell in cells} == {"yes", "no"}
