"""Peers that violate the protocol: each is disconnected, and others are not affected."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.conformance.messaging.lab import TRANSPORTS, Side, bind, only_ours
from tests.conformance.messaging.wire import (
    COMMAND,
    LONG,
    MORE,
    Listener,
    Wire,
    command,
    frame,
    greeting,
    message,
    properties,
    ready,
)

PUSH = greeting() + ready(b"PUSH")
#: Of 64 bits the highest is never set.
HUGE = [1 << 63, (1 << 64) - 1, (1 << 64) - 9]

HANDSHAKES = {
    "an unknown type": greeting() + ready(b"TELEPATH"),
    "a type that may not talk": greeting() + ready(b"REQ"),
    "another mechanism": greeting(mechanism=b"PLAIN"),
    "an unknown mechanism": greeting(mechanism=b"TELEPATHY"),
    "a mechanism that goes on": greeting(mechanism=b"NULLNULL"),
    "an unknown command": greeting() + command(b"HELLO", bytes(200)),
    "a command without a name": greeting() + frame(b"", COMMAND),
    "a name that goes on beyond its command": greeting() + frame(b"\xffREADY", COMMAND),
    "a property's name beyond its end": greeting() + command(b"READY", b"\xffSocket-Type"),
    "a property's value beyond its end": greeting()
    + command(b"READY", b"\x0bSocket-Type" + struct.pack(">I", 1000) + b"PUSH"),
    "a property of the greatest size": greeting()
    + command(b"READY", b"\x0bSocket-Type" + struct.pack(">I", (1 << 32) - 1) + b"PUSH"),
    "bytes behind the properties": greeting()
    + command(b"READY", properties({b"Socket-Type": b"PUSH"}) + b"\x05ab"),
    "a message before READY": greeting() + message(b"message"),
}
#: libzmq speaks with peers older than 3.0, passes over what it does not know, or takes what it is given.
STRICTER = {
    "no type": greeting() + command(b"READY"),
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: which is no peer, and says more\r\n\r\n",
    "zeros": bytes(64),
    "a signature that ends wrongly": b"\xff" + bytes(8) + b"\x00" + greeting()[10:] + ready(b"PUSH"),
    "version 1": greeting(major=1) + ready(b"PUSH"),
    "version 2": greeting(major=2) + ready(b"PUSH"),
    "a command that goes on": greeting() + frame(ready(b"PUSH")[2:], COMMAND | MORE),
}
TRAFFIC = {f"a size of {size:#x}": PUSH + struct.pack(">BQ", LONG, size) for size in HUGE}
TRAFFIC_STRICTER = {
    "no type": greeting() + command(b"READY"),
    "a flag that is reserved": PUSH + b"\x08\x01x",
    "every flag": PUSH + b"\xff\x01x",
    "a command of a huge size": PUSH + struct.pack(">BQ", LONG | COMMAND, 1 << 62),
    "a command amidst a message": PUSH
    + frame(b"one", MORE)
    + command(b"SUBSCRIBE", b"x")
    + frame(b"two", COMMAND | MORE),
}


def dropped(side: Side, kind: str, data: bytes) -> None:
    """Who says this is dropped, and one that behaves is still served, before and after."""
    socket = side.socket(kind)
    endpoint = bind(socket)
    with Wire.connect(endpoint) as good:
        good.handshake(b"PUSH")
        good.send(message(b"before"))
        assert side.receive(socket) == [b"before"]
        with Wire.connect(endpoint) as bad:
            bad.send(data)
            bad.drain()
        good.send(message(b"after", b"wards"))
        assert side.receive(socket) == [b"after", b"wards"]
        assert side.try_receive(socket) is None


@pytest.mark.parametrize("what", list(HANDSHAKES))
def test_a_handshake_that_is_none(what: str, alone: Side) -> None:
    dropped(alone, "PULL", HANDSHAKES[what])


@only_ours
@pytest.mark.parametrize("what", list(STRICTER))
def test_a_greeting_that_is_none(what: str, ours: Side) -> None:
    dropped(ours, "PULL", STRICTER[what])


@pytest.mark.parametrize("what", list(TRAFFIC))
def test_traffic_that_is_none(what: str, alone: Side) -> None:
    dropped(alone, "PULL", TRAFFIC[what])


@only_ours
@pytest.mark.parametrize("what", list(TRAFFIC_STRICTER))
def test_traffic_that_libzmq_takes(what: str, ours: Side) -> None:
    dropped(ours, "PULL", TRAFFIC_STRICTER[what])


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
@pytest.mark.parametrize(
    "first",
    [
        message(b"message"),
        ready(b"PUSH"),
        command(b"INITIATE", bytes(300)),
        command(b"HELLO", b"\x05admin"),
        command(b"HELLO", bytes(3)),
        command(b"HELLO", bytes(5000)),
        command(b"WELCOME", bytes(160)),
        frame(b"\x05HELL", COMMAND),
    ],
    ids=[
        "message",
        "READY",
        "INITIATE",
        "half a HELLO",
        "a short HELLO",
        "a long HELLO",
        "WELCOME",
        "no name",
    ],
)
def test_a_secure_handshake_that_is_none(mechanism: str, first: bytes, alone: Side) -> None:
    socket = alone.socket("PULL")
    if mechanism == "PLAIN":
        alone.set(socket, PLAIN_SERVER=1)
    else:
        alone.set(socket, CURVE_SERVER=1, CURVE_SECRETKEY=alone.zmq.curve_keypair()[1])
    watch = alone.watch(socket)
    with Wire.connect(bind(socket)) as bad:
        bad.send(greeting(mechanism=mechanism.encode()) + first)
        bad.drain()
    watch.until("HANDSHAKE_FAILED_PROTOCOL", "HANDSHAKE_FAILED_NO_DETAIL", "DISCONNECTED")
    assert alone.try_receive(socket) is None


def test_an_unknown_command_amidst_traffic_is_passed_over(alone: Side) -> None:
    socket = alone.socket("PULL")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"PUSH")
        wire.send(message(b"one") + command(b"NEWS", b"of a later version") + message(b"two"))
        assert alone.receive(socket) == [b"one"]
        assert alone.receive(socket) == [b"two"]


@pytest.mark.parametrize(
    "stage", [b"", b"\xff", greeting()[:20], greeting(), greeting() + ready(b"PUSH")[:5]], ids=len
)
def test_a_slow_handshake_is_ended(stage: bytes, alone: Side) -> None:
    socket = alone.socket("PULL", HANDSHAKE_IVL=100)
    with Wire.connect(bind(socket)) as slow:
        slow.send(stage)
        slow.drain()
    assert alone.try_receive(socket) is None


def test_a_slow_handshake_is_ended_at_the_connecting_end(alone: Side) -> None:
    push = alone.socket("PUSH", HANDSHAKE_IVL=100, RECONNECT_IVL=10)
    with Listener() as listener:
        push.connect(listener.endpoint)
        for _ in range(3):
            with listener.accept() as slow:
                slow.drain()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_vanishes_at_its_handshake_s_end_is_called_again(transport: str, alone: Side) -> None:
    """The peer has sent its whole handshake, and disconnects before it receives anything."""
    push = alone.socket("PUSH", RECONNECT_IVL=1)
    with Listener(transport) as listener:
        push.connect(listener.endpoint)
        for _ in range(20):
            with listener.accept() as wire:
                wire.send(greeting() + ready(b"PULL"))
        with listener.accept() as wire:
            wire.handshake(b"PULL")
            assert alone.try_send(push, b"message") or alone.writable(push, 25_000)
            while wire.read_message() != [b"last"]:
                push.send(b"last")


def test_byte_by_byte(alone: Side) -> None:
    socket = alone.socket("DEALER")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        for byte in message(b"one", bytes(300)):
            wire.send(bytes([byte]))
        assert alone.receive(socket) == [b"one", bytes(300)]


@only_ours
def test_a_handshake_byte_by_byte(ours: Side) -> None:
    socket = ours.socket("DEALER")
    with Wire.connect(bind(socket)) as wire:
        for byte in greeting() + ready(b"DEALER") + message(b"message"):
            wire.send(bytes([byte]))
        assert ours.receive(socket) == [b"message"]


@pytest.mark.parametrize("limit", [100, 255, 256, 100_000])
def test_the_largest_message(limit: int, alone: Side) -> None:
    socket = alone.socket("PULL", MAXMSGSIZE=limit)
    watch = alone.watch(socket)
    endpoint = bind(socket)
    with Wire.connect(endpoint) as good, Wire.connect(endpoint) as bad:
        good.handshake(b"PUSH")
        good.send(message(bytes(limit)))
        assert alone.receive(socket) == [bytes(limit)]
        bad.handshake(b"PUSH")
        # The size alone is enough: nothing of the body is waited for.
        bad.send(struct.pack(">BQ", LONG, limit + 1))
        bad.drain()
        watch.until("DISCONNECTED")
        good.send(message(bytes(limit), b""))
        assert alone.receive(socket) == [bytes(limit), b""]


RECEIVERS = {"PULL": b"PUSH", "DEALER": b"DEALER", "ROUTER": b"DEALER", "SUB": b"PUB", "REP": b"REQ"}
HALVES = {
    "half a body": struct.pack(">BQ", LONG, 1000) + bytes(10),
    "half a length": bytes([LONG]) + bytes(3),
    "a flag": bytes([MORE]),
    "parts without a last": frame(b"one", MORE) + frame(b"two", MORE),
    "a part and half a last": frame(b"one", MORE) + struct.pack(">BB", 0, 200) + bytes(20),
    "a large half": frame(b"one", MORE) + struct.pack(">BQ", LONG, 1 << 20) + bytes(1 << 19),
}


def whole(kind: str, *parts: bytes) -> bytes:
    """A message as this kind's peer would send it."""
    return message(b"", *parts) if kind == "REP" else message(*parts)


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("half", list(HALVES))
@pytest.mark.parametrize("kind", list(RECEIVERS))
def test_half_a_message_is_none(kind: str, half: str, end: str, alone: Side) -> None:
    socket = alone.socket(kind)
    if kind == "SUB":
        alone.set(socket, SUBSCRIBE=b"")
    watch = alone.watch(socket)
    endpoint = bind(socket)
    with Wire.connect(endpoint) as vanishing:
        vanishing.handshake(RECEIVERS[kind])
        delimiter = frame(b"", MORE) if kind == "REP" else b""
        vanishing.send(delimiter + HALVES[half])
        watch.until("HANDSHAKE_SUCCEEDED")
        if end == "reset":
            vanishing.reset()
    watch.until("DISCONNECTED")
    with Wire.connect(endpoint) as staying:
        staying.handshake(RECEIVERS[kind])
        staying.send(whole(kind, b"whole", b"message"))
        received: Any = alone.receive(socket)
        assert received[kind == "ROUTER" :] == [b"whole", b"message"]
        assert kind == "REP" or alone.try_receive(socket) is None
