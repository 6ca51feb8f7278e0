"""The functions that the contestants' workers run.

They are importable by name, as a plain program's functions are, and this module imports nothing heavy:
workers of every contestant pay for importing it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any

_held: Any = None
_leaked: list[bytearray] = []


def nothing() -> None:
    """The empty task: what remains is the pool's own cost."""


def increment(number: int) -> int:
    """The tiny task of the map row."""
    return number + 1


def numpy_version() -> str:
    """A first task that needs NumPy."""
    import numpy as np

    return str(np.__version__)


def arrive(arrivals: str, gate: str) -> int:
    """Announce this process in the FIFO `arrivals`, then wait until the gate (a locked file) opens.

    Nobody polls: a hundred workers wait in the kernel, and as each of them holds on to one task, each has
    run one.
    """
    pid = os.getpid()
    announce(arrivals)
    file = os.open(gate, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)
    return pid


def announce(arrivals: str) -> None:
    """Write this process's number to the FIFO, in one piece of eight bytes."""
    file = os.open(arrivals, os.O_WRONLY)
    try:
        os.write(file, b"%8d" % os.getpid())
    finally:
        os.close(file)


def sleep_after_announcing(arrivals: str, seconds: float) -> None:
    """Announce, then block in the kernel."""
    announce(arrivals)
    time.sleep(seconds)


def spin_after_announcing(arrivals: str, seconds: float) -> None:
    """Announce, then burn processor time in bytecode."""
    announce(arrivals)
    spin(seconds)


def count_primes(below: int) -> int:
    """Pure Python that holds the GIL."""
    return sum(
        all(number % factor for factor in range(2, int(number**0.5) + 1)) for number in range(2, below)
    )


def spin(seconds: float) -> None:
    """Burn processor time in bytecode."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def leak(number: int) -> int:
    """Keep a megabyte that is touched, and return the number."""
    _leaked.append(bytearray(b"x" * 1_000_000))
    return number


def sleep(seconds: float) -> None:
    """Block in the kernel."""
    time.sleep(seconds)


def sit_in_c(seconds: int) -> None:
    """Sleep in C code that holds the GIL, as a faulty extension does."""
    import ctypes

    library = ctypes.PyDLL(None)
    until = time.monotonic() + seconds
    while time.monotonic() < until:  # A signal cuts a sleep short.
        library.sleep(seconds)


def total(array: Any) -> tuple[int, float, float]:
    """The sum of an array: (this process, seconds of computing, the sum)."""
    import numpy as np

    began = time.perf_counter()
    value = float(np.asarray(array).sum())
    return os.getpid(), time.perf_counter() - began, value


def hold(arrivals: str, gate: str, length: int) -> int:
    """Keep a private array of this length in the worker, its pages touched; a rendezvous as `arrive`."""
    global _held
    import numpy as np

    _held = None if length == 0 else np.arange(length, dtype=np.float64)
    return arrive(arrivals, gate)


def total_held() -> tuple[int, float, float]:
    """`total` of the array that `hold` keeps: computing without any transport."""
    return total(_held)


def multiply(left: Any, right: Any, out: Any) -> None:
    """One matrix product, written in place."""
    import numpy as np

    np.matmul(np.asarray(left), np.asarray(right), out=np.asarray(out))


def blas_threads() -> tuple[int, int]:
    """This process's number, and how many threads its BLAS would use for a product now."""
    import ctypes

    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line[line.index("/") :].strip() for line in maps if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        for prefix, suffix in (("", ""), ("", "64_"), ("scipy_", ""), ("scipy_", "64_")):
            number = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            if number is not None:
                return os.getpid(), int(number())
    raise RuntimeError("NumPy's BLAS is none that tells its threads")


def kernels(shared: Any, shared_out: Any, repeats: int) -> dict[str, list[float]]:
    """The same kernels on shared and on plain arrays, turn by turn in one process: seconds of each turn.

    Those that are "small-paged" are plain arrays that may have no huge pages.
    """
    import mmap

    import numpy as np

    def small_paged(like: Any) -> Any:
        memory = mmap.mmap(-1, like.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        made = np.frombuffer(memory, like.dtype).reshape(like.shape)
        made[...] = like
        return made

    arrays = {"shared": (np.asarray(shared), np.asarray(shared_out))}
    plain = np.array(arrays["shared"][0])
    arrays["plain"] = (plain, np.zeros_like(plain))
    arrays["small-paged"] = (small_paged(plain), small_paged(arrays["plain"][1]))
    places = tuple(arrays)
    times: dict[str, list[float]] = {}
    for turn in range(repeats + 2):  # the first two turns map the pages of both and are not counted
        # Whoever goes second finds the caches as the first left them, so they take it in turns.
        for place in places[turn % 3 :] + places[: turn % 3]:
            source, out = arrays[place]
            began = time.perf_counter()
            np.multiply(source, 2.5, out=out)
            np.add(out, 1.0, out=out)
            middle = time.perf_counter()
            source.sum(axis=1)
            ended = time.perf_counter()
            if turn >= 2:
                times.setdefault(f"elementwise {place}", []).append(middle - began)
                times.setdefault(f"rows {place}", []).append(ended - middle)
    return times


def publish(bus: object, messages: int) -> None:
    """Publishes so many integers, one by one."""
    for number in range(messages):
        bus.publish("numbers", number)  # type: ignore[attr-defined]


def put_all(target: object, messages: int) -> None:
    """Puts so many integers into a queue, one by one."""
    for number in range(messages):
        target.put(number)  # type: ignore[attr-defined]


def chunks(count: int, size: int) -> Iterator[bytes]:
    """So many chunks of this many bytes."""
    chunk = bytes(size)
    for _ in range(count):
        yield chunk


def put_chunks(queue: Any, count: int, size: int) -> None:
    """Puts so many chunks into a queue, and None behind them."""
    for chunk in chunks(count, size):
        queue.put(chunk)
    queue.put(None)


def same(value: bytes) -> bytes:
    """Returns its argument."""
    return value


class Numbers:
    """An object for another process: it has a state, and a method that does next to nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def increment(self, number: int) -> int:
        """Counts the call, and adds 1."""
        self.calls += 1
        return number + 1


def serve_numbers(connection: Any) -> None:
    """Answers each number that comes with the next one, until `None` comes."""
    while (number := connection.recv()) is not None:
        connection.send(number + 1)
