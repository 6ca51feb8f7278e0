"""Proxies: directions, captured copies, and steering."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.messaging.lab import Side, await_readable, background, bind, link, only_ours
from tests.polling import until


@pytest.fixture
def proxied(subject: Side) -> Any:
    """Runs a proxy of the subject's between two sockets until its context ends."""
    running = []
    mine = Side(subject.zmq)

    def run(front: str, back: str, capture: str | None = None) -> tuple[Any, Any, Any]:
        sockets = [mine.socket(kind) if kind else None for kind in (front, back, capture)]
        for socket in sockets[:2]:
            mine.set(socket, RCVTIMEO=-1, SNDTIMEO=-1)
        endpoints = [bind(socket) if socket else None for socket in sockets]

        def proxy() -> None:
            try:
                subject.zmq.proxy(*(socket for socket in sockets if socket))
            except subject.zmq.ContextTerminated:
                pass
            finally:
                for socket in sockets:
                    if socket:
                        socket.close(linger=0)

        running.append(background(proxy))
        running[-1].__enter__()
        return tuple(endpoints)  # type: ignore[return-value]

    yield run
    mine.context.term()
    for thread in running:
        thread.__exit__(None, None, None)


Run = Callable[..., tuple[str, str, str]]


def test_a_broker(proxied: Run, peer: Side) -> None:
    front, back, _ = proxied("ROUTER", "DEALER")
    reqs, reps = [peer.socket("REQ") for _ in range(3)], [peer.socket("REP") for _ in range(2)]
    for rep in reps:
        rep.connect(back)
    for name, req in enumerate(reqs):
        req.connect(front)
        req.send_multipart([b"from %d" % name, b""])
    answered = 0

    def answer() -> bool:
        nonlocal answered
        for rep in reps:
            if peer.readable(rep):
                rep.send_multipart([b"to", *peer.receive(rep)])
                answered += 1
        return answered == len(reqs)

    until(answer)
    for name, req in enumerate(reqs):
        assert peer.receive(req) == [b"to", b"from %d" % name, b""]


def test_a_forwarder_of_subscriptions(proxied: Run, peer: Side) -> None:
    front, back, _ = proxied("XSUB", "XPUB")
    pub, sub = peer.socket("XPUB"), peer.socket("SUB")
    pub.connect(front)
    sub.connect(back)
    peer.set(sub, SUBSCRIBE=b"topic")
    await_readable(peer, pub, peer, sub)
    assert peer.receive(pub) == [b"\x01topic"]
    pub.send_multipart([b"other", b"not wanted"])
    pub.send_multipart([b"topic", b"wanted"])
    assert peer.receive(sub) == [b"topic", b"wanted"]
    peer.set(sub, UNSUBSCRIBE=b"topic")
    await_readable(peer, pub, peer, sub)
    assert peer.receive(pub) == [b"\x00topic"]


def test_a_streamer_and_its_listener(proxied: Run, peer: Side) -> None:
    front, back, capture = proxied("PULL", "PUSH", "PUSH")
    push, pull, listener = peer.socket("PUSH"), peer.socket("PULL"), peer.socket("PULL")
    listener.connect(capture)
    pull.connect(back)
    push.connect(front)
    for number in range(500):
        push.send_multipart([b"%d" % number, b"second"])
    for number in range(500):
        assert peer.receive(pull) == [b"%d" % number, b"second"]
        assert peer.receive(listener) == [b"%d" % number, b"second"]


def test_a_steered_proxy(subject: Side, peer: Side) -> None:
    front, back = subject.socket("PULL", RCVTIMEO=-1), subject.socket("PUSH", SNDTIMEO=-1)
    control, wheel = subject.socket("PAIR", RCVTIMEO=-1), subject.socket("PAIR")
    link(control, wheel, "inproc")
    push, pull = peer.socket("PUSH"), peer.socket("PULL")
    link(front, push)
    link(back, pull)
    with background(lambda: subject.zmq.proxy_steerable(front, back, None, control)) as running:
        push.send(b"one")
        assert peer.receive(pull) == [b"one"]
        wheel.send(b"TERMINATE")
        running.result()
    # Nobody passes it on any more.
    push.send(b"two")
    await_readable(subject, front, peer)
    assert not peer.readable(pull)


@only_ours
def test_a_proxy_that_pauses(ours: Side) -> None:
    """libzmq's does not always go on."""
    front, back = ours.socket("PULL", RCVTIMEO=-1), ours.socket("PUSH", SNDTIMEO=-1)
    control, wheel = ours.socket("PAIR", RCVTIMEO=-1), ours.socket("PAIR")
    link(control, wheel, "inproc")
    push, pull = ours.socket("PUSH"), ours.socket("PULL")
    link(front, push)
    link(back, pull)

    def statistics() -> list[int]:
        wheel.send(b"STATISTICS")
        return [int.from_bytes(part, sys.byteorder) for part in ours.receive(wheel)]

    with background(lambda: ours.zmq.proxy_steerable(front, back, None, control)) as running:
        try:
            push.send_multipart([b"one", b"two"])
            assert ours.receive(pull) == [b"one", b"two"]
            # Messages, of whatever parts, and bytes: received in front, sent there, received behind, sent there.
            assert statistics() == [1, 6, 0, 0, 0, 0, 1, 6]
            wheel.send(b"PAUSE")
            # Its answer tells that the order before it was followed.
            statistics()
            push.send(b"later")
            assert statistics() == [1, 6, 0, 0, 0, 0, 1, 6]
            assert not ours.readable(pull)
            wheel.send(b"RESUME")
            assert ours.receive(pull) == [b"later"]
        finally:
            wheel.send(b"TERMINATE")
        running.result()
