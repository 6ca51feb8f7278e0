"""Messages: parts of any size, their order, and the properties of the peer that sent them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import MECHANISMS, TRANSPORTS, Side, Zap, background, link, secure

#: Around the edges of a short frame and of the buffers of both implementations.
SIZES = (0, 1, 2, 29, 30, 33, 34, 254, 255, 256, 257, 8191, 8192, 8193, 65_535, 65_536, 1 << 20)
#: Enough to fill every buffer between the ends many times.
STREAM = 20_000


def body(size: int) -> bytes:
    """Bytes that tell a shift, a repetition and a gap."""
    return (b"%08x" % size + bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sizes(transport: str, mechanism: str, subject: Side, peer: Side) -> None:
    a, b = subject.socket("DEALER"), peer.socket("DEALER")
    secure(mechanism, subject, a, peer, b)
    link(a, b, transport)
    for size in SIZES:
        a.send(body(size))
        assert peer.receive(b) == [body(size)]
        b.send_multipart([body(size), b"", body(size)])
        assert subject.receive(a) == [body(size), b"", body(size)]
    everything = [body(size) for size in SIZES]
    a.send_multipart(everything)
    assert peer.receive(b) == everything


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_many_megabytes(transport: str, subject: Side, peer: Side) -> None:
    a, b = subject.socket("PUSH"), peer.socket("PULL")
    link(b, a, transport)
    large = body(16 << 20)
    a.send_multipart([large, b"behind"])
    first, second = peer.receive(b)
    assert first == large
    assert second == b"behind"


def test_many_parts(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PUSH"), peer.socket("PULL")
    link(b, a)
    parts = [b"%d" % number for number in range(5_000)]
    a.send_multipart(parts)
    a.send(b"behind")
    assert peer.receive(b) == parts
    assert peer.receive(b) == [b"behind"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_order(transport: str, subject: Side, peer: Side) -> None:
    a, b = subject.socket("PUSH"), peer.socket("PULL")
    link(a, b, transport)

    def send() -> None:
        for number in range(STREAM):
            if number % 3:
                a.send(b"%d" % number)
            else:
                a.send_multipart([b"%d" % number, b"second"])

    with background(send):
        for number in range(STREAM):
            parts = peer.receive(b)
            assert parts == [b"%d" % number] + ([] if number % 3 else [b"second"])


def test_parts_are_told_by_the_flag(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PAIR"), peer.socket("PAIR")
    link(a, b)
    b.send(b"one", peer.zmq.SNDMORE)
    b.send(b"", peer.zmq.SNDMORE)
    b.send(b"three")
    seen = [(a.recv(), bool(subject.get(a, "RCVMORE"))) for _ in range(3)]
    assert seen == [(b"one", True), (b"", True), (b"three", False)]


def test_a_message_is_not_seen_before_its_last_part(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PULL"), peer.socket("PUSH")
    other = peer.socket("PUSH")
    endpoint = link(a, b)
    other.connect(endpoint)
    b.send(b"first", peer.zmq.SNDMORE)
    other.send(b"whole")
    assert subject.receive(a) == [b"whole"]
    assert not subject.readable(a)
    b.send(b"last")
    assert subject.receive(a) == [b"first", b"last"]


@pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])
def test_frames_without_a_copy(transport: str, alone: Side) -> None:
    a, b = alone.socket("PUSH"), alone.socket("PULL")
    link(b, a, transport)
    for size in SIZES:
        a.send(body(size), copy=False)
        frame = b.recv(copy=False)
        assert bytes(frame.buffer) == body(size)
        assert frame.bytes == body(size)
        assert len(frame) == size
        assert not frame.more


def test_a_tracked_send_is_done_when_it_has_left(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PUSH"), peer.socket("PULL")
    link(b, a)
    tracker = a.send(body(1 << 20), copy=False, track=True)
    assert peer.receive(b) == [body(1 << 20)]
    tracker.wait(timeout=25)
    assert tracker.done


def received_frame(side: Side, a: Any, other: Side, b: Any) -> Any:
    b.send_multipart([b"one", b"two"])
    first = a.recv(copy=False)
    assert first.more
    second = a.recv(copy=False)
    assert second.get("Peer-Address") == first.get("Peer-Address")
    return second


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_metadata(transport: str, subject: Side, peer: Side) -> None:
    a, b = subject.socket("PULL"), peer.socket("PUSH", ROUTING_ID=b"its name")
    link(a, b, transport)
    frame = received_frame(subject, a, peer, b)
    assert frame.get("Socket-Type") == "PUSH"
    if transport == "tcp":
        assert frame.get("Peer-Address") == "127.0.0.1"
    with pytest.raises(subject.zmq.ZMQError) as refused:
        frame.get("No-Such-Property")
    assert refused.value.errno == subject.zmq.EINVAL


def test_metadata_tells_the_peer_s_name(subject: Side, peer: Side) -> None:
    a, b = subject.socket("ROUTER"), peer.socket("DEALER", ROUTING_ID=b"its name")
    link(a, b)
    b.send(b"hello")
    assert a.recv() == b"its name"
    assert a.recv(copy=False).get("Identity") == "its name"


def test_metadata_tells_the_user(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PULL"), peer.socket("PUSH")
    Zap(subject, lambda _request: (b"200", b"somebody"))
    subject.set(a, ZAP_DOMAIN=b"test", PLAIN_SERVER=1)
    peer.set(b, PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    link(a, b)
    assert received_frame(subject, a, peer, b).get("User-Id") == "somebody"
