"""A monitor's events: each step of a connection, in order, at both ends."""

from __future__ import annotations

import errno
import socket as sockets

import pytest
from tests.conformance.messaging.lab import TRANSPORTS, Side, address, bind, port, rebind
from tests.polling import until


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_bound_end(transport: str, subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    watch = subject.watch(pull)
    endpoint = bind(pull, transport)
    name, listener, where = watch.next()
    assert (name, where) == ("LISTENING", endpoint)
    assert listener > 0
    push.connect(endpoint)
    name, descriptor, where = watch.next()
    assert (name, where) == ("ACCEPTED", endpoint)
    assert descriptor not in (0, listener)
    name, value, where = watch.next()
    assert (name, value, where) == ("HANDSHAKE_SUCCEEDED", 0, endpoint)
    push.close(linger=0)
    name, value, _ = watch.next()
    assert (name, value) == ("DISCONNECTED", descriptor)
    pull.unbind(endpoint)
    assert watch.next() == ("CLOSED", listener, endpoint)
    pull.disable_monitor()
    assert watch.next()[0] == "MONITOR_STOPPED"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_connecting_end(transport: str, subject: Side, peer: Side) -> None:
    pull, push = peer.socket("PULL"), subject.socket("PUSH", RECONNECT_IVL=10)
    watch = subject.watch(push)
    endpoint = bind(pull, transport)
    push.connect(endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    # A connection that is made at once need not be said to be delayed.
    assert [name for name in watch.seen if name != "CONNECT_DELAYED"] == ["CONNECTED", "HANDSHAKE_SUCCEEDED"]
    pull.close(linger=0)
    watch.seen.clear()
    where = watch.until("CONNECT_RETRIED")[2]
    assert where == endpoint
    assert watch.seen == ["DISCONNECTED", "CONNECT_RETRIED"]
    again = peer.socket("PULL")
    rebind(peer, again, endpoint)
    watch.until("HANDSHAKE_SUCCEEDED")
    assert watch.seen[-2] == "CONNECTED"


def test_a_refused_connection_is_retried(alone: Side) -> None:
    push = alone.socket("PUSH", RECONNECT_IVL=10)
    watch = alone.watch(push)
    push.connect("tcp://127.0.0.1:1")
    for _ in range(3):
        watch.until("CONNECT_RETRIED")
    assert watch.seen[-3:] == ["CONNECT_DELAYED", "CLOSED", "CONNECT_RETRIED"]
    assert "CONNECTED" not in watch.seen


def test_back_off_grows_to_its_end(alone: Side) -> None:
    push = alone.socket("PUSH", RECONNECT_IVL=1, RECONNECT_IVL_MAX=40)
    watch = alone.watch(push)
    push.connect("tcp://127.0.0.1:1")
    intervals = [watch.until("CONNECT_RETRIED")[1] for _ in range(12)]
    assert intervals[0] <= 2
    assert max(intervals) <= 80
    assert max(intervals) >= 20


def test_a_path_that_is_nobody_s(alone: Side) -> None:
    push = alone.socket("PUSH", RECONNECT_IVL=10)
    watch = alone.watch(push)
    push.connect(address("ipc"))
    watch.until("CONNECT_RETRIED")
    watch.until("CONNECT_RETRIED")
    assert watch.seen == ["CLOSED", "CONNECT_RETRIED"] * 2


def test_an_endpoint_that_is_taken(alone: Side) -> None:
    taken, pull = alone.socket("PULL"), alone.socket("PULL")
    endpoint = bind(taken)
    watch = alone.watch(pull)
    with pytest.raises(alone.zmq.ZMQError):
        pull.bind(endpoint)
    assert watch.until("BIND_FAILED")[1] == errno.EADDRINUSE
    assert watch.seen == ["CLOSED", "BIND_FAILED"]


@pytest.mark.parametrize("why", ["mechanism", "key", "end", "silence"])
def test_a_handshake_that_fails(why: str, subject: Side, peer: Side) -> None:
    """What has begun its handshake is disconnected; `CLOSED` is for what was never connected."""
    pull = subject.socket("PULL", HANDSHAKE_IVL=100)
    _, secret = subject.zmq.curve_keypair()
    if why in ("mechanism", "key"):
        subject.set(pull, CURVE_SERVER=1, CURVE_SECRETKEY=secret)
    watch = subject.watch(pull)
    number = port(bind(pull))
    if why in ("end", "silence"):
        with sockets.create_connection(("127.0.0.1", number)) as client:
            if why == "silence":
                watch.until("DISCONNECTED")
            client.sendall(b"\xff")
    else:
        push = peer.socket("PUSH", RECONNECT_IVL=-1)
        if why == "key":
            wrong, key = peer.zmq.curve_keypair()
            peer.set(push, CURVE_SERVERKEY=wrong, CURVE_PUBLICKEY=wrong, CURVE_SECRETKEY=key)
        other = peer.watch(push)
        push.connect(f"tcp://127.0.0.1:{number}")
        other.until("DISCONNECTED")
        assert other.seen[-3] == "CONNECTED"
        assert other.seen[-2].startswith("HANDSHAKE_FAILED")
    if why != "silence":
        watch.until("DISCONNECTED")
    assert watch.seen[:2] == ["LISTENING", "ACCEPTED"]
    assert watch.seen[2].startswith("HANDSHAKE_FAILED")
    assert watch.seen[3:] == ["DISCONNECTED"]


def test_only_what_was_asked_for(alone: Side) -> None:
    pull = alone.socket("PULL")
    monitor = alone.socket("PAIR")
    pull.monitor("inproc://accepted-only", alone.zmq.EVENT_ACCEPTED)
    monitor.connect("inproc://accepted-only")
    endpoint = bind(pull)
    for _ in range(3):
        push = alone.socket("PUSH")
        push.connect(endpoint)
        push.send(b"message")
        assert alone.receive(pull) == [b"message"]
    for _ in range(3):
        event, where = alone.receive(monitor)
        assert int.from_bytes(event[:2], "little") == alone.zmq.EVENT_ACCEPTED
        assert where == endpoint.encode()


def test_closing_stops_the_monitor(alone: Side) -> None:
    pull = alone.socket("PULL")
    monitor = alone.socket("PAIR")
    pull.monitor("inproc://until-closed", alone.zmq.EVENT_ALL)
    monitor.connect("inproc://until-closed")
    bind(pull)
    pull.close()
    events = []
    until(lambda: events.append(int.from_bytes(alone.receive(monitor)[0][:2], "little")) or len(events) == 3)
    assert events == [
        alone.zmq.EVENT_LISTENING,
        alone.zmq.EVENT_CLOSED,
        alone.zmq.EVENT_MONITOR_STOPPED,
    ]
