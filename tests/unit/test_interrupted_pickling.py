"""An interrupt during pickling leaves the call once, and does not make the object count as unpicklable."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk

ENDINGS = [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), GeneratorExit(), MemoryError()]


class Ending:
    """Raises this the first time that it is pickled; after that it is ``"hidden"``."""

    def __init__(self, error: BaseException, home: int | None = None) -> None:
        self.error = error
        self.asked = 0
        self.home = home

    def __reduce__(self) -> Any:
        self.asked += 1
        if self.asked == 1 and self.home != os.getpid():
            raise self.error
        return str, ("hidden",)


def _ends_in_worker(error: BaseException, home: int) -> Ending:
    return Ending(error, home)


def _ended(error: BaseException) -> Any:
    return pytest.raises(type(error))


@pytest.fixture(params=ENDINGS, ids=lambda error: type(error).__name__)
def error(request: Any) -> BaseException:
    ending: BaseException = request.param
    return ending


@pytest.fixture
def pool(make_pool: Callable[..., Any]) -> Any:
    return make_pool(2, kind="process")


def _settled(pool: Any) -> None:
    assert pool.submit(tasks.square, 3).result(60) == 9
    until(lambda: (pool.statistics().queued, pool.statistics().running) == (0, 0))


WAYS: dict[str, Callable[[Any, Ending], object]] = {
    "an argument": lambda pool, it: pool.submit(tasks.identity, it).result(60),
    "a keyword argument": lambda pool, it: pool.submit(tasks.capture, there=[it]).result(60),
    "beside a function of the program's": lambda pool, it: pool.submit(tasks.capture, lambda: it, it).result(
        60
    ),
    "a partial function": lambda pool, it: pool.submit(functools.partial(tasks.identity, it)).result(60),
    "a closure": lambda pool, it: pool.submit(lambda: it).result(60),
    "a map": lambda pool, it: list(pool.map(tasks.identity, [it])),
    "an unordered map": lambda pool, it: list(pool.map_unordered(tasks.identity, [it])),
    "a map of results": lambda pool, it: [
        one.unwrap() for one in pool.map(tasks.identity, [it], results=True)
    ],
    "a map's later inputs": lambda pool, it: list(
        pool.map(tasks.identity, iter([*range(200), it]), chunksize=1)
    ),
    "a map's function": lambda pool, it: list(pool.map(functools.partial(tasks.capture, it), [1])),
    "initargs": lambda pool, it: ropewalk.Pool(1, kind="process", initializer=tasks.identity, initargs=(it,)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_ends_a_call_while_it_pickles_is_not_tried_again(
    pool: Any, error: BaseException, way: str
) -> None:
    it = Ending(error)
    with _ended(error):
        WAYS[way](pool, it)
    assert it.asked == 1
    _settled(pool)


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("error", ENDINGS[:-1], ids=lambda error: type(error).__name__)
def test_an_interrupt_in_a_chunk_ends_the_map(pool: Any, error: BaseException, writable: bool) -> None:
    it = Ending(error)
    with _ended(error):
        list(pool.options(writable=writable).map(tasks.identity, [[1], [2], it, [4]], chunksize=4))
    assert it.asked == 1
    _settled(pool)


def test_what_cannot_be_shared_for_want_of_memory_says_so(error: BaseException) -> None:
    it = Ending(error)
    with _ended(error):
        ropewalk.share(it)
    assert it.asked == 1


def test_a_result_that_ends_its_pickling_is_pickled_once(pool: Any, error: BaseException) -> None:
    raised = pool.submit(_ends_in_worker, error, os.getpid()).exception(60)
    assert type(raised) is type(error)
    assert pool.statistics().crashed == 0
    _settled(pool)


class Bulky:
    """Two megabytes beside the stream, in front of what ends the pickling."""

    def __init__(self, ending: Ending) -> None:
        self.parts = bytearray(2 << 20), ending

    def __reduce__(self) -> Any:
        block, ending = self.parts
        return tasks.capture, (pickle.PickleBuffer(block), ending)


def _files_of_memory() -> int:
    names = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("memfd" in name for name in names)


def test_nothing_is_left_of_a_call_that_was_interrupted(pool: Any) -> None:
    def interrupted() -> None:
        lent = ropewalk.shared.buffer(1 << 20)
        for send in (
            lambda: pool.submit(tasks.capture, lent, Bulky(Ending(KeyboardInterrupt()))),
            lambda: list(pool.map(tasks.capture, [[lent, Bulky(Ending(KeyboardInterrupt()))]])),
            lambda: list(
                pool.map(tasks.identity, [lent, Bulky(Ending(KeyboardInterrupt())), 3], chunksize=3)
            ),
        ):
            with pytest.raises(KeyboardInterrupt):
                send()

    interrupted()
    _settled(pool)
    gc.collect()
    before = _files_of_memory()
    for _ in range(5):
        interrupted()
    _settled(pool)
    gc.collect()
    assert _files_of_memory() <= before


def test_an_interrupt_is_told_though_the_pool_was_shut_down_meanwhile(pool: Any) -> None:
    class Shutting:
        def __reduce__(self) -> Any:
            pool.shutdown(wait=False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.submit(tasks.identity, Shutting())


def test_an_interrupt_among_the_inputs_waits_for_no_results(pool: Any, tmp_path: Path) -> None:
    gate = tasks.Gate(tmp_path)

    def inputs() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    # The first input's task holds for as long as the test does not open the gate.
    watchdog = threading.Timer(60, gate.open)
    watchdog.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(pool.map(gate.hold, inputs(), chunksize=1))
        assert watchdog.is_alive()
    finally:
        watchdog.cancel()
        gate.open()


# --- results, where they arrive ---------------------------------------------------------------------------------------


class Arriving:
    """Raises this the first time that it is unpickled at home."""

    times = 0

    def __init__(self, home: int, error: type[BaseException], size: int) -> None:
        self.parts = home, error, bytes(size)

    def __reduce__(self) -> Any:
        home, error, block = self.parts
        return _arrive, (home, error, pickle.PickleBuffer(bytearray(block)))


def _arrive(home: int, error: type[BaseException], block: Any) -> int:
    Arriving.times += 1
    if os.getpid() == home and Arriving.times == 1:
        raise error
    return len(memoryview(block))


@pytest.mark.parametrize("size", [0, 20_000, 3 << 20])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_a_result_whose_unpickling_was_interrupted_is_still_there(
    pool: Any, kind: type[BaseException], size: int
) -> None:
    Arriving.times = 0
    future = pool.submit(Arriving, os.getpid(), kind, size)
    with pytest.raises(kind):
        future.result(60)
    assert future.done()
    assert future.result(60) == size
    assert Arriving.times == 2
    assert future.result(60) == size
    assert Arriving.times == 2


def test_a_result_that_asks_for_an_exit_when_it_is_unpickled(pool: Any) -> None:
    Arriving.times = 0
    with pytest.raises(ropewalk.DecodeError, match="SystemExit"):
        pool.submit(Arriving, os.getpid(), SystemExit, 0).result(60)
