"""The two ends of the Python rows that keep to a rate. The sender says in each message when it sent it.

    python -m harness.messaging_pace PEER ENDPOINT RATE COUNT

The clock is the system's, so it is the same in both processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
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
