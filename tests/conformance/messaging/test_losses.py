"""What is easily lost, or doubled: by leaving early, by joining twice, by a name that two peers have."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from tests.conformance.messaging import wire
from tests.conformance.messaging.lab import (
    TRANSPORTS,
    Side,
    address,
    await_readable,
    bind,
    only_ours,
    subscribe,
    vacant,
)
from tests.polling import until

COUNT = 50


def fifty(side: Side, socket: Any) -> list[bytes]:
    """So many messages of one part."""
    return [side.receive(socket)[-1] for _ in range(COUNT)]


NUMBERS = [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("kinds", [("PULL", "PUSH"), ("ROUTER", "DEALER"), ("PAIR", "PAIR")], ids="-".join)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_left_before_the_handshake_ends(
    transport: str, kinds: tuple[str, str], subject: Side, peer: Side
) -> None:
    sender, receiver = subject.socket(kinds[1]), peer.socket(kinds[0])
    endpoint = bind(receiver, transport)
    sender.connect(endpoint)
    for body in NUMBERS:
        sender.send(body)
    sender.disconnect(endpoint)
    assert not subject.try_send(sender, b"to nobody")
    assert fifty(peer, receiver) == NUMBERS


@pytest.mark.parametrize("kinds", [("PULL", "PUSH"), ("DEALER", "DEALER"), ("PAIR", "PAIR")], ids="-".join)
def test_what_a_peer_has_sent_before_it_left(kinds: tuple[str, str], subject: Side, peer: Side) -> None:
    receiver, sender = subject.socket(kinds[0]), peer.socket(kinds[1])
    watch = subject.watch(receiver)
    sender.connect(bind(receiver))
    for body in NUMBERS:
        sender.send(body)
    sender.close(linger=-1)
    assert subject.receive(receiver) == [NUMBERS[0]]

    def is_over() -> bool:
        # Asking for room makes the socket read what has come.
        subject.writable(receiver)
        return watch.has("DISCONNECTED")

    until(is_over)
    assert [subject.receive(receiver)[0] for _ in NUMBERS[1:]] == NUMBERS[1:]


@pytest.mark.parametrize("linger", [-1, 20_000])
def test_left_before_anybody_listens(linger: int, subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", LINGER=linger, RECONNECT_IVL=10), peer.socket("PULL")
    endpoint = vacant()
    push.connect(endpoint)
    for body in NUMBERS:
        push.send(body)
    watch = subject.watch(push)
    watch.until("CONNECT_RETRIED")
    push.disconnect(endpoint)
    pull.bind(endpoint)
    assert fifty(peer, pull) == NUMBERS


def test_left_without_patience(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", LINGER=0, RECONNECT_IVL=10), peer.socket("PULL")
    endpoint = vacant()
    watch = subject.watch(push)
    push.connect(endpoint)
    push.send(b"nobody hears it")
    watch.until("CONNECT_RETRIED")
    push.disconnect(endpoint)
    pull.bind(endpoint)
    push.connect(endpoint)
    push.send(b"heard")
    assert peer.receive(pull) == [b"heard"]


@only_ours
def test_patience_that_ends(ours: Side) -> None:
    push, pull = ours.socket("PUSH", LINGER=30, RECONNECT_IVL=10), ours.socket("PULL")
    endpoint = vacant()
    watch = ours.watch(push)
    push.connect(endpoint)
    push.send(b"nobody hears it")
    push.disconnect(endpoint)
    # When it is over, nothing is tried any more.
    until(lambda: not ours.readable(watch._monitor, 200) or not watch.next())
    pull.bind(endpoint)
    push.connect(endpoint)
    push.send(b"heard")
    assert ours.receive(pull) == [b"heard"]


def test_left_and_closed(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", RECONNECT_IVL=10), peer.socket("PULL")
    endpoint = vacant()
    push.connect(endpoint)
    for body in NUMBERS:
        push.send(body)
    push.disconnect(endpoint)
    push.close(linger=-1)
    pull.bind(endpoint)
    assert fifty(peer, pull) == NUMBERS


def test_left_and_joined_again(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH"), peer.socket("PULL")
    endpoint = bind(pull)
    push.connect(endpoint)
    push.send(b"first")
    push.disconnect(endpoint)
    push.connect(endpoint)
    push.send(b"second")
    assert {peer.receive(pull)[0], peer.receive(pull)[0]} == {b"first", b"second"}
    push.disconnect(endpoint)
    with pytest.raises(subject.zmq.ZMQError) as missing:
        push.disconnect(endpoint)
    assert missing.value.errno == errno.ENOENT


#: Who ignores a second connection to one endpoint, and who makes it.
SINGLE = [("PUB", "SUB"), ("SUB", "PUB"), ("ROUTER", "DEALER"), ("REP", "REQ")]
DOUBLE = [("PUSH", "PULL"), ("PULL", "PUSH"), ("XPUB", "XSUB"), ("DEALER", "ROUTER")]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kinds", [*SINGLE, *DOUBLE], ids="-".join)
def test_joined_twice(kinds: tuple[str, str], transport: str, subject: Side, peer: Side) -> None:
    bound, joining = peer.socket(kinds[0]), subject.socket(kinds[1])
    endpoint = bind(bound, transport)
    watch = subject.watch(joining)
    joining.connect(endpoint)
    joining.connect(endpoint)
    # What follows is the last to be connected.
    mark = bind(peer.socket(kinds[0]), transport)
    joining.connect(mark)
    ends = [watch.until("HANDSHAKE_SUCCEEDED")[2] for _ in range(2 if kinds in SINGLE else 3)]
    assert ends.count(mark) == 1
    assert not subject.readable(watch._monitor, 20)
    joining.disconnect(endpoint)
    with pytest.raises(subject.zmq.ZMQError) as missing:
        joining.disconnect(endpoint)
    assert missing.value.errno == errno.ENOENT


def test_a_subscriber_that_joined_twice_hears_once(subject: Side, peer: Side) -> None:
    pub, sub = peer.socket("PUB"), subject.socket("SUB")
    endpoint = bind(pub)
    sub.connect(endpoint)
    sub.connect(endpoint)
    subscribe(peer, pub, subject, sub, b"")
    for body in NUMBERS:
        pub.send(body)
    assert fifty(subject, sub) == NUMBERS


def test_a_dealer_that_joined_twice_gets_every_answer(subject: Side, peer: Side) -> None:
    router, dealer = peer.socket("ROUTER"), subject.socket("DEALER", ROUTING_ID=b"name")
    endpoint = bind(router)
    dealer.connect(endpoint)
    dealer.connect(endpoint)
    for body in NUMBERS:
        dealer.send(body)
    assert fifty(peer, router) == NUMBERS
    for body in NUMBERS:
        router.send_multipart([b"name", body])
    assert fifty(subject, dealer) == NUMBERS


@pytest.mark.parametrize("order", ["bound first", "connected first"])
@pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])
def test_what_an_xsub_says_before_the_connection_stands(
    transport: str, order: str, subject: Side, peer: Side
) -> None:
    if transport == "inproc":
        peer = subject
    xsub, xpub = subject.socket("XSUB"), peer.socket("XPUB")
    endpoint = vacant() if transport == "tcp" else address(transport)
    if order == "bound first":
        xpub.bind(endpoint)
    xsub.connect(endpoint)
    xsub.send(b"\x01topic")
    for body in NUMBERS:
        xsub.send_multipart([b"for the publisher", body])
    if order != "bound first":
        xpub.bind(endpoint)
    await_readable(peer, xpub, subject, xsub)
    assert peer.receive(xpub) == [b"\x01topic"]
    assert fifty(peer, xpub) == NUMBERS


def test_what_an_xsub_says_while_its_publisher_is_away(subject: Side, peer: Side) -> None:
    xsub, xpub = subject.socket("XSUB", RECONNECT_IVL=10), peer.socket("XPUB")
    endpoint = bind(xpub)
    watch = subject.watch(xsub)
    xsub.connect(endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    xpub.close(linger=0)
    watch.until("CONNECT_RETRIED")
    for body in NUMBERS:
        xsub.send(body)
    again = peer.socket("XPUB")
    until(lambda: rebound(peer, again, endpoint))
    assert fifty(peer, again) == NUMBERS


def rebound(side: Side, socket: Any, endpoint: str) -> bool:
    """Whether the endpoint could be bound."""
    try:
        socket.bind(endpoint)
    except side.zmq.ZMQError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def answers(router: Side, socket: Any, client: Side, dealer: Any, body: bytes) -> None:
    """The peer asks under the name, and is answered."""
    dealer.send(body)
    assert router.receive(socket) == [b"name", body]
    socket.send_multipart([b"name", b"to " + body])
    assert client.receive(dealer) == [b"to " + body]


def two_of_a_name(subject: Side, peer: Side, **options: int) -> tuple[Any, Any, Any, Any]:
    """A ROUTER with its monitor, and two peers of one name; the first was heard, the second has connected."""
    router = subject.socket("ROUTER", **options)
    watch = subject.watch(router)
    endpoint = bind(router)
    first, second = (peer.socket("DEALER", ROUTING_ID=b"name", RECONNECT_IVL=10) for _ in range(2))
    first.connect(endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    answers(subject, router, peer, first, b"first")
    second.connect(endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    return router, watch, first, second


def test_a_name_changes_hands_once(subject: Side, peer: Side) -> None:
    router, watch, first, second = two_of_a_name(subject, peer, ROUTER_HANDOVER=1)
    for number in range(20):
        answers(subject, router, peer, second, b"%d" % number)
        # The first one is still connected, and takes nothing back.
        peer.try_send(first, b"not heard")
    assert not subject.readable(router, 50)
    assert not peer.readable(first)
    while subject.readable(watch._monitor):
        watch.next()
    assert watch.seen.count("ACCEPTED") == 2
    assert "DISCONNECTED" not in watch.seen


def test_what_came_before_the_handover_is_received(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER", ROUTER_HANDOVER=1)
    watch = subject.watch(router)
    endpoint = bind(router)
    first, second = (peer.socket("DEALER", ROUTING_ID=b"name") for _ in range(2))
    first.connect(endpoint)
    for body in NUMBERS:
        first.send(body)
    watch.until("HANDSHAKE_SUCCEEDED")
    assert subject.receive(router)[1] == NUMBERS[0]
    # What the socket may have left to be written is written when it is asked for events.
    assert not peer.readable(first, 20)
    second.connect(endpoint)
    second.send(b"second")
    watch.until("HANDSHAKE_SUCCEEDED")
    heard = [subject.receive(router)[1] for _ in NUMBERS]
    assert sorted(heard) == sorted([*NUMBERS[1:], b"second"])


def test_a_name_that_is_taken_is_not_asked_for_again_and_again(subject: Side, peer: Side) -> None:
    router, watch, first, second = two_of_a_name(subject, peer)
    for number in range(20):
        answers(subject, router, peer, first, b"%d" % number)
    assert not subject.readable(router, 50)
    assert not peer.readable(second)
    while subject.readable(watch._monitor):
        watch.next()
    assert watch.seen.count("ACCEPTED") == 2
    assert "DISCONNECTED" not in watch.seen


@only_ours
@pytest.mark.parametrize("handover", [0, 1])
@pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])
def test_a_name_that_is_free_again(transport: str, handover: int, ours: Side) -> None:
    """libzmq never hears the other peer, or takes its next message for its name."""
    router = ours.socket("ROUTER", ROUTER_HANDOVER=handover)
    endpoint = bind(router, transport)
    first, second = (ours.socket("DEALER", ROUTING_ID=b"name") for _ in range(2))
    for dealer in (first, second):
        dealer.connect(endpoint)
        dealer.send(b"hello")
        if handover or dealer is first:
            assert ours.receive(router) == [b"name", b"hello"]
    holder, other = (second, first) if handover else (first, second)
    answers(ours, router, ours, holder, b"held")
    if handover:
        other.send(b"hello")
    holder.close(linger=0)
    # Nothing that the other one has said meanwhile is lost.
    assert ours.receive(router) == [b"name", b"hello"]
    answers(ours, router, ours, other, b"free")


@only_ours
@pytest.mark.parametrize(("kind", "other"), [("ROUTER", b"DEALER"), ("PAIR", b"PAIR")])
def test_what_came_with_the_handshake_waits_for_the_name(kind: str, other: bytes, ours: Side) -> None:
    """libzmq never hears the other peer. Its first message comes in one piece with its handshake."""
    subject = ours.socket(kind)
    watch = ours.watch(subject)
    endpoint = bind(subject)
    hello = wire.ready(other, Identity=b"name")
    with wire.Wire.connect(endpoint) as first, wire.Wire.connect(endpoint) as second:
        for peer, body in ((first, b"first"), (second, b"second")):
            peer.send(wire.greeting() + hello + wire.message(body))
            watch.until("HANDSHAKE_SUCCEEDED")
        assert ours.receive(subject)[-1] == b"first"
        assert not ours.readable(subject, 50)
        first.socket.close()
        assert ours.receive(subject)[-1] == b"second"


@only_ours
def test_a_silent_peer_keeps_no_place_and_no_descriptor(ours: Side) -> None:
    """Devices that have lost their network connect anew, while their old connections look alive."""
    options = {"ROUTER_HANDOVER": 1, "ROUTER_MANDATORY": 1, "HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 100}
    router = ours.socket("ROUTER", **options)
    watch = ours.watch(router)
    endpoint = bind(router)
    with ExitStack() as silent:
        for _ in range(3):
            peer = silent.enter_context(wire.Wire.connect(endpoint))
            peer.send(wire.greeting() + wire.ready(b"DEALER", Identity=b"name") + wire.message(b"hello"))
            watch.until("HANDSHAKE_SUCCEEDED")
            assert ours.receive(router) == [b"name", b"hello"]
        living = ours.socket("DEALER", ROUTING_ID=b"name")
        living.connect(endpoint)
        answers(ours, router, ours, living, b"living")
        for _ in range(3):
            watch.until("DISCONNECTED")
        answers(ours, router, ours, living, b"still living")
        living.close(linger=0)
        watch.until("DISCONNECTED")
        with pytest.raises(ours.zmq.ZMQError) as raised:
            router.send_multipart([b"name", b"nobody"])
        assert raised.value.errno == errno.EHOSTUNREACH


@only_ours
def test_the_kernel_asks_older_peers_whether_they_live(ours: Side) -> None:
    """They speak ZMTP 3.0, which has no PING."""
    router = ours.socket("ROUTER", ROUTER_HANDOVER=1)
    endpoint = bind(router)
    hello = wire.greeting(minor=0) + wire.ready(b"DEALER", Identity=b"name") + wire.message(b"hello")
    with wire.Wire.connect(endpoint) as first, wire.Wire.connect(endpoint) as second:
        for peer in (first, second):
            peer.send(hello)
            assert ours.receive(router) == [b"name", b"hello"]
        assert (is_kept_alive(first.socket), is_kept_alive(second.socket)) == (True, False)


def is_kept_alive(connection: socket.socket) -> bool:
    """Whether the kernel asks for the peer at the other end of this, which is in this process."""
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(number))) as other:
            if other.getpeername() == connection.getsockname():
                return bool(other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    raise AssertionError("there is no other end")


@only_ours
def test_a_living_peer_waits_for_its_name(ours: Side) -> None:
    """It is asked whether it lives, by a PING that it answers unread."""
    options = {"ROUTER_HANDOVER": 1, "HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 100}
    router, watch, first, second = two_of_a_name(ours, ours, **options)
    answers(ours, router, ours, second, b"second")
    assert not ours.readable(router, 400)
    while ours.readable(watch._monitor):
        watch.next()
    assert "DISCONNECTED" not in watch.seen
    second.close(linger=0)
    watch.until("DISCONNECTED")
    answers(ours, router, ours, first, b"first again")


@only_ours
def test_who_waits_for_a_name_may_go(ours: Side) -> None:
    router, watch, first, second = two_of_a_name(ours, ours)
    second.close(linger=0)
    watch.until("DISCONNECTED")
    answers(ours, router, ours, first, b"still")
    first.close(linger=0)
    watch.until("DISCONNECTED")
    third = ours.socket("DEALER", ROUTING_ID=b"name")
    third.connect(router.LAST_ENDPOINT.rstrip(b"\0").decode())
    answers(ours, router, ours, third, b"third")


def test_a_pair_s_third_party_waits(subject: Side, peer: Side) -> None:
    pair = subject.socket("PAIR")
    watch = subject.watch(pair)
    endpoint = bind(pair)
    first, second = (peer.socket("PAIR", RECONNECT_IVL=10) for _ in range(2))
    first.connect(endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    second.connect(endpoint)
    second.send(b"not heard")
    watch.until("HANDSHAKE_SUCCEEDED")
    for body in NUMBERS:
        first.send(body)
        assert subject.receive(pair) == [body]
        pair.send(body)
        assert peer.receive(first) == [body]
    while subject.readable(watch._monitor):
        watch.next()
    assert watch.seen.count("ACCEPTED") == 2
    assert "DISCONNECTED" not in watch.seen


@only_ours
def test_a_pair_s_third_party_is_heard_when_the_place_is_free(ours: Side) -> None:
    pair = ours.socket("PAIR")
    endpoint = bind(pair)
    first, second = (ours.socket("PAIR") for _ in range(2))
    first.connect(endpoint)
    first.send(b"first")
    assert ours.receive(pair) == [b"first"]
    second.connect(endpoint)
    second.send(b"second")
    first.close(linger=0)
    assert ours.receive(pair) == [b"second"]
    pair.send(b"answer")
    assert ours.receive(second) == [b"answer"]
