"""ROUTER: given and generated routing ids, envelopes, and messages to unknown peers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import TRANSPORTS, Side, bind, link, works
from tests.polling import until


def unroutable(side: Side, router: Any, identity: bytes) -> bool:
    """Whether a mandatory ROUTER refuses to send there."""
    return not works(
        side, side.zmq.EHOSTUNREACH, router.send_multipart, [identity, b"knock"], side.zmq.DONTWAIT
    )


@pytest.mark.parametrize("transport", [*TRANSPORTS])
def test_a_given_name(transport: str, subject: Side, peer: Side) -> None:
    router, dealer = subject.socket("ROUTER"), peer.socket("DEALER", ROUTING_ID=b"its name")
    link(router, dealer, transport)
    dealer.send_multipart([b"", b"hello"])
    assert subject.receive(router) == [b"its name", b"", b"hello"]
    router.send_multipart([b"its name", b"", b"answer"])
    assert peer.receive(dealer) == [b"", b"answer"]


def test_a_name_of_every_byte(subject: Side, peer: Side) -> None:
    name = bytes(range(1, 256))
    router, dealer = subject.socket("ROUTER"), peer.socket("DEALER", ROUTING_ID=name)
    link(router, dealer)
    dealer.send(b"hello")
    assert subject.receive(router) == [name, b"hello"]


def test_made_names_differ_and_lead_back(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER")
    endpoint = bind(router)
    dealers = [peer.socket("DEALER") for _ in range(5)]
    names = {}
    for number, dealer in enumerate(dealers):
        dealer.connect(endpoint)
        dealer.send(b"%d" % number)
    for _ in dealers:
        name, number = subject.receive(router)
        assert len(name) == 5
        assert name[0] == 0
        names[int(number)] = name
    assert len(set(names.values())) == len(dealers)
    for number in reversed(range(len(dealers))):
        router.send_multipart([names[number], b"to %d" % number])
    for number, dealer in enumerate(dealers):
        assert peer.receive(dealer) == [b"to %d" % number]


def test_what_has_nowhere_to_go_is_dropped(subject: Side, peer: Side) -> None:
    router, dealer = subject.socket("ROUTER"), peer.socket("DEALER", ROUTING_ID=b"there")
    link(router, dealer)
    dealer.send(b"hello")
    subject.receive(router)
    router.send_multipart([b"nobody", b"one", b"two"])
    router.send_multipart([b"there", b"one", b"two"])
    assert peer.receive(dealer) == [b"one", b"two"]


def test_mandatory_refuses_what_has_nowhere_to_go(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER", ROUTER_MANDATORY=1)
    dealer = peer.socket("DEALER", ROUTING_ID=b"there")
    link(router, dealer)
    dealer.send(b"hello")
    subject.receive(router)
    assert unroutable(subject, router, b"nobody")
    # The refused message left nothing behind: the next one begins anew.
    router.send_multipart([b"there", b"one", b"two"])
    assert peer.receive(dealer) == [b"one", b"two"]
    dealer.close(linger=0)
    until(lambda: unroutable(subject, router, b"there"))


def test_a_name_that_is_taken(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER")
    first = peer.socket("DEALER", ROUTING_ID=b"name")
    endpoint = link(router, first)
    first.send(b"first")
    assert subject.receive(router) == [b"name", b"first"]
    second = peer.socket("DEALER", ROUTING_ID=b"name")
    watch = subject.watch(router)
    second.connect(endpoint)
    second.send(b"second")
    watch.until("HANDSHAKE_SUCCEEDED")
    # It is taken from the first by nobody, and what the second says is not heard.
    router.send_multipart([b"name", b"answer"])
    assert peer.receive(first) == [b"answer"]
    first.send(b"again")
    assert subject.receive(router) == [b"name", b"again"]
    assert not subject.readable(router)
    assert not peer.readable(second)


def test_a_name_that_is_handed_over(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER", ROUTER_HANDOVER=1)
    first = peer.socket("DEALER", ROUTING_ID=b"name")
    endpoint = link(router, first)
    first.send(b"first")
    assert subject.receive(router) == [b"name", b"first"]
    second = peer.socket("DEALER", ROUTING_ID=b"name")
    second.connect(endpoint)
    second.send(b"second")
    assert subject.receive(router) == [b"name", b"second"]
    router.send_multipart([b"name", b"answer"])
    assert peer.receive(second) == [b"answer"]


@pytest.mark.parametrize("kind", ["DEALER", "ROUTER", "REQ"])
def test_a_probe_announces_its_sender(kind: str, subject: Side, peer: Side) -> None:
    router = peer.socket("ROUTER")
    prober = subject.socket(kind, PROBE_ROUTER=1, ROUTING_ID=b"prober")
    link(router, prober)
    assert peer.receive(router) == [b"prober", b""]


def test_a_router_names_whom_it_connects_to(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER", ROUTER_MANDATORY=1)
    endpoints = []
    dealers = [peer.socket("DEALER") for _ in range(2)]
    for number, dealer in enumerate(dealers):
        endpoints.append(bind(dealer))
        subject.set(router, CONNECT_ROUTING_ID=b"dealer %d" % number)
        router.connect(endpoints[-1])
    for number, dealer in enumerate(dealers):
        # It is routable before the connection is.
        router.send_multipart([b"dealer %d" % number, b"to %d" % number])
        assert peer.receive(dealer) == [b"to %d" % number]
        dealer.send(b"answer")
        assert subject.receive(router) == [b"dealer %d" % number, b"answer"]


def test_a_peer_that_comes_again_keeps_its_name(subject: Side, peer: Side) -> None:
    router = subject.socket("ROUTER", ROUTER_MANDATORY=1, ROUTER_HANDOVER=1)
    endpoint = bind(router)
    for turn in range(20):
        dealer = peer.socket("DEALER", ROUTING_ID=b"name")
        dealer.connect(endpoint)
        dealer.send(b"%d" % turn)
        assert subject.receive(router) == [b"name", b"%d" % turn]
        router.send_multipart([b"name", b"answer"])
        assert peer.receive(dealer) == [b"answer"]
        dealer.close(linger=0)
        until(lambda: unroutable(subject, router, b"name"))


def test_an_envelope_without_a_body(subject: Side, peer: Side) -> None:
    router, dealer = subject.socket("ROUTER"), peer.socket("DEALER", ROUTING_ID=b"there")
    link(router, dealer)
    dealer.send(b"")
    assert subject.receive(router) == [b"there", b""]
    # Only a name: there is no message to send.
    router.send(b"there")
    router.send_multipart([b"there", b"", b""])
    assert peer.receive(dealer) == [b"", b""]
