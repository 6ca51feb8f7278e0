"""The two ends of the Python rows of messaging, and the process of the end that is not timed.

    python -m harness.messaging_ends PEER END ADDRESS PLACE LOOP SIZE COUNT

The end that is timed runs in the contest's own interpreter, by the same functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from harness.loops import new_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

#: The package that has pyzmq's names.
PACKAGES = {"ropewalk": "ropewalk.zmq", "pyzmq": "zmq", "pyomq": "pyomq"}
#: Who plays the rows in Python, with the modules that each needs.
PLAYERS: dict[str, tuple[str, ...]] = {"ropewalk": ("ropewalk",), "pyzmq": ("zmq",), "pyomq": ("pyomq",)}
_HEAD = struct.Struct("<I")
#: Messages that one call of `send_many` or `recv_many` may move.
MANY = 256


def settle(place: str) -> None:
    """Pin this process to the first core that it may use, if asked."""
    if place == "one":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def free_address() -> str:
    """A host and port that nobody used a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def opened(peer: str, kind: str, address: str, *, bind: bool, aio: bool = False) -> Any:
    """A socket of the peer, and its context, which must live as long."""
    package = PACKAGES[peer]
    zmq = importlib.import_module(package)
    context = importlib.import_module(f"{package}.asyncio").Context() if aio else zmq.Context()
    made = context.socket(getattr(zmq, kind))
    (made.bind if bind else made.connect)(f"tcp://{address}")
    return made


# --- blocking ----------------------------------------------------------------


def serve(peer: str, address: str, size: int, count: int) -> None:
    """Answer so many requests with what they said."""
    if peer == "raw":
        with socket.create_server(_pair(address)) as listener:
            connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            connection.sendall(_HEAD.pack(size) + _whole(connection))
        return
    end = opened(peer, "REP", address, bind=True)
    recv, send = end.recv, end.send
    for _ in range(count):
        send(recv())


def ask(peer: str, address: str, size: int, count: int) -> Callable[[int], float]:
    """Connects; gives a function that makes so many round trips and says how many seconds they took."""
    body = b"x" * size
    if peer == "raw":
        connection = _connected(address)

        def trips(times: int) -> float:
            began = time.perf_counter()
            for _ in range(times):
                connection.sendall(_HEAD.pack(size) + body)
                _whole(connection)
            return time.perf_counter() - began

        return trips
    end = opened(peer, "REQ", address, bind=False)
    recv, send = end.recv, end.send

    def asked(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            send(body)
            recv()
        return time.perf_counter() - began

    return asked


def push(peer: str, address: str, size: int, count: int) -> None:
    """Send so many messages, one call each."""
    end, body = opened(peer, "PUSH", address, bind=False), b"x" * size
    send = end.send
    for _ in range(count):
        send(body)
    _linger()


def push_many(peer: str, address: str, size: int, count: int) -> None:
    """Send so many messages, many to a call."""
    end, bodies = opened(peer, "PUSH", address, bind=False), [b"x" * size] * MANY
    left = count
    while left > 0:
        left -= end.send_many(bodies if left >= MANY else bodies[:left])
    _linger()


def push_uncopied(peer: str, address: str, size: int, count: int) -> None:
    """Send so many messages without copying them."""
    end, body = opened(peer, "PUSH", address, bind=False), b"x" * size
    send = end.send
    for _ in range(count):
        send(body, copy=False)
    _linger()


def pull(peer: str, address: str, size: int, count: int, *, copy: bool = True) -> float:
    """Messages each second, one call each."""
    recv = opened(peer, "PULL", address, bind=True).recv
    warm = count // 10
    take: Callable[[], Any] = recv if copy else lambda: recv(copy=False)
    for _ in range(warm):
        _check(take(), size)
    began = time.perf_counter()
    for _ in range(count - warm):
        message = take()
    took = time.perf_counter() - began
    _check(message, size)
    return (count - warm) / took


def pull_many(peer: str, address: str, size: int, count: int) -> float:
    """Messages each second, many to a call."""
    recv_many = opened(peer, "PULL", address, bind=True).recv_many
    warm, taken = count // 10, 0
    while taken < warm:
        taken += len(recv_many(MANY))
    began, before = time.perf_counter(), taken
    while taken < count:
        messages = recv_many(MANY)
        taken += len(messages)
    took = time.perf_counter() - began
    _check(messages[-1], size)
    return (taken - before) / took


# --- asyncio -----------------------------------------------------------------


async def serve_async(peer: str, address: str, size: int, count: int) -> None:
    """As `serve`."""
    end = opened(peer, "REP", address, bind=True, aio=True)
    for _ in range(count):
        await end.send(await end.recv())
    await asyncio.sleep(1)


async def ask_async(peer: str, address: str, size: int, count: int) -> list[float]:
    """Seconds of ten batches of round trips, of which the first warms up."""
    end, body = opened(peer, "REQ", address, bind=False, aio=True), b"x" * size
    times: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(count // 10):
            await end.send(body)
            await end.recv()
        times.append(time.perf_counter() - began)
    return times


async def push_async(peer: str, address: str, size: int, count: int) -> None:
    """As `push`."""
    end, body = opened(peer, "PUSH", address, bind=False, aio=True), b"x" * size
    for _ in range(count):
        await end.send(body)
    await asyncio.Event().wait()


async def pull_async(peer: str, address: str, size: int, count: int) -> float:
    """As `pull`."""
    end = opened(peer, "PULL", address, bind=True, aio=True)
    warm = count // 10
    for _ in range(warm):
        _check(await end.recv(), size)
    began = time.perf_counter()
    for _ in range(count - warm):
        message = await end.recv()
    took = time.perf_counter() - began
    _check(message, size)
    return (count - warm) / took


def driven(loop_of: str, work: Awaitable[Any]) -> Any:
    """What the work gives, on that package's loop."""
    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(work)


# --- the other process -------------------------------------------------------

BLOCKING = {"serve": serve, "push": push, "push_many": push_many, "push_uncopied": push_uncopied}
ASYNC = {"serve_async": serve_async, "push_async": push_async}


@contextlib.contextmanager
def beside(
    peer: str, end: str, address: str, place: str, loop_of: str, size: int, count: int
) -> Iterator[None]:
    """The other end, in a process of its own, which is gone afterwards."""
    command = [
        sys.executable,
        "-m",
        "harness.messaging_ends",
        peer,
        end,
        address,
        place,
        loop_of,
        str(size),
        str(count),
    ]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


def _linger() -> None:
    # Whoever started this ends it, when the last message has arrived.
    time.sleep(60)


def _check(message: Any, size: int) -> None:
    if len(message) != size:
        raise RuntimeError(f"a message of {len(message)} bytes, and not {size}")


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _connected(address: str) -> socket.socket:
    until = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection(_pair(address))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _whole(connection: socket.socket) -> bytes:
    """The next message; there is one at most."""
    data = connection.recv(65536)
    length = _HEAD.unpack_from(data)[0] + _HEAD.size
    while len(data) < length:
        data += connection.recv(65536)
    return data[_HEAD.size :]


def main() -> None:
    """Be the other end."""
    peer, end, address, place, loop_of, size, count = sys.argv[1:8]
    settle(place)
    if end in ASYNC:
        driven(loop_of, ASYNC[end](peer, address, int(size), int(count)))
    else:
        BLOCKING[end](peer, address, int(size), int(count))


if __name__ == "__main__":
    main()
