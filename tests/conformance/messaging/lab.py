"""The tools of the messaging suites: two implementations behind one interface, links, monitors, a ZAP handler."""

from __future__ import annotations

import importlib
import os
import random
import socket as sockets
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.polling import until

#: `zmq` here runs every suite with libzmq at both ends, which tells whether the tests are right about libzmq.
SUBJECT = os.environ.get("ROPEWALK_TEST_ZMQ", "ropewalk.zmq")
#: How long one operation may take on a loaded machine, in milliseconds; nothing waits for it in vain.
PATIENCE = int(os.environ.get("ROPEWALK_TEST_PATIENCE", "25000"))
#: For what libzmq does otherwise than its own specification says.
only_ours = pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq does otherwise")
TRANSPORTS = ("tcp", "ipc")
MECHANISMS = ("NULL", "PLAIN", "CURVE")


def load(name: str) -> Any:
    """A module of pyzmq's shape; None where libzmq's is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name == "zmq" and SUBJECT != "zmq":
            return None
        raise


#: Marks tests that need libzmq, where that is not installed. With a mark, pytest reports a file's skips in one line.
NEEDS_LIBZMQ: tuple[pytest.MarkDecorator, ...] = ()
if load("zmq") is None:
    NEEDS_LIBZMQ = (pytest.mark.skip("pyzmq is not installed: libzmq is the reference (extra: messaging)"),)


class Side:
    """One implementation, a context of it, and the sockets that a test has made of it."""

    def __init__(self, zmq: Any) -> None:
        self.zmq = zmq
        self.context = zmq.Context()
        self._sockets: list[Any] = []

    def socket(self, kind: str, **options: Any) -> Any:
        """A socket whose calls fail by EAGAIN instead of hanging."""
        socket = self.untouched(kind)
        socket.setsockopt(self.zmq.RCVTIMEO, PATIENCE)
        socket.setsockopt(self.zmq.SNDTIMEO, PATIENCE)
        self.set(socket, **options)
        return socket

    def untouched(self, kind: str) -> Any:
        """A socket as it is made."""
        socket = self.context.socket(getattr(self.zmq, kind))
        self._sockets.append(socket)
        return socket

    def set(self, socket: Any, **options: Any) -> None:
        """Sets options by the names that libzmq's have without their prefix."""
        for name, value in options.items():
            socket.setsockopt(getattr(self.zmq, name), value)

    def get(self, socket: Any, option: str) -> Any:
        """An option's value, by the same names."""
        return socket.getsockopt(getattr(self.zmq, option))

    def watch(self, socket: Any) -> Watch:
        """The socket's events from now on."""
        return Watch(self, socket)

    def readable(self, socket: Any, milliseconds: int = 0) -> bool:
        """Whether something can be received."""
        return bool(socket.poll(milliseconds, self.zmq.POLLIN))

    def writable(self, socket: Any, milliseconds: int = 0) -> bool:
        """Whether something can be sent."""
        return bool(socket.poll(milliseconds, self.zmq.POLLOUT))

    def try_send(self, socket: Any, *parts: bytes) -> bool:
        """Sends a message unless that would block."""
        try:
            socket.send_multipart(list(parts), self.zmq.DONTWAIT)
        except self.zmq.Again:
            return False
        return True

    def try_receive(self, socket: Any) -> list[bytes] | None:
        """A message, if there is one now."""
        try:
            parts: list[bytes] = socket.recv_multipart(self.zmq.DONTWAIT)
        except self.zmq.Again:
            return None
        return parts

    def receive(self, socket: Any) -> list[bytes]:
        """A message, which must come."""
        parts: list[bytes] = socket.recv_multipart()
        return parts

    def close(self) -> None:
        """Closes all that was made, without waiting for what was not sent, and ends the context."""
        self.close_sockets()
        if self.zmq.__name__ != "zmq":
            self.context.term()
            return
        # libzmq's own end can hang, with every socket closed and nothing to deliver; it is not what these tests judge.
        ending = threading.Thread(target=self.context.term, daemon=True)
        ending.start()
        ending.join(PATIENCE / 1000)

    def close_sockets(self) -> None:
        """Closes all that was made."""
        for socket in self._sockets:
            if not socket.closed:
                socket.close(linger=0)


class Watch:
    """A socket's monitor, read by names."""

    def __init__(self, side: Side, socket: Any) -> None:
        self._monitor = socket.get_monitor_socket()
        self._monitor.setsockopt(side.zmq.RCVTIMEO, PATIENCE)
        self._monitor.setsockopt(side.zmq.LINGER, 0)
        side._sockets.append(self._monitor)
        self._side = side
        self._names = {
            int(value): name.removeprefix("EVENT_")
            for name in dir(side.zmq)
            if name.startswith("EVENT_") and name != "EVENT_ALL" and not name.startswith("EVENT_ALL_")
            for value in [getattr(side.zmq, name)]
            # A monitor of version 2 has more of them, beyond the 16 bits of a monitor's first frame.
            if int(value) < 1 << 16
        }
        self.seen: list[str] = []

    def next(self) -> tuple[str, int, str]:
        """The next event: its name, value and endpoint."""
        head, endpoint = self._side.receive(self._monitor)
        event, value = struct.unpack("=HI", head)
        name = self._names[event]
        self.seen.append(name)
        return name, value, endpoint.decode()

    def has(self, wanted: str) -> bool:
        """Whether there has been such an event until now."""
        while wanted not in self.seen and self._side.readable(self._monitor):
            self.next()
        return wanted in self.seen

    def until(self, *wanted: str) -> tuple[str, int, str]:
        """The next event of one of these names; those before it are in `seen`."""
        while True:
            found = self.next()
            if found[0] in wanted:
                return found


def address(transport: str) -> str:
    """An endpoint that nobody has bound: a wildcard, or a path of its own that is short enough."""
    if transport == "tcp":
        return "tcp://127.0.0.1:*"
    if transport == "ipc":
        return f"ipc://{tempfile.mkdtemp(prefix='wl-')}/s"
    return f"inproc://{os.urandom(6).hex()}"


def vacant(transport: str = "tcp") -> str:
    """An endpoint that is nobody's, to be bound later and perhaps again.

    Its port is none that the system gives out: who tries to connect to such a one may meet himself there.
    """
    while transport == "tcp":
        number = random.randrange(15_000, 32_000)
        with sockets.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", number))
            return f"tcp://127.0.0.1:{number}"
    return address(transport)


def bind(socket: Any, transport: str = "tcp") -> str:
    """Binds the socket and says where."""
    endpoint = address(transport)
    socket.bind(endpoint)
    if transport == "inproc":
        return endpoint
    last: bytes = socket.LAST_ENDPOINT
    return last.rstrip(b"\0").decode()


def link(binder: Any, connector: Any, transport: str = "tcp") -> str:
    """Joins two sockets and says where."""
    endpoint = bind(binder, transport)
    connector.connect(endpoint)
    return endpoint


def works(side: Side, errno: int, call: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the call succeeds, and does not fail by this error; every other one is raised."""
    try:
        call(*arguments)
    except side.zmq.ZMQError as error:
        if error.errno != errno:
            raise
        return False
    return True


def rebind(side: Side, socket: Any, endpoint: str) -> None:
    """Binds where somebody was bound a moment ago: ports are given back behind the call."""
    until(lambda: works(side, side.zmq.EADDRINUSE, socket.bind, endpoint))


def port(endpoint: str) -> int:
    """A tcp endpoint's port."""
    return int(endpoint.rsplit(":", 1)[1])


def queued(side: Side, socket: Any, *parts: bytes, limit: int = 100_000) -> int:
    """How many copies of a message the socket takes until it would block."""
    for count in range(limit):
        if not side.try_send(socket, *parts):
            return count
    raise AssertionError(f"the socket took {limit} messages and did not stop")


def await_readable(side: Side, socket: Any, driven: Side, *others: Any) -> None:
    """Waits for a message, with the others driven meanwhile: in no call, libzmq's take in no new peer."""

    def readable() -> bool:
        for other in others:
            driven.readable(other)
        return side.readable(socket, 1)

    until(readable)


def subscribe(publisher: Side, pub: Any, subscriber: Side, sub: Any, topic: bytes) -> None:
    """Subscribes to the topic and returns when publications on it arrive: a SUB has no other sign of that."""
    subscriber.set(sub, SUBSCRIBE=topic)
    arrive(publisher, pub, subscriber, sub, topic)


def arrive(publisher: Side, pub: Any, subscriber: Side, sub: Any, topic: bytes) -> None:
    """Publishes until something arrives, then takes all of it away."""

    def heard() -> bool:
        pub.send(topic + b"?")
        return subscriber.readable(sub, 20)

    until(heard)
    pub.send(topic + b"!")
    while subscriber.receive(sub) != [topic + b"!"]:
        pass


#: What a handler makes of a request: a status and a user; None kills it.
Judge = Callable[[dict[str, Any]], tuple[bytes, bytes] | None]


class Zap:
    """A ZAP handler in a context: it answers by a function or, if that is given, always the same."""

    def __init__(self, side: Side, judge: Judge, answer: list[bytes] | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self._side = side
        self._judge = judge
        self._fixed = answer
        self._socket = side.context.socket(side.zmq.REP)
        self._socket.setsockopt(side.zmq.LINGER, 0)
        self._socket.bind("inproc://zeromq.zap.01")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while (answer := self._answer(self._socket.recv_multipart())) is not None:
                self._socket.send_multipart(answer)
        except self._side.zmq.ContextTerminated:
            pass
        finally:
            self._socket.close(linger=0)

    def _answer(self, parts: list[bytes]) -> list[bytes] | None:
        names = ("version", "id", "domain", "address", "identity", "mechanism")
        request: dict[str, Any] = dict(zip(names, parts, strict=False))
        request["credentials"] = parts[6:]
        self.requests.append(request)
        verdict = self._judge(request)
        if verdict is None:
            return None
        if self._fixed is not None:
            return self._fixed
        status, user = verdict
        return [b"1.0", request["id"], status, b"text", user, b""]

    def wait_dead(self) -> None:
        """Waits until the handler has died."""
        self._thread.join(PATIENCE / 1000)
        assert not self._thread.is_alive()


def admit(_request: dict[str, Any]) -> tuple[bytes, bytes]:
    """Admits everybody, unnamed: with a name of its peer, libzmq's REQ would discard every answer."""
    return b"200", b""


def secure(mechanism: str, server: Side, accepting: Any, client: Side, joining: Any) -> None:
    """Makes one socket the server of a mechanism and the other its client."""
    if mechanism == "PLAIN":
        # Without a handler nobody could judge a password, and every client is refused.
        Zap(server, admit)
        server.set(accepting, PLAIN_SERVER=1)
        client.set(joining, PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    elif mechanism == "CURVE":
        public, secret = server.zmq.curve_keypair()
        mine, mine_secret = client.zmq.curve_keypair()
        server.set(accepting, CURVE_SERVER=1, CURVE_SECRETKEY=secret)
        client.set(joining, CURVE_SERVERKEY=public, CURVE_PUBLICKEY=mine, CURVE_SECRETKEY=mine_secret)


@contextmanager
def background(work: Callable[[], Any]) -> Iterator[Background]:
    """Runs the work in a thread, which must have ended when the block ends."""
    running = Background(work)
    try:
        yield running
    finally:
        running.join()


class Background:
    """A thread's result or error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # Told to the thread that asks.
            self._error = error

    def join(self) -> None:
        """Waits for the end."""
        self._thread.join(PATIENCE / 1000)
        assert not self._thread.is_alive(), "the thread is still blocked"

    def result(self) -> Any:
        """What the work returned; raises what it raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result
