"""Objects of multiprocessing, and a bus, in the arguments of an initializer."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from ctypes import wintypes
from multiprocessing import resource_tracker, shared_memory
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

#: Seconds that anything here may take.
_LONG = 60

GIVEN: list[Any] = []


def _start(*objects: Any) -> None:
    GIVEN[:] = objects


def _do(action: Callable[..., Any], *args: Any) -> Any:
    return action(*GIVEN, *args)


@pytest.fixture(params=["spawn", "forkserver"])
def context(request: pytest.FixtureRequest) -> Any:
    return multiprocessing.get_context(request.param)


@pytest.fixture
def give(make_pool: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Makes a pool whose workers have these objects; gives what calls a function on them there."""

    def made(*objects: Any, workers: int = 2) -> Callable[..., Any]:
        pool = make_pool(workers, kind="process", initializer=_start, initargs=objects)

        def submit(action: Callable[..., Any], *args: Any) -> Any:
            return pool.submit(_do, action, *args)

        return submit

    return made


def _double(inward: Any, outward: Any) -> None:
    outward.put(inward.get(timeout=_LONG) * 2)


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_queues_both_ways(context: Any, give: Any, kind: str) -> None:
    inward, outward = getattr(context, kind)(), getattr(context, kind)(10)
    do = give(inward, outward)
    asked = [do(_double) for _ in range(6)]
    for number in range(6):
        inward.put(number)
    assert sorted(outward.get(timeout=_LONG) for _ in range(6)) == [0, 2, 4, 6, 8, 10]
    assert [one.result(_LONG) for one in asked] == [None] * 6


def _get_done(queue: Any) -> Any:
    value = queue.get(timeout=_LONG)
    queue.task_done()
    return value


def test_a_joinable_queue_is_joined(context: Any, give: Any) -> None:
    queue = context.JoinableQueue()
    do = give(queue)
    queue.put("work")
    assert do(_get_done).result(_LONG) == "work"
    queue.join()


def test_a_simple_queue(context: Any, give: Any) -> None:
    inward, outward = context.SimpleQueue(), context.SimpleQueue()
    asked = give(inward, outward)(lambda inward, outward: outward.put(inward.get() + 1))
    inward.put(4)
    asked.result(_LONG)
    assert outward.get() == 5


def _is_free(lock: Any) -> bool:
    taken: bool = lock.acquire(timeout=0)
    if taken:
        lock.release()
    return taken


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "BoundedSemaphore"])
def test_locks_exclude_both_ways(context: Any, give: Any, kind: str) -> None:
    lock = getattr(context, kind)()
    do = give(lock)
    assert do(_is_free).result(_LONG)
    with lock:
        assert not do(_is_free).result(_LONG)
    assert do(_is_free).result(_LONG)
    do(lambda lock: lock.acquire()).result(_LONG)
    assert not lock.acquire(timeout=0)


def test_an_event_both_ways(context: Any, give: Any) -> None:
    to, back = context.Event(), context.Event()

    def answer(to: Any, back: Any) -> None:
        assert to.wait(_LONG)
        back.set()

    answered = give(to, back)(answer)
    to.set()
    assert back.wait(_LONG)
    answered.result(_LONG)


def _notify(condition: Any) -> None:
    with condition:
        condition.notify()


def test_a_condition(context: Any, give: Any) -> None:
    condition = context.Condition()
    do = give(condition)
    with condition:
        notified = do(_notify)
        assert condition.wait(_LONG)
    notified.result(_LONG)


def test_a_barrier(context: Any, give: Any) -> None:
    barrier = context.Barrier(3)
    do = give(barrier)
    asked = [do(lambda barrier: barrier.wait(_LONG)) for _ in range(2)]
    here = barrier.wait(_LONG)
    assert sorted([here, *(one.result(_LONG) for one in asked)]) == [0, 1, 2]


def test_values_and_arrays_both_ways(context: Any, give: Any) -> None:
    value, array = context.Value("l", 100), context.Array("d", [1, 2, 3])
    raw, raws = context.RawValue("d"), context.RawArray(wintypes.POINT, 3)
    raws[0].y = 11

    def add(value: Any, array: Any, raw: Any, raws: Any) -> int:
        for _ in range(200):
            with value:
                value.value += 1
        with array:
            array[1] += 5
        raw.value = 2.5
        raws[2].x = 7
        return int(raws[0].y)

    do = give(value, array, raw, raws)
    assert [one.result(_LONG) for one in [do(add) for _ in range(4)]] == [11] * 4
    assert value.value == 900
    assert list(array) == [1, 22, 3]
    assert raw.value == 2.5
    assert raws[2].x == 7


def test_connections_and_their_end(context: Any, make_pool: Callable[..., Any]) -> None:
    here, there = context.Pipe()
    pool = make_pool(1, kind="process", initializer=_start, initargs=(there,))
    there.close()
    answered = pool.submit(_do, lambda there: there.send([*there.recv(), "answer"]))
    here.send(["question"])
    answered.result(_LONG)
    assert here.recv() == ["question", "answer"]
    # The pool is still here, and has closed its own.
    pool.shutdown()
    with pytest.raises(EOFError):
        here.recv()


def test_a_socket(give: Any) -> None:
    here, there = socket.socketpair()
    with here, there:
        sent = give(there)(lambda there: there.sendall(b"hello"))
        here.settimeout(_LONG)
        assert here.recv(5) == b"hello"
        sent.result(_LONG)


def test_proxies_of_a_manager(context: Any, give: Any) -> None:
    with context.Manager() as manager:
        shared, queue = manager.dict(), manager.Queue()

        def put(shared: Any, queue: Any) -> None:
            shared["from"] = queue.get(timeout=_LONG)

        done = give(shared, queue)(put)
        queue.put("here")
        done.result(_LONG)
        assert dict(shared) == {"from": "here"}


def test_temporary_proxies_live_as_long_as_their_tasks(
    context: Any, make_pool: Callable[..., Any], gate: Gate
) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(gate.hold)
    until(gate.marks)
    with context.Manager() as manager:
        known = len(manager._debug_info().splitlines())
        # Not `list`: multiprocessing's error at the end of an iteration keeps the worker's proxy until a collection.
        single = pool.submit(len, manager.list([1, 2]))
        cancelled = pool.submit(len, manager.list([3]))
        mapped = pool.map(len, [manager.list([0] * n) for n in range(4)], chunksize=2)
        cancelled.cancel()
        gate.open()
        assert single.result(_LONG) == 2
        assert list(mapped) == [0, 1, 2, 3]
        # The pool has let go of them.
        del mapped
        until(lambda: len(manager._debug_info().splitlines()) <= known)


class _Holder:
    def __init__(self, queue: Any, *rest: Any) -> None:
        self.queue = queue
        self.rest = rest

    def start(self) -> None:
        self.queue.put(os.getpid())


def test_wherever_they_stand(context: Any, make_pool: Callable[..., Any]) -> None:
    queue, lock, ends = context.Queue(), context.Lock(), context.Pipe()

    def enclosed(*_: Any) -> None:
        with lock:
            queue.put("closure")

    for start, args in (
        (functools.partial(_Holder.start, _Holder(queue)), ()),
        (_Holder(queue, ends).start, ()),
        (enclosed, ({"deep": [lambda: 1, ends]},)),
    ):
        make_pool(1, kind="process", initializer=start, initargs=args).submit(os.getpid).result(_LONG)
        assert queue.get(timeout=_LONG)


def test_workers_that_come_later_get_them_too(context: Any, make_pool: Callable[..., Any]) -> None:
    value, ends = context.Value("i", 5), context.Pipe()
    pool = make_pool(1, kind="process", initializer=_start, initargs=(value, ends[1]))
    # The pool keeps them: their names and memory go with the objects.
    here = ends[0]
    del value, ends
    gc.collect()
    others = [context.Value("i", 1) for _ in range(20)]
    for turn in range(3):
        pool.submit(_do, lambda value, end, turn: end.send((value.value, turn)), turn).result(_LONG)
        assert here.recv() == (5, turn)
        with pytest.raises(ropewalk.WorkerCrashed):
            pool.submit(tasks.killed_by, signal.SIGKILL).result(_LONG)
    assert all(other.value == 1 for other in others)


def test_descriptors_go_with_the_pool(context: Any) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    def turn() -> None:
        queue = context.Queue()
        with ropewalk.Pool(
            2, kind="process", initializer=_start, initargs=(queue, context.Value("i"))
        ) as pool:
            pool.submit(os.getpid).result(_LONG)
        with pytest.raises(ropewalk.EncodeError):
            ropewalk.Pool(2, kind="process", initializer=_start, initargs=(queue, tasks.Unpicklable()))
        queue.close()
        queue.join_thread()

    turn()
    before = opened()
    for _ in range(3):
        turn()
    gc.collect()
    until(lambda: opened() <= before)


def _tracked(name: str) -> tuple[int | None, int]:
    memory = shared_memory.SharedMemory(name)
    memory.buf[0] += 1
    memory.close()
    there: Any = resource_tracker
    # No process of its own was started.
    return there._resource_tracker._pid, os.getpid()


def test_workers_have_the_tracker_of_this_process(context: Any, make_pool: Callable[..., Any]) -> None:
    lock = context.Lock()
    memory = shared_memory.SharedMemory(create=True, size=10)
    try:
        pool = make_pool(1, kind="process", initializer=_start, initargs=(lock,))
        for turn in range(1, 3):
            tracker, pid = pool.submit(_tracked, memory.name).result(_LONG)
            assert tracker is None
            assert memory.buf[0] == turn
            # A tracker of the worker's own would take the memory away at the worker's end.
            with pytest.raises(ropewalk.WorkerCrashed):
                pool.submit(tasks.killed_by, signal.SIGKILL).result(_LONG)
            assert os.path.exists(f"/dev/shm/{memory.name}")
            assert pid != os.getpid()
    finally:
        memory.close()
        memory.unlink()


_FORK: dict[str, Callable[[Any], Any]] = {
    "Queue": lambda context: context.Queue(),
    "JoinableQueue": lambda context: context.JoinableQueue(),
    "SimpleQueue": lambda context: context.SimpleQueue(),
    "Lock": lambda context: context.Lock(),
    "RLock": lambda context: context.RLock(),
    "Semaphore": lambda context: context.Semaphore(),
    "BoundedSemaphore": lambda context: context.BoundedSemaphore(),
    "Condition": lambda context: context.Condition(),
    "Event": lambda context: context.Event(),
    "Barrier": lambda context: context.Barrier(2),
    "Value": lambda context: context.Value("i"),
    "Array": lambda context: context.Array("i", 2),
}


@pytest.mark.parametrize("name", _FORK)
def test_objects_of_the_fork_context_are_named_with_the_cure(
    name: str, make_pool: Callable[..., Any]
) -> None:
    own = multiprocessing.get_context("spawn").Queue()
    made = _FORK[name](multiprocessing.get_context("fork"))
    cure = f'multiprocessing.get_context("spawn").{name}('
    for at, args in ((1, (own, made)), (0, ({"deep": [lambda: 1, made]}, own))):
        with pytest.raises(ropewalk.EncodeError) as raised:
            make_pool(1, kind="process", initializer=_start, initargs=args)
        assert f"initargs[{at}]" in str(raised.value)
        assert cure in str(raised.value)
    with pytest.raises(ropewalk.EncodeError) as raised:
        make_pool(1, kind="process", initializer=functools.partial(_start, made))
    assert "the initializer" in str(raised.value)
    assert cure in str(raised.value)


def test_memory_of_the_fork_context_needs_no_name(give: Any) -> None:
    raw = multiprocessing.get_context("fork").RawArray("i", 3)

    def fill(raw: Any) -> None:
        raw[1] = 4

    give(raw)(fill).result(_LONG)
    assert list(raw) == [0, 4, 0]


def test_too_many_descriptors_are_refused(context: Any, make_pool: Callable[..., Any]) -> None:
    ends = [socket.socketpair() for _ in range(120)]
    try:
        with pytest.raises(ropewalk.EncodeError, match="file descriptors"):
            make_pool(1, kind="process", initializer=_start, initargs=(ends,))
        pool = make_pool(1, kind="process", initializer=_start, initargs=(ends[:100],))
        pool.submit(_do, lambda ends: ends[99][1].sendall(b"there")).result(_LONG)
        assert ends[99][0].recv(5) == b"there"
    finally:
        for pair in ends:
            for end in pair:
                end.close()


def test_a_bus(make_pool: Callable[..., Any]) -> None:
    bus = ropewalk.Bus()
    with bus.subscribe("up.*") as up:
        pool = make_pool(2, kind="process", initializer=_start, initargs=(bus, {"deep": [bus]}))
        told = [pool.submit(_do, lambda bus, deep, at: bus.publish(f"up.{at}", at), at) for at in range(4)]
        assert sorted(up.recv(timeout=_LONG) for _ in range(4)) == [0, 1, 2, 3]
        assert [one.exception(_LONG) for one in told] == [None] * 4

        def listen(bus: Any, deep: Any) -> Any:
            assert deep["deep"] == [bus]
            with bus.subscribe("down") as down:
                bus.publish("up.ready", "ready")
                return down.recv(timeout=_LONG)

        heard = pool.submit(_do, listen)
        assert up.recv(timeout=_LONG) == "ready"
        bus.publish("down", "message")
        assert heard.result(_LONG) == "message"
        # And in a worker that comes later.
        with pytest.raises(ropewalk.WorkerCrashed):
            pool.submit(tasks.killed_by, signal.SIGKILL).result(_LONG)
        for at in range(4):
            pool.submit(_do, lambda bus, deep, at: bus.publish(f"up.{at}", at), at).result(_LONG)
        assert sorted(up.recv(timeout=_LONG) for _ in range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("end", ["pass", "pool.shutdown()", "del pool"])
def test_the_program_ends_cleanly(end: str) -> None:
    # From Python 3.13 on the resource tracker is waited for, which ends when nobody has its descriptor.
    code = f"""
        import multiprocessing
        import ropewalk


        def start(queue):
            global given
            given = queue


        def put(value):
            given.put(value)


        if __name__ == "__main__":
            queue = multiprocessing.get_context("spawn").Queue()
            pool = ropewalk.Pool(2, kind="process", initializer=start, initargs=(queue,))
            pool.submit(put, 1).result()
            print(queue.get())
            {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=_LONG,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
