"""When a connecting socket gives up: one attempt, or all of them."""

from __future__ import annotations

import errno
import socket as sockets
from contextlib import ExitStack

import pytest
from tests.conformance.messaging.lab import SUBJECT, Side, vacant
from tests.conformance.messaging.wire import Listener, greeting

only_drafts = pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq's wheels have no draft options")


@only_drafts
@pytest.mark.parametrize("stops", [False, True])
def test_when_nobody_listens(stops: bool, ours: Side) -> None:
    dealer = ours.socket("DEALER", RECONNECT_IVL=10)
    if stops:
        ours.set(dealer, RECONNECT_STOP=ours.zmq.RECONNECT_STOP_CONN_REFUSED)
    watch = ours.watch(dealer)
    endpoint = vacant()
    dealer.connect(endpoint)
    if not stops:
        for _ in range(3):
            watch.until("CONNECT_RETRIED")
        return
    watch.until("CLOSED")
    # The monitor reports events of another endpoint, and none of this one.
    with Listener() as listener:
        dealer.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.handshake(b"ROUTER")
            watch.until("HANDSHAKE_SUCCEEDED")
    assert "CONNECT_RETRIED" not in watch.seen
    with pytest.raises(ours.zmq.ZMQError) as refused:
        dealer.disconnect(endpoint)
    assert refused.value.errno == errno.ENOENT


@only_drafts
@pytest.mark.parametrize("stops", [False, True])
def test_when_the_handshake_fails(stops: bool, ours: Side) -> None:
    dealer = ours.socket("DEALER", RECONNECT_IVL=10)
    if stops:
        ours.set(dealer, RECONNECT_STOP=ours.zmq.RECONNECT_STOP_HANDSHAKE_FAILED)
    watch = ours.watch(dealer)
    with Listener() as listener:
        dealer.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.send(greeting(mechanism=b"PLAIN"))
            wire.drain()
        watch.until("HANDSHAKE_FAILED_PROTOCOL")
        if stops:
            assert not ours.try_send(dealer, b"to nobody")
            dealer.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.handshake(b"ROUTER")
            watch.until("HANDSHAKE_SUCCEEDED")
    assert ("CONNECT_RETRIED" in watch.seen) is not stops


@only_drafts
@pytest.mark.parametrize("stops", [False, True])
def test_after_a_disconnect_nobody_is_called(stops: bool, ours: Side) -> None:
    dealer = ours.socket("DEALER", RECONNECT_IVL=10)
    if stops:
        ours.set(dealer, RECONNECT_STOP=ours.zmq.RECONNECT_STOP_AFTER_DISCONNECT)
    watch = ours.watch(dealer)
    with Listener() as listener, Listener() as other:
        dealer.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.handshake(b"ROUTER")
            watch.until("HANDSHAKE_SUCCEEDED")
            dealer.disconnect(listener.endpoint)
            wire.drain()
        dealer.connect(other.endpoint)
        with other.accept() as wire:
            wire.handshake(b"ROUTER")
            watch.until("HANDSHAKE_SUCCEEDED")
    assert "CONNECT_RETRIED" not in watch.seen


def test_who_does_not_answer_is_called_again(alone: Side) -> None:
    push = alone.socket("PUSH", CONNECT_TIMEOUT=50, RECONNECT_IVL=10)
    watch = alone.watch(push)
    with sockets.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # A queue that is full answers no more.
        for _ in range(3):
            waiting = stack.enter_context(sockets.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        push.connect(f"tcp://127.0.0.1:{full.getsockname()[1]}")
        watch.until("CONNECT_DELAYED")
        watch.until("CLOSED")
        watch.until("CONNECT_RETRIED")
    assert "CONNECTED" not in watch.seen
