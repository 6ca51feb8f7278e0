"""Peers that were never admitted: they cost little and delay no other, and so do peers that never read."""

from __future__ import annotations

import gc
import os
import socket as sockets
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.messaging.lab import Side, bind, link, only_ours, secure
from tests.conformance.messaging.wire import LONG, Wire, command, greeting, message, ready, writable
from tests.polling import until

#: What a process may grow by; allocators keep some of it, and so do two kernels' buffers.
MEGABYTES = 1 << 20
RECONNECTS = int(os.environ.get("ROPEWALK_TEST_RECONNECTS", "1000"))


def resident() -> int:
    """The process's resident bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """How many descriptors the process has."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
@pytest.mark.parametrize("kind", ["PUSH", "DEALER", "PUB", "REQ"])
def test_a_stranger_is_sent_nothing(kind: str, mechanism: str, subject: Side, peer: Side) -> None:
    """CVE-2020-15166: a raw client was a peer before it had shaken hands, and took messages for itself."""
    joining = {"PUSH": "PULL", "DEALER": "DEALER", "PUB": "SUB", "REQ": "REP"}[kind]
    sender, receiver = subject.socket(kind), peer.socket(joining)
    secure(mechanism, subject, sender, peer, receiver)
    endpoint = bind(sender)
    with ExitStack() as stack:
        strangers = [stack.enter_context(Wire.connect(endpoint)) for _ in range(10)]
        for number, stranger in enumerate(strangers):
            stranger.send(greeting(mechanism=mechanism.encode())[: 8 * number])
        assert not subject.try_send(sender, b"nobody is there") or kind == "PUB"
        if kind == "PUB":
            peer.set(receiver, SUBSCRIBE=b"")
        receiver.connect(endpoint)
        if kind == "PUB":
            until(lambda: subject.try_send(sender, b"first") and peer.readable(receiver, 10))
        for number in range(50):
            sender.send(b"%d" % number)
            received = peer.receive(receiver)
            while received == [b"first"]:
                received = peer.receive(receiver)
            assert received == [b"%d" % number]
            if kind == "REQ":
                receiver.send(b"answer")
                subject.receive(sender)


def test_strangers_that_talk_delay_nobody(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    endpoint = link(pull, push)
    with ExitStack() as stack:
        for number in range(50):
            stranger = stack.enter_context(Wire.connect(endpoint))
            stranger.send(
                [b"\xff", b"nonsense" * 10, greeting(), greeting() + b"\x04\x20\x05READY"][number % 4]
            )
        for number in range(200):
            push.send(b"%d" % number)
            assert subject.receive(pull) == [b"%d" % number]


@only_ours
def test_a_declared_size_costs_nothing(ours: Side) -> None:
    pull = ours.socket("PULL")
    endpoint = bind(pull)
    before = resident()
    with ExitStack() as stack:
        for _ in range(50):
            wire = stack.enter_context(Wire.connect(endpoint))
            wire.handshake(b"PUSH")
            wire.send(bytes([LONG]) + (1 << 40).to_bytes(8, "big") + bytes(1000))
        good = stack.enter_context(Wire.connect(endpoint))
        good.handshake(b"PUSH")
        good.send(message(b"message"))
        assert ours.receive(pull) == [b"message"]
        assert resident() - before < 64 * MEGABYTES


@only_ours
def test_a_stranger_s_bytes_are_bounded(ours: Side) -> None:
    pull = ours.socket("PULL")
    endpoint = bind(pull)
    for said in (greeting(mechanism=b"NULL"), greeting() + bytes([0x06]) + (1 << 30).to_bytes(8, "big")):
        with Wire.connect(endpoint) as wire:
            wire.send(said)
            # It is dropped long before it has said all of this.
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                wire.send(bytes(256 * MEGABYTES))
            wire.drain()


@pytest.mark.parametrize("kind", ["PUB", "ROUTER"])
def test_who_never_reads_is_dropped_for(kind: str, alone: Side) -> None:
    socket = alone.socket(kind, SNDHWM=100)
    with Wire.connect(bind(socket)) as wire:
        if kind == "PUB":
            wire.handshake(b"SUB")
            wire.send(message(b"\x01"))
            until(lambda: alone.try_send(socket, b"?") and _has_bytes(wire))
            envelope = []
        else:
            wire.handshake(b"DEALER", Identity=b"name")
            wire.send(message(b"hello"))
            envelope = [alone.receive(socket)[0]]
        before = resident()
        body = bytes(100_000)
        for _ in range(5_000):
            socket.send_multipart([*envelope, body])
        assert resident() - before < 64 * MEGABYTES


def _has_bytes(wire: Wire) -> bool:
    wire.socket.setblocking(False)
    try:
        return bool(wire.socket.recv(1, sockets.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        wire.socket.settimeout(25)


def test_who_never_reads_is_waited_for(alone: Side) -> None:
    push = alone.socket("PUSH", SNDHWM=10)
    with Wire.connect(bind(push)) as wire:
        wire.handshake(b"PULL")
        before = resident()
        body = bytes(100_000)
        count = 0
        while alone.writable(push, 200):
            count += alone.try_send(push, body)
            assert count < 1_000
        assert resident() - before < 64 * MEGABYTES
        # Nothing was lost of what was taken.
        for _ in range(count):
            assert wire.read_message() == [body]


def test_a_flood_is_held_back_by_who_does_not_receive(alone: Side) -> None:
    pull = alone.socket("PULL", RCVHWM=10)
    with Wire.connect(bind(pull)) as wire:
        wire.handshake(b"PUSH")
        before = resident()
        body = message(bytes(100_000))
        sent, rest = 0, body
        while writable(wire.socket, 300):
            rest = rest[wire.socket.send(rest) :]
            if not rest:
                sent, rest = sent + 1, body
            assert sent < 2_000
        assert resident() - before < 64 * MEGABYTES
        for _ in range(sent):
            assert alone.receive(pull) == [bytes(100_000)]


@pytest.mark.parametrize("stage", ["connected", "greeted", "ready", "a message"])
def test_many_reconnects_leave_nothing(stage: str, alone: Side) -> None:
    pull = alone.socket("PULL", BACKLOG=1000)
    endpoint = bind(pull)
    said = {
        "connected": b"",
        "greeted": greeting(),
        "ready": greeting() + ready(b"PUSH"),
        "a message": message(b"one", b"two"),
    }[stage]

    def come_and_go(times: int) -> None:
        for number in range(times):
            with Wire.connect(endpoint) as wire:
                if stage == "a message":
                    wire.handshake(b"PUSH")
                wire.send(said)
                if stage == "a message":
                    assert alone.receive(pull) == [b"one", b"two"]
                elif number % 2:
                    wire.reset()

    before_descriptors = descriptors()
    come_and_go(50)
    before = resident()
    come_and_go(RECONNECTS // 4)
    until(lambda: descriptors() <= before_descriptors + 2)
    assert resident() - before < 32 * MEGABYTES
    with Wire.connect(endpoint) as wire:
        wire.handshake(b"PUSH")
        wire.send(message(b"last"))
        assert alone.receive(pull) == [b"last"]


def test_many_sockets_come_and_go(subject: Side, peer: Side) -> None:
    rep = subject.socket("REP")
    endpoint = bind(rep)
    before = descriptors()
    for number in range(RECONNECTS // 10):
        req = peer.context.socket(peer.zmq.REQ)
        peer.set(req, LINGER=0, RCVTIMEO=25_000)
        req.connect(endpoint)
        req.send(b"%d" % number)
        assert subject.receive(rep) == [b"%d" % number]
        rep.send(b"answer")
        assert req.recv() == b"answer"
        req.close()
    until(lambda: descriptors() <= before + 8)


@pytest.mark.parametrize("topics", [2_000])
def test_a_subscriber_of_everything(topics: int, alone: Side) -> None:
    pub: Any = alone.socket("XPUB", RCVHWM=0)
    with Wire.connect(bind(pub)) as wire:
        wire.handshake(b"SUB")
        for number in range(topics):
            wire.send(command(b"SUBSCRIBE", b"%d/" % number * 20))
        for number in range(topics):
            assert alone.receive(pub) == [b"\x01" + b"%d/" % number * 20]
        wire.reset()
    # The publisher receives the end of each of them.
    assert {alone.receive(pub)[0][:1] for _ in range(topics)} == {b"\x00"}
