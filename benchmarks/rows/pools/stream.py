"""Table: a stream of a million small chunks from one worker."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import workloads
from harness.measure import Size
from harness.pools import OUR_THREADS, OURS
from harness.table import Contest, Line, Row, at_least, at_most, times_better

BYTES = 64
FLOOR = "a generator of this process"
QUEUE = "multiprocessing.Queue"
SIMPLE = "multiprocessing.SimpleQueue"
IMAP = "multiprocessing.Pool.imap"
RAY = "Ray"

PLAYERS: dict[str, tuple[str, ...]] = {
    OURS: ("ropewalk",),
    OUR_THREADS: ("ropewalk",),
    FLOOR: (),
    QUEUE: (),
    SIMPLE: (),
    IMAP: (),
    RAY: ("ray",),
}


def _ours(kind: str, size: int) -> tuple[Callable[[int], Iterable[bytes]], Callable[[], None]]:
    import ropewalk

    pool = ropewalk.Pool(1, kind=kind)  # type: ignore[arg-type]
    return (lambda chunks: pool.stream(workloads.chunks, chunks, size)), pool.shutdown


def _from_queue(make: Callable[[], Any], chunks: int, size: int) -> Iterator[bytes]:
    queue = make()
    producer = multiprocessing.get_context("fork").Process(
        target=workloads.put_chunks, args=(queue, chunks, size)
    )
    producer.start()
    try:
        yield from iter(queue.get, None)
    finally:
        producer.join()


def _with_ray(size: int) -> tuple[Callable[[int], Iterable[bytes]], Callable[[], None]]:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    generator = ray.remote(num_returns="streaming")(workloads.chunks)
    return (lambda chunks: map(ray.get, generator.remote(chunks, size))), ray.shutdown


def _source(peer: str, size: int) -> tuple[Callable[[int], Iterable[bytes]], Callable[[], None]]:
    """A function that gives so many chunks, and one that ends its workers."""
    fork = multiprocessing.get_context("fork")
    if peer in (OURS, OUR_THREADS):
        return _ours("process" if peer == OURS else "thread", size)
    if peer == RAY:
        return _with_ray(size)
    if peer == IMAP:
        pool = fork.Pool(1)
        one = bytes(size)
        return (lambda chunks: pool.imap(workloads.same, (one for _ in range(chunks)), 1024)), pool.terminate
    if peer in (QUEUE, SIMPLE):
        make = fork.Queue if peer == QUEUE else fork.SimpleQueue
        return (lambda chunks: _from_queue(make, chunks, size)), lambda: None
    return (lambda chunks: workloads.chunks(chunks, size)), lambda: None


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def streaming(peer: str, chunks: int, size: int) -> dict[str, float]:
    """Chunks a second of one stream, the time to its first, and by how much this process grew meanwhile."""
    source, close = _source(peer, size)
    if sum(map(len, source(1000))) != 1000 * size:
        raise RuntimeError("the stream's chunks are wrong")
    before = _resident_bytes()
    began = time.perf_counter()
    received = 0
    first = 0.0
    for chunk in source(chunks):
        if not received:
            first = time.perf_counter() - began
        received += len(chunk)
    seconds = time.perf_counter() - began
    grown = _resident_bytes() - before
    close()
    if received != chunks * size:
        raise RuntimeError("the stream's chunks are wrong")
    return {"rate": chunks / seconds, "first": first, "grown": max(0, grown) / 2**20}


#: Ray would take too long over all chunks.
ALL = Contest(streaming, "64 B", PLAYERS, chunks=Size(1_000_000, 2_000), size=BYTES)
FEW = Contest(streaming, "64 B, few", PLAYERS, chunks=Size(5_000, 200), size=BYTES)
LARGE = Contest(streaming, "1 MiB", PLAYERS, chunks=Size(500, 5), size=1 << 20)

ROW = Row(
    "stream",
    "a stream of 1,000,000 chunks of 64 B, 1 worker",
    "A generator in the worker yields one bytes object again and again; a loop in the parent reads it, pool warm. The "
    "first chunk: from the call of stream. Growth: of the reader's resident memory over the whole stream. "
    "multiprocessing.Queue and SimpleQueue: a forked process puts each chunk; imap sends 1,024 chunks there and back "
    "at a time. Ray is given 5,000 chunks.",
    (
        Line(
            "64 B",
            "chunks/s",
            ALL,
            "rate",
            at_least(1_000_000),
            {
                QUEUE: times_better(5),
                SIMPLE: times_better(3),
                IMAP: None,
                FLOOR: None,
                FEW.by(RAY): times_better(100),
            },
            more_is_better=True,
        ),
        Line("64 B, growth", "MiB", ALL, "grown", at_most(4)),
        Line("the first chunk", "us", ALL, "first", None, {QUEUE: None}, scale=1e6),
        Line("64 B, threads", "chunks/s", ALL, "rate", None, {FLOOR: None}, OUR_THREADS, more_is_better=True),
        Line("1 MiB", "chunks/s", LARGE, "rate", None, {QUEUE: None, SIMPLE: None}, more_is_better=True),
    ),
)
