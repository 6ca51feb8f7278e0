"""ZMTP by hand: a peer that sends exactly the bytes of a test, and reads the answers."""

from __future__ import annotations

import select
import socket
import struct
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import Self

MORE, LONG, COMMAND = 1, 2, 4
#: Seconds that a read may take; nothing waits for it in vain.
PATIENCE = float(__import__("os").environ.get("ROPEWALK_TEST_PATIENCE", "25000")) / 1000


def greeting(minor: int = 1, mechanism: bytes = b"NULL", *, major: int = 3, as_server: bool = False) -> bytes:
    """The 64 bytes that open a connection."""
    signature = b"\xff" + bytes(8) + b"\x7f"
    return signature + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)


def frame(body: bytes, flags: int = 0) -> bytes:
    """One frame, short or long as its size asks."""
    if len(body) > 255:
        return struct.pack(">BQ", flags | LONG, len(body)) + body
    return struct.pack(">BB", flags, len(body)) + body


def message(*parts: bytes) -> bytes:
    """One message's frames."""
    return b"".join(frame(part, MORE) for part in parts[:-1]) + frame(parts[-1])


def command(name: bytes, body: bytes = b"") -> bytes:
    """A command's frame."""
    return frame(bytes([len(name)]) + name + body, COMMAND)


def properties(values: dict[bytes, bytes]) -> bytes:
    """Metadata as READY carries it."""
    return b"".join(
        bytes([len(name)]) + name + struct.pack(">I", len(value)) + value for name, value in values.items()
    )


def ready(kind: bytes, **more: bytes) -> bytes:
    """The NULL mechanism's READY."""
    values = {b"Socket-Type": kind} | {name.encode(): value for name, value in more.items()}
    return command(b"READY", properties(values))


def readable(connection: socket.socket, milliseconds: int = 0) -> bool:
    """Whether there is something to read, or the end. `select.select` would refuse a descriptor above 1023."""
    return _ready(connection, select.POLLIN, milliseconds)


def writable(connection: socket.socket, milliseconds: int = 0) -> bool:
    """Whether there is room to write."""
    return _ready(connection, select.POLLOUT, milliseconds)


def _ready(connection: socket.socket, events: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(connection, events)
    return bool(poll.poll(milliseconds))


class Wire:
    """A connection on which ZMTP is spoken by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(PATIENCE)
        if connection.family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, endpoint: str) -> Wire:
        """Connects to a bound socket."""
        if endpoint.startswith("ipc://"):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(endpoint.removeprefix("ipc://"))
            return cls(connection)
        host, number = endpoint.removeprefix("tcp://").rsplit(":", 1)
        return cls(socket.create_connection((host, int(number)), PATIENCE))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends the bytes as they are."""
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """So many bytes; fails if the connection ends before."""
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data

    def read_frame(self) -> tuple[int, bytes]:
        """A frame's flags, without the one for its length, and its body."""
        flags, size = self.read(2)
        if flags & LONG:
            (size,) = struct.unpack(">Q", bytes([size]) + self.read(7))
        return flags & ~LONG, self.read(size)

    def read_command(self) -> tuple[bytes, bytes]:
        """A command's name and body."""
        flags, body = self.read_frame()
        assert flags == COMMAND, (flags, body)
        return body[1 : 1 + body[0]], body[1 + body[0] :]

    def read_message(self) -> list[bytes]:
        """A whole message, which must be next."""
        parts = []
        while True:
            flags, body = self.read_frame()
            assert not flags & COMMAND, body
            parts.append(body)
            if not flags & MORE:
                return parts

    def handshake(self, kind: bytes, minor: int = 1, **more: bytes) -> bytes:
        """Greets, says READY by the NULL mechanism, and returns the other end's metadata."""
        self.send(greeting(minor))
        self.read(64)
        self.send(ready(kind, **more))
        name, body = self.read_command()
        assert name == b"READY", name
        return body

    def drain_until(self, end: bytes) -> bytes:
        """All that comes, until it ends so or the other end closes the connection."""
        data = b""
        while not data.endswith(end) and (piece := self.socket.recv(1 << 16)):
            data += piece
        return data

    def drain(self) -> bytes:
        """All that still comes, until the other end closes the connection."""
        data = b""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 16):
                data += piece
        return data

    def reset(self) -> None:
        """Vanishes by a reset, as a killed host's kernel would say."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Listener:
    """A place at which a socket of ours arrives to be spoken to by hand."""

    def __init__(self, transport: str = "tcp") -> None:
        if transport == "tcp":
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}"
        else:
            path = f"{tempfile.mkdtemp(prefix='wl-')}/s"
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(path)
            self.socket.listen()
            self.endpoint = f"ipc://{path}"
        self.socket.settimeout(PATIENCE)

    def accept(self) -> Wire:
        """The next connection."""
        return Wire(self.socket.accept()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
