"""Sessions: state that is made once in a worker, and the tasks that find it there."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk
from ropewalk import current_session


class Model:
    """A state that leaves a mark when it is made and when it is closed."""

    def __init__(self, folder: Path, *rest: object) -> None:
        self.folder = folder
        self.rest = rest
        self.calls = 0
        _mark(folder, "made")

    def close(self) -> None:
        _mark(self.folder, "closed")


class Resource:
    """A state without a `close` method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __exit__(self, *details: object) -> None:
        assert details == (None, None, None)
        _mark(self.folder, "left")


def _mark(folder: Path, what: str) -> None:
    for number in range(1000):
        try:
            (folder / f"{what}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return


def _marks(folder: Path, what: str) -> int:
    return len(list(folder.glob(f"{what}.*")))


def _count() -> tuple[int, int, int]:
    """The process and the thread, and how often this was called with the same state."""
    state = current_session().state
    state.calls += 1
    return (*tasks.where(), state.calls)


def _count_of(_number: int) -> tuple[int, int, int]:
    return _count()


def _details() -> tuple[object, int, object]:
    session = current_session()
    return session.key, session.generation, session.state


def _hold_and_count(gate: Gate, name: str) -> tuple[int, int, int]:
    gate.hold(name)
    return _count()


def _raise_if(path: Path) -> str:
    if path.exists():
        raise ValueError("no model here")
    return "made"


def _write_to_state() -> float:
    array = current_session().state
    array[0] += 1.0
    return float(array[0])


def _keep(array: Any) -> Any:
    return array


def _stream_state(count: int) -> Iterator[int]:
    for _ in range(count):
        yield _count()[2]


async def _stream_later(count: int) -> AsyncIterator[int]:
    for _ in range(count):
        yield _count()[2]


def _in_a_thread() -> str:
    caught = []

    def look() -> None:
        try:
            current_session()
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return str(caught[0])


# --- the state --------------------------------------------------------------------------------------------------------


def test_a_state_is_made_once_and_found_by_every_task(pool: Any, tmp_path: Path) -> None:
    session = pool.session("model", Model, (tmp_path, "large"), mode="queue")
    assert session.generation == 0
    places = [session.submit(_count).result(30) for _ in range(5)]
    assert [count for *_, count in places] == [1, 2, 3, 4, 5]
    assert _marks(tmp_path, "made") == 1
    assert len({pid for pid, *_ in places}) == 1
    key, generation, state = session.submit(_details).result(30)
    assert (key, generation, state.rest) == ("model", 1, ("large",))


def test_all_ways_of_submitting_find_it(pool: Any, tmp_path: Path) -> None:
    session = pool.session(7, Model, (tmp_path,), mode="queue")
    counts = [session.submit_nowait(_count).result(30)[2]]
    counts += [count for *_, count in session.map(_count_of, range(3))]
    counts += [count for *_, count in session.map(_count_of, range(4), chunksize=2)]

    async def run() -> None:
        counts.append((await session.run(_count))[2])
        counts.append((await (await session.submit_async(_count)))[2])
        async for *_, count in session.map(_count_of, range(2)):
            counts.append(count)
        counts.append((await asyncio.get_running_loop().run_in_executor(session, _count))[2])

    asyncio.run(run())
    counts.append(session.options(retries=1).submit(_count).result(30)[2])
    counts += session.stream(_stream_state, 2)
    counts += session.stream(_stream_later, 2)
    assert counts == list(range(1, 19))
    assert _marks(tmp_path, "made") == 1


def test_a_session_without_init_has_an_empty_state(pool: Any) -> None:
    assert pool.session("plain", None).submit(_details).result(30) == ("plain", 1, None)


def test_others_have_no_session(pool: Any) -> None:
    with pytest.raises(RuntimeError, match=r"current_session\(\) is for tasks"):
        current_session()
    with pytest.raises(RuntimeError, match="no session here"):
        pool.submit(_details).result(30)
    session = pool.session("one", None)
    assert "no session here" in session.submit(_in_a_thread).result(30)
    with pytest.raises(RuntimeError, match="no session here"):
        pool.submit(_details).result(30)


def test_states_do_not_share_their_arguments(processes: Any) -> None:
    sessions = [processes.session(number, _keep, ([0.0],), mode="queue") for number in range(4)]
    assert [session.submit(_write_to_state).result(30) for session in sessions] == [1.0] * 4
    assert [session.submit(_write_to_state).result(30) for session in sessions] == [2.0] * 4


def test_a_large_array_is_the_state_s_own(processes: Any) -> None:
    numpy = pytest.importorskip("numpy")
    weights = numpy.zeros(1 << 20)
    with processes.session("weights", _keep, (weights,), mode="queue") as session:
        assert [session.submit(_write_to_state).result(30) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert weights[0] == 0.0


def test_init_may_be_a_lambda_and_a_partial(pool: Any) -> None:
    kept = {"answer": 42}
    assert pool.session("lambda", lambda: kept["answer"]).submit(_details).result(30)[2] == 42


# --- its end ----------------------------------------------------------------------------------------------------------


def test_a_closed_session_drops_its_state_after_its_tasks(pool: Any, gate: Gate, tmp_path: Path) -> None:
    session = pool.session("model", Model, (tmp_path,), mode="queue")
    first = session.submit(_hold_and_count, gate, "task")
    behind = session.submit(_count)
    until(gate.marks)
    session.close()
    assert session.closed
    with pytest.raises(ropewalk.SessionClosed):
        session.submit(_count)
    assert _marks(tmp_path, "closed") == 0
    gate.open()
    assert (first.result(30)[2], behind.result(30)[2]) == (1, 2)
    del first, behind
    until(lambda: _marks(tmp_path, "closed") == 1)
    # The key is free again, and names another session.
    fresh = pool.session("model", Model, (tmp_path,), mode="queue")
    assert fresh.submit(_count).result(30)[2] == 1
    fresh.close()
    until(lambda: _marks(tmp_path, "closed") == 2)


def test_a_block_closes_the_session_and_not_the_pool(pool: Any, tmp_path: Path) -> None:
    with pool.session("resource", Resource, (tmp_path,)) as session:
        session.submit(_details).result(30)

    async def leave() -> None:
        async with pool.session("other", Resource, (tmp_path,)) as other:
            await other.run(_details)

    asyncio.run(leave())
    until(lambda: _marks(tmp_path, "left") == 2)
    assert pool.submit(tasks.square, 3).result(30) == 9
    until(lambda: pool.statistics().sessions == 0)


def test_the_end_of_a_pool_closes_its_states(tmp_path: Path) -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        pool.session("model", Model, (tmp_path,)).submit(_count).result(30)
        assert pool.statistics().sessions == 1
    assert _marks(tmp_path, "closed") == 1


def test_a_state_that_is_idle_is_dropped_and_made_anew(processes: Any, tmp_path: Path) -> None:
    session = processes.session("model", Model, (tmp_path,), mode="queue", ttl=0.05)
    assert session.submit(_count).result(30)[2] == 1
    until(lambda: _marks(tmp_path, "closed") == 1)
    future = session.submit(_count)
    assert future.result(30)[2] == 1
    assert (future.task.session, future.task.session_generation, session.generation) == ("model", 2, 2)


def test_a_close_that_raises_costs_no_task(processes: Any) -> None:
    session = processes.session("bad", BadClose, mode="queue")
    session.submit(_details).exception(30)
    session.close()
    assert [processes.submit(tasks.square, n).result(30) for n in range(8)] == [n * n for n in range(8)]
    assert processes.statistics().crashed == 0


class BadClose:
    def close(self) -> None:
        raise ValueError("it cannot be closed")


# --- where its tasks run ----------------------------------------------------------------------------------------------


def test_sessions_are_spread_over_the_workers(processes: Any, tmp_path: Path) -> None:
    sessions = [processes.session(key, Model, (tmp_path,), mode="queue") for key in range(4)]
    pids = [session.submit(_count).result(30)[0] for session in sessions]
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2]
    again = [session.submit(_count).result(30) for session in reversed(sessions)]
    assert [pid for pid, *_ in again] == pids[::-1]
    assert {count for *_, count in again} == {2}


def test_a_session_stays_on_one_thread_of_its_worker(make_pool: Any, tmp_path: Path) -> None:
    pool = make_pool(1, threads=4, kind="process")
    sessions = [pool.session(key, Model, (tmp_path,), mode="queue") for key in range(4)]

    def threads_of_all() -> list[int]:
        return [future.result(30)[1] for future in [session.submit(_count) for session in sessions]]

    threads = [threads_of_all() for _ in range(5)]
    assert all(row == threads[0] for row in threads)
    assert len(set(threads[0])) == 4


def test_prefer_goes_elsewhere_while_its_worker_is_busy(processes: Any, gate: Gate, tmp_path: Path) -> None:
    session = processes.session("model", Model, (tmp_path,))
    home = session.submit(_count).result(30)[0]
    held = session.submit(_hold_and_count, gate, "task")
    until(gate.marks)
    other = session.submit(_count)
    assert other.result(30)[0] != home
    assert (other.task.session_generation, session.generation, _marks(tmp_path, "made")) == (2, 2, 2)
    gate.open()
    assert held.result(30)[0] == home


def test_queue_waits_for_its_worker(processes: Any, gate: Gate, tmp_path: Path) -> None:
    session = processes.session("model", Model, (tmp_path,), mode="queue")
    held = session.submit(_hold_and_count, gate, "task")
    until(gate.marks)
    waiting = [session.submit(_count) for _ in range(3)]
    # The other worker is free all the time.
    assert [processes.submit(tasks.square, n).result(30) for n in range(20)] == [n * n for n in range(20)]
    assert not any(future.done() for future in waiting)
    assert waiting[1].cancel()
    gate.open()
    assert [future.result(30)[2] for future in (held, waiting[0], waiting[2])] == [1, 2, 3]


def test_fail_refuses_what_would_wait(pool: Any, gate: Gate, tmp_path: Path) -> None:
    session = pool.session("model", Model, (tmp_path,), mode="fail")
    held = session.submit(_hold_and_count, gate, "task")
    until(gate.marks)
    with pytest.raises(ropewalk.SessionBusy) as caught:
        session.submit(_count)
    assert isinstance(caught.value, ropewalk.PoolError)
    gate.open()
    assert held.result(30)[2] == 1
    assert session.submit(_count).result(30)[2] == 2


def test_tasks_of_a_thread_pool_s_session_take_turns(make_pool: Any, gate: Gate, tmp_path: Path) -> None:
    pool = make_pool(3, kind="thread")
    session = pool.session("model", Model, (tmp_path,), mode="queue")
    held = session.submit(_hold_and_count, gate, "task")
    until(gate.marks)
    waiting = [session.submit(_count) for _ in range(5)]
    assert pool.submit(tasks.square, 3).result(30) == 9
    assert not any(future.done() for future in waiting)
    assert waiting[0].cancel()
    gate.open()
    assert [future.result(30)[2] for future in (held, *waiting[1:])] == [1, 2, 3, 4, 5]


# --- when something fails ---------------------------------------------------------------------------------------------


def test_a_failed_init_fails_its_task_and_is_tried_again(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.touch()
    session = pool.session("model", _raise_if, (path,), mode="queue")
    for _ in range(2):
        error = session.submit(_details).exception(30)
        assert isinstance(error, ValueError)
        assert str(error) == "no model here"
        assert any("session 'model'" in note for note in error.__notes__)
    assert pool.submit(tasks.square, 3).result(30) == 9
    path.unlink()
    assert session.submit(_details).result(30)[2] == "made"


def test_what_cannot_be_sent_is_told_at_once(processes: Any) -> None:
    with pytest.raises(ropewalk.EncodeError):
        processes.session("lock", _keep, (threading.Lock(),))
    assert processes.statistics().sessions == 0


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_alone_finds_the_session(pool: Any, tmp_path: Path) -> None:
    with pytest.raises(ropewalk.SessionMissing, match=r"no session 'model'\. Give `init=`") as caught:
        pool.session("model")
    assert isinstance(caught.value, LookupError)
    assert pool.statistics().sessions == 0
    made = pool.session("model", Model, (tmp_path,), mode="queue")
    found = pool.session("model")
    assert (found.key, found.mode) == ("model", "queue")
    assert [made.submit(_count).result(30)[2], found.submit(_count).result(30)[2]] == [1, 2]
    assert pool.session("model", mode="queue").submit(_count).result(30)[2] == 3
    with pytest.raises(ValueError, match="with mode='queue', and it is asked for with mode='fail'"):
        pool.session("model", mode="fail")
    with pytest.raises(ValueError, match=r"with init=.*, and it is asked for with init=None"):
        pool.session("model", None)
    with pytest.raises(TypeError, match="there is no init"):
        pool.session("model", args=(1,))
    with pytest.raises(ValueError, match="mode must be"):
        pool.session("model", mode="some")
    found.close()
    with pytest.raises(ropewalk.SessionMissing):
        pool.session("model")


def test_a_key_alone_finds_a_session_with_a_ttl(processes: Any) -> None:
    processes.session("short", dict, ttl=60).submit(tasks.square, 1).result(30)
    assert processes.session("short").submit(tasks.square, 2).result(30) == 4
    assert processes.session("short", ttl=60).generation == 1
    with pytest.raises(ValueError, match="with ttl=60"):
        processes.session("short", ttl=None)


def test_equal_keys_name_one_session(pool: Any, tmp_path: Path) -> None:
    one = pool.session("model", Model, (tmp_path,), mode="queue")
    two = pool.session("model", Model, (tmp_path,), mode="queue")
    assert [one.submit(_count).result(30)[2], two.submit(_count).result(30)[2]] == [1, 2]
    other = pool.session("1", None)
    assert pool.session(1, None).submit(_details).result(30)[0] == 1
    assert other.submit(_details).result(30)[0] == "1"
    assert pool.statistics().sessions == 3
    two.close()
    assert one.closed


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"init": Resource}, "init"),
        ({"args": ("elsewhere",)}, "args"),
        ({"mode": "fail"}, "mode"),
        ({"ttl": 5.0}, "ttl"),
        ({"init": None, "args": ()}, "init"),
    ],
)
def test_other_settings_for_a_key_are_an_error(processes: Any, changed: dict[str, Any], name: str) -> None:
    settings: dict[str, Any] = {"init": Model, "args": ("here",), "mode": "queue"}
    processes.session("model", **settings)
    with pytest.raises(ValueError, match=rf"a session 'model' with {name}=.* asked for with {name}="):
        processes.session("model", **(settings | changed))


def test_arrays_as_arguments_are_compared_too(processes: Any) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(3)
    processes.session("array", _keep, (array,))
    processes.session("array", _keep, (array,))
    with pytest.raises(ValueError, match="args="):
        processes.session("array", _keep, (numpy.arange(3),))


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "text"),
    [
        ((1.5,), {}, TypeError, "key must be a str or an int, not 1.5"),
        ((True,), {}, TypeError, "key must be"),
        (("a", 3), {}, TypeError, "init must be a callable or None, not 3"),
        (("a", len, "text"), {}, TypeError, "args must be a tuple"),
        (("a", None, (1,)), {}, TypeError, "there is no init"),
        (("a",), {"mode": "wait"}, ValueError, "mode"),
        (("a",), {"ttl": -1}, ValueError, "ttl"),
        (("a",), {"ttl": "soon"}, TypeError, "ttl"),
        (("a",), {"initializer": len}, TypeError, "init="),
        (("a",), {"idle_timeout": 3}, TypeError, "ttl="),
        (("a",), {"nonsense": 3}, TypeError, "nonsense"),
    ],
)
def test_bad_settings_are_named(
    processes: Any, arguments: tuple[Any, ...], settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        processes.session(*arguments, **settings)


def test_a_thread_pool_has_no_ttl(make_pool: Any) -> None:
    with pytest.raises(ValueError, match="ttl needs worker processes"):
        make_pool(1, kind="thread").session("a", None, ttl=1)


# --- records ----------------------------------------------------------------------------------------------------------


def test_the_record_of_a_task_names_its_session(pool: Any) -> None:
    session = pool.session("model", None)
    future, plain = session.submit(_details), pool.submit(tasks.square, 2)
    assert (future.result(30)[1], plain.result(30)) == (1, 4)
    assert future.task.session == "model"
    assert (plain.task.session, plain.task.session_generation) == (None, 0)
    assert repr(session).startswith("<ropewalk.Session 'model' of ")
    assert (session.key, session.mode, session.pool) == ("model", "prefer", pool)


def test_a_thread_pool_keeps_the_states_of_dropped_views(make_pool: Any) -> None:
    pool = make_pool(1, kind="thread")
    pool.session("kept", list).submit(lambda: ropewalk.current_session().state.append("here")).result(30)
    for number in range(500):
        pool.session(number, None)
    gc.collect()
    kept = pool.session("kept", list)
    assert kept.submit(lambda: ropewalk.current_session().state).result(30) == ["here"]
    assert kept.generation == 1


def _make_by_lambda(pool: Any, value: object, init: Any = None) -> Any:
    return pool.session("lambda", lambda: [value, init])


def _make_by_partial(pool: Any, value: object) -> Any:
    return pool.session("partial", partial(Model, value))


def test_an_init_that_is_written_once_is_the_same_each_time(processes: Any, tmp_path: Path) -> None:
    first = _make_by_lambda(processes, "x")
    assert _make_by_lambda(processes, "x")._opened is first._opened
    with pytest.raises(ValueError, match="with init="):
        _make_by_lambda(processes, "y")
    with pytest.raises(ValueError, match="with init="):
        _make_by_lambda(processes, "x", lambda: 3)
    first = _make_by_partial(processes, tmp_path)
    assert _make_by_partial(processes, tmp_path)._opened is first._opened
    with pytest.raises(ValueError, match="with init="):
        _make_by_partial(processes, tmp_path / "other")


def _cell(number: int, text: str, names: dict[str, Any]) -> Any:
    exec(compile("\n" * number + text, f"<cell {number}>", "exec"), names)
    return names["init"]


CELL = """
def init(path="m", *, size=2):
    if path in {"a", "b", "m"}:
        return [one + 1 for one in range(size)]
"""


def test_a_cell_of_a_notebook_may_run_again_but_not_changed(processes: Any) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    first = processes.session("cell", _cell(1, CELL, names))
    assert processes.session("cell", _cell(2, CELL, names))._opened is first._opened
    for old, new in (
        ("+ 1", "+ 2"),
        ("+ 1", "+ 1.0"),
        ("range", "iter"),
        ("size=2", "size=3"),
        ('"m"', '"n"'),
    ):
        hint = r"Define it once, or call pool\.session\('cell'\) without it, or close\(\) the session first"
        with pytest.raises(ValueError, match=hint):
            processes.session("cell", _cell(3, CELL.replace(old, new), names))


def _recursive(depth: Any) -> Any:
    def init() -> object:
        return init if depth else None

    return init


class Uncomparable:
    """What cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


def test_an_init_that_refers_to_itself_or_to_what_cannot_be_compared(processes: Any) -> None:
    first = processes.session("itself", _recursive(1))
    assert processes.session("itself", _recursive(1))._opened is first._opened
    with pytest.raises(ValueError, match="with init="):
        processes.session("itself", _recursive(2))
    processes.session("uncomparable", _recursive(Uncomparable()))
    with pytest.raises(ValueError, match="with init="):
        processes.session("uncomparable", _recursive(Uncomparable()))


def test_a_closed_pool_opens_no_session(pool: Any) -> None:
    pool.session("known", None)
    pool.shutdown()
    for arguments in (("known",), ("known", None), ("new", dict)):
        with pytest.raises(ropewalk.PoolClosed):
            pool.session(*arguments)
