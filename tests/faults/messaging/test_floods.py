"""Peers that send more than the receiver takes, or receive less than is sent: the memory for them is bounded."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.conformance.messaging.lab import Side, bind, link, only_ours, subscribe
from tests.conformance.messaging.wire import LONG, Wire, command, message, writable

MEGABYTES = 1 << 20


def resident() -> int:
    """The process's resident bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def hardly_growing(by: int = 48 * MEGABYTES) -> Iterator[None]:
    """Fails if the process is larger afterwards; allocators keep some of what they had."""
    before = resident()
    yield
    assert resident() - before < by


def flood(wire: Wire, piece: bytes, most: int) -> int:
    """How many pieces are taken until no more are for a while; fails if so many are."""
    sent, rest = 0, piece
    while writable(wire.socket, 400):
        rest = rest[wire.socket.send(rest) :]
        if not rest:
            sent, rest = sent + 1, piece
        assert sent < most, "nothing holds it back"
    return sent


@only_ours
@pytest.mark.parametrize("ttl", [b"\x00\x00", b"\xff\xff"])
def test_who_pings_and_does_not_read_is_owed_little(ttl: bytes, ours: Side) -> None:
    pull = ours.socket("PULL")
    with Wire.connect(bind(pull)) as wire:
        wire.handshake(b"PUSH")
        pings = command(b"PING", ttl + bytes(16)) * 1000
        with hardly_growing():
            for _ in range(1_000):
                wire.send(pings)
            wire.send(message(b"message"))
            assert ours.receive(pull) == [b"message"]
        name, context = wire.read_command()
        assert (name, context) == (b"PONG", bytes(16))


#: Four bytes on the wire that nobody knows: as many commands as can come by one read.
UNKNOWN = command(b"?")
#: A topic taken and left again: two commands, and news of each.
FICKLE = command(b"SUBSCRIBE", b"x") + command(b"CANCEL", b"x")


@only_ours
@pytest.mark.parametrize(("noise", "news"), [(UNKNOWN * 2_000_000, 0), (FICKLE * 100_000, 100_000)])
def test_commands_by_the_thousand_delay_nobody(noise: bytes, news: int, ours: Side) -> None:
    """Each is handled once, and meanwhile others are served. What they cost is a test of `Incoming`'s in the core."""
    pub, sub = ours.socket("XPUB"), ours.socket("SUB")
    with Wire.connect(link(pub, sub)) as wire:
        wire.handshake(b"SUB")
        subscribe(ours, pub, ours, sub, b"topic")
        assert pub.recv() == b"\1topic"

        def shout() -> None:
            with suppress(OSError):
                wire.send(noise + command(b"SUBSCRIBE", b"last"))

        thread = threading.Thread(target=shout)
        thread.start()
        try:
            told, sent = [], 0
            while told[-1:] != [b"\1last"]:
                pub.send(b"topic %d" % sent)
                assert sub.recv() == b"topic %d" % sent
                sent += 1
                while ours.readable(pub) and told[-1:] != [b"\1last"]:
                    told.append(pub.recv())
            assert told == [b"\1x", b"\0x"] * news + [b"\1last"]
        finally:
            ours.close_sockets()
            thread.join()


@pytest.mark.parametrize("kind", ["PULL", "STREAM"])
def test_who_does_not_receive_is_not_filled(kind: str, alone: Side) -> None:
    """Heartbeats are no reason to read on, nor is it one that a stream has no messages to be counted."""
    socket = alone.socket(kind, RCVHWM=4, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=60_000)
    with Wire.connect(bind(socket)) as wire:
        if kind == "PULL":
            wire.handshake(b"PUSH")
        body = bytes(1_000_000)
        with hardly_growing():
            sent = flood(wire, message(body) if kind == "PULL" else body, 200)
        for _ in range(sent if kind == "PULL" else 0):
            assert socket.recv() == body


@only_ours
@pytest.mark.parametrize("side", ["SNDHWM_BYTES", "RCVHWM_BYTES"])
def test_a_limit_in_bytes(side: str, ours: Side) -> None:
    body = bytes(100_000)
    if side == "SNDHWM_BYTES":
        push = ours.socket("PUSH", SNDHWM=0, SNDHWM_BYTES=1_000_000)
        with Wire.connect(bind(push)) as wire, hardly_growing():
            wire.handshake(b"PULL")
            sent = 0
            while ours.writable(push, 200):
                sent += ours.try_send(push, body)
                assert sent < 1_000
            for _ in range(sent):
                assert wire.read_message() == [body]
        return
    pull = ours.socket("PULL", RCVHWM=0, RCVHWM_BYTES=1_000_000)
    with Wire.connect(bind(pull)) as wire, hardly_growing():
        wire.handshake(b"PUSH")
        for _ in range(flood(wire, message(body), 1_000)):
            assert pull.recv() == body


@pytest.mark.parametrize("size", [1_000, 500_000])
@pytest.mark.parametrize("kind", ["PUSH", "DEALER", "PUB"])
def test_only_the_newest_is_kept_for_who_does_not_read(kind: str, size: int, alone: Side) -> None:
    """Also while one is sent in part, and behind a PING that was not sent."""
    socket = alone.socket(kind, CONFLATE=1, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=60_000)
    with Wire.connect(bind(socket)) as wire:
        wire.handshake({"PUSH": b"PULL", "DEALER": b"DEALER", "PUB": b"SUB"}[kind])
        wire.send(command(b"SUBSCRIBE") if kind == "PUB" else b"")
        count = 200_000_000 // size if alone.zmq.__name__ != "zmq" else 50_000_000 // size
        with hardly_growing():
            for number in range(count):
                socket.send(b"%d " % number + bytes(size))
        socket.send(b"last")
        previous = -1
        while True:
            flags, body = wire.read_frame()
            if flags:
                assert body.startswith(b"\x04PING")
                continue
            if body == b"last":
                break
            # Each is whole, and newer than the one before.
            head, rest = body.split(b" ", 1)
            assert (len(rest), int(head) > previous) == (size, True)
            previous = int(head)


@only_ours
def test_a_subscriber_s_topics_are_not_conflated(ours: Side) -> None:
    pub, sub = ours.socket("PUB"), ours.socket("SUB", CONFLATE=1)
    pub.bind("inproc://conflated")
    sub.connect("inproc://conflated")
    ours.set(sub, SUBSCRIBE=b"a")
    ours.set(sub, SUBSCRIBE=b"b")
    for topic in (b"a", b"b"):
        pub.send(topic)
        assert sub.recv() == topic


@only_ours
def test_a_huge_size_is_a_promise(ours: Side) -> None:
    """What is declared is not made room for, and the limit is judged before it has come."""
    pull = ours.socket("PULL", MAXMSGSIZE=1_000)
    with Wire.connect(bind(pull)) as wire:
        wire.handshake(b"PUSH")
        wire.send(message(bytes(1_000)))
        assert pull.recv() == bytes(1_000)
        wire.send(bytes([LONG]) + (1_001).to_bytes(8, "big"))
        assert wire.drain() == b""
