"""The matrix: each compatible pair of socket types, each end bound, each transport, each mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.messaging.lab import (
    MECHANISMS,
    TRANSPORTS,
    Side,
    address,
    arrive,
    await_readable,
    link,
    rebind,
    secure,
    vacant,
    works,
)
from tests.polling import until

Dialogue = Callable[[Side, Any, Side, Any], None]
#: An empty part in the middle and at the end is still a part.
BODY = [b"one", b"", b"three", b""]


def there(left: Side, a: Any, right: Side, b: Any) -> None:
    a.send_multipart(BODY)
    assert right.receive(b) == BODY


def both_ways(left: Side, a: Any, right: Side, b: Any) -> None:
    there(left, a, right, b)
    there(right, b, left, a)


def req_router(left: Side, a: Any, right: Side, b: Any) -> None:
    a.send_multipart(BODY)
    identity, empty, *body = right.receive(b)
    assert (empty, body) == (b"", BODY)
    b.send_multipart([identity, b"", b"answer"])
    assert left.receive(a) == [b"answer"]


def dealer_rep(left: Side, a: Any, right: Side, b: Any) -> None:
    a.send_multipart([b"way", b"back", b"", *BODY])
    assert right.receive(b) == BODY
    b.send(b"answer")
    assert left.receive(a) == [b"way", b"back", b"", b"answer"]


def dealer_router(left: Side, a: Any, right: Side, b: Any) -> None:
    a.send_multipart(BODY)
    identity, *body = right.receive(b)
    assert body == BODY
    assert len(identity) == 5
    assert identity[0] == 0
    b.send_multipart([identity, *BODY])
    assert left.receive(a) == BODY


def router_router(left: Side, a: Any, right: Side, b: Any) -> None:
    # Only a message that has a way is taken, so that it is known when the two have met.
    left.set(a, ROUTER_MANDATORY=1)
    until(lambda: works(left, left.zmq.EHOSTUNREACH, a.send_multipart, [b"right", *BODY]))
    assert right.receive(b) == [b"left", *BODY]
    b.send_multipart([b"left", b"answer"])
    assert left.receive(a) == [b"right", b"answer"]


def upstream(left: Side, a: Any, right: Side, b: Any) -> list[bytes]:
    """Returns the subscription that the publisher receives."""
    await_readable(left, a, right, b)
    return left.receive(a)


def pub_sub(left: Side, a: Any, right: Side, b: Any) -> None:
    right.set(b, SUBSCRIBE=b"one")
    arrive(left, a, right, b, b"one")
    a.send_multipart([b"on", b"does not begin so"])
    there(left, a, right, b)


def pub_xsub(left: Side, a: Any, right: Side, b: Any) -> None:
    b.send(b"\x01one")
    arrive(left, a, right, b, b"one")
    a.send_multipart([b"on", b"does not begin so"])
    there(left, a, right, b)


def xpub_sub(left: Side, a: Any, right: Side, b: Any) -> None:
    right.set(b, SUBSCRIBE=b"one")
    assert upstream(left, a, right, b) == [b"\x01one"]
    a.send_multipart([b"on", b"does not begin so"])
    there(left, a, right, b)
    right.set(b, UNSUBSCRIBE=b"one")
    assert left.receive(a) == [b"\x00one"]


def xpub_xsub(left: Side, a: Any, right: Side, b: Any) -> None:
    b.send(b"\x01one")
    assert upstream(left, a, right, b) == [b"\x01one"]
    there(left, a, right, b)
    # What is no subscription goes upstream as it is.
    b.send(b"upstream")
    assert left.receive(a) == [b"upstream"]
    b.send(b"\x00one")
    assert left.receive(a) == [b"\x00one"]


PAIRS: dict[tuple[str, str], Dialogue] = {
    ("REQ", "REP"): both_ways,
    ("REQ", "ROUTER"): req_router,
    ("DEALER", "REP"): dealer_rep,
    ("DEALER", "ROUTER"): dealer_router,
    ("DEALER", "DEALER"): both_ways,
    ("ROUTER", "ROUTER"): router_router,
    ("PUB", "SUB"): pub_sub,
    ("PUB", "XSUB"): pub_xsub,
    ("XPUB", "SUB"): xpub_sub,
    ("XPUB", "XSUB"): xpub_xsub,
    ("PUSH", "PULL"): there,
    ("PAIR", "PAIR"): both_ways,
}
each_pair = pytest.mark.parametrize("kinds", list(PAIRS), ids="-".join)


def opened(kinds: tuple[str, str], left: Side, right: Side) -> tuple[Any, Any]:
    """A pair's two sockets, not yet joined."""
    a, b = left.socket(kinds[0]), right.socket(kinds[1])
    if kinds == ("ROUTER", "ROUTER"):
        left.set(a, ROUTING_ID=b"left")
        right.set(b, ROUTING_ID=b"right")
    return a, b


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("binder", ["left", "right"])
@each_pair
def test_pair(
    kinds: tuple[str, str], binder: str, transport: str, mechanism: str, subject: Side, peer: Side
) -> None:
    a, b = opened(kinds, subject, peer)
    if binder == "left":
        secure(mechanism, subject, a, peer, b)
        link(a, b, transport)
    else:
        secure(mechanism, peer, b, subject, a)
        link(b, a, transport)
    PAIRS[kinds](subject, a, peer, b)


@pytest.mark.parametrize("order", ["bind-first", "connect-first"])
@pytest.mark.parametrize("binder", ["left", "right"])
@each_pair
def test_pair_within_a_process(kinds: tuple[str, str], binder: str, order: str, alone: Side) -> None:
    a, b = opened(kinds, alone, alone)
    accepting, joining = (a, b) if binder == "left" else (b, a)
    endpoint = address("inproc")
    if order == "bind-first":
        accepting.bind(endpoint)
        joining.connect(endpoint)
    else:
        joining.connect(endpoint)
        accepting.bind(endpoint)
    PAIRS[kinds](alone, a, alone, b)


@pytest.mark.parametrize("transport", TRANSPORTS)
@each_pair
def test_connected_before_there_is_anybody(
    kinds: tuple[str, str], transport: str, subject: Side, peer: Side
) -> None:
    a, b = opened(kinds, subject, peer)
    endpoint = vacant(transport)
    subject.set(a, RECONNECT_IVL=20)
    a.connect(endpoint)
    rebind(peer, b, endpoint)
    PAIRS[kinds](subject, a, peer, b)
