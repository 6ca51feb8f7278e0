"""The output and log records of workers, and their crash reports."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.polling import until

import ropewalk


def program(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_whole_whoever_prints_beside_it(unbuffered: str) -> None:
    done = program(
        """
        import ropewalk
        def talk(n):
            for _ in range(200):
                print("abc", n, "def", n, "ghi", n, "x" * 100)
        with ropewalk.Pool(4, kind="process") as pool:
            list(pool.map(talk, range(8), chunksize=1))
        """,
        PYTHONUNBUFFERED=unbuffered,
    )
    assert done.returncode == 0, done.stderr
    expected = sorted(f"abc {n} def {n} ghi {n} {'x' * 100}" for n in range(8) for _ in range(200))
    assert sorted(done.stdout.splitlines()) == expected


def test_what_was_printed_before_a_kill_is_out() -> None:
    done = program(
        """
        import os, signal, ropewalk
        def last(_):
            print("last words")
            os.kill(os.getpid(), signal.SIGKILL)
        with ropewalk.Pool(1, kind="process") as pool:
            print(type(pool.submit(last, 0).exception()).__name__)
        """,
        PYTHONUNBUFFERED="1",
    )
    assert sorted(done.stdout.splitlines()) == ["WorkerCrashed", "last words"], done.stderr


def warn(text: str) -> int:
    logging.getLogger("ropewalk.tests.worker").warning("said %s", text, extra={"mark": 7})
    return os.getpid()


def test_log_records_reach_the_parents_logging(caplog: pytest.LogCaptureFixture) -> None:
    with ropewalk.Pool(2, kind="process", name="speaking") as pool:
        pid = pool.submit(warn, "hello").result()
    (record,) = [record for record in caplog.records if record.name == "ropewalk.tests.worker"]
    assert record.getMessage() == "said hello"
    assert record.processName is not None
    assert record.processName.startswith("speaking-worker-")
    assert (record.process, record.levelno, record.mark) == (pid, logging.WARNING, 7)  # type: ignore[attr-defined]
    assert record.funcName == "warn"


def fail_and_tell(_: int) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("ropewalk.tests.worker").exception("it failed")


def test_the_traceback_of_a_record_comes_as_text(caplog: pytest.LogCaptureFixture) -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        pool.submit(fail_and_tell, 0).result()
    assert "in fail_and_tell" in caplog.text
    assert "KeyError: 'gone'" in caplog.text


def tell_levels(_: int) -> None:
    for name in ("ropewalk.tests.loud", "ropewalk.tests.quiet", "ropewalk.tests.null"):
        logging.getLogger(name).debug("debug of %s", name)
        logging.getLogger(name).error("error of %s", name)


def test_levels_are_the_parents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "ropewalk.tests.loud")
    with ropewalk.Pool(1, kind="process", initializer=add_null_handler) as pool:
        pool.submit(tell_levels, 0).result()
    assert [r.getMessage() for r in caplog.records if r.name.startswith("ropewalk.tests")] == [
        "debug of ropewalk.tests.loud",
        "error of ropewalk.tests.loud",
        "error of ropewalk.tests.quiet",
        "error of ropewalk.tests.null",
    ]


def add_null_handler() -> None:
    logging.getLogger("ropewalk.tests.null").addHandler(logging.NullHandler())


def log_and_die(_: int) -> None:
    logging.getLogger("ropewalk.tests.worker").error("about to die")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_record_right_before_a_crash_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        for _ in range(5):
            assert isinstance(pool.submit(log_and_die, 0).exception(), ropewalk.WorkerCrashed)
    assert caplog.text.count("about to die") == 5


def configure(path: str) -> None:
    logging.basicConfig(filename=path, level=logging.INFO)


def test_a_program_that_configures_logging_in_its_workers_is_let_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ropewalk.Pool(1, kind="process", initializer=configure, initargs=(str(tmp_path / "log"),)) as pool:
        pool.submit(warn, "to the file").result()
    assert "to the file" in (tmp_path / "log").read_text()
    assert "to the file" not in caplog.text


def test_forwarding_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    with ropewalk.Pool(1, kind="process", log=False) as pool:
        pool.submit(warn, "hello").result()
    assert "hello" not in caplog.text


def flood(count: int) -> int:
    log = logging.getLogger("ropewalk.tests.worker")
    for n in range(count):
        log.warning("%d %s", n, "x" * 2000)
    return count


def test_a_parent_that_does_not_take_records_holds_no_worker_up(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # The last one is sent when there is room again, and says how many were not.
            if record.name == "ropewalk.tests.worker":
                until(lambda: done)

    done = False
    handler = Stuck()
    logging.getLogger().addHandler(handler)
    try:
        with ropewalk.Pool(1, kind="process") as pool:
            assert pool.submit(flood, 20_000).result(timeout=100) == 20_000
            done = True
            until(lambda: pool.submit(flood, 1).result() == 1 and "were dropped" in caplog.text)
    finally:
        done = True
        logging.getLogger().removeHandler(handler)


def fault(text: str, *, times: int) -> None:
    inner_of_fault()


def inner_of_fault() -> None:
    ctypes.string_at(0)


def test_a_crash_tells_function_arguments_and_stack() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        for _ in range(2):
            error = pool.submit(fault, "a text", times=3).exception()
            assert isinstance(error, ropewalk.WorkerCrashed)
            assert error.signal == signal.SIGSEGV
            assert error.call is not None
            assert error.call.endswith("fault('a text', times=3)")
            assert error.call in str(error)
            assert error.stack is not None
            assert "inner_of_fault" in error.stack
            assert error.stack in str(error)
        # The report of an earlier worker does not appear for a later one.
        error = pool.submit(os._exit, 3).exception()
        assert isinstance(error, ropewalk.WorkerCrashed)
        assert (error.stack, error.call) == (None, "posix._exit(3)")


def test_a_crash_of_a_long_call_keeps_nothing_of_it() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        error = pool.submit(_die_with, b"x" * 100_000).exception()
        assert isinstance(error, ropewalk.WorkerCrashed)
        assert error.call is not None
        assert error.call.endswith("_die_with(...)")


def _die_with(_: bytes) -> None:
    os._exit(1)


def test_a_preload_that_cannot_be_imported_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with ropewalk.Pool(1, kind="process", preload=["ropewalk_has_no_such_module"]) as pool:
        pool.submit(int).result()
        assert "ropewalk_has_no_such_module" in pool.explain()
    assert "ropewalk_has_no_such_module" in caplog.text
