"""Table: connections made and accepted."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from harness.loop_load import busy, server
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

#: Ends a connection without a trace: neither side keeps the port.
RESET = struct.pack("ii", 1, 0)
AT_ONCE = 8


def accepted(loop_of: str, kind: str, seconds: float) -> dict[str, float]:
    """Connections each second that a server accepts, greets and forgets, and the server's time for one."""
    with server(loop_of, kind) as (address, pid):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        target = address if isinstance(address, str) else ("127.0.0.1", address)
        poll = select.epoll()
        clients: dict[int, socket.socket] = {}

        def connect() -> None:
            client = socket.socket(family)
            client.connect(target)
            clients[client.fileno()] = client
            poll.register(client, select.EPOLLIN)

        for _ in range(AT_ONCE):
            connect()
        warm, count, began, ran = time.perf_counter() + seconds / 5, 0, 0.0, 0
        while True:
            for number, _ in poll.poll():
                client = clients.pop(number)
                if not client.recv(16):
                    raise RuntimeError("a connection was not greeted")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
                count += 1
                connect()
            now = time.perf_counter()
            if not began:
                if now >= warm:
                    began, count, ran = now, 0, busy(pid)
            elif now - began >= seconds:
                break
        ran = busy(pid) - ran
        for client in clients.values():
            client.close()
    return {"rate": count / (now - began), "busy": ran / count / 1e3}


#: Accepts and forgets; the floor of a server, alike for all.
LISTENER = """
import socket
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(listener.getsockname()[1], flush=True)
last = None
while True:
    last, _ = listener.accept()
"""


def connected(loop_of: str, kind: str, count: int) -> dict[str, float]:
    """Microseconds of this process to connect to a server, one connection after another."""

    async def by_socket(loop: asyncio.AbstractEventLoop, port: int) -> None:
        for _ in range(count):
            with socket.socket() as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, ("127.0.0.1", port))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    async def by_transport(loop: asyncio.AbstractEventLoop, port: int) -> None:
        class Client(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                transport.abort()

            def connection_lost(self, error: Exception | None) -> None:
                lost.set_result(None)

        for _ in range(count):
            lost = loop.create_future()
            await loop.create_connection(Client, "127.0.0.1", port)
            await lost

    main = by_socket if kind == "socket" else by_transport
    with subprocess.Popen([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        loop = new_loop(loop_of)
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main(loop, port))
        began = time.process_time_ns()
        loop.run_until_complete(main(loop, port))
        took = time.process_time_ns() - began
        asyncio.set_event_loop(None)
        loop.close()
        process.kill()
    return {"connected": took / count / 1e3}


def _accepted(kind: str, what: str) -> tuple[Line, Line]:
    players = {**PLAYERS, "raw": ()}
    contest = Contest(
        accepted, kind, players, as_argument="loop_of", timeout=60.0, kind=kind, seconds=Size(1.0, 0.2)
    )
    against = {**PEERS, "uvloop": times_better(1)}
    return (
        Line(what, "/s", contest, "rate", None, {**PEERS, "raw": None}, more_is_better=True),
        Line(f"{what}: the server's time", "µs", contest, "busy", None, against),
    )


def _connected(kind: str, what: str) -> Line:
    contest = Contest(
        connected, kind, PLAYERS, as_argument="loop_of", timeout=60.0, kind=kind, count=Size(2000, 50)
    )
    return Line(what, "µs", contest, "connected", None, {**PEERS, "uvloop": times_better(1)})


ROW = Row(
    "connections",
    "Connections, accepted and made",
    "Accepted: the client, one for all, is a process of its own with eight connections at a time; it connects, "
    "receives a byte and resets the connection. `raw` is the same server without a loop. Made: connections to a "
    "process that accepts and does nothing else, one after another; the time is what the connecting process has run.",
    (
        *_accepted("greeting", "accepted by create_server"),
        *_accepted("greeting-unix", "accepted by create_unix_server"),
        *_accepted("greeting-sockets", "accepted by sock_accept"),
        _connected("socket", "sock_connect"),
        _connected("transport", "create_connection"),
    ),
)
