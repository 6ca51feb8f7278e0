"""Streams: the items of generator tasks, in pools of both kinds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from tests.kinds import WITHOUT_NUMPY
from tests.polling import until
from tests.tasks import Gate, Unpicklable

import ropewalk


def count(n: int) -> Generator[int, None, str]:
    yield from range(n)
    return f"counted {n}"


def for_ever(gate: Gate | None = None) -> Iterator[int]:
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        if gate is not None:
            gate.mark("closed")


def made(gate: Gate, n: int = 10**6) -> Iterator[int]:
    for number in range(n):
        gate.mark("made")
        yield number


def various() -> Iterator[Any]:
    yield from (
        b"",
        b"bytes",
        "",
        "text",
        "ä\u20ac\U0001f600",
        "\ud800",
        0,
        -1,
        2**63 - 1,
        -(2**63),
        2**63,
        2**200,
    )
    yield from (
        0.0,
        -1.5,
        float("inf"),
        None,
        True,
        False,
        [],
        [1, [2]],
        {"a": {1}},
        (1, (2, b"3")),
        ValueError("e"),
    )
    yield b"x" * 300_000
    yield "y" * 300_000
    yield bytearray(b"z" * 300_000)


class Text(str):
    """No plain text."""

    __slots__ = ()


def own_types() -> Iterator[Any]:
    yield Text("t")
    yield asyncio.QueueFull


async def asynchronously(gate: Gate, n: int) -> AsyncIterator[int]:
    try:
        for number in range(n):
            await asyncio.sleep(0)
            yield number
    finally:
        gate.mark("closed")


def fail_after(n: int) -> Iterator[int]:
    yield from range(n)
    raise KeyError("after the items")


def stop_after(n: int) -> Iterator[int]:
    return map(_stop_at(n), range(n + 1))


def _stop_at(n: int) -> Callable[[int], int]:
    def element(number: int) -> int:
        if number == n:
            raise StopAsyncIteration
        return number

    return element


def test_items_come_in_order_and_the_value_at_the_end(pool: Any) -> None:
    for n in (0, 1, 5, 5000):
        stream = pool.stream(count, n)
        assert list(stream) == list(range(n))
        assert stream.value == f"counted {n}"
        assert stream.future.result(60) == stream.value
        assert list(stream) == []
    stream = pool.stream(count, 1)
    assert next(stream) == 0
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "counted 1"


def test_items_arrive_as_they_were(pool: Any) -> None:
    came = list(pool.stream(various))
    expected = list(various())
    assert [type(item) for item in came] == [type(item) for item in expected]
    assert [repr(item) for item in came] == [repr(item) for item in expected]
    text, error = pool.stream(own_types)
    assert type(text) is Text
    assert error is asyncio.QueueFull


def test_an_item_does_not_change_after_it_was_yielded(processes: Any) -> None:
    def grow() -> Iterator[list[int]]:
        items: list[int] = []
        for number in range(5):
            items.append(number)
            yield items

    assert [len(items) for items in processes.stream(grow)] == [1, 2, 3, 4, 5]


def test_arrays_travel_in_shared_memory(make_pool: Any, kind: str) -> None:
    numpy = pytest.importorskip("numpy")
    if kind in WITHOUT_NUMPY:
        pytest.skip(WITHOUT_NUMPY[kind])
    pool = make_pool(2, kind=kind)

    def arrays(n: int, size: int) -> Iterator[Any]:
        for number in range(n):
            yield numpy.full(size, number)

    for size in (10, 100_000, 1_000_000):
        came = 0
        for number, array in enumerate(pool.stream(arrays, 12, size)):
            assert array.shape == (size,)
            assert (array == number).all()
            came += 1
        assert came == 12


def test_any_iterable_streams(pool: Any) -> None:
    assert list(pool.stream(range, 3)) == [0, 1, 2]
    assert list(pool.stream(list, "abc")) == ["a", "b", "c"]
    assert list(pool.stream(dict, a=1)) == ["a"]
    assert list(pool.stream(map, abs, [-1, -2])) == [1, 2]


def test_what_is_not_iterable_is_an_error_that_says_so(pool: Any) -> None:
    async def coroutine() -> None: ...

    for function, args in [(abs, (-1,)), (coroutine, ())]:
        with pytest.raises(TypeError, match="needs a generator function"):
            list(pool.stream(function, *args))
    with pytest.raises(TypeError, match="stream needs a callable, not 3"):
        pool.stream(3)


def test_an_asynchronous_generator_streams(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    assert list(pool.stream(asynchronously, gate, 5)) == [0, 1, 2, 3, 4]
    assert len(gate.marks("closed")) == 1
    with pool.stream(asynchronously, gate, 10**9) as stream:
        assert next(stream) == 0
    until(lambda: len(gate.marks("closed")) == 2)


def test_the_value_of_a_stream_that_is_not_read_to_its_end(pool: Any) -> None:
    stream = pool.stream(range, 2)
    for _ in range(2):
        with pytest.raises(
            ropewalk.StreamUnfinished, match=r"not been read to its end.*Read all items first"
        ) as caught:
            _ = stream.value
        assert isinstance(caught.value, RuntimeError)
        next(stream)
    # All items are read, and nobody has seen the end.
    with pytest.raises(ropewalk.StreamUnfinished):
        _ = stream.value
    assert next(stream, "the end") == "the end"
    assert stream.value is None
    stream.close()
    assert stream.value is None
    with pool.stream(range, 2) as left:
        next(left)
    with pytest.raises(ropewalk.StreamUnfinished, match="left before its end"):
        _ = left.value


def test_an_error_comes_after_the_items_before_it(pool: Any) -> None:
    stream = pool.stream(fail_after, 3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="after the items"):
        next(stream)
    assert list(stream) == []
    with pytest.raises(ropewalk.StreamUnfinished, match=r"has failed.*outcome of the task"):
        _ = stream.value
    stream = pool.stream(stop_after, 2)
    assert [next(stream) for _ in range(2)] == [0, 1]
    with pytest.raises(StopAsyncIteration):
        next(stream)


def test_a_stop_iteration_of_the_function_does_not_end_the_loop_silently(pool: Any) -> None:
    def stop() -> Iterator[int]:
        raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(pool.stream(stop))


def test_an_item_that_cannot_be_pickled_ends_the_stream(processes: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def bad() -> Iterator[Any]:
        try:
            yield 1
            yield Unpicklable()
        finally:
            gate.mark("closed")

    stream = processes.stream(bad)
    assert next(stream) == 1
    with pytest.raises(ropewalk.ResultEncodeError):
        next(stream)
    assert len(gate.marks("closed")) == 1
    assert processes.submit(abs, -1).result(60) == 1


def test_arguments_that_cannot_be_pickled_are_an_error_of_the_stream(processes: Any) -> None:
    stream = processes.stream(list, Unpicklable())
    with pytest.raises(ropewalk.EncodeError):
        next(stream)
    stream.close()


def test_a_task_is_only_so_far_ahead_of_its_reader(pool: Any, tmp_path: Path) -> None:
    for size in (1, 2, 10):
        folder = tmp_path / str(size)
        folder.mkdir()
        gate = Gate(folder)
        with pool.options(buffersize=size).stream(made, gate) as stream:
            for number in range(3 * size):
                assert next(stream) == number
                ahead = len(gate.marks("made")) - (number + 1)
                assert ahead <= size
            until(lambda gate=gate, size=size: len(gate.marks("made")) >= 4 * size - size // 4)
            assert len(gate.marks("made")) <= 4 * size


def test_large_items_are_bounded_by_their_bytes(processes: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def large() -> Iterator[bytes]:
        for _ in range(40):
            gate.mark("made")
            yield bytes(4 << 20)

    stream = processes.stream(large)
    assert len(next(stream)) == 4 << 20
    until(lambda: len(gate.marks("made")) >= 4)
    # The first may have been counted as read by now.
    assert len(gate.marks("made")) <= 5
    assert sum(len(item) for item in stream) == 39 * (4 << 20)


def test_an_item_larger_than_the_bound_passes(processes: Any) -> None:
    def huge() -> Iterator[bytes]:
        for _ in range(3):
            yield bytes(40 << 20)

    assert [len(item) for item in processes.stream(huge)] == [40 << 20] * 3


@pytest.mark.parametrize("leave", ["break", "close", "with", "drop", "future", "shutdown"])
def test_a_reader_that_leaves_stops_the_generator(pool: Any, tmp_path: Path, leave: str) -> None:
    gate = Gate(tmp_path)
    stream = pool.stream(for_ever, gate)
    if leave == "break":
        for number in stream:
            if number == 2000:
                break
        del stream
    elif leave == "with":
        with stream:
            assert next(stream) == 0
        assert list(stream) == []
    else:
        assert next(stream) == 0
    if leave == "close":
        stream.close()
        stream.close()
        assert list(stream) == []
    elif leave == "drop":
        del stream
    elif leave == "future":
        assert stream.future.request_cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            for _ in stream:
                pass
    elif leave == "shutdown":
        pool.shutdown()
        with pytest.raises(concurrent.futures.CancelledError):
            for _ in stream:
                pass
    gc.collect()
    until(lambda: gate.marks("closed"))
    if leave != "shutdown":
        assert pool.submit(abs, -1).result(60) == 1
        until(lambda: pool.statistics().running == 0)


def test_a_stream_that_was_never_read_stops(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    stream = pool.stream(for_ever, gate)
    until(lambda: stream.future.running())
    stream.close()
    until(lambda: stream.future.cancelled())
    # It may have been stopped before its first item: then there is nothing to close.
    assert len(gate.marks("closed")) <= 1


def test_a_stream_that_waits_in_the_queue_is_cancelled(make_pool: Any, kind: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(1, kind=kind)
    first = pool.submit(gate.hold)
    until(lambda: gate.marks())
    stream = pool.stream(for_ever)
    stream.close()
    assert stream.future.cancelled()
    gate.open()
    first.result(60)


def test_a_stream_is_closed_from_another_thread(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def quiet() -> Iterator[int]:
        yield 1
        gate.hold("quiet")
        yield 2

    stream = pool.stream(quiet)
    assert next(stream) == 1
    until(lambda: gate.marks("quiet"))
    closer = threading.Timer(0.05, stream.close)
    closer.start()
    # The generator does not yield, and this does not wait for it.
    assert list(stream) == []
    closer.join()
    gate.open()


def test_a_generator_that_swallows_its_exit_is_an_error_of_its_task(pool: Any) -> None:
    def stubborn() -> Iterator[int]:
        for _ in range(2):
            try:
                while True:
                    yield 1
            except GeneratorExit:
                pass

    stream = pool.stream(stubborn)
    assert next(stream) == 1
    stream.close()
    assert isinstance(stream.future.exception(60), RuntimeError)
    assert pool.submit(abs, -1).result(60) == 1


def test_a_stream_sees_that_its_reader_has_left(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def look() -> Iterator[int]:
        task = ropewalk.current_task()
        assert task is not None
        yield 1
        gate.mark("looks")
        until(lambda: task.cancelled)
        gate.mark("seen")
        task.check()

    stream = pool.stream(look)
    assert next(stream) == 1
    # Else it may be closed where it yields.
    until(lambda: gate.marks("looks"))
    stream.close()
    until(lambda: gate.marks("seen"))
    with pytest.raises(concurrent.futures.CancelledError):
        stream.future.result(60)


def test_what_has_come_is_read_after_the_pool_has_ended(make_pool: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    stream = pool.stream(count, 10)
    assert stream.future.result(60) == "counted 10"
    pool.shutdown()
    assert list(stream) == list(range(10))


def test_threads_read_a_stream_together(pool: Any) -> None:
    stream = pool.stream(count, 20_000)
    parts: list[list[int]] = [[], [], []]

    def read(part: list[int]) -> None:
        part.extend(stream)

    threads = [threading.Thread(target=read, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chain(*parts)) == list(range(20_000))
    assert all(part == sorted(part) for part in parts)


def test_a_thread_and_a_coroutine_read_a_stream_together(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def slowly(n: int) -> Iterator[int]:
        gate.hold("quiet")
        yield from range(n)

    stream = pool.stream(slowly, 20_000)
    parts: list[list[int]] = [[], []]
    reader = threading.Thread(target=lambda: parts[0].extend(stream))

    async def read() -> None:
        async for number in stream:
            parts[1].append(number)

    async def main() -> None:
        until(lambda: gate.marks("quiet"))
        reader.start()
        reading = asyncio.create_task(read())
        # The thread waits for an item; so does the coroutine, and the loop goes on.
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not reading.done()
        gate.open()
        await asyncio.wait_for(reading, 60)

    # A loop that stands still never opens the gate.
    rescue = threading.Timer(20, gate.open)
    rescue.start()
    asyncio.run(main())
    assert not rescue.finished.is_set(), "the event loop stood still"
    rescue.cancel()
    reader.join()
    assert sorted(chain(*parts)) == list(range(20_000))
    assert all(part == sorted(part) for part in parts)


def test_many_streams_at_once(pool: Any) -> None:
    streams = [pool.stream(count, 3000) for _ in range(10)]
    futures = [pool.submit(abs, -number) for number in range(50)]
    assert all(list(stream) == list(range(3000)) for stream in streams)
    assert [future.result(60) for future in futures] == list(range(50))


def test_a_stream_is_no_future_and_cannot_be_made_by_hand() -> None:
    stream: Any = ropewalk.Stream()
    with pytest.raises(RuntimeError, match="only a pool can make"):
        next(stream)


def test_wrong_sizes_are_errors_that_name_them(pool: Any) -> None:
    with pytest.raises(ValueError, match="buffersize"):
        pool.options(buffersize=0)
    with pytest.raises(TypeError, match="buffersize"):
        pool.options(buffersize="many")


def test_a_task_timeout_ends_a_stream(make_pool: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind, task_timeout=0.2)
    stream = pool.stream(for_ever)
    with pytest.raises(ropewalk.TaskTimeout):
        for _ in stream:
            pass
    assert pool.submit(abs, -1).result(60) == 1


# --- asyncio ---------------------------------------------------------------------------------------------------------


def test_an_event_loop_reads_a_stream(pool: Any) -> None:
    async def main() -> None:
        for n in (0, 1, 3000):
            stream = pool.stream(count, n)
            assert [item async for item in stream] == list(range(n))
            assert stream.value == f"counted {n}"
        with pytest.raises(KeyError):
            async for _ in pool.stream(fail_after, 2):
                pass
        # Two at once, beside the loop's other work.
        reads = [asyncio.create_task(collect(pool.stream(count, 2000))) for _ in range(2)]
        assert await asyncio.gather(*reads) == [list(range(2000))] * 2

    async def collect(stream: Any) -> list[int]:
        return [item async for item in stream]

    asyncio.run(main())


def test_the_event_loop_goes_on_while_a_stream_is_quiet(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def slowly() -> Iterator[int]:
        yield 1
        gate.hold("quiet")
        yield 2

    async def main() -> None:
        stream = pool.stream(slowly)
        assert await anext(stream) == 1
        following = asyncio.ensure_future(anext(stream))
        while not gate.marks("quiet"):
            await asyncio.sleep(0.001)
        assert not following.done()
        gate.open()
        assert await following == 2
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(main())


def test_a_cancelled_loop_over_a_stream_stops_the_generator(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    closing = Gate(tmp_path)

    def slowly() -> Iterator[int]:
        try:
            yield 1
            gate.hold("quiet")
            yield 2
            yield 3
        finally:
            closing.mark("closed")

    async def main() -> None:
        async def read() -> None:
            async for _ in pool.stream(slowly):
                pass

        reading = asyncio.create_task(read())
        while not gate.marks("quiet"):
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        del reading
        gate.open()
        while not closing.marks("closed"):
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_cancelled_wait_loses_no_item(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def slowly() -> Iterator[int]:
        gate.hold("quiet")
        yield from range(3)

    async def main() -> None:
        stream = pool.stream(slowly)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        waiting = [asyncio.ensure_future(anext(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        gate.open()
        assert sorted([*await asyncio.gather(*waiting), await anext(stream)]) == [0, 1, 2]

    asyncio.run(main())


# --- memory ----------------------------------------------------------------------------------------------------------


class Link:
    """Part of a cycle."""

    held: Any = None


def test_a_cycle_through_a_stream_is_collected(make_pool: Any) -> None:
    pool = make_pool(1, kind="thread")
    for n, read in [(1, 0), (2, 1), (1, 1)]:
        link = Link()
        # The items are in the task, or laid out, or with the program.
        stream = pool.stream(repeat, link, n)
        stream.future.result(60)
        kept = [next(stream) for _ in range(read)]
        link.held = stream, kept
        gone = weakref.ref(stream)
        del link, stream, kept
        gc.collect()
        assert gone() is None, (n, read)


def test_a_stream_that_waits_for_its_reader_does_not_hang(make_pool: Any, kind: str) -> None:
    if kind == "interpreter":
        pytest.skip("a pool of interpreters has no hang_timeout")
    pool = make_pool(1, kind=kind)
    stream = pool.options(hang_timeout=0.5, buffersize=2).stream(count, 10)
    assert next(stream) == 0
    # Longer than a task may be silent; nothing can be polled for, because nothing happens.
    assert not concurrent.futures.wait([stream.future], 1.5).done
    assert list(stream) == list(range(1, 10))


def test_a_stream_keeps_its_pool(kind: str) -> None:
    def stream() -> Any:
        return ropewalk.Pool(1, kind=kind).stream(count, 5)  # type: ignore[arg-type]

    assert list(stream()) == list(range(5))

    def method() -> Any:
        return ropewalk.Pool(1, kind=kind).actor(Counting).items.stream(3)  # type: ignore[arg-type]

    assert list(method()) == [0, 1, 2]


class Counting:
    """An actor's class with a generator method."""

    def items(self, n: int) -> Iterator[int]:
        yield from range(n)


def test_a_stream_and_its_pool_are_dropped_together(kind: str) -> None:
    pool = ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
    engine = pool._engine
    stream: Any = pool.stream(for_ever)
    assert next(stream) == 0
    # A cycle through the stream, and one through the pool.
    stream.itself = stream
    pool.stream_of_mine = stream  # type: ignore[attr-defined]
    gone = weakref.ref(pool), weakref.ref(stream)
    del pool, stream
    until(lambda: gc.collect() is not None and [one() for one in gone] == [None, None])
    assert engine.closed
    until(lambda: engine.ended)


def test_a_stream_says_that_it_has_ended(pool: Any) -> None:
    stream = pool.stream(count, 2)
    assert list(stream) == [0, 1]
    until(stream.future.done)
    assert repr(stream) == f"<ropewalk.Stream of task {stream.future._id} ended>"
