"""Rows: 32 connections that ask and are answered, and two HTTP servers."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from _loop_factory import LOOPS, cases
from _measure import Case, Options, Outcome
from _report import Figure, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CONNECTIONS = 32
SIZE = 1024
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def _server(loop_of: str, kind: str) -> Iterator[tuple[str | int, int]]:
    """A server in a process of its own; gives its address and its process number."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        script = Path(__file__).with_name("_loop_servers.py")
        command = [sys.executable, str(script), loop_of, kind, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            try:
                if not said:
                    raise RuntimeError(f"the {kind} server on {loop_of} did not start")
                yield path if kind == "unix" else int(said), process.pid
            finally:
                process.kill()


def _connect(address: str | int) -> socket.socket:
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        connection = socket.create_connection(("127.0.0.1", address))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _busy(pid: int) -> int:
    """Nanoseconds that a process of one thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def _load(server: tuple[str | int, int], message: bytes, answer: int, seconds: float) -> dict[str, float]:
    """Answers each second, and the server's time for one.

    Every connection asks again as soon as it has its answer of so many bytes.
    """
    address, pid = server
    poll = select.epoll()
    connections = {made.fileno(): made for made in (_connect(address) for _ in range(CONNECTIONS))}
    missing = dict.fromkeys(connections, answer)
    for number, connection in connections.items():
        poll.register(number, select.EPOLLIN)
        connection.send(message)
    warm, answers, began, busy = time.perf_counter() + seconds / 5, 0, 0.0, 0
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
                began, answers, busy = now, 0, _busy(pid)
        elif now - began >= seconds:
            break
    busy = _busy(pid) - busy
    for connection in connections.values():
        connection.close()
    return {"rate": answers / (now - began), "busy": busy / answers / 1e3}


def echo(loop_of: str, kind: str, seconds: float) -> dict[str, float]:
    """1 KiB there and back."""
    with _server(loop_of, kind) as server:
        return _load(server, b"x" * SIZE, SIZE, seconds)


def http(loop_of: str, kind: str, seconds: float) -> dict[str, float]:
    """A small answer to a GET on a connection that is kept."""
    with _server(loop_of, kind) as server:
        with _connect(server[0]) as connection:
            connection.send(REQUEST)
            time.sleep(0.2)
            length = len(connection.recv(65536))
        return _load(server, REQUEST, length, seconds)


KINDS = (
    ("sockets", "sock_recv, sock_sendall", 2.2),
    ("streams", "streams", 1.3),
    ("protocol", "protocol, tcp", 1.10),
    ("unix", "protocol, unix", 1.08),
)


def _echo_cases(options: Options) -> Sequence[Case]:
    seconds = 0.2 if options.quick else 1.0
    made: list[Case] = []
    for kind, _, _ in KINDS:
        contest, arguments = "_rows_loop_io:echo", {"kind": kind, "seconds": seconds}
        made += cases(contest, arguments, prefix=f"{kind}, ")
        made.append(Case(f"{kind}, raw", contest, arguments | {"loop_of": "raw"}))
    return made


def _echo_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for kind, what, bound in KINDS:
        for peer in (*LOOPS[1:4], "raw"):
            yield figure(
                outcomes,
                what,
                "/s",
                (f"{kind}, ropewalk", "rate"),
                (f"{kind}, {peer}", "rate"),
                goal=times_better(bound) if peer == "uvloop" else None,
                more_is_better=True,
            )
        for peer in LOOPS[1:4]:
            ours, theirs = (f"{kind}, ropewalk", "busy"), (f"{kind}, {peer}", "busy")
            yield figure(outcomes, f"{what}: the server's time", "µs", ours, theirs)


ECHO = Row(
    "echo",
    "1 KiB there and back on 32 connections, answers each second",
    "Server and client have a process each, on two cores; the client is one for all: Python, epoll, raw sockets. `raw` "
    "is a server of the same make, and the client's own limit where a loop is near it. The server's time is what its "
    "process has run for each answer, which the client does not limit.",
    _echo_cases,
    _echo_figures,
)


def _http_cases(options: Options) -> Sequence[Case]:
    seconds = 0.2 if options.quick else 1.0
    made: list[Case] = []
    for kind, needs in (("uvicorn", ("uvicorn", "httptools")), ("aiohttp", ("aiohttp",))):
        for loop_of in LOOPS:
            own = () if loop_of == "asyncio" else (loop_of,)
            arguments: dict[str, object] = {"loop_of": loop_of, "kind": kind, "seconds": seconds}
            made.append(
                Case(f"{kind}, {loop_of}", "_rows_loop_io:http", arguments, (*own, *needs), timeout=60.0)
            )
    return made


def _http_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for kind in ("uvicorn", "aiohttp"):
        for peer in LOOPS[1:4]:
            yield figure(
                outcomes,
                kind,
                "/s",
                (f"{kind}, ropewalk", "rate"),
                (f"{kind}, {peer}", "rate"),
                goal=times_better(1.08) if peer == "uvloop" else None,
                more_is_better=True,
            )


HTTP = Row(
    "http",
    "HTTP servers, answers each second",
    "uvicorn with httptools and an empty ASGI application, aiohttp's server with an empty handler; 32 connections that "
    "are kept, one client for all, as in `echo`.",
    _http_cases,
    _http_figures,
)
