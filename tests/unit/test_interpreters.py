"""`Pool(kind="interpreter")`: what differs from other kinds. What does not is tested over every kind."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

OLD = sys.version_info < (3, 14)
needs_interpreters = pytest.mark.skipif(OLD, reason="interpreters are workers from Python 3.14 on")


@pytest.mark.skipif(not OLD, reason="this Python's interpreters are supported")
def test_an_old_python_is_refused_with_the_reason() -> None:
    with pytest.raises(ropewalk.Unsupported, match=r"3\.1\d"):
        ropewalk.Pool(kind="interpreter")
    if sys.version_info < (3, 13):
        with pytest.raises(ropewalk.Unsupported):
            ropewalk.Pool(kind="interpreter", experimental=True)


@pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="of Python 3.13")
def test_python_3_13_takes_them_as_an_experiment(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="interpreter", experimental=True)
    assert [future.result(60) for future in [pool.submit(pow, 2, n) for n in range(5)]] == [1, 2, 4, 8, 16]


@needs_interpreters
def test_settings_that_interpreters_cannot_have_are_refused() -> None:
    with pytest.raises(ValueError, match="threads must be 1 with"):
        ropewalk.Pool(kind="interpreter", threads=2)
    with pytest.raises(ValueError, match="blas_threads"):
        ropewalk.Pool(kind="interpreter", blas_threads=1)


@needs_interpreters
def test_tasks_run_in_this_process_and_in_other_interpreters(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="interpreter")
    assert pool.submit(os.getpid).result(60) == os.getpid()
    number = "__import__('_interpreters').get_current()[0]"
    assert 0 not in {pool.submit(eval, number).result(60) for _ in range(5)}
    assert pool.kind == "interpreter"
    assert pool.statistics().worker_pids == ()
    assert "2 interpreters on" in pool.explain()


@needs_interpreters
def test_both_kinds_work_in_one_program(make_pool: Callable[..., Any]) -> None:
    here = make_pool(2, kind="interpreter")
    assert here.submit(tasks.square, 3).result(60) == 9
    # The processes are forked while the interpreters are there.
    there = make_pool(2, kind="process")
    assert there.submit(os.getpid).result(60) != os.getpid()
    assert [list(pool.map(tasks.square, range(50))) for pool in (here, there)] == [
        [n * n for n in range(50)]
    ] * 2


def _spin(gate: Gate, name: str = "begun") -> None:
    gate.mark(name)
    while True:
        pass


def _spin_over(gate: Gate, number: int) -> None:
    if number == 1:
        _spin(gate)
    gate.mark(f"item {number}")


def _read_in_c(gate: Gate, descriptor: int) -> None:
    gate.mark("begun")
    os.read(descriptor, 1)
    gate.mark("after the call")


def _clean_up(gate: Gate) -> None:
    try:
        _spin(gate)
    except BaseException as error:
        gate.mark(type(error).__name__)
        raise


def _spin_beside_a_thread(gate: Gate) -> None:
    spinning = threading.Thread(target=lambda: gate.hold("thread"))
    spinning.start()
    try:
        _spin(gate)
    finally:
        gate.open()
        spinning.join()


@needs_interpreters
@pytest.mark.parametrize("settings", [{"task_timeout": 0.5}, {"deadline": 0.5}], ids=str)
def test_a_running_task_ends_when_its_time_is_up(
    make_pool: Callable[..., Any], gate: Gate, settings: dict[str, float]
) -> None:
    pool = make_pool(1, kind="interpreter")
    pool.submit(tasks.square, 2).result(60)
    late = pool.options(**settings).submit(_spin, gate)
    with pytest.raises(ropewalk.TaskTimeout):
        late.result(60)
    # The same interpreter runs it.
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert [worker.id for worker in pool.statistics().workers_detail] == [1]


@needs_interpreters
@pytest.mark.parametrize("function", [_spin, _spin_beside_a_thread])
def test_a_running_task_is_cancelled(
    make_pool: Callable[..., Any], gate: Gate, function: Callable[..., Any]
) -> None:
    pool = make_pool(1, kind="interpreter")
    spinning = pool.submit(function, gate)
    until(lambda: gate.marks("begun"))
    assert not spinning.cancel()
    assert spinning.cancel(running=True)
    assert spinning.cancelled()
    assert pool.submit(tasks.square, 2).result(60) == 4


@needs_interpreters
def test_a_task_that_is_ended_cleans_up(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="interpreter")
    spinning = pool.submit(_clean_up, gate)
    until(lambda: gate.marks("begun"))
    assert spinning.cancel(running=True)
    until(lambda: gate.marks("KeyboardInterrupt"))


@needs_interpreters
def test_the_rest_of_a_batch_that_is_ended_is_not_run(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="interpreter")
    results = pool.map(partial(_spin_over, gate), range(4), chunksize=4)
    with ThreadPoolExecutor(1) as reader:
        first = reader.submit(next, results)
        until(lambda: gate.marks("begun"))
        pool.terminate()
        assert isinstance(first.exception(60), ropewalk.PoolTerminated)
    until(lambda: pool._engine.ended)
    assert (len(gate.marks("item 0")), gate.marks("item 2"), gate.marks("item 3")) == (1, [], [])


@needs_interpreters
def test_a_generator_that_never_yields_is_ended(make_pool: Callable[..., Any], gate: Gate) -> None:
    def never() -> Iterator[int]:
        _spin(gate)
        yield 1

    pool = make_pool(1, kind="interpreter")
    stream = pool.stream(never)
    until(lambda: gate.marks("begun"))
    assert stream.future.cancel(running=True)
    with pytest.raises(CancelledError):
        list(stream)
    assert pool.submit(tasks.square, 2).result(60) == 4


@needs_interpreters
def test_the_end_of_a_pool_ends_what_runs(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="interpreter")
    spinning = [pool.submit(_spin, gate) for _ in range(2)]
    until(lambda: len(gate.marks("begun")) == 2)
    pool.terminate()
    assert all(isinstance(future.exception(60), ropewalk.PoolTerminated) for future in spinning)
    until(lambda: pool._engine.ended)


@needs_interpreters
def test_a_call_in_c_runs_on_and_ends_after_it(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="interpreter")
    # The descriptors are the process's, and so the task's too.
    reading, writing = os.pipe()
    sitting = pool.submit(_read_in_c, gate, reading)
    until(lambda: gate.marks("begun"))
    assert sitting.cancel(running=True)
    after = pool.submit(tasks.square, 2)
    os.write(writing, b"x")
    # What is next has neither its exception nor its place.
    assert after.result(60) == 4
    assert gate.marks("after the call") == []
    os.close(reading)
    os.close(writing)


@needs_interpreters
def test_no_other_task_is_hit(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="interpreter")
    expected = sum(range(3000))
    for round in range(60):
        ended = pool.options(task_timeout=0.001 * (round % 4 + 1)).submit(_count_for, 0.003)
        beside = [pool.submit(sum, range(3000)) for _ in range(30)]
        assert [future.result(60) for future in beside] == [expected] * 30
        assert isinstance(ended.exception(60), (ropewalk.TaskTimeout, type(None)))
    assert [worker.id for worker in pool.statistics().workers_detail] == [1, 2]


def _count_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _left_alone() -> int:
    return threading.active_count()


@needs_interpreters
def test_what_an_isolated_interpreter_refuses_is_the_tasks_error(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="interpreter")
    with pytest.raises(RuntimeError, match="fork"):
        pool.submit(os.fork).result(60)
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result(60)
    with pytest.raises(ImportError, match="interpreter"):
        pool.submit(eval, "__import__('ropewalk').Pool(1)").result(60)
    assert pool.submit(_left_alone).result(60) == 1


@needs_interpreters
def test_an_interpreter_begins_with_few_modules(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="interpreter", log=False)
    loaded = set(pool.submit(eval, "list(__import__('sys').modules)").result(60))
    # A task that does not use them does not wait for them.
    assert loaded.isdisjoint({"functools", "collections", "logging", "pickle", "ropewalk", "threading"})
    assert "_pickle" in loaded
    # And each is itself for a task that does.
    program = "__import__('functools').__file__, __import__('functools').lru_cache(abs)(-3)"
    path, value = pool.submit(eval, program).result(60)
    assert (os.path.basename(path), value) == ("functools.py", 3)
    bound = pool.submit(partial, pow, 2).result(60)
    assert (type(bound), bound(5)) == (partial, 32)
    assert pool.submit(partial(pow, 3), 2).result(60) == 9


@needs_interpreters
def test_log_records_come_to_the_main_interpreter(
    make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool(1, kind="interpreter", name="named")
    pool.submit(eval, "__import__('logging').getLogger('a.b').warning('said %d', 5)").result(60)
    until(lambda: "said 5" in caplog.text)
    (record,) = (record for record in caplog.records if record.name == "a.b")
    assert (record.levelno, record.processName) == (logging.WARNING, "named-worker-1")


@needs_interpreters
def test_a_librarys_null_handler_forwards_too(
    make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool(1, kind="interpreter")
    # concurrent.futures imports logging, and what forwards records imports concurrent.futures' errors.
    pool.submit(eval, "__import__('concurrent.futures')").exception(60)
    program = """
import logging
logging.getLogger("lib").addHandler(logging.NullHandler())
logging.getLogger("lib").info("too low")
logging.getLogger("lib").warning("of a library")
"""
    pool.submit(exec, program).result(60)
    until(lambda: "of a library" in caplog.text)
    assert "too low" not in caplog.text


@needs_interpreters
def test_nothing_is_left_of_pools_that_have_ended() -> None:
    def counts() -> tuple[int, int, int]:
        import _interpreters  # type: ignore[import-not-found, unused-ignore]

        descriptors = len(os.listdir("/proc/self/fd"))
        return descriptors, threading.active_count(), len(_interpreters.list_all())

    def use() -> None:
        with ropewalk.Pool(2, kind="interpreter") as pool:
            assert list(pool.map(lambda n: n + 1, range(10))) == list(range(1, 11))

    use()
    before = counts()
    for _ in range(10):
        use()
    # Fewer, if something of earlier tests has ended meanwhile. The system may need a moment for the last thread.
    until(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)))


@needs_interpreters
def test_a_failing_start_breaks_the_pool_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from ropewalk.pool.parent import _interpreters

    monkeypatch.setattr(_interpreters, "_bootstrap", lambda _seat: "raise RuntimeError('no such luck')")
    with ropewalk.Pool(1, kind="interpreter") as pool:
        with pytest.raises(ropewalk.PoolBroken, match="no such luck"):
            pool.submit(tasks.square, 2).result(60)


_ENDS = """
import atexit, os, signal, sys, threading, time
import ropewalk
from tests.polling import until

def run(path):
    open(path, "w").close()
    # In C, where nothing ends it.
    time.sleep(900)

how, path = sys.argv[1:]
if __name__ == "__main__":
    atexit.register(print, "the handler ran")
    pool = ropewalk.Pool(1, kind="interpreter", grace=0.1)
    future = pool.submit(run, path)
    until(lambda: os.path.exists(path))
    print(how)
    if how == "terminate":
        pool.terminate()
    elif how == "interrupt":
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        future.result()
    elif how == "raise":
        with pool:
            raise ValueError("left by an error")
    else:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        if how == "interrupt a shutdown":
            pool.shutdown()
"""


@needs_interpreters
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("terminate", 1),
        ("interrupt", -2),
        ("interrupt a shutdown", -2),
        ("interrupt the end", -2),
        ("raise", 1),
    ],
    ids=lambda value: str(value),
)
def test_a_program_ends_beside_a_task_that_never_ends(how: str, status: int, tmp_path: Any) -> None:
    script = tmp_path / "ends.py"
    script.write_text(_ENDS)
    done = subprocess.run(
        [sys.executable, str(script), how, str(tmp_path / "runs")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout.splitlines() == [how, "the handler ran"]
    assert ("KeyboardInterrupt" in done.stderr) == (status == -2)


@needs_interpreters
def test_interpreters_are_replaced_without_a_dip(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="interpreter", max_tasks_per_child=5)
    number = "__import__('_interpreters').get_current()[0]"
    ran = [pool.submit(eval, number).result(60) for _ in range(40)]
    assert max(ran.count(which) for which in ran) <= 5


@needs_interpreters
def test_interpreters_are_replaced_when_the_program_asks(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="interpreter")
    until(lambda: [worker.state for worker in pool.statistics().workers_detail] == ["idle", "idle"])
    assert pool.recycle() == 2
    # The place of each may be taken first.
    until(lambda: {one.id for one in pool.statistics().workers_detail if one.state == "idle"} == {3, 4})
    assert pool.submit(tasks.square, 3).result(60) == 9


@needs_interpreters
def test_the_number_of_interpreters_follows_the_program(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="interpreter")
    pool.resize(3)
    held = [pool.submit(gate.hold) for _ in range(3)]
    until(lambda: len(gate.marks()) == 3)
    gate.open()
    assert [future.exception(60) for future in held] == [None] * 3


def _unfit() -> bool:
    return False


@needs_interpreters
def test_an_interpreter_that_is_not_fit_is_not_used() -> None:
    with ropewalk.Pool(1, kind="interpreter", probe=_unfit) as pool:
        with pytest.raises(ropewalk.PoolBroken):
            pool.submit(tasks.square, 2).result(60)
    with pytest.raises(ValueError, match="max_rss needs worker processes"):
        ropewalk.Pool(1, kind="interpreter", max_rss=1 << 30)


@needs_interpreters
def test_a_function_that_an_interpreter_cannot_load_runs_in_a_process(make_pool: Callable[..., Any]) -> None:
    numpy = pytest.importorskip("numpy")
    pool = make_pool(2, kind="interpreter")
    with pytest.warns(RuntimeWarning, match=r"numpy\S* does not load in an interpreter"):
        added = pool.submit(numpy.add, 1, 2)
    assert (added.result(60), added.task.kind) == (3, "process")
    # Nothing warns of that module again: warnings are errors here.
    length = pool.submit(len, numpy.zeros(7))
    assert (length.result(60), length.task.kind) == (7, "process")
    assert list(pool.map(numpy.negative, [1, 2])) == [-1, -2]
    assert [array.sum() for array in pool.options(retries=1).map(numpy.ones, [1, 2])] == [1, 2]
    assert pool.submit_nowait(numpy.add, 3, 4).result(60) == 7
    assert "numpy.add runs in worker processes" in pool.explain()
    here = pool.submit(tasks.square, 3)
    assert (here.result(60), here.task.kind) == (9, "interpreter")


def _imports_inside(n: int) -> int:
    def sum_up() -> int:
        import numpy

        return int(numpy.arange(n).sum())

    return sum_up()


def _imports_elsewhere(n: int) -> int:
    return _imports_inside(n)


def _imports_what_loads(n: int) -> int:
    import fractions

    return int(fractions.Fraction(n))


@dataclasses.dataclass
class _Holder:
    inside: Any


class _Summing:
    """An actor with a method that an interpreter cannot run."""

    def total(self, n: int) -> int:
        import numpy

        return int(numpy.arange(n).sum())


class _Counting:
    """An actor that an interpreter can run."""

    def size(self, values: Any) -> int:
        return len(values)


_WITHOUT_NUMPY = """
import sys, warnings
import ropewalk
from tests.unit.test_interpreters import _imports_elsewhere

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with ropewalk.Pool(1, kind="interpreter") as pool:
        future = pool.submit(_imports_elsewhere, 4)
        print(future.result(60), future.task.kind, "numpy" in sys.modules)
"""


@needs_interpreters
def test_imports_of_a_functions_code_are_read_before_it_runs(tmp_path: Any) -> None:
    pytest.importorskip("numpy")
    script = tmp_path / "without.py"
    script.write_text(_WITHOUT_NUMPY)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    # The program itself has imported nothing that refuses.
    assert said.stdout == "6 process False\n"


@needs_interpreters
@pytest.mark.filterwarnings("ignore:numpy:RuntimeWarning")
def test_functions_that_import_inside_run_in_processes(make_pool: Callable[..., Any]) -> None:
    pytest.importorskip("numpy")
    pool = make_pool(1, kind="interpreter")
    for function in (
        _imports_inside,
        _imports_elsewhere,
        partial(_imports_inside),
        lambda n: _imports_inside(n),
    ):
        there = pool.submit(function, 4)
        assert (there.result(60), there.task.kind) == (6, "process")
    assert list(pool.map(_imports_inside, [2, 3])) == [1, 3]
    here = pool.submit(_imports_what_loads, 4)
    assert (here.result(60), here.task.kind) == (4, "interpreter")


@needs_interpreters
@pytest.mark.filterwarnings("ignore:numpy:RuntimeWarning")
def test_values_deep_in_arguments_move_the_call(make_pool: Callable[..., Any]) -> None:
    numpy = pytest.importorskip("numpy")
    pool = make_pool(1, kind="interpreter")
    array = numpy.zeros(3)
    for value in (
        [0, 1, {"a": [array]}],
        {"a": {"b": (1, array)}},
        _Holder([array]),
        [partial(numpy.add, 1)],
    ):
        moved = pool.submit(type, value)
        assert (moved.result(60), moved.task.kind) == (type(value), "process")
        named = pool.submit(dict, value=value)
        assert (named.exception(60), named.task.kind) == (None, "process")
    for value in ([0, 1, {"a": [2]}], {"a": {"b": (1, "c")}}, _Holder([1]), [partial(abs, 1)]):
        here = pool.submit(type, value)
        assert (here.result(60), here.task.kind) == (type(value), "interpreter")


@needs_interpreters
@pytest.mark.filterwarnings("ignore:numpy:RuntimeWarning")
def test_the_first_input_of_a_map_moves_the_map(make_pool: Callable[..., Any]) -> None:
    numpy = pytest.importorskip("numpy")
    pool = make_pool(1, kind="interpreter")
    assert list(pool.map(len, [numpy.zeros(n) for n in range(4)])) == [0, 1, 2, 3]
    assert list(pool.map(len, iter([[numpy.zeros(2)], [], [1]]))) == [1, 0, 1]
    assert list(pool.map(tasks.add, [1, 2], [numpy.float64(1), numpy.float64(2)])) == [2, 4]
    before = pool.statistics().completed
    assert list(pool.map(len, ["a", "bc"])) == [1, 2]
    assert list(pool.map(len, [])) == []
    assert pool.statistics().completed > before

    def failing() -> Iterator[int]:
        raise LookupError("no input")
        yield 1

    with pytest.raises(LookupError, match="no input"):
        pool.map(abs, failing())


@needs_interpreters
def test_sessions_and_actors_refuse_what_an_interpreter_cannot_load(make_pool: Callable[..., Any]) -> None:
    numpy = pytest.importorskip("numpy")
    pool = make_pool(1, kind="interpreter")
    with pytest.raises(ropewalk.FunctionLoadError, match=r"numpy.*_Summing.*kind=\"process\""):
        pool.actor(_Summing)
    with pytest.raises(ropewalk.FunctionLoadError, match="numpy"):
        pool.session("a", init=_imports_inside, args=(3,))
    with pytest.raises(ropewalk.FunctionLoadError, match="numpy"):
        pool.session("a", init=len, args=(numpy.zeros(3),))
    session = pool.session("a", init=len, args=((),))
    with pytest.raises(ropewalk.FunctionLoadError, match="numpy"):
        session.submit(_imports_inside, 3)
    assert session.submit(tasks.square, 3).result(60) == 9
    with pool.actor(_Counting) as actor:
        with pytest.raises(ropewalk.FunctionLoadError, match="numpy"):
            actor.size([numpy.zeros(3)])
        assert actor.size([1, 2]).result(60) == 2


@needs_interpreters
def test_the_pool_behind_ends_with_its_pool() -> None:
    numpy = pytest.importorskip("numpy")
    with ropewalk.Pool(1, kind="interpreter") as pool:
        with pytest.warns(RuntimeWarning):
            added = pool.submit(numpy.add, 1, 2)
        behind = pool._fallback.pool
    assert added.result(60) == 3
    assert behind._engine.ended
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(numpy.add, 1, 2)
    with ropewalk.Pool(1, kind="interpreter") as pool:
        pass
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(numpy.add, 1, 2)


@needs_interpreters
def test_without_a_fallback_the_task_fails(make_pool: Callable[..., Any]) -> None:
    numpy = pytest.importorskip("numpy")
    pool = make_pool(1, kind="interpreter", fallback=None)
    with pytest.raises(ropewalk.FunctionLoadError, match="subinterpreters"):
        pool.submit(numpy.add, 1, 2).result(60)
    with pytest.raises(ValueError, match="fallback"):
        ropewalk.Pool(1, kind="interpreter", fallback="thread")


@needs_interpreters
def test_an_error_that_is_no_refusal_stays_the_tasks_own(
    make_pool: Callable[..., Any], tmp_path: Any
) -> None:
    from ropewalk.pool.parent._fallback import TRIALS

    (tmp_path / "broken_extension.abi3.so").write_bytes(b"no shared object")
    (tmp_path / "does_without.py").write_text("try:\n    import numpy\nexcept ImportError:\n    pass\n")
    (tmp_path / "raises_on_import.py").write_text("raise ImportError('of its own')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import broken_extension"
    assert make_pool(1, kind="interpreter").submit(exec, program).exception(60).name == "broken_extension"
    sys.path.insert(0, str(tmp_path))
    try:
        assert TRIALS.refused_by("raises_on_import") is None
        assert TRIALS.refused_by("no_such_module") is None
        # A package that does without it.
        assert TRIALS.refused_by("does_without") is None
        assert TRIALS.refused_by("json") is None
        pytest.importorskip("numpy")
        assert TRIALS.refused_by("numpy").startswith("numpy.")
    finally:
        sys.path.remove(str(tmp_path))
