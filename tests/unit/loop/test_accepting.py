"""Accepting: limits, ends in the middle of a batch, contexts and addresses."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, turns, until

import ropewalk

Loop = asyncio.AbstractEventLoop
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio fails at it, or promises less")


@pytest.fixture
def few_descriptors(no_descriptor_left: None) -> Iterator[None]:
    """Leaves the process no free descriptor while the test wants it so."""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, old)


def _allow_no_more() -> int:
    """Refuses this process further descriptors, and returns its limit: the lowest number that is free."""
    limit = os.dup(0)
    os.close(limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return limit


def _allow_all() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)


def _clients(address: Any, count: int, family: int = socket.AF_INET) -> list[socket.socket]:
    made = []
    for _ in range(count):
        client = socket.socket(family)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(address)
        made.append(client)
    return made


@only_ropewalk
async def test_a_process_without_descriptors_says_so_once_and_loses_no_connection(
    loop: Loop, reports: list[dict[str, Any]], few_descriptors: None
) -> None:
    peers: list[Recording] = []

    def factory() -> Recording:
        peers.append(Recording())
        return peers[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = _clients(address, 5)
    limit = _allow_no_more()
    await until(lambda: reports)
    await turns()
    (report,) = reports
    reports.clear()
    assert report["message"].startswith("socket.accept() out of system resource")
    assert f"({limit})" in report["message"]
    assert "RLIMIT_NOFILE" in report["message"]
    assert report["exception"].errno == 24
    assert report["socket"].getsockname() == address
    _allow_all()
    await until(lambda: len(peers) == 5 and all(peer.transport for peer in peers))
    for client in clients:
        client.close()
    await until(lambda: all(peer.lost for peer in peers))
    server.close()
    await server.wait_closed()


@only_ropewalk
async def test_a_server_that_closes_while_it_waits_for_descriptors_accepts_no_more(
    loop: Loop, reports: list[dict[str, Any]], few_descriptors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.01)
    server = await loop.create_server(Recording, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    _allow_no_more()
    await until(lambda: reports)
    server.close()
    _allow_all()
    reports.clear()
    await asyncio.sleep(0.05)
    await server.wait_closed()
    client.close()


@only_ropewalk
async def test_a_factory_may_close_its_server(loop: Loop) -> None:
    peers: list[Recording] = []

    def factory() -> Recording:
        server.close()
        peers.append(Recording())
        return peers[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    clients = _clients(server.sockets[0].getsockname(), 4)
    await until(lambda: peers)
    await turns()
    assert not server.is_serving()
    # The listener is closed: nobody else is accepted.
    assert len(peers) == 1
    for client in clients:
        client.close()
    await until(lambda: all(peer.lost for peer in peers if peer.transport))


async def test_each_connection_has_a_context_of_its_own(loop: Loop) -> None:
    name = contextvars.ContextVar("name", default="nobody")
    name.set("server")
    seen: list[tuple[str, str]] = []

    class Named(Recording):
        def __init__(self) -> None:
            super().__init__()
            self.before = name.get()
            name.set(f"connection {len(seen)}")

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append((self.before, name.get()))

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            left.append(1)

    left: list[int] = []
    server = await loop.create_server(Named, "127.0.0.1", 0)
    for count in range(1, 4):
        (client,) = _clients(server.sockets[0].getsockname(), 1)
        await until(lambda count=count: len(seen) == count)
        client.close()
    await until(lambda: len(left) == 3)
    assert seen == [("server", f"connection {number}") for number in range(3)]
    assert name.get() == "server"
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("kind", ["inet", "inet6", "path", "abstract", "unnamed"])
async def test_the_address_of_the_other_end(loop: Loop, tmp_path: Path, kind: str) -> None:
    peers: list[Recording] = []

    def factory() -> Recording:
        peers.append(Recording())
        return peers[-1]

    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(kind, socket.AF_UNIX)
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    if family == socket.AF_UNIX:
        server: Any = await loop.create_unix_server(factory, str(tmp_path / "server"))
    else:
        server = await loop.create_server(factory, "127.0.0.1" if kind == "inet" else "::1", 0)
    with socket.socket(family) as client:
        if kind == "path":
            client.bind(str(tmp_path / "ünamed"))
        elif kind == "abstract":
            client.bind(b"\0ropewalk-" + str(tmp_path).encode()[-20:])
        client.connect(server.sockets[0].getsockname())
        await until(lambda: peers and peers[0].transport)
        assert peers[0].transport.get_extra_info("peername") == client.getsockname()
        assert peers[0].transport.get_extra_info("sockname") == client.getpeername()
    await until(lambda: peers[0].lost)
    server.close()
    await server.wait_closed()


@only_ropewalk
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_factory_that_ends_the_program(loop: Loop, error: type[BaseException]) -> None:
    def factory() -> Recording:
        raise error

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    with pytest.raises(error):
        loop.run_until_complete(asyncio.sleep(30))
    client.close()
    server.close()
    loop.run_until_complete(server.wait_closed())


@only_ropewalk
async def test_a_connection_whose_factory_fails_is_closed_at_once(loop: Loop) -> None:
    def factory() -> Recording:
        raise ZeroDivisionError

    server = await loop.create_server(factory, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    with client:
        assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""
    server.close()
    await server.wait_closed()


@only_ropewalk
async def test_in_debug_mode_a_factory_that_fails_is_reported(
    loop: Loop, reports: list[dict[str, Any]]
) -> None:
    def factory() -> Recording:
        raise ZeroDivisionError

    loop.set_debug(True)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: reports)
    client.close()
    (report,) = reports
    assert isinstance(report["exception"], ZeroDivisionError)
    reports.clear()
    server.close()
    await server.wait_closed()


@only_ropewalk
async def test_no_task_is_made_for_a_connection(loop: Loop) -> None:
    tasks: list[asyncio.Task[Any] | None] = []
    peers: list[Recording] = []

    def factory() -> Recording:
        tasks.append(asyncio.current_task())
        peers.append(Recording())
        return peers[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    clients = _clients(server.sockets[0].getsockname(), 3)
    await until(lambda: len(peers) == 3)
    assert tasks == [None] * 3
    for client in clients:
        client.close()
    await until(lambda: all(peer.lost for peer in peers))
    server.close()
    await server.wait_closed()


async def test_a_listener_that_is_no_plain_socket(loop: Loop) -> None:
    class Listener(socket.socket):
        accepted = 0

        def accept(self) -> tuple[socket.socket, Any]:
            made = super().accept()
            type(self).accepted += 1
            return made

    peers: list[Recording] = []

    def factory() -> Recording:
        peers.append(Recording())
        return peers[-1]

    listener = Listener()
    listener.bind(("127.0.0.1", 0))
    server = await loop.create_server(factory, sock=listener)
    (client,) = _clients(listener.getsockname(), 1)
    await until(lambda: peers and peers[0].transport)
    assert Listener.accepted == 1
    client.close()
    await until(lambda: peers[0].lost)
    server.close()
    await server.wait_closed()


async def test_each_connection_of_a_unix_server_knows_the_name_of_its_own_listener(
    loop: Loop, tmp_path: Path
) -> None:
    found: list[tuple[str, str, str]] = []

    class Naming(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            asked = transport.get_extra_info("socket").getsockname()
            found.append((transport.get_extra_info("sockname"), asked, transport.get_extra_info("peername")))
            transport.abort()

    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    servers = [await loop.create_unix_server(Naming, path) for path in paths]
    clients = [client for path in paths for client in _clients(path, 3, socket.AF_UNIX)]
    await until(lambda: len(found) == 6)
    assert sorted(found) == [(path, path, "") for path in paths for _ in range(3)]
    for client in clients:
        client.close()
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("asked", [False, True], ids=["no socket was asked for", "a socket was asked for"])
@pytest.mark.parametrize("method", ["close", "_real_close"])
async def test_a_method_that_a_program_puts_into_the_class_of_sockets_ends_a_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, method: str, asked: bool
) -> None:
    ended: list[socket.socket] = []
    theirs = getattr(socket.socket, method)

    def end(self: socket.socket) -> None:
        ended.append(self)
        theirs(self)

    peer = Recording()
    server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: peer.transport)
    connection = peer.transport.get_extra_info("socket") if asked else None
    monkeypatch.setattr(socket.socket, method, end)
    peer.transport.abort()
    await until(lambda: ended)
    monkeypatch.undo()
    assert [sock.fileno() for sock in ended] == [-1]
    assert connection is None or connection.fileno() == -1
    client.close()
    server.close()
    await server.wait_closed()


async def test_a_file_made_of_a_connections_socket_keeps_its_descriptor_open(loop: Loop) -> None:
    peer = Recording()
    left, right = socket.socketpair()
    left.setblocking(False)
    await loop.connect_accepted_socket(lambda: peer, left)
    with left.makefile("rb") as file:
        peer.transport.abort()
        await until(lambda: peer.lost)
        assert left.fileno() == file.fileno() >= 0
    assert left.fileno() == -1
    right.close()


def _objects_of(address: Any) -> list[socket.socket]:
    """The open socket objects with this own address, but listeners."""
    return [
        sock
        for sock in gc.get_objects()
        if type(sock) is socket.socket
        and sock.fileno() >= 0
        and sock.getsockname() == address
        and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]


@only_ropewalk
@pytest.mark.skipif(loops.FREE_THREADED, reason="there is an object from the start")
async def test_a_connection_has_no_socket_object_until_the_program_asks(loop: Loop) -> None:
    peer = Recording()
    server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    (client,) = _clients(address, 1)
    await until(lambda: peer.transport)
    transport = peer.transport
    assert transport.get_extra_info("sockname") == address
    repr(transport)
    assert _objects_of(address) == []
    sock = transport.get_extra_info("socket")
    assert transport.get_extra_info("socket") is sock
    (made,) = _objects_of(address)
    assert made.fileno() == sock.fileno()
    assert made.gettimeout() == 0
    del made
    client.close()
    await until(lambda: peer.lost)
    assert sock.fileno() == -1
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("kind", ["inet", "unix"])
async def test_what_is_asked_for_after_the_end(loop: Loop, tmp_path: Path, kind: str, reset: bool) -> None:
    peer = Recording()
    server: Any
    if kind == "inet":
        server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    else:
        server = await loop.create_unix_server(lambda: peer, str(tmp_path / "server"))
    listener = server.sockets[0]
    address, family = listener.getsockname(), listener.family
    (client,) = _clients(address, 1, family)
    await until(lambda: peer.transport)
    theirs = client.getsockname()
    if reset and kind == "inet":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    await until(lambda: peer.lost)
    server.close()
    await server.wait_closed()
    await turns()
    transport = peer.transport
    assert transport.get_extra_info("peername") == theirs
    assert transport.get_extra_info("sockname") == address
    sock = transport.get_extra_info("socket")
    assert sock.fileno() == -1
    assert (sock.family, sock.type) == (family, socket.SOCK_STREAM)
    assert transport.get_extra_info("unknown", 5) == 5


@only_ropewalk
async def test_a_forgotten_connection_warns_and_is_closed(loop: Loop) -> None:
    peer = Recording()
    server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: peer.transport)
    transport: Any = peer.transport
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        transport.__del__()
    assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""
    assert transport.get_extra_info("socket").fileno() == -1
    client.close()
    server.close()


async def test_a_protocols_finalizer_asks_for_the_socket(loop: Loop) -> None:
    transports: list[Any] = []
    numbers: list[int] = []

    class Asking(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transports.append(transport)

        def __del__(self) -> None:
            numbers.append(transports[0].get_extra_info("socket").fileno())

    server = await loop.create_server(Asking, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: transports)
    transports[0].abort()
    assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""
    assert numbers == [-1]
    client.close()
    server.close()
    await server.wait_closed()


async def test_a_server_asks_for_the_socket_of_a_connection_that_leaves_it(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Recording()
    server: Any = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: peer.transport)
    theirs = server._detach
    asked: list[Any] = []

    def detach(*transport: Any) -> None:
        asked.append(peer.transport.get_extra_info("socket"))
        theirs(*transport)

    monkeypatch.setattr(server, "_detach", detach)
    peer.transport.abort()
    assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""
    assert [sock.fileno() for sock in asked] == [-1]
    client.close()
    server.close()
    await server.wait_closed()


async def test_the_socket_of_an_ended_connection_needs_no_descriptor(
    loop: Loop, few_descriptors: None
) -> None:
    peer = Recording()
    server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
    (client,) = _clients(server.sockets[0].getsockname(), 1)
    await until(lambda: peer.transport)
    peer.transport.abort()
    await until(lambda: peer.lost)
    await turns()
    _allow_no_more()
    sock = peer.transport.get_extra_info("socket")
    _allow_all()
    assert sock.fileno() == -1
    listener = server.sockets[0]
    assert (sock.family, sock.type, sock.proto) == (listener.family, listener.type, listener.proto)
    client.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("ended", [False, True])
async def test_threads_ask_for_what_is_known_of_a_connection_at_once(loop: Loop, ended: bool) -> None:
    peers: list[Recording] = []
    wrong: list[Any] = []

    def factory() -> Recording:
        peers.append(Recording())
        return peers[-1]

    def ask(together: threading.Barrier) -> None:
        for peer in peers:
            together.wait()
            known = [peer.transport.get_extra_info(name) for name in ("socket", "peername", "sockname")]
            if not all(known) or known[0]._sock is None:
                wrong.append(known)

    server = await loop.create_server(factory, "127.0.0.1", 0, backlog=200)
    clients = _clients(server.sockets[0].getsockname(), 200)
    await until(lambda: len(peers) == 200 and all(peer.transport for peer in peers))
    if ended:
        for peer in peers:
            peer.transport.abort()
        await until(lambda: all(peer.lost for peer in peers))
        await turns()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    together = threading.Barrier(4)
    await asyncio.gather(*(asyncio.to_thread(ask, together) for _ in range(4)))
    sys.setswitchinterval(interval)
    assert not wrong
    for client in clients:
        client.close()
    await until(lambda: all(peer.lost for peer in peers))
    server.close()
    await server.wait_closed()


ASKED_MEANWHILE = """
import asyncio, sys, {module} as module
async def main():
    loop = asyncio.get_running_loop()
    made, asked = loop.create_future(), []
    class Making(asyncio.Protocol):
        def connection_made(self, transport):
            made.set_result(transport)
    server = await loop.create_server(Making, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    transport = await made
    def hear(event, args):
        if event == "socket.__new__" and not asked:
            asked.append(None)
            asked[0] = transport.get_extra_info("socket").fileno()
    sys.addaudithook(hear)
    number = transport.get_extra_info("socket").fileno()
    print(number >= 0, asked in ([], [number]))
    writer.close()
    transport.abort()
    server.close()
    await server.wait_closed()
loop = module.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""


def test_an_audit_hook_asks_for_the_socket_that_is_being_made() -> None:
    script = ASKED_MEANWHILE.format(module=loops.MODULE)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True True\n"


AUDITED = """
import asyncio, socket, sys, {module} as module
heard = []
async def main():
    loop = asyncio.get_running_loop()
    made = loop.create_future()
    class Making(asyncio.Protocol):
        def connection_made(self, transport):
            transport.abort()
        def connection_lost(self, error):
            made.set_result(None)
    server = await loop.create_server(Making, "127.0.0.1", 0)
    with socket.socket() as client:
        client.setblocking(False)
        sys.addaudithook(lambda event, args: heard.append(event) if event == "socket.__new__" else None)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        await made
    server.close()
    await server.wait_closed()
loop = module.new_event_loop()
loop.run_until_complete(main())
loop.close()
print(heard)
"""


def test_audit_hooks_hear_of_the_socket_of_a_connection() -> None:
    script = AUDITED.format(module=loops.MODULE)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['socket.__new__']\n"


@only_ropewalk
def test_a_method_of_a_subclass_gets_the_socket_of_a_connection() -> None:
    given: list[Any] = []

    class Own(ropewalk.Loop):
        def _make_socket_transport(self, sock: Any, *args: Any, **kwargs: Any) -> Any:
            given.append(sock)
            return super()._make_socket_transport(sock, *args, **kwargs)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        peer = Recording()
        server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
        (client,) = _clients(server.sockets[0].getsockname(), 1)
        await until(lambda: peer.transport)
        assert [type(sock) for sock in given] == [socket.socket]
        client.close()
        await until(lambda: peer.lost)
        server.close()
        await server.wait_closed()

    loop = Own()
    loop.run_until_complete(main())
    loop.close()
