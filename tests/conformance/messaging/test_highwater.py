"""High-water marks: how many messages a socket takes, and whether it then waits, raises or drops."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import (
    TRANSPORTS,
    Side,
    address,
    await_readable,
    background,
    bind,
    link,
    queued,
    rebind,
    secure,
    subscribe,
    vacant,
)
from tests.polling import until

BLOCKING = ("PUSH", "DEALER", "PAIR", "REQ")
#: Large enough that a kernel's buffers hold a few only.
LARGE = bytes(1 << 20)
#: What two kernels' buffers and both ends' batches may hold of them beyond the marks.
BETWEEN = 64


@pytest.mark.parametrize("kind", BLOCKING)
def test_nobody_to_send_to(kind: str, alone: Side) -> None:
    socket = alone.socket(kind, SNDTIMEO=1)
    bind(socket)
    assert not alone.writable(socket)
    assert not alone.try_send(socket, b"message")
    with pytest.raises(alone.zmq.Again):
        socket.send(b"message")


@pytest.mark.parametrize("mark", [1, 7, 1000])
@pytest.mark.parametrize("kind", ["PUSH", "DEALER", "PAIR"])
def test_the_mark_of_who_is_not_there_yet(kind: str, mark: int, alone: Side) -> None:
    socket = alone.socket(kind, SNDHWM=mark)
    # Port 1 of this host: nobody's, and refused at once.
    socket.connect("tcp://127.0.0.1:1")
    assert queued(alone, socket, b"message") == mark
    assert not alone.writable(socket)


@pytest.mark.parametrize(("sending", "receiving"), [(1, 1), (3, 5), (1000, 1000), (10, 1)])
def test_the_marks_of_both_within_a_process(sending: int, receiving: int, alone: Side) -> None:
    push, pull = alone.socket("PUSH", SNDHWM=sending), alone.socket("PULL", RCVHWM=receiving)
    link(pull, push, "inproc")
    assert queued(alone, push, b"one", b"two") == sending + receiving
    for _ in range(sending + receiving):
        assert alone.receive(pull) == [b"one", b"two"]
    assert alone.try_receive(pull) is None
    until(lambda: alone.try_send(push, b"there is room again"))


@pytest.mark.parametrize("sender", ["binds", "connects"])
@pytest.mark.parametrize(("sending", "receiving"), [(1, 1), (3, 5), (10, 1)])
def test_the_marks_of_both_are_known_when_the_name_is_bound(
    sending: int, receiving: int, sender: str, alone: Side
) -> None:
    push, pull = alone.socket("PUSH", SNDHWM=sending), alone.socket("PULL", RCVHWM=receiving)
    first, second = (pull, push) if sender == "binds" else (push, pull)
    endpoint = address("inproc")
    first.connect(endpoint)
    second.bind(endpoint)
    assert queued(alone, push, b"one") == sending + receiving


@pytest.mark.parametrize(("sending", "receiving"), [(0, 5), (5, 0)])
def test_a_mark_that_is_none_is_none_for_both(sending: int, receiving: int, alone: Side) -> None:
    push, pull = alone.socket("PUSH", SNDHWM=sending), alone.socket("PULL", RCVHWM=receiving)
    endpoint = address("inproc")
    push.connect(endpoint)
    pull.bind(endpoint)
    for _ in range(1000):
        assert alone.try_send(push, b"one")


def test_a_sender_that_was_there_first_goes_on_when_there_is_room_for_both(alone: Side) -> None:
    push, pull = alone.socket("PUSH", SNDHWM=2), alone.socket("PULL", RCVHWM=3)
    endpoint = address("inproc")
    push.connect(endpoint)
    assert queued(alone, push, b"one") == 2
    pull.bind(endpoint)
    for _ in range(2):
        assert alone.receive(pull) == [b"one"]
    until(lambda: alone.try_send(push, b"there is room again"))
    assert alone.receive(pull) == [b"there is room again"]


@pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])
def test_no_mark(transport: str, alone: Side) -> None:
    push, pull = alone.socket("PUSH", SNDHWM=0), alone.socket("PULL", RCVHWM=0)
    link(pull, push, transport)
    for number in range(20_000):
        assert alone.try_send(push, b"%d" % number)
    for number in range(20_000):
        assert alone.receive(pull) == [b"%d" % number]


def stops_at(side: Side, sender: Any, *parts: bytes) -> int:
    """How many are taken until nothing moves any more, though the peer's end still takes some in."""
    count = 0
    while side.writable(sender, 200):
        count += queued(side, sender, *parts)
        assert count < 1000
    return count


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_sender_waits_for_who_does_not_read(
    transport: str, mechanism: str, subject: Side, peer: Side
) -> None:
    push = subject.socket("PUSH", SNDHWM=5, SNDBUF=65_536)
    pull = peer.socket("PULL", RCVHWM=5, RCVBUF=65_536)
    secure(mechanism, peer, pull, subject, push)
    link(pull, push, transport)
    count = stops_at(subject, push, LARGE)
    assert 5 <= count <= 10 + BETWEEN
    for _ in range(count):
        assert peer.receive(pull) == [LARGE]
    until(lambda: subject.try_send(push, b"there is room again"))
    assert peer.receive(pull) == [b"there is room again"]


def test_a_waiting_sender_goes_on(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", SNDHWM=2), peer.socket("PULL", RCVHWM=2)
    link(pull, push)

    def send() -> None:
        for number in range(200):
            push.send_multipart([b"%d" % number, LARGE[:200_000]])

    with background(send):
        for number in range(200):
            assert peer.receive(pull)[0] == b"%d" % number


def test_a_publisher_drops_for_who_does_not_read(alone: Side) -> None:
    pub, sub = alone.socket("XPUB", SNDHWM=6), alone.socket("SUB", RCVHWM=4)
    link(pub, sub, "inproc")
    alone.set(sub, SUBSCRIBE=b"")
    assert alone.receive(pub) == [b"\x01"]
    for number in range(100):
        pub.send_multipart([b"%d" % number, b"second"])
    received = []
    while message := alone.try_receive(sub):
        received.append(message)
    # Whole messages, the oldest ones, as many as both marks hold.
    assert received == [[b"%d" % number, b"second"] for number in range(10)]

    def heard() -> bool:
        pub.send(b"again")
        return alone.readable(sub, 20)

    until(heard)
    assert alone.receive(sub) == [b"again"]


def test_a_slow_subscriber_delays_no_other(subject: Side, peer: Side) -> None:
    pub = subject.socket("PUB", SNDHWM=10)
    endpoint = bind(pub)
    slow, quick = peer.socket("SUB", RCVHWM=10), peer.socket("SUB", RCVHWM=10)
    for sub in (slow, quick):
        sub.connect(endpoint)
        subscribe(subject, pub, peer, sub, b"t")
    for number in range(100):
        # A mark of ten is soon reached, also by who reads; what is sent again arrives.
        body = [b"t%d" % number, LARGE]
        until(lambda body=body: (pub.send_multipart(body), peer.readable(quick, 20))[1])
        while message := peer.try_receive(quick):
            assert message[0] in (b"t?", b"t!", b"t%d" % number, b"t%d" % (number - 1))
    assert peer.receive(slow)[0] in (b"t?", b"t!", b"t0")


def test_a_publisher_may_be_told_to_refuse(alone: Side) -> None:
    pub, sub = alone.socket("XPUB", SNDHWM=6, XPUB_NODROP=1), alone.socket("SUB", RCVHWM=4)
    link(pub, sub, "inproc")
    alone.set(sub, SUBSCRIBE=b"")
    assert alone.receive(pub) == [b"\x01"]
    assert queued(alone, pub, b"message") == 10
    for _ in range(10):
        assert alone.receive(sub) == [b"message"]
    until(lambda: alone.try_send(pub, b"there is room again"))


def test_a_router_drops_for_who_does_not_read(alone: Side) -> None:
    router, dealer = alone.socket("ROUTER", SNDHWM=3), alone.socket("DEALER", ROUTING_ID=b"name", RCVHWM=4)
    link(router, dealer, "inproc")
    dealer.send(b"hello")
    alone.receive(router)
    for number in range(20):
        router.send_multipart([b"name", b"%d" % number])
    received = []
    while message := alone.try_receive(dealer):
        received += message
    assert received == [b"%d" % number for number in range(7)]


def test_a_mandatory_router_refuses_for_who_does_not_read(alone: Side) -> None:
    router = alone.socket("ROUTER", SNDHWM=3, ROUTER_MANDATORY=1)
    dealer = alone.socket("DEALER", ROUTING_ID=b"name", RCVHWM=4)
    link(router, dealer, "inproc")
    dealer.send(b"hello")
    alone.receive(router)
    assert queued(alone, router, b"name", b"message") == 7
    alone.set(router, SNDTIMEO=1)
    with pytest.raises(alone.zmq.Again):
        router.send_multipart([b"name", b"message"])
    for _ in range(7):
        assert alone.receive(dealer) == [b"message"]
    until(lambda: alone.try_send(router, b"name", b"there is room again"))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_conflate_keeps_the_last(transport: str, subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", CONFLATE=1), peer.socket("PULL", CONFLATE=1)
    endpoint = vacant(transport)
    subject.set(push, RECONNECT_IVL=10)
    push.connect(endpoint)
    for number in range(1000):
        push.send(b"%d" % number)
    rebind(peer, pull, endpoint)
    received = [int(peer.receive(pull)[0])]
    while received[-1] != 999:
        received.append(int(peer.receive(pull)[0]))
    # One may have been under way while the later ones took each other's place.
    assert received == sorted(set(received))
    assert len(received) <= 2


def test_conflate_at_the_receiver(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL", CONFLATE=1), peer.socket("PUSH")
    link(pull, push)
    for number in range(1000):
        push.send(b"%d" % number)
    received = -1
    while received != 999:
        [body] = subject.receive(pull)
        assert int(body) > received
        received = int(body)
    assert subject.try_receive(pull) is None


def test_a_conflating_subscriber(subject: Side, peer: Side) -> None:
    sub, pub = subject.socket("SUB", CONFLATE=1, SUBSCRIBE=b""), peer.socket("XPUB")
    link(pub, sub)
    await_readable(peer, pub, subject, sub)
    for number in range(1000):
        pub.send(b"%d" % number)
    received = -1
    while received != 999:
        [body] = subject.receive(sub)
        assert int(body) > received
        received = int(body)
