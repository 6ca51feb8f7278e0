"""Table: connections with TLS."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time

from harness.certificate import contexts
from harness.clock import median
from harness.loop_load import SIZE, connect, load, server
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better


def handshakes(loop_of: str, count: int) -> dict[str, float]:
    """Milliseconds to connect, shake hands and close, with both ends on one loop."""

    async def main(loop: asyncio.AbstractEventLoop, folder: str) -> float:
        class Client(asyncio.Protocol):
            def connection_lost(self, error: Exception | None) -> None:
                lost.set_result(None)

        far, near = contexts(folder)
        listening = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=far)
        port = listening.sockets[0].getsockname()[1]
        began = time.perf_counter_ns()
        for _ in range(count):
            lost = loop.create_future()
            transport, _ = await loop.create_connection(
                Client, "127.0.0.1", port, ssl=near, server_hostname="localhost"
            )
            transport.close()
            await lost
        took = time.perf_counter_ns() - began
        listening.close()
        return took / count / 1e6

    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    with tempfile.TemporaryDirectory() as folder:
        took = median(lambda: loop.run_until_complete(main(loop, folder)))
    asyncio.set_event_loop(None)
    loop.close()
    return {"handshake": took}


class _Drained(ssl.SSLSocket):
    """Receives all that was decrypted: a poller cannot see what is left of that."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        data = super().recv(buflen, flags)
        while self.pending():
            data += super().recv(buflen, flags)
        return data


def _connect(address: str | int) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.sslsocket_class = _Drained
    return context.wrap_socket(connect(address))


def echo(loop_of: str, seconds: float) -> dict[str, float]:
    """1 KiB there and back on connections that are kept."""
    with server(loop_of, "tls") as known:
        return load(known, b"x" * SIZE, SIZE, seconds, connecting=_connect)


HANDSHAKES = Contest(
    handshakes, "handshake", PLAYERS, as_argument="loop_of", timeout=60.0, count=Size(100, 5)
)
ECHO = Contest(echo, "echo", PLAYERS, as_argument="loop_of", timeout=60.0, seconds=Size(1.0, 0.2))

ROW = Row(
    "tls",
    "Connections with TLS",
    "TLS 1.3, a certificate of the curve P-256; every loop has the interpreter's OpenSSL. The handshake has both ends "
    "on one loop: connect, shake hands, close. The echo is 1 KiB there and back on 32 connections; its client, one for "
    "all, is Python's `ssl` on blocking sockets.",
    (
        Line(
            "handshake, both ends", "ms", HANDSHAKES, "handshake", None, {**PEERS, "uvloop": times_better(1)}
        ),
        Line("echo", "/s", ECHO, "rate", None, PEERS, more_is_better=True),
        Line("echo: the server's time", "µs", ECHO, "busy", None, {**PEERS, "uvloop": times_better(1)}),
    ),
)
