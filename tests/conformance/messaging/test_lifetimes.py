"""Connections that end and are made again, the messages that wait meanwhile, and the effects of closing."""

from __future__ import annotations

import errno

import pytest
from tests.conformance.messaging.lab import (
    TRANSPORTS,
    Side,
    address,
    arrive,
    await_readable,
    background,
    bind,
    link,
    rebind,
    vacant,
)
from tests.polling import until


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_bound_end_comes_again(transport: str, subject: Side, peer: Side) -> None:
    push = subject.socket("PUSH", RECONNECT_IVL=10)
    watch = subject.watch(push)
    endpoint = ""
    for turn in range(4):
        pull = peer.socket("PULL")
        if not endpoint:
            endpoint = link(pull, push, transport)
        else:
            rebind(peer, pull, endpoint)
        push.send(b"after %d" % turn)
        assert peer.receive(pull) == [b"after %d" % turn]
        pull.close(linger=0)
        watch.until("DISCONNECTED")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_sent_meanwhile_is_delivered(transport: str, subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", RECONNECT_IVL=10), peer.socket("PULL")
    watch = subject.watch(push)
    endpoint = link(pull, push, transport)
    push.send(b"before")
    assert peer.receive(pull) == [b"before"]
    pull.close(linger=0)
    watch.until("DISCONNECTED")
    for number in range(500):
        push.send_multipart([b"%d" % number, b"second"])
    pull = peer.socket("PULL")
    rebind(peer, pull, endpoint)
    for number in range(500):
        assert peer.receive(pull) == [b"%d" % number, b"second"]


def test_a_subscriber_subscribes_again(subject: Side, peer: Side) -> None:
    sub, pub = subject.socket("SUB", RECONNECT_IVL=10), peer.socket("XPUB")
    watch = subject.watch(sub)
    subject.set(sub, SUBSCRIBE=b"a")
    subject.set(sub, SUBSCRIBE=b"b")
    endpoint = link(pub, sub)
    for _ in range(3):
        topics = set()
        for _ in range(2):
            await_readable(peer, pub, subject, sub)
            topics |= set(peer.receive(pub))
        assert topics == {b"\x01a", b"\x01b"}
        pub.send(b"b!")
        assert subject.receive(sub) == [b"b!"]
        pub.close(linger=0)
        watch.until("DISCONNECTED")
        pub = peer.socket("XPUB")
        rebind(peer, pub, endpoint)


def test_the_connected_end_comes_again(subject: Side, peer: Side) -> None:
    rep = subject.socket("REP")
    endpoint = bind(rep)
    for turn in range(50):
        req = peer.socket("REQ")
        req.connect(endpoint)
        req.send(b"%d" % turn)
        assert subject.receive(rep) == [b"%d" % turn]
        rep.send(b"answer")
        assert peer.receive(req) == [b"answer"]
        req.close(linger=0)


def test_reconnecting_may_be_switched_off(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", RECONNECT_IVL=-1), peer.socket("PULL")
    watch = subject.watch(push)
    endpoint = link(pull, push)
    push.send(b"message")
    assert peer.receive(pull) == [b"message"]
    pull.close(linger=0)
    watch.until("DISCONNECTED")
    pull = peer.socket("PULL")
    rebind(peer, pull, endpoint)
    other = subject.socket("PUSH")
    other.connect(endpoint)
    other.send(b"another's")
    assert peer.receive(pull) == [b"another's"]
    assert not watch.has("CONNECT_RETRIED")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_immediate_takes_nothing_for_who_is_not_there(transport: str, subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", IMMEDIATE=1, RECONNECT_IVL=10), peer.socket("PULL")
    watch = subject.watch(push)
    endpoint = vacant(transport)
    push.connect(endpoint)
    watch.until("CONNECT_RETRIED")
    assert not subject.try_send(push, b"early")
    rebind(peer, pull, endpoint)
    push.send(b"message")
    assert peer.receive(pull) == [b"message"]
    pull.close(linger=0)
    until(lambda: not subject.writable(push))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_closed_socket_sends_the_rest(transport: str, subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH", SNDHWM=0), peer.socket("PULL", RCVHWM=0)
    link(pull, push, transport)
    for number in range(10_000):
        push.send(b"%d" % number)
    push.close()
    for number in range(10_000):
        assert peer.receive(pull) == [b"%d" % number]


def test_a_context_waits_for_what_was_not_sent(subject: Side, peer: Side) -> None:
    endpoint = vacant()
    mine = Side(subject.zmq)
    push = mine.socket("PUSH", RECONNECT_IVL=10)
    push.connect(endpoint)
    push.send(b"not lost")
    push.close(linger=-1)
    with background(mine.close) as ending:
        pull = peer.socket("PULL")
        rebind(peer, pull, endpoint)
        assert peer.receive(pull) == [b"not lost"]
        ending.result()


@pytest.mark.parametrize("linger", [0, 50])
@pytest.mark.parametrize("given", ["close", "option", "context"])
def test_a_context_waits_no_longer_than_it_should(given: str, linger: int, alone: Side) -> None:
    mine = Side(alone.zmq)
    if given == "context":
        # pyzmq's contexts pass options on to the sockets that are made of them.
        mine.context.setsockopt(alone.zmq.LINGER, linger)
    push = mine.socket("PUSH")
    push.connect("tcp://127.0.0.1:1")
    push.send(b"lost")
    if given == "close":
        push.close(linger=linger)
    else:
        if given == "option":
            mine.set(push, LINGER=linger)
        push.close()
    with background(mine.close) as ending:
        ending.result()


def test_an_unbound_endpoint_takes_nobody(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    endpoint = link(pull, push)
    push.send(b"before")
    assert subject.receive(pull) == [b"before"]
    watch = subject.watch(pull)
    pull.unbind(endpoint)
    watch.until("CLOSED")
    late = peer.socket("PUSH", RECONNECT_IVL=10)
    retrying = peer.watch(late)
    late.connect(endpoint)
    retrying.until("CONNECT_RETRIED")
    with pytest.raises(subject.zmq.ZMQError) as gone:
        pull.unbind(endpoint)
    assert gone.value.errno == errno.ENOENT
    # Now somebody else may have the port.
    other = subject.socket("PULL")
    rebind(subject, other, endpoint)
    late.send(b"to the other")
    assert subject.receive(other) == [b"to the other"]


def test_a_disconnected_socket_is_alone(subject: Side, peer: Side) -> None:
    push, pull = subject.socket("PUSH"), peer.socket("PULL")
    watch = peer.watch(pull)
    endpoint = link(pull, push)
    push.send(b"one")
    assert peer.receive(pull) == [b"one"]
    push.disconnect(endpoint)
    until(lambda: not subject.writable(push) and watch.has("DISCONNECTED"))
    assert not subject.try_send(push, b"nobody is there")
    push.connect(endpoint)
    push.send(b"two")
    assert peer.receive(pull) == [b"two"]


def test_within_a_process_a_closed_peer_is_gone(alone: Side) -> None:
    push, pull = alone.socket("PUSH"), alone.socket("PULL")
    endpoint = link(pull, push, "inproc")
    push.send(b"one")
    assert alone.receive(pull) == [b"one"]
    pull.close()
    until(lambda: not alone.writable(push))
    again = alone.socket("PULL")
    rebind(alone, again, endpoint)
    push.connect(endpoint)
    push.send(b"two")
    assert alone.receive(again) == [b"two"]


def test_within_a_process_what_was_sent_before_closing_arrives(alone: Side) -> None:
    push, pull = alone.socket("PUSH"), alone.socket("PULL")
    link(pull, push, "inproc")
    for number in range(100):
        push.send(b"%d" % number)
    push.close()
    for number in range(100):
        assert alone.receive(pull) == [b"%d" % number]


def test_within_a_process_connected_long_before(alone: Side) -> None:
    endpoint = address("inproc")
    pushes = [alone.socket("PUSH") for _ in range(5)]
    for number, push in enumerate(pushes):
        push.connect(endpoint)
        push.send(b"%d" % number)
    pull = alone.socket("PULL")
    pull.bind(endpoint)
    assert {int(alone.receive(pull)[0]) for _ in pushes} == set(range(5))


def test_a_publisher_s_subscribers_come_and_go(subject: Side, peer: Side) -> None:
    pub = subject.socket("PUB")
    endpoint = bind(pub)
    for turn in range(20):
        sub = peer.socket("SUB", SUBSCRIBE=b"%d" % turn)
        sub.connect(endpoint)
        arrive(subject, pub, peer, sub, b"%d" % turn)
        sub.close(linger=0)
