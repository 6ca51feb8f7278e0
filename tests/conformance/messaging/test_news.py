"""Messages that report peers which connect and disconnect, and the first messages to new peers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import SUBJECT, TRANSPORTS, Side, bind, link
from tests.conformance.messaging.wire import Listener, Wire, message

only_drafts = pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq's wheels have no draft options")
EVERYWHERE = pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])


@only_drafts
@EVERYWHERE
@pytest.mark.parametrize("told", [0, 1, 2, 3])
def test_a_router_is_told_who_comes_and_goes(told: int, transport: str, ours: Side) -> None:
    router = ours.socket("ROUTER", ROUTER_NOTIFY=told)
    endpoint = bind(router, transport)
    for name in (b"first", b"second"):
        dealer = ours.socket("DEALER", ROUTING_ID=name)
        dealer.connect(endpoint)
        dealer.send(b"hello")
        if told & ours.zmq.NOTIFY_CONNECT:
            assert ours.receive(router) == [name, b""]
        assert ours.receive(router) == [name, b"hello"]
        dealer.close()
        if told & ours.zmq.NOTIFY_DISCONNECT:
            assert ours.receive(router) == [name, b""]


def raw(side: Side, kind: str) -> tuple[Any, str, Any]:
    """A socket that tells of its peers, where it is, and its monitor."""
    socket = side.socket(kind)
    if kind == "ROUTER":
        side.set(socket, ROUTER_NOTIFY=side.zmq.NOTIFY_CONNECT | side.zmq.NOTIFY_DISCONNECT)
    return socket, bind(socket), side.watch(socket)


def come(kind: str, endpoint: str, name: bytes) -> Wire:
    """A peer that has come."""
    wire = Wire.connect(endpoint)
    if kind == "ROUTER":
        wire.handshake(b"DEALER", Identity=name)
    return wire


@only_drafts
@pytest.mark.parametrize("begun", [0, 1, 2])
@pytest.mark.parametrize("kind", ["ROUTER", "STREAM"])
def test_news_never_come_amidst_a_message(kind: str, begun: int, ours: Side) -> None:
    socket, endpoint, watch = raw(ours, kind)
    event = "HANDSHAKE_SUCCEEDED" if kind == "ROUTER" else "ACCEPTED"
    with come(kind, endpoint, b"first") as first:
        name, nothing = ours.receive(socket)
        assert nothing == b""
        watch.until(event)
        first.send(message(b"one", b"two") if kind == "ROUTER" else b"one")
        assert ours.readable(socket, 25_000)
        expected = [name, b"one", b"two"] if kind == "ROUTER" else [name, b"one"]
        taken = [socket.recv() for _ in range(min(begun, len(expected) - 1))]
        with come(kind, endpoint, b"second"):
            watch.until(event)
            assert [*taken, *ours.receive(socket)] == expected
            assert ours.receive(socket)[1:] == [b""]


@pytest.mark.parametrize("kind", ["ROUTER", "STREAM"])
def test_news_of_an_end_come_behind_what_was_sent(kind: str, alone: Side) -> None:
    if kind == "ROUTER" and not (alone.zmq.__name__ == SUBJECT != "zmq"):
        pytest.skip("libzmq's wheels have no draft options")
    socket, endpoint, watch = raw(alone, kind)
    with come(kind, endpoint, b"name") as wire:
        name, nothing = alone.receive(socket)
        assert nothing == b""
        wire.send(message(b"one") + message(b"two", b"three"))
    watch.until("DISCONNECTED")
    if kind == "ROUTER":
        assert alone.receive(socket) == [name, b"one"]
        assert alone.receive(socket) == [name, b"two", b"three"]
    else:
        assert alone.receive(socket) == [name, message(b"one") + message(b"two", b"three")]
    assert alone.receive(socket) == [name, b""]
    assert alone.try_receive(socket) is None


@only_drafts
@EVERYWHERE
@pytest.mark.parametrize("kinds", [("ROUTER", "DEALER"), ("DEALER", "DEALER"), ("SERVER", "CLIENT")])
def test_a_peer_is_greeted(kinds: tuple[str, str], transport: str, ours: Side) -> None:
    polite, peer = ours.socket(kinds[0], HELLO_MSG=b"welcome"), ours.socket(kinds[1])
    link(polite, peer, transport)
    if kinds[0] == "DEALER":
        polite.send(b"and more")
    assert peer.recv() == b"welcome"
    if kinds[0] == "DEALER":
        assert peer.recv() == b"and more"


@only_drafts
@EVERYWHERE
def test_who_goes_leaves_a_message(transport: str, ours: Side) -> None:
    router, server = (
        ours.socket("ROUTER", DISCONNECT_MSG=b"gone"),
        ours.socket("SERVER", DISCONNECT_MSG=b"gone"),
    )
    dealer, client = ours.socket("DEALER", ROUTING_ID=b"name"), ours.socket("CLIENT")
    for bound, connected in ((router, dealer), (server, client)):
        link(bound, connected, transport)
        connected.send(b"hello")
        connected.close()
    assert ours.receive(router) == [b"name", b"hello"]
    assert ours.receive(router) == [b"name", b"gone"]
    hello, gone = (server.recv(copy=False) for _ in range(2))
    assert (hello.bytes, gone.bytes) == (b"hello", b"gone")
    assert hello.routing_id == gone.routing_id != 0


@only_drafts
def test_who_connects_is_left_no_message(ours: Side) -> None:
    router = ours.socket("ROUTER", DISCONNECT_MSG=b"gone", RECONNECT_IVL=10)
    with Listener() as listener:
        router.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.handshake(b"DEALER", Identity=b"name")
            wire.send(message(b"one"))
        with listener.accept() as wire:
            wire.handshake(b"DEALER", Identity=b"name")
            wire.send(message(b"two"))
            assert ours.receive(router) == [b"name", b"one"]
            assert ours.receive(router) == [b"name", b"two"]


@only_drafts
def test_a_lost_connection_leaves_a_message(ours: Side) -> None:
    dealer = ours.socket("DEALER", HICCUP_MSG=b"hiccup", RECONNECT_IVL=10)
    with Listener() as listener:
        dealer.connect(listener.endpoint)
        for turn in (b"first", b"second"):
            with listener.accept() as wire:
                wire.handshake(b"ROUTER")
                wire.send(message(turn) + message(turn, b"two")[:-1])
            # Half a message is none.
            assert ours.receive(dealer) == [turn]
            assert ours.receive(dealer) == [b"hiccup"]


@only_drafts
def test_a_property_of_one_s_own(ours: Side) -> None:
    pull, push = ours.socket("PULL"), ours.socket("PUSH", METADATA=b"X-Colour:blue")
    link(pull, push)
    push.send(b"message")
    assert pull.recv(copy=False).get("X-Colour") == "blue"
