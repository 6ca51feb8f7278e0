"""Inputs of a map whose results are not read, or only in part, when the pool is shut down."""

from __future__ import annotations

import gc
import itertools
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ropewalk

COUNT = 100


def touch(directory: str, number: int) -> int:
    Path(directory, str(number)).touch()
    return number


class Touch:
    """Leaves a file for each input that was run."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def __call__(self, value: Any) -> int:
        number = value[0] if isinstance(value, tuple) else value
        return touch(self.directory, number)


def generated() -> Iterator[int]:
    yield from range(COUNT)


SOURCES: dict[str, Callable[[], Iterable[Any]]] = {
    "zip": lambda: zip(range(COUNT), strict=True),
    "generator": generated,
    "enumerate": lambda: enumerate(range(COUNT)),
    "map": lambda: map(int, range(COUNT)),
    "reversed": lambda: reversed(range(COUNT)),
    "range": lambda: range(COUNT),
}


@pytest.fixture(params=["process", "thread"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["map", "map_unordered"])
def test_every_input_runs_of_a_map_that_is_dropped_unread(
    kind: Any, source: str, name: str, tmp_path: Path
) -> None:
    with ropewalk.Pool(2, kind=kind) as pool:
        getattr(pool, name)(Touch(tmp_path), SOURCES[source]())
    assert len(list(tmp_path.iterdir())) == COUNT


def test_a_map_that_is_read_after_the_block_has_every_result(kind: Any) -> None:
    with ropewalk.Pool(2, kind=kind) as pool:
        kept = pool.map(abs, generated())
    assert list(kept) == list(range(COUNT))


def test_with_a_bar_too(tmp_path: Path) -> None:
    with ropewalk.Pool(2, kind="thread") as pool:
        pool.map(Touch(tmp_path), generated(), progress=True)
    assert len(list(tmp_path.iterdir())) == COUNT


def test_a_task_that_fails_stops_no_other(kind: Any, tmp_path: Path) -> None:
    with ropewalk.Pool(2, kind=kind) as pool:
        pool.map(Touch(tmp_path), itertools.chain(range(50), ["bad/name"], range(50, COUNT)))
    assert len(list(tmp_path.iterdir())) == COUNT


def test_inputs_that_fail_are_an_error_of_the_shutdown() -> None:
    def failing() -> Iterator[int]:
        yield from range(50)
        raise LookupError("no more")

    pool = ropewalk.Pool(2, kind="thread")
    pool.map(abs, failing())
    with pytest.raises(LookupError, match="no more"):
        pool.shutdown()
    pool.shutdown()


def test_a_pool_that_is_dropped_runs_them(kind: Any, tmp_path: Path) -> None:
    pool = ropewalk.Pool(2, kind=kind)
    engine = pool._engine
    pool.map(Touch(tmp_path), generated())
    del pool
    gc.collect()
    engine.join()
    assert len(list(tmp_path.iterdir())) == COUNT


def test_so_does_a_program_that_ends(tmp_path: Path) -> None:
    code = f"""
import ropewalk
pool = ropewalk.Pool(2)
def touch(number):
    open({str(tmp_path)!r} + f"/{{number}}", "w").close()
pool.map(touch, (number for number in range({COUNT})))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert len(list(tmp_path.iterdir())) == COUNT


def test_no_more_than_the_buffer_is_taken(tmp_path: Path) -> None:
    source = iter(range(COUNT))
    with ropewalk.Pool(2, kind="thread") as pool:
        pool.map(Touch(tmp_path), source, buffersize=3)
    assert len(list(tmp_path.iterdir())) == 3
    assert next(source) == 3


def test_cancelled_futures_are_not_run(tmp_path: Path) -> None:
    source = iter(range(COUNT))
    pool = ropewalk.Pool(2, kind="thread")
    pool.map(Touch(tmp_path), source)
    pool.shutdown(cancel_futures=True)
    assert next(source) < COUNT


def test_an_exception_that_leaves_the_block_takes_no_more_inputs() -> None:
    source = itertools.count()

    def fails() -> None:
        with ropewalk.Pool(2, kind="thread") as pool:
            pool.map(abs, source)
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert next(source) < COUNT


ENDLESS = """
import itertools, threading, ropewalk
taken = threading.Event()
def source():
    for number in {inputs}:
        if number == 1000:
            print("shutting down", flush=True)
        yield number
try:
    with ropewalk.Pool(2, kind={kind!r}) as pool:
        {keep}pool.map(abs, source())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("keep", ["", "kept = "])
def test_interrupts_end_inputs_without_end(kind: Any, keep: str) -> None:
    code = ENDLESS.format(inputs="itertools.count()", kind=kind, keep=keep)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "shutting down\n"
            program.send_signal(signal.SIGINT)
            rest, _ = program.communicate(timeout=60)
        finally:
            program.kill()
    assert rest == "interrupted\n"
    assert program.returncode == 0


def test_a_map_that_was_read_in_part_warns(kind: Any) -> None:
    pool = ropewalk.Pool(2, kind=kind)
    results = pool.map(abs, generated())
    assert next(results) == 0
    with pytest.warns(
        RuntimeWarning, match=r"(\d+) were taken.* not run.*close\(\) it, or pass a list"
    ) as told:
        pool.shutdown()
    assert told[0].filename == __file__
    with pytest.raises(ropewalk.PoolClosed, match=r"this map had run all its inputs: it had taken \d+"):
        list(results)


def test_leaving_the_block_warns_where_it_is_left() -> None:
    def leaves() -> None:
        with ropewalk.Pool(2, kind="thread") as pool:
            results = pool.map(abs, generated())
            next(results)

    with pytest.warns(RuntimeWarning, match="were taken") as told:
        leaves()
    assert told[0].filename == __file__


@pytest.mark.parametrize("how", ["close", "consume", "break", "list"])
def test_nothing_warns_about_a_map_that_is_done_with(how: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ropewalk.Pool(2, kind="thread") as pool:
            results: Any = pool.map(abs, list(generated()) if how == "list" else generated())
            next(results)
            if how == "close":
                results.close()
            elif how == "consume":
                list(results)
            elif how == "break":
                del results
    if how == "list":
        assert list(results) == list(range(1, COUNT))
