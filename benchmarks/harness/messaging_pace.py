"""The two ends of the Python rows that keep to a rate. The sender says in each message when it sent it.

    python -m harness.messaging_pace PEER ENDPOINT RATE COUNT

iceoryx2 has no asyncio: its programs wait in a thread of an executor, and so does it here.

The clock is the system's, so it is the same in both processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

from harness.loops import new_loop
from harness.measure import percentile
from harness.messaging_ends import PACKAGES, free_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STAMP = struct.Struct("<q56x")
#: A sender that has longer than this to the next message sleeps, and wakes this many seconds before it is due.
EARLY = 150e-6
#: Of so many messages one more comes before the measured ones.
WARM = 5


def endpoint(transport: str) -> str:
    """An endpoint that nobody uses."""
    if transport == "tcp":
        return f"tcp://{free_address()}"
    return "inproc://paced" if transport == "inproc" else f"{transport}://{tempfile.mkdtemp()}/paced"


def pace(send: Callable[[bytes], Any], rate: int, count: int, *, gives_way: bool) -> None:
    """Send at the rate. A sender that shares the interpreter with the receiver sleeps instead of spinning."""
    now, sleep, pack = time.monotonic, time.sleep, _STAMP.pack
    start = now()
    for place in range(count):
        due = start + place / rate
        left = due - now()
        if gives_way:
            if left > 0:
                sleep(left)
        else:
            if left > EARLY:
                sleep(left - EARLY)
            while now() < due:
                pass
        send(pack(time.monotonic_ns()))


def _percentiles(took: list[int]) -> dict[str, float]:
    measured = took[len(took) // (WARM + 1) :]
    return {f"p{share * 100:.0f}": percentile(measured, share) / 1e3 for share in (0.5, 0.9, 0.99)}


def blocking(peer: str, transport: str, rate: int, count: int) -> dict[str, float]:
    """Percentiles in microseconds, with a receiver that blocks."""
    total, address = count + count // WARM, endpoint(transport)
    zmq = importlib.import_module(PACKAGES[peer])
    context = zmq.Context()
    end = context.socket(zmq.PULL)
    end.bind(address)
    took, recv, unpack, now = list[int](), end.recv, _STAMP.unpack, time.monotonic_ns
    with _sender(peer, context, address, rate, total):
        for _ in range(total):
            message = recv()
            took.append(now() - unpack(message)[0])
    return _percentiles(took)


def awaited(peer: str, loop_of: str, transport: str, rate: int, count: int) -> dict[str, float]:
    """Percentiles in microseconds, with a receiver in an event loop."""
    total, address = count + count // WARM, endpoint(transport)
    package = PACKAGES[peer]
    zmq, zmq_asyncio = importlib.import_module(package), importlib.import_module(f"{package}.asyncio")

    async def receive() -> list[int]:
        context = zmq_asyncio.Context()
        end = context.socket(zmq.PULL)
        end.bind(address)
        took, unpack, now = list[int](), _STAMP.unpack, time.monotonic_ns
        with _sender(peer, context, address, rate, total):
            for _ in range(total):
                message = await end.recv()
                took.append(now() - unpack(message)[0])
        return took

    with asyncio.Runner(loop_factory=lambda: new_loop(loop_of)) as runner:
        return _percentiles(runner.run(receive()))


def awaited_in_a_thread(peer: str, rate: int, count: int) -> dict[str, float]:
    """As `awaited`, for iceoryx2: the loop awaits a thread that waits for the event, and then takes the samples."""
    total, service = count + count // WARM, f"{peer}:{os.getpid()}"

    async def receive() -> list[int]:
        loop, took, now = asyncio.get_running_loop(), list[int](), time.monotonic_ns
        _node, samples, events = _services(service)
        subscriber, listener = samples.subscriber_builder().create(), events.listener_builder().create()
        with _sender(peer, None, service, rate, total):
            while len(took) < total:
                sample = subscriber.receive()
                if sample is None:
                    await loop.run_in_executor(None, listener.blocking_wait)
                    continue
                took.append(now() - sample.payload().contents.value)
                sample.delete()
        return took

    with asyncio.Runner() as runner:
        return _percentiles(runner.run(receive()))


def _services(service: str) -> tuple[Any, Any, Any]:
    """iceoryx2's node, and two services of it: for samples, and for the events that wake their receiver."""
    iox2 = importlib.import_module("iceoryx2")
    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    name = iox2.ServiceName.new(service)
    samples = node.service_builder(name).publish_subscribe(ctypes.c_int64)
    samples = samples.subscriber_max_buffer_size(1000).enable_safe_overflow(False).open_or_create()
    return node, samples, node.service_builder(name).event().open_or_create()


def _send_samples(service: str, rate: int, count: int) -> None:
    _node, samples, events = _services(service)
    publisher, notifier = samples.publisher_builder().create(), events.notifier_builder().create()

    def send(stamp: bytes) -> None:
        publisher.send_copy(ctypes.c_int64(_STAMP.unpack(stamp)[0]))
        notifier.notify()

    pace(send, rate, count, gives_way=False)


@contextlib.contextmanager
def _sender(peer: str, context: Any, address: str, rate: int, count: int) -> Iterator[None]:
    """The other end: a process of its own, or a thread where the context must be the same."""
    if address.startswith("inproc:"):
        zmq = importlib.import_module(PACKAGES[peer])
        end = zmq.Context.shadow(context).socket(zmq.PUSH)
        end.connect(address)
        thread = threading.Thread(target=pace, args=(end.send, rate, count), kwargs={"gives_way": True})
        thread.start()
        yield
        thread.join()
        return
    command = [sys.executable, "-m", "harness.messaging_pace", peer, address, str(rate), str(count)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    """Be the sender."""
    peer, address, rate, count = sys.argv[1:5]
    if peer == "iceoryx2":
        _send_samples(address, int(rate), int(count))
        time.sleep(60)
        return
    zmq = importlib.import_module(PACKAGES[peer])
    context = zmq.Context()
    end = context.socket(zmq.PUSH)
    end.connect(address)
    # The connection is made meanwhile.
    time.sleep(0.3)
    pace(end.send, int(rate), int(count), gives_way=False)
    # Whoever started this ends it, when the last message has arrived.
    time.sleep(60)


if __name__ == "__main__":
    main()
