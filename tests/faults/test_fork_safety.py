"""A pool works in every kind of program, or raises an error that says why not."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def _run(code: str, tmp_path: Path, *args: str, file: bool = False) -> list[str]:
    """Runs a program of its own; gives its lines, having made sure that it said nothing else."""
    head = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    code = head + textwrap.dedent(code)
    command = ["-c", code]
    if file:
        path = tmp_path / "program.py"
        path.write_text(code)
        command = [str(path)]
    done = subprocess.run(
        [sys.executable, *command, *args],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def test_a_program_with_running_threads(make_pool: Callable[..., Any]) -> None:
    stop = threading.Event()
    lock = threading.Lock()

    def busy() -> None:
        while not stop.is_set():
            with lock:
                sum(range(100))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            pool = make_pool(2, kind="process")
            assert list(pool.map(tasks.square, range(50))) == [n * n for n in range(50)]
            pool.shutdown()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_pool_made_while_locks_are_held(make_pool: Callable[..., Any]) -> None:
    # Forked with one of these held, a worker would hang at its first import, print or log line.
    import logging

    logger = logging.getLogger()
    logger.addHandler(handler := logging.StreamHandler(sys.__stderr__))
    handler.acquire()
    try:
        pool = make_pool(2, kind="process")
        assert pool.submit(_log).result(60) == "logged"
    finally:
        handler.release()
        logger.removeHandler(handler)


def _log() -> str:
    import logging

    logging.getLogger().debug("not shown")
    return "logged"


def test_a_pool_outlives_the_thread_that_made_it(make_pool: Callable[..., Any]) -> None:
    pools: list[Any] = []
    maker = threading.Thread(target=lambda: pools.append(make_pool(2, kind="process", preload=["json"])))
    maker.start()
    maker.join(60)
    (pool,) = pools
    # A parent-death signal is sent when the *thread* that made the child ends.
    pid = pool.submit(os.getpid).result(60)
    os.kill(pid, 9)
    until(lambda: pid not in pool.statistics().worker_pids and len(pool.statistics().worker_pids) == 2)
    assert [pool.submit(tasks.square, n).result(60) for n in range(20)] == [n * n for n in range(20)]
    assert pool.statistics().failed == 0


def test_a_pool_used_from_many_threads(pool: Any) -> None:
    wrong: list[object] = []

    def use(base: int) -> None:
        try:
            futures = [pool.submit(tasks.square, base + n) for n in range(200)]
            for n, future in enumerate(futures):
                if future.result(60) != (base + n) ** 2:
                    wrong.append(n)
            if list(pool.map(tasks.square, range(base, base + 200))) != [
                n * n for n in range(base, base + 200)
            ]:
                wrong.append("map")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert pool.statistics().queued == pool.statistics().running == 0


def test_one_future_waited_for_by_many_threads(pool: Any, gate: Any) -> None:
    future = pool.submit(gate.hold, "task", 42)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(future.result(60))) for _ in range(10)]
    for thread in threads:
        thread.start()
    until(gate.marks)
    gate.open()
    for thread in threads:
        thread.join(60)
    assert results == [42] * 10


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pool_in_a_child_of_multiprocessing(method: str, tmp_path: Path) -> None:
    code = """
        import multiprocessing, warnings, ropewalk
        from tests import tasks

        def child(queue):
            with ropewalk.Pool(2, kind="process") as pool:
                queue.put(list(pool.map(tasks.square, range(10))))
                queue.put(pool.submit(lambda: __name__).result(60))

        if __name__ == "__main__":
            warnings.simplefilter("ignore", DeprecationWarning)
            with ropewalk.Pool(2, kind="process") as pool:
                assert pool.submit(tasks.square, 2).result(60) == 4
                context = multiprocessing.get_context(sys.argv[1])
                queue = context.Queue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                print(queue.get(timeout=60))
                queue.get(timeout=60)
                process.join(60)
                print(process.exitcode)
                assert pool.submit(tasks.square, 2).result(60) == 4
        """
    assert _run(code, tmp_path, method, file=True) == [str([n * n for n in range(10)]), "0"]


def test_a_pool_within_a_task(processes: Any) -> None:
    assert processes.submit(_nested, 3).result(90) == [0, 1, 4, 9, 16]


def _nested(depth: int) -> list[int]:
    with ropewalk.Pool(2, kind="process") as pool:
        if depth:
            return pool.submit(_nested, depth - 1).result(80)
        return list(pool.map(tasks.square, range(5)))


def test_a_thread_pool_within_a_task(processes: Any) -> None:
    assert processes.submit(_nested_threads).result(60) == [0, 1, 4]


def _nested_threads() -> list[int]:
    with ropewalk.Pool(2, kind="thread") as pool:
        return list(pool.map(tasks.square, range(3)))


def test_a_pool_sent_to_a_task_is_refused(processes: Any) -> None:
    with pytest.raises(ropewalk.EncodeError):
        processes.submit(tasks.identity, processes).result(60)


def test_a_fork_of_the_program(processes: Any, gate: Any) -> None:
    assert processes.submit(tasks.square, 2).result(60) == 4
    running = processes.submit(gate.hold)
    until(gate.marks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 99
        try:
            try:
                processes.submit(tasks.square, 2)
            except ropewalk.PoolError as error:
                status = 1 if "fork" in str(error) else 2
            running.cancel(running=True)
            processes.shutdown()
            # A pool of its own works.
            with ropewalk.Pool(1, kind="process") as own:
                if own.submit(tasks.square, 3).result(60) == 9:
                    status += 10
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    # The child's end harms nothing here.
    assert not running.done()
    gate.open()
    assert running.result(60)
    assert [processes.submit(tasks.square, n).result(60) for n in range(20)] == [n * n for n in range(20)]
    assert processes.statistics().crashed == 0


def test_a_fork_that_leaves_by_the_front_door(tmp_path: Path) -> None:
    code = """
        import os, warnings, ropewalk
        from tests import tasks
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ropewalk.Pool(2, kind="process")
        assert pool.submit(tasks.square, 2).result(60) == 4
        child = os.fork()
        if child == 0:
            sys.exit(3)  # Runs the exit handlers, the pool's among them.
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(pool.submit(tasks.square, 3).result(60), pool.statistics().crashed)
        """
    assert _run(code, tmp_path) == ["3", "9 0"]


def test_a_main_module_without_a_guard(tmp_path: Path) -> None:
    code = """
        import ropewalk
        print("once")
        def cube(n):
            return n ** 3
        with ropewalk.Pool(2, kind="process") as pool:
            print(list(pool.map(cube, range(4))))
        """
    assert _run(code, tmp_path, file=True) == ["once", "[0, 1, 8, 27]"]


NOTEBOOK = """
    import code, textwrap, types, ropewalk
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    cells = [
        '''
        import ropewalk, enum, dataclasses
        pool = ropewalk.Pool(2, kind="process")
        ''',
        '''
        @dataclasses.dataclass
        class Point:
            x: int
            y: int = 0
        class Colour(enum.Enum):
            RED = 1
        class Trouble(Exception):
            pass
        factor = 3
        def scale(point):
            assert isinstance(point, Point)
            return Point(point.x * factor, point.y * factor)
        def trouble():
            raise Trouble("in a cell")
        ''',
        '''
        out = pool.submit(scale, Point(2, 5)).result(60)
        print(out, type(out) is Point, isinstance(out, Point), out == Point(6, 15))
        print(pool.submit(lambda colour: colour is Colour.RED, Colour.RED).result(60))
        print(pool.submit(lambda: Colour.RED).result(60) is Colour.RED)
        ''',
        '''
        try:
            pool.submit(trouble).result(60)
        except Trouble as error:
            print("caught", error)
        ''',
        '''
        factor = 10
        def scale(point):
            return Point(point.x * factor)
        print(pool.submit(scale, Point(2)).result(60))
        print([p.x for p in pool.map(scale, [Point(n) for n in range(3)])])
        factor = 100
        print(pool.submit(scale, Point(2)).result(60).x)
        ''',
        '''
        def adder(n):
            def add(m):
                return n + m
            return add
        print(pool.submit(adder(5), 6).result(60), pool.submit(adder(50), 6).result(60))
        counter = iter(range(3))
        print(pool.submit(adder, 1).result(60)(2))
        pool.shutdown()
        ''',
    ]
    for cell in cells:
        exec(compile(textwrap.dedent(cell), "<cell>", "exec"), main.__dict__)
    """


def test_a_notebook(tmp_path: Path) -> None:
    assert _run(NOTEBOOK, tmp_path, file=True) == [
        "Point(x=6, y=15) True True True",
        "True",
        "True",
        "caught in a cell",
        "Point(x=20, y=0)",
        "[0, 10, 20]",
        "200",
        "11 56",
        "3",
    ]


def test_a_repl(tmp_path: Path) -> None:
    session = (
        "import ropewalk\n"
        "pool = ropewalk.Pool(2, kind='process')\n"
        "def f(n): return n + 1\n"
        "\n"
        "print(pool.submit(f, 1).result(60))\n"
        "print(sorted(pool.map_unordered(lambda n: n * 2, range(3))))\n"
        "pool.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=session,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["2", "[0, 2, 4]"], done.stderr


def test_a_program_without_standard_streams(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\n"
        "from tests import tasks\n"
        "with ropewalk.Pool(2, kind='process') as pool:\n"
        "    open(sys.argv[1], 'w').write(str(pool.submit(tasks.square, 7).result(60)))\n"
    )
    out = tmp_path / "out"
    command = f'exec "{sys.executable}" -c "$CODE" "{out}" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", command], env={**os.environ, "CODE": code}, check=False, timeout=60)
    assert done.returncode == 0
    assert out.read_text() == "49"


def test_a_program_whose_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    code = """
        import os, ropewalk
        from tests import tasks
        ropewalk.Pool  # Python 3.13.0 itself cannot import every extension from a folder that is gone.
        os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])
        with ropewalk.Pool(1, kind="process") as pool:
            print(pool.submit(tasks.square, 7).result(60))
        """
    assert _run(code, tmp_path, str(folder)) == ["49"]


def test_a_fork_may_ask_anything_of_its_parents_pool(tmp_path: Path) -> None:
    # Other threads of the parent hold the engine's lock often, and so at the moment of some fork. They sleep between:
    # if they never did, a kernel with long turns would leave the child no core.
    program = """
        import os, threading, time, warnings
        import ropewalk

        warnings.simplefilter("ignore", DeprecationWarning)  # From Python 3.12 on: of forks beside threads.
        pool = ropewalk.Pool(2, kind="process")
        futures = [pool.submit(time.sleep, 0.3) for _ in range(4)]
        stop = threading.Event()

        def press():
            while not stop.is_set():
                pool.statistics()
                time.sleep(1e-5)

        threads = [threading.Thread(target=press) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                for future in futures:
                    future.running(), future.done(), future.cancel(), repr(future)
                try:
                    pool.statistics()
                except ropewalk.PoolError:
                    repr(pool)
                    pool.shutdown()
                    os._exit(7)
                os._exit(1)
            for _ in range(1000):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                time.sleep(0.01)
            else:
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7, status
        stop.set()
        for thread in threads:
            thread.join()
        pool.shutdown()
        print("done")
    """
    assert _run(program, tmp_path)[-1] == "done"


HANDLERS = """
import logging, os, threading
calls = []
os.register_at_fork(before=lambda: calls.append("before"), after_in_child=lambda: calls.append("child"))
handler = logging.StreamHandler()
lock = threading.RLock()
"""


def _forked_from(_: object) -> tuple[list[str], int, bool, int]:
    """What a worker sees of the fork that made it, and what a child of its own sees, which has a held lock to mend."""
    import ropewalk_handlers  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    seen = list(ropewalk_handlers.calls)
    held, stop = threading.Event(), threading.Event()
    beside = threading.Thread(target=_hold, args=(ropewalk_handlers.handler, held, stop))
    beside.start()
    held.wait(30)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Without the handlers of `logging` and `threading` the lock would be held for ever, and the thread be alive.
        free = ropewalk_handlers.handler.lock.acquire(timeout=10)
        os.write(writing, bytes([free, threading.active_count()]))
        os._exit(0)
    os.close(writing)
    free, count = os.read(reading, 2)
    os.waitpid(pid, 0)
    os.close(reading)
    stop.set()
    beside.join()
    logging.getLogger("ropewalk.test").debug("the module's own lock is free")
    return seen, threading.active_count(), bool(free), count


def _hold(handler: Any, held: threading.Event, stop: threading.Event) -> None:
    with handler.lock:
        held.set()
        stop.wait(30)


def test_handlers_around_a_fork_work_in_the_zygote_and_in_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ropewalk_handlers.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with ropewalk.Pool(1, kind="process", preload=["ropewalk_handlers"]) as pool:
        assert pool.submit(_forked_from, None).result(60) == (["before", "child"], 1, True, 1)


def test_the_lock_of_logging_is_free_in_a_worker(processes: Any) -> None:
    assert processes.submit(_log_from_a_thread).result(60)


def _log_from_a_thread() -> bool:
    thread = threading.Thread(target=logging.getLogger, args=("ropewalk.test.a_new_one",), daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()
