"""The garbage collector finds cycles through native objects."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

COUNT = 300


class Marker:
    """Stands in a frame, and tells whether the frame is still there."""


def _alive(markers: list[weakref.ref[Marker]]) -> int:
    gc.collect()
    return sum(marker() is not None for marker in markers)


def _all_gone(markers: list[weakref.ref[Marker]]) -> None:
    assert len(markers) == COUNT
    # A thread that ran or published the last of them may hold it for another moment.
    until(lambda: not _alive(markers))


def _raises(pool: Any, markers: list[weakref.ref[Marker]]) -> None:
    marker = Marker()
    markers.append(weakref.ref(marker))
    future = pool.submit(tasks.fail, "no")
    try:
        future.result(60)
    except ValueError as error:
        # The exception's traceback has this frame, which has the future, which has the exception.
        marker.error = error  # type: ignore[attr-defined]


def test_result_in_a_frame_that_holds_the_future(pool: Any) -> None:
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        _raises(pool, markers)
    _all_gone(markers)


def _keeps_exception(pool: Any, markers: list[weakref.ref[Marker]]) -> None:
    marker = Marker()
    markers.append(weakref.ref(marker))
    future = pool.submit(tasks.fail, "no")
    error = future.exception(60)
    error.future = future
    error.marker = marker


def test_exception_that_holds_its_future(pool: Any) -> None:
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        _keeps_exception(pool, markers)
    _all_gone(markers)


def test_awaited_runs(pool: Any) -> None:
    markers: list[weakref.ref[Marker]] = []

    async def one() -> None:
        marker = Marker()
        markers.append(weakref.ref(marker))
        try:
            await pool.run(tasks.fail, "no")
        except ValueError as error:
            marker.error = error  # type: ignore[attr-defined]

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(COUNT)))

    asyncio.run(main())
    _all_gone(markers)


def test_wrapped_futures(pool: Any) -> None:
    markers: list[weakref.ref[Marker]] = []

    async def one() -> None:
        marker = Marker()
        markers.append(weakref.ref(marker))
        future = asyncio.wrap_future(pool.submit(tasks.fail, "no"))
        try:
            await future
        except ValueError as error:
            marker.error = error  # type: ignore[attr-defined]

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(COUNT)))

    asyncio.run(main())
    _all_gone(markers)


def _as_completed(pool: Any, markers: list[weakref.ref[Marker]]) -> None:
    marker = Marker()
    markers.append(weakref.ref(marker))
    futures = [pool.submit(tasks.fail, "no"), pool.submit(tasks.square, 3)]
    for future in concurrent.futures.as_completed(futures):
        try:
            future.result()
        except ValueError as error:
            marker.error = error  # type: ignore[attr-defined]


def test_as_completed(pool: Any) -> None:
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        _as_completed(pool, markers)
    _all_gone(markers)


def _callback(pool: Any, gate: Any, markers: list[weakref.ref[Marker]]) -> None:
    marker = Marker()
    markers.append(weakref.ref(marker))
    future = pool.submit(tasks.square, 3)
    future.result(60)
    marker.future = future  # type: ignore[attr-defined]
    future.marker = marker
    future.itself = future


def test_attributes_of_futures(pool: Any, gate: Any) -> None:
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        _callback(pool, gate, markers)
    _all_gone(markers)


def test_callbacks_that_hold_the_future_are_called_first(make_pool: Callable[..., Any], gate: Any) -> None:
    pool = make_pool(1, kind="thread")
    pool.submit(gate.hold)
    until(gate.marks)
    markers: list[weakref.ref[Marker]] = []
    called: list[int] = []

    def one() -> None:
        marker = Marker()
        markers.append(weakref.ref(marker))
        future = pool.submit(tasks.square, 3)

        def callback(done: Any) -> None:
            called.append(done.result() + (future is done and marker is not None))

        future.add_done_callback(callback)

    for _ in range(COUNT):
        one()
    # Pending: nothing of it may be taken for garbage, whoever else has let go.
    assert _alive(markers) == COUNT
    gate.open()
    until(lambda: len(called) == COUNT)
    assert set(called) == {10}
    _all_gone(markers)


def _identity(value: Any) -> Any:
    return value


def test_values_of_threads_that_hold_their_future(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        marker = Marker()
        markers.append(weakref.ref(marker))
        future = pool.submit(_identity, marker)
        until(future.done)
        marker.future = future  # type: ignore[attr-defined]
        del marker, future
    _all_gone(markers)


def test_cancelled_calls_let_go_of_their_arguments(make_pool: Callable[..., Any], gate: Any) -> None:
    pool = make_pool(1, kind="thread")
    pool.submit(gate.hold)
    until(gate.marks)
    kept = []
    markers: list[weakref.ref[Marker]] = []
    for _ in range(COUNT):
        marker = Marker()
        markers.append(weakref.ref(marker))
        future = pool.submit(_identity, marker)
        assert future.cancel()
        kept.append(future)
        del marker
    _all_gone(markers)


@pytest.mark.parametrize("how", ["source", "callable", "value", "error"])
def test_map_iterators(make_pool: Callable[..., Any], how: str) -> None:
    pool = make_pool(2, kind="thread")
    markers: list[weakref.ref[Marker]] = []

    def one() -> None:
        marker = Marker()
        markers.append(weakref.ref(marker))
        box: list[Any] = [marker]
        if how == "source":

            def source() -> Any:
                yield from range(10**9)
                yield box

            made = pool.map(tasks.square, source())
        elif how == "callable":
            made = pool.map(lambda number: (number, box), iter(range(10**9)))
        elif how == "error":

            def fail(number: int) -> None:
                if number:
                    raise ValueError(box)

            made = pool.map(fail, iter(range(10**9)))
        else:
            made = pool.map(_identity, iter([0, box, box, box]))
        assert next(made) is not None or how == "error"
        box.append(made)

    for _ in range(COUNT):
        one()
    _all_gone(markers)


def test_batches_of_map_iterators(processes: Any) -> None:
    markers: list[weakref.ref[Marker]] = []

    def one() -> None:
        marker = Marker()
        markers.append(weakref.ref(marker))
        made = processes.map(tasks.square, range(20), chunksize=5)
        assert next(made) == 0
        made.marker = marker
        marker.made = made  # type: ignore[attr-defined]

    for _ in range(COUNT):
        one()
    _all_gone(markers)


def test_pools_that_their_functions_hold(make_pool: Callable[..., Any]) -> None:
    import ropewalk

    gone: list[weakref.ref[Any]] = []

    def one(kind: str) -> None:
        pool = ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
        box: list[Any] = []

        def function(number: int) -> int:
            return number if box is not None else 0

        future = pool.submit(function, 3)
        assert future.result(60) == 3
        box += [future] if kind == "process" else [future, pool]
        gone.append(weakref.ref(future))
        if kind == "thread":
            gone.append(weakref.ref(pool))

    for kind in ("thread", "process"):
        for _ in range(5):
            one(kind)
    until(lambda: (gc.collect(), not any(ref() is not None for ref in gone))[1])


def test_handles_of_threads_end_with_their_pool(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="thread")
    assert pool.submit(tasks.square, 2).result(60) == 4
    pool.shutdown()
    assert not any(thread.name.startswith(pool._name) for thread in threading.enumerate())
