"""Names from other libraries: the errors name the equivalent here."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.polling import until

import ropewalk


@pytest.fixture(scope="module")
def pool() -> Any:
    with ropewalk.Pool(1, kind="thread") as pool:
        yield pool


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("apply", "submit"),
        ("apply_async", "submit"),
        ("map_async", "map"),
        ("starmap", "zip"),
        ("starmap_async", "zip"),
        ("imap", "map"),
        ("imap_unordered", "map_unordered"),
        ("close", "shutdown"),
        ("join", "shutdown"),
        ("try_submit", "submit_nowait"),
    ],
)
def test_methods_of_multiprocessing_pools_are_answered_with_ours(pool: Any, name: str, ours: str) -> None:
    for owner in (pool, pool.options(retries=1)):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}': Ropewalk has .*{ours}") as raised:
            getattr(owner, name)
        assert (raised.value.name, raised.value.obj) == (name, owner)


@pytest.mark.parametrize(
    ("name", "ours"), [("get", "result"), ("ready", "done"), ("successful", "exception"), ("wait", "wait")]
)
def test_methods_of_asynchronous_results_too(pool: Any, name: str, ours: str) -> None:
    future = pool.submit(abs, -1)
    assert not hasattr(future, name)
    with pytest.raises(
        AttributeError, match=f"'Future' object has no attribute '{name}': Ropewalk has .*{ours}"
    ):
        getattr(future, name)


def test_other_attributes_are_missing_as_ever(pool: Any) -> None:
    for owner in (pool, pool.submit(abs, -1)):
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            _ = owner.nonsense


@pytest.mark.parametrize("method", ["map", "map_unordered"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("n_jobs", "Ropewalk has workers= of Pool"),
        ("progress_bar", "Ropewalk has progress=$"),
        ("batch_size", "Ropewalk has chunksize=$"),
        ("chunk_size", r"did you mean chunksize=\?"),
        ("nonsense", "It has timeout, chunksize"),
    ],
)
def test_arguments_that_map_does_not_have(pool: Any, method: str, name: str, told: str) -> None:
    with pytest.raises(TypeError, match=rf"^{method}\(\) .*'{name}'.*{told}"):
        getattr(pool, method)(abs, [1], **{name: 3})


def test_one_word_for_one_thing(pool: Any) -> None:
    for name, ours in (("max_queue", "capacity="), ("on_full", "overflow="), ("timeout", "task_timeout=")):
        with pytest.raises(TypeError, match=rf"^Pool\(\) has no argument '{name}': Ropewalk has {ours}$"):
            ropewalk.Pool(1, **{name: 3})
    with pytest.raises(
        TypeError, match=r"^options\(\) has no argument 'timeout': Ropewalk has task_timeout=$"
    ):
        pool.options(timeout=3)
    with pytest.raises(
        TypeError, match=r"^options\(\) has no argument 'n_jobs': Ropewalk has workers= of Pool$"
    ):
        pool.options(n_jobs=3)
    with pytest.raises(
        TypeError, match=r"^map\(\) has no argument 'task_timeout': Ropewalk has task_timeout= of Pool$"
    ):
        pool.map(abs, [1], task_timeout=3)


def test_initargs_that_are_none() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"initargs must be a tuple .* not 5"):
        ropewalk.Pool(1, initializer=print, initargs=wrong)


def dies() -> None:
    os._exit(3)


def raises() -> None:
    raise LookupError("no such table")


def test_an_initializer_that_ends_its_worker_is_named() -> None:
    with ropewalk.Pool(1, kind="process", initializer=dies, on_crash="break") as pool:
        error = pool.submit(len, "a").exception(60)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert "exit status 3 before it was ready for tasks: in the pool's initializer" in str(error)
    assert "while it ran" not in str(error)
    assert error.exit_code == 3


def test_an_initializer_that_raises_is_quoted() -> None:
    with ropewalk.Pool(1, kind="process", initializer=raises) as pool:
        error = pool.submit(len, "a").exception(60)
    assert isinstance(error, ropewalk.InitializerFailed)
    assert str(error).endswith(": LookupError: no such table")


BAR = """
import ropewalk
def fail(number):
    if number == 30:
        raise ValueError("at thirty")
with ropewalk.Pool(2, kind="thread") as pool:
    for _ in pool.map(fail, range(50), progress=True):
        pass
"""


def test_no_bar_is_drawn_between_the_lines_of_a_traceback() -> None:
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    drawn = bytearray()
    program = subprocess.Popen([sys.executable, "-c", BAR], stderr=theirs, env=environment)
    os.close(theirs)

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                drawn.extend(data)
        except OSError:
            return

    reader = threading.Thread(target=read)
    reader.start()
    program.wait(60)
    until(lambda: not reader.is_alive())
    os.close(ours)
    told = bytes(drawn)
    assert b"31/50" in told
    after = told[told.index(b"Traceback") :]
    assert b"at thirty" in after
    assert not re.search(rb"/50|\x1b\[2K", after), after
