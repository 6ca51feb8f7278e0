"""The client of `echo` and `http`: 32 connections to a server process, which send requests and read answers."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONNECTIONS = 32
SIZE = 1024


@contextlib.contextmanager
def server(loop_of: str, kind: str) -> Iterator[tuple[str | int, int]]:
    """A server in a process of its own; gives its address and its process number."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        command = [sys.executable, "-m", "harness.loop_servers", loop_of, kind, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            try:
                if not said:
                    raise RuntimeError(f"the {kind} server on {loop_of} did not start")
                yield path if kind.endswith("unix") else int(said), process.pid
            finally:
                process.kill()


_PEER = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if sys.argv[1] == "tell":
    while connection.recv(1):
        connection.send(time.perf_counter_ns().to_bytes(8, "big"))
elif sys.argv[1] == "pour":
    data = bytes(1 << 20)
    while True:
        connection.sendall(data)
elif sys.argv[1] == "drain":
    room = bytearray(1 << 20)
    while connection.recv_into(room):
        pass
else:
    time.sleep(3600)
"""


@contextlib.contextmanager
def peer_process(does: str) -> Iterator[socket.socket]:
    """A connection to a process that plays a peer: `tell` answers a byte with the time of its arrival, `pour` sends
    without pause, `drain` receives without pause, `idle` does nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", _PEER, does, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                connection, _ = listener.accept()
                connection.setblocking(False)
                yield connection
            finally:
                process.kill()


def connect(address: str | int) -> socket.socket:
    """A connection to a server, by tcp or by a path."""
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        connection = socket.create_connection(("127.0.0.1", address))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connect_datagrams(address: str | int) -> socket.socket:
    """A socket for datagrams to a server's port."""
    made = socket.socket(type=socket.SOCK_DGRAM)
    made.connect(("127.0.0.1", address))
    return made


def busy(pid: int) -> int:
    """Nanoseconds that a process of one thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def load(
    server: tuple[str | int, int],
    message: bytes,
    answer: int,
    seconds: float,
    connecting: Callable[[Any], socket.socket] = connect,
    count: int = CONNECTIONS,
) -> dict[str, float]:
    """Answers each second, and the server's time for one.

    Every connection asks again as soon as it has its answer of so many bytes.
    """
    address, pid = server
    poll = select.epoll()
    connections = {made.fileno(): made for made in (connecting(address) for _ in range(count))}
    missing = dict.fromkeys(connections, answer)
    for number, connection in connections.items():
        poll.register(number, select.EPOLLIN)
        connection.send(message)
    warm, answers, began, spent = time.perf_counter() + seconds / 5, 0, 0.0, 0
    while True:
        for number, _ in poll.poll():
            connection = connections[number]
            left = missing[number] - len(connection.recv(65536))
            if left > 0:
                missing[number] = left
                continue
            missing[number] = answer
            answers += 1
            connection.send(message)
        now = time.perf_counter()
        if not began:
            if now >= warm:
                began, answers, spent = now, 0, busy(pid)
        elif now - began >= seconds:
            break
    spent = busy(pid) - spent
    for connection in connections.values():
        connection.close()
    return {"rate": answers / (now - began), "busy": spent / answers / 1e3}
