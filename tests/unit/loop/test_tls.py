"""TLS over the loop's transports: echo, `start_tls`, ends and errors."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import shutil
import ssl
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, until

Loop = asyncio.AbstractEventLoop
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


def _certificate(folder: Path) -> tuple[Path, Path, Path]:
    """A chain for `localhost`, its key, and what to trust: the interpreter's own, or made by OpenSSL."""
    spec = importlib.util.find_spec("test")
    for place in spec.submodule_search_locations if spec and spec.submodule_search_locations else []:
        for data in (Path(place) / "certdata", Path(place)):
            if (data / "keycert3.pem").exists() and (data / "pycacert.pem").exists():
                return data / "keycert3.pem", data / "keycert3.pem", data / "pycacert.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("neither the interpreter's test data nor OpenSSL is here to give a certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    wish = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run(
        [openssl, "req", "-x509", *wish, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key, certificate


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """The server's and the client's."""
    chain, key, trusted = _certificate(tmp_path_factory.mktemp("certificate"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(trusted)
    return server, client


class Echo(Recording):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


@pytest.mark.parametrize("size", [1, 5000, 2 << 20])
async def test_echo(loop: Loop, contexts: Contexts, size: int) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port, ssl=contexts[1], server_hostname="localhost")
    assert writer.get_extra_info("peercert")
    assert writer.get_extra_info("cipher")
    assert writer.get_extra_info("ssl_object") is not None
    data = random.Random(size).randbytes(size)
    writer.write(data)
    assert await reader.readexactly(size) == data
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_many_connections(loop: Loop, contexts: Contexts) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=contexts[1], server_hostname="localhost"
        )
        for _ in range(3):
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"%d\n" % number
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*map(ask, range(10)))
    server.close()
    await server.wait_closed()


async def test_an_unknown_certificate_is_refused(
    loop: Loop, contexts: Contexts, reports: list[dict[str, Any]]
) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()
    with pytest.raises(ssl.SSLCertVerificationError):
        await loop.create_connection(
            Recording, host, port, ssl=ssl.create_default_context(), server_hostname="localhost"
        )
    with pytest.raises(ssl.SSLCertVerificationError):
        await loop.create_connection(Recording, host, port, ssl=contexts[1], server_hostname="elsewhere")
    server.close()
    await server.wait_closed()
    # In debug mode the server's side tells that its client left.
    assert all(isinstance(report["exception"], OSError) for report in reports)
    reports.clear()


async def test_a_server_that_speaks_no_tls(loop: Loop, contexts: Contexts) -> None:
    class Plain(Recording):
        def data_received(self, data: bytes) -> None:
            self.transport.write(b"this is no TLS at all")

    server = await loop.create_server(Plain, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(ssl.SSLError):
        await loop.create_connection(Recording, host, port, ssl=contexts[1], server_hostname="localhost")
    server.close()
    await server.wait_closed()


async def test_start_tls(loop: Loop, contexts: Contexts) -> None:
    upgraded: list[Recording] = []

    async def upgrade(transport: Any, protocol: Recording) -> None:
        secure = await loop.start_tls(transport, protocol, contexts[0], server_side=True)
        protocol.transport = secure
        upgraded.append(protocol)

    class Upgrading(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.received == b"STARTTLS":
                self.transport.write(b"GO")
                self.task = loop.create_task(upgrade(self.transport, self))
            elif len(self.received) > 8:
                self.transport.write(data.upper())

    server = await loop.create_server(Upgrading, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(Recording, host, port)
    transport.write(b"STARTTLS")
    await until(lambda: protocol.received == b"GO")
    secure = await loop.start_tls(transport, protocol, contexts[1], server_hostname="localhost")
    assert secure is not None
    assert secure.get_extra_info("peercert")
    await until(lambda: upgraded)
    protocol.received.clear()
    secure.write(b"secret words")
    await until(lambda: protocol.received == b"SECRET WORDS")
    secure.close()
    await until(lambda: protocol.lost and upgraded[0].lost)
    assert protocol.lost == [None]
    server.close()
    await server.wait_closed()


async def test_flow_control(loop: Loop, contexts: Contexts) -> None:
    server = await loop.create_server(Recording, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()
    _, writer = await asyncio.open_connection(host, port, ssl=contexts[1], server_hostname="localhost")
    for _ in range(100):
        writer.write(bytes(100_000))
        await writer.drain()
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_abort(loop: Loop, contexts: Contexts) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(
        Recording, host, port, ssl=contexts[1], server_hostname="localhost"
    )
    transport.write(bytes(1 << 20))
    transport.abort()
    await until(lambda: protocol.lost)
    assert protocol.lost == [None]
    server.close()
    await server.wait_closed()


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio has a buffer for each connection")
async def test_a_connection_takes_little_memory(loop: Loop, contexts: Contexts) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()

    async def connect() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=contexts[1], server_hostname="localhost"
        )
        writer.write(b"hello")
        await reader.readexactly(5)
        return writer

    writers = [await connect()]
    tracemalloc.start()
    try:
        writers += [await connect() for _ in range(10)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Both ends are in this process; OpenSSL's own memory is not counted.
    assert taken / 20 < 50_000
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_connections_at_once_do_not_mix_their_bytes(loop: Loop, contexts: Contexts) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=contexts[1], server_hostname="localhost"
        )
        data = random.Random(number).randbytes(100_000 + number)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*map(ask, range(8)))
    server.close()
    await server.wait_closed()


async def test_tls_within_tls(loop: Loop, contexts: Contexts) -> None:
    ends: list[Recording] = []

    class Inner(Echo):
        pass

    class Outer(Recording):
        """Goes on with a second handshake once it is asked to."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.received == b"INNER":
                self.transport.write(b"GO")
                self.inner = Inner()
                self.task = loop.create_task(self.upgrade())

        async def upgrade(self) -> None:
            secure = await loop.start_tls(self.transport, self.inner, contexts[0], server_side=True)
            self.inner.transport = secure
            ends.append(self.inner)

    server = await loop.create_server(Outer, "127.0.0.1", 0, ssl=contexts[0])
    host, port = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(
        Recording, host, port, ssl=contexts[1], server_hostname="localhost"
    )
    transport.write(b"INNER")
    await until(lambda: protocol.received == b"GO")
    inner = Recording()
    secure = await loop.start_tls(transport, inner, contexts[1], server_hostname="localhost")
    assert secure is not None
    inner.transport = secure
    await until(lambda: ends)
    data = random.Random(1).randbytes(300_000)
    secure.write(data)
    await until(lambda: len(inner.received) == len(data))
    assert inner.received == data
    secure.close()
    await until(lambda: inner.lost and ends[0].lost)
    server.close()
    await server.wait_closed()
