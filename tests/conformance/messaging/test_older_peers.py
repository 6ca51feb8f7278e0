"""Hand-written peers of ZMTP 3.0 and 3.1: subscriptions as messages and as commands, greetings, heartbeats."""

from __future__ import annotations

import pytest
from tests.conformance.messaging.lab import Side, bind, only_ours
from tests.conformance.messaging.wire import (
    COMMAND,
    Listener,
    Wire,
    command,
    frame,
    greeting,
    message,
    readable,
)
from tests.polling import until

MINORS = pytest.mark.parametrize("minor", [0, 1])


def properties(body: bytes) -> dict[bytes, bytes]:
    """Metadata as READY carries it."""
    found = {}
    while body:
        name, body = body[1 : 1 + body[0]], body[1 + body[0] :]
        size = int.from_bytes(body[:4], "big")
        found[name], body = body[4 : 4 + size], body[4 + size :]
    return found


@MINORS
def test_a_greeting_and_ready(minor: int, alone: Side) -> None:
    socket = alone.socket("DEALER", ROUTING_ID=b"its name")
    with Wire.connect(bind(socket)) as wire:
        told = properties(wire.handshake(b"DEALER", minor))
        assert told[b"Socket-Type"] == b"DEALER"
        assert told[b"Identity"] == b"its name"
        wire.send(message(b"one", b"", bytes(1000)))
        assert alone.receive(socket) == [b"one", b"", bytes(1000)]
        socket.send_multipart([b"one", b"", bytes(1000)])
        assert wire.read_message() == [b"one", b"", bytes(1000)]


def test_the_greeting_s_bytes(alone: Side) -> None:
    with Wire.connect(bind(alone.socket("PULL"))) as wire:
        wire.send(b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + bytes(32))
        told = wire.read(64)
        assert (told[0], told[9], told[10]) == (0xFF, 0x7F, 3)
        assert told[12:32] == b"NULL".ljust(20, b"\0")
        assert told[32] == 0


@MINORS
def test_a_later_version_is_spoken_to(minor: int, alone: Side) -> None:
    socket = alone.socket("PULL")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"PUSH", minor + 7)
        wire.send(message(b"message"))
        assert alone.receive(socket) == [b"message"]


@MINORS
def test_connecting_to_it(minor: int, alone: Side) -> None:
    req = alone.socket("REQ")
    with Listener() as listener:
        req.connect(listener.endpoint)
        with listener.accept() as wire:
            assert properties(wire.handshake(b"REP", minor))[b"Socket-Type"] == b"REQ"
            req.send(b"question")
            assert wire.read_message() == [b"", b"question"]
            wire.send(message(b"", b"answer"))
            assert alone.receive(req) == [b"answer"]


@pytest.mark.parametrize("style", ["message", "command"])
@MINORS
def test_it_subscribes(style: str, minor: int, alone: Side) -> None:
    xpub = alone.socket("XPUB")
    subscribe = message(b"\x01topic") if style == "message" else command(b"SUBSCRIBE", b"topic")
    cancel = message(b"\x00topic") if style == "message" else command(b"CANCEL", b"topic")
    with Wire.connect(bind(xpub)) as wire:
        wire.handshake(b"SUB", minor)
        wire.send(subscribe)
        assert alone.receive(xpub) == [b"\x01topic"]
        xpub.send_multipart([b"other", b"not wanted"])
        xpub.send_multipart([b"topic", b"wanted"])
        assert wire.read_message() == [b"topic", b"wanted"]
        wire.send(cancel)
        assert alone.receive(xpub) == [b"\x00topic"]
        xpub.send(b"topic, no more")
        wire.send(message(b"\x01mark"))
        assert alone.receive(xpub) == [b"\x01mark"]
        xpub.send(b"mark")
        assert wire.read_message() == [b"mark"]


@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
@MINORS
def test_it_is_subscribed_to(kind: str, minor: int, alone: Side) -> None:
    sub = alone.socket(kind)
    if kind == "SUB":
        alone.set(sub, SUBSCRIBE=b"topic")
    else:
        sub.send(b"\x01topic")
    with Wire.connect(bind(sub)) as wire:
        wire.handshake(b"XPUB", minor)
        until(lambda: alone.readable(sub, 1) or readable(wire.socket))
        flags, body = wire.read_frame()
        if minor == 0:
            # 3.0 knows no SUBSCRIBE: subscriptions are messages.
            assert (flags, body) == (0, b"\x01topic")
        else:
            assert (flags, body) in [(0, b"\x01topic"), (COMMAND, b"\x09SUBSCRIBEtopic")]
        wire.send(message(b"topic!"))
        assert alone.receive(sub) == [b"topic!"]


def test_what_was_not_subscribed_to_is_filtered_here_too(alone: Side) -> None:
    sub = alone.socket("SUB", SUBSCRIBE=b"topic")
    with Wire.connect(bind(sub)) as wire:
        wire.handshake(b"PUB")
        wire.send(message(b"other", b"topic") + message(b"topic", b"wanted"))
        assert alone.receive(sub) == [b"topic", b"wanted"]


def test_it_is_pinged_and_answers(alone: Side) -> None:
    socket = alone.socket("DEALER", HEARTBEAT_IVL=20, HEARTBEAT_TTL=3000, HEARTBEAT_TIMEOUT=20_000)
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        for _ in range(5):
            name, body = wire.read_command()
            assert name == b"PING"
            # Tenths of a second.
            assert body[:2] == (30).to_bytes(2, "big")
            wire.send(command(b"PONG", body[2:]))
        wire.send(message(b"still here"))
        assert alone.receive(socket) == [b"still here"]


@pytest.mark.parametrize("context", [b"", b"context", 16 * b"x"])
def test_it_pings_and_is_answered(context: bytes, alone: Side) -> None:
    socket = alone.socket("DEALER")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        for _ in range(3):
            wire.send(command(b"PING", b"\x00\x00" + context))
            assert wire.read_command() == (b"PONG", context)
        wire.send(message(b"first") + command(b"PING", b"\x00\x00") + message(b"second"))
        assert alone.receive(socket) == [b"first"]
        assert alone.receive(socket) == [b"second"]
        assert wire.read_command() == (b"PONG", b"")


def test_a_ping_is_answered_by_no_more_than_it_may_say(alone: Side) -> None:
    socket = alone.socket("DEALER")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        wire.send(command(b"PING", bytes(2) + bytes(range(100))))
        # Leaving a peer that says more than it may is right, too.
        answer = command(b"PONG", bytes(range(16)))
        assert wire.drain_until(answer) in (b"", answer)


@only_ours
def test_half_a_ping_is_answered_by_nothing_of_somebody_else_s(ours: Side) -> None:
    """libzmq answers it with sixteen bytes of an earlier command."""
    socket = ours.socket("DEALER")
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        wire.send(command(b"PING", b"\0") + command(b"PING", b"\0\0whole"))
        assert wire.drain_until(command(b"PONG", b"whole")) in (b"", command(b"PONG", b"whole"))


def test_one_that_does_not_answer_is_dropped(alone: Side) -> None:
    socket = alone.socket("DEALER", HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=60)
    watch = alone.watch(socket)
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        assert b"PING" in wire.drain()
    watch.until("DISCONNECTED")


def test_one_that_promised_to_ping_is_dropped_when_it_does_not(alone: Side) -> None:
    socket = alone.socket("DEALER")
    watch = alone.watch(socket)
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER")
        wire.send(command(b"PING", b"\x00\x01" + b"context"))
        assert wire.drain() == command(b"PONG", b"context")
    watch.until("DISCONNECTED")


def test_a_3_0_peer_is_not_pinged(alone: Side) -> None:
    socket = alone.socket("DEALER", HEARTBEAT_IVL=10, HEARTBEAT_TIMEOUT=5000)
    with Wire.connect(bind(socket)) as wire:
        wire.handshake(b"DEALER", 0)
        wire.send(message(b"message"))
        assert alone.receive(socket) == [b"message"]
        socket.send(b"answer")
        flags, body = wire.read_frame()
        while flags & COMMAND:
            # libzmq pings whom it will; a peer that does not know the command passes over it.
            flags, body = wire.read_frame()
        assert (flags, body) == (0, b"answer")


def test_an_error_instead_of_ready(alone: Side) -> None:
    push = alone.socket("PUSH", RECONNECT_IVL=10)
    watch = alone.watch(push)
    with Listener() as listener:
        push.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.send(greeting())
            wire.read(64)
            wire.read_command()
            wire.send(command(b"ERROR", b"\x03400"))
            watch.until("HANDSHAKE_FAILED_AUTH")
        assert "HANDSHAKE_SUCCEEDED" not in watch.seen


@only_ours
def test_metadata_is_read_whatever_its_case(ours: Side) -> None:
    router = ours.socket("ROUTER")
    with Wire.connect(bind(router)) as wire:
        wire.send(greeting())
        wire.read(64)
        body = b""
        for name, value in ((b"SOCKET-TYPE", b"DEALER"), (b"identity", b"name"), (b"X-Other", b"more")):
            body += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
        wire.send(command(b"READY", body))
        wire.read_command()
        wire.send(frame(b"hello"))
        assert ours.receive(router) == [b"name", b"hello"]
