"""Table: one connection, whose other end is a thread or another process."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, cast

from harness.loop_load import peer_process
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SIZE = 1024
PIECE = 64 * 1024


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


def _answer(listener: socket.socket) -> None:
    """The floor: epoll, recv and send, and nothing else."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, select.epoll() as poll:
        poll.register(connection, select.EPOLLIN)
        while poll.poll() and (data := connection.recv(4 * SIZE)):
            connection.send(data)


def thread(loop_of: str, count: int) -> dict[str, float]:
    """Answers each second to a thread of the same process, which asks over a plain socket and waits."""
    rates = []

    def ask(address: tuple[str, int]) -> None:
        message = b"x" * SIZE
        with socket.create_connection(address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for times in (count // 10, count):
                began = time.perf_counter()
                for _ in range(times):
                    connection.sendall(message)
                    left = SIZE
                    while left:
                        left -= len(connection.recv(left))
                rates.append(times / (time.perf_counter() - began))

    if loop_of == "raw":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = threading.Thread(target=ask, args=(listener.getsockname(),))
            client.start()
            _answer(listener)
        client.join()
        return {"rate": rates[-1]}
    loop = new_loop(loop_of)

    def ask_and_tell(address: tuple[str, int], done: asyncio.Event) -> None:
        ask(address)
        loop.call_soon_threadsafe(done.set)

    async def main() -> None:
        done = asyncio.Event()
        server = await loop.create_server(_Echo, "127.0.0.1", 0)
        client = threading.Thread(target=ask_and_tell, args=(server.sockets[0].getsockname()[:2], done))
        client.start()
        await done.wait()
        client.join()
        server.close()

    loop.run_until_complete(main())
    loop.close()
    return {"rate": rates[-1]}


def bulk(loop_of: str, megabytes: int) -> dict[str, float]:
    """Megabytes each second through a stream reader, sent by another process: as they come, and in fixed pieces."""
    loop = new_loop(loop_of)

    async def pieces(read: Callable[[int], Awaitable[bytes]]) -> float:
        left, began = megabytes << 20, time.perf_counter()
        while left:
            left -= len(await read(min(left, PIECE)))
        return megabytes / (time.perf_counter() - began)

    async def main() -> dict[str, float]:
        with peer_process("pour") as connection:
            reader, writer = await asyncio.open_connection(sock=connection)
            await pieces(reader.read)
            figures = {"read": await pieces(reader.read), "readexactly": await pieces(reader.readexactly)}
            writer.transport.abort()
            await asyncio.sleep(0.01)
        return figures

    asyncio.set_event_loop(loop)
    figures = loop.run_until_complete(main())
    asyncio.set_event_loop(None)
    loop.close()
    return figures


THREAD = Contest(thread, "thread", {**PLAYERS, "raw": ()}, as_argument="loop_of", count=Size(20_000, 50))
BULK = Contest(bulk, "bulk", PLAYERS, as_argument="loop_of", megabytes=Size(1024, 1))
AT_LEAST = dict.fromkeys(PEERS, times_better(1))


ROW = Row(
    "single",
    "One connection",
    "Answers of 1 KiB each second, by a protocol, to a client that is a thread of the same process. The two threads "
    "wake each other for every answer, which takes most of the time: `raw` is epoll, recv and send alone. Megabytes "
    "each second that a stream reader gives its task from a process that sends without pause, 64 KiB at a time.",
    (
        Line(
            "client in a thread", "/s", THREAD, "rate", None, {**AT_LEAST, "raw": None}, more_is_better=True
        ),
        Line("read(n)", "MiB/s", BULK, "read", None, AT_LEAST, more_is_better=True),
        Line("readexactly(n)", "MiB/s", BULK, "readexactly", None, AT_LEAST, more_is_better=True),
    ),
)
