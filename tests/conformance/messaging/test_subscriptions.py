"""Subscriptions: matching, forwarding upstream, and XPUB's changes to them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import Side, arrive, await_readable, bind, link, subscribe
from tests.polling import until


def told(publisher: Side, xpub: Any, subscriber: Side, *subs: Any) -> bytes:
    """Returns the next message that the XPUB receives."""
    await_readable(publisher, xpub, subscriber, *subs)
    [body] = publisher.receive(xpub)
    return body


def test_prefixes(subject: Side, peer: Side) -> None:
    xpub, sub = subject.socket("XPUB"), peer.socket("SUB")
    link(xpub, sub)
    topics = [b"a.b", b"a.b.c", b"b", b"\x00", b"\xff\xfe"]
    for topic in topics:
        peer.set(sub, SUBSCRIBE=topic)
        assert told(subject, xpub, peer, sub) == b"\x01" + topic
    published = [
        b"",
        b"a",
        b"a.",
        b"a.b",
        b"a.bx",
        b"a.b.c.d",
        b"B",
        b"bb",
        b"\x00\x00",
        b"\xff",
        b"\xff\xfe!",
        b"b",
    ]
    for body in published:
        xpub.send_multipart([body, b"b, which is no topic here"])
    expected = [body for body in published if body.startswith(tuple(topics))]
    assert [peer.receive(sub)[0] for _ in expected] == expected
    assert not peer.readable(sub)


def test_the_empty_topic_is_everything(subject: Side, peer: Side) -> None:
    pub, sub = subject.socket("PUB"), peer.socket("SUB")
    link(pub, sub)
    subscribe(subject, pub, peer, sub, b"")
    for body in (b"", b"x", b"\x00"):
        pub.send(body)
        assert peer.receive(sub) == [body]


def test_thousands_of_topics(subject: Side, peer: Side) -> None:
    pub, sub = subject.socket("PUB", SNDHWM=0, RCVHWM=0), peer.socket("SUB", SNDHWM=0, RCVHWM=0)
    topics = [b"%d." % number for number in range(3_000)]
    for topic in topics:
        peer.set(sub, SUBSCRIBE=topic)
    link(pub, sub)
    # Subscriptions arrive in the order of a trie: each is known when its topic's publication comes.
    for topic in (topics[0], topics[-1], topics[1_500]):
        arrive(subject, pub, peer, sub, topic)
    for topic in topics[::2]:
        peer.set(sub, UNSUBSCRIBE=topic)
    subscribe(subject, pub, peer, sub, b"last")
    for topic in topics:
        pub.send(topic)
    pub.send(b"last")
    received = []
    while (message := peer.receive(sub)) != [b"last"]:
        received += message
    assert received == topics[1::2]


def test_subscribed_twice_is_unsubscribed_twice(subject: Side, peer: Side) -> None:
    xpub, sub = subject.socket("XPUB"), peer.socket("SUB")
    link(xpub, sub)
    peer.set(sub, SUBSCRIBE=b"twice")
    peer.set(sub, SUBSCRIBE=b"twice")
    assert told(subject, xpub, peer, sub) == b"\x01twice"
    peer.set(sub, UNSUBSCRIBE=b"twice")
    peer.set(sub, SUBSCRIBE=b"mark")
    assert told(subject, xpub, peer, sub) == b"\x01mark"
    xpub.send(b"twice, still")
    assert peer.receive(sub) == [b"twice, still"]
    peer.set(sub, UNSUBSCRIBE=b"twice")
    assert told(subject, xpub, peer, sub) == b"\x00twice"


def test_what_was_never_subscribed_is_not_unsubscribed(subject: Side, peer: Side) -> None:
    xpub, xsub = subject.socket("XPUB"), peer.socket("XSUB")
    link(xpub, xsub)
    xsub.send(b"\x00never")
    xsub.send(b"\x01mark")
    assert told(subject, xpub, peer, xsub) == b"\x01mark"


def test_two_subscribers_are_told_as_one(subject: Side, peer: Side) -> None:
    xpub = subject.socket("XPUB")
    endpoint = bind(xpub)
    subs = [peer.socket("SUB") for _ in range(2)]
    for sub in subs:
        sub.connect(endpoint)
        peer.set(sub, SUBSCRIBE=b"topic")
    assert told(subject, xpub, peer, *subs) == b"\x01topic"
    for number, sub in enumerate(subs):
        peer.set(sub, SUBSCRIBE=b"mark %d" % number)
        assert told(subject, xpub, peer, *subs) == b"\x01mark %d" % number
    peer.set(subs[0], UNSUBSCRIBE=b"topic")
    peer.set(subs[0], SUBSCRIBE=b"mark 2")
    assert told(subject, xpub, peer, *subs) == b"\x01mark 2"
    xpub.send(b"topic")
    assert peer.receive(subs[1]) == [b"topic"]
    assert not peer.readable(subs[0])
    peer.set(subs[1], UNSUBSCRIBE=b"topic")
    assert told(subject, xpub, peer, *subs) == b"\x00topic"


def test_verbose_tells_of_each_subscriber(subject: Side, peer: Side) -> None:
    xpub = subject.socket("XPUB", XPUB_VERBOSE=1)
    endpoint = bind(xpub)
    subs = [peer.socket("SUB") for _ in range(2)]
    for sub in subs:
        sub.connect(endpoint)
        peer.set(sub, SUBSCRIBE=b"topic")
        assert told(subject, xpub, peer, *subs) == b"\x01topic"
    for number, sub in enumerate(subs):
        peer.set(sub, UNSUBSCRIBE=b"topic")
        peer.set(sub, SUBSCRIBE=b"mark %d" % number)
        heard = told(subject, xpub, peer, *subs)
        if number == 1:
            # Verbose concerns subscriptions only: the end of the last one is reported in any case.
            assert heard == b"\x00topic"
            heard = told(subject, xpub, peer, *subs)
        assert heard == b"\x01mark %d" % number


def test_verboser_tells_of_each_end_too(subject: Side, peer: Side) -> None:
    xpub = subject.socket("XPUB", XPUB_VERBOSER=1)
    endpoint = bind(xpub)
    subs = [peer.socket("SUB") for _ in range(2)]
    for sub in subs:
        sub.connect(endpoint)
        peer.set(sub, SUBSCRIBE=b"topic")
        assert told(subject, xpub, peer, *subs) == b"\x01topic"
    for sub in subs:
        peer.set(sub, UNSUBSCRIBE=b"topic")
        assert told(subject, xpub, peer, *subs) == b"\x00topic"


@pytest.mark.parametrize(("option", "ends"), [("XPUB_VERBOSE", 1), ("XPUB_VERBOSER", 3), ("XPUB_MANUAL", 3)])
def test_each_subscriber_that_leaves(option: str, ends: int, subject: Side, peer: Side) -> None:
    xpub = subject.socket("XPUB", **{option: 1})
    endpoint = bind(xpub)
    subs = [peer.socket("SUB", SUBSCRIBE=b"topic") for _ in range(3)]
    for sub in subs:
        sub.connect(endpoint)
        assert told(subject, xpub, peer, *subs) == b"\x01topic"
        if option == "XPUB_MANUAL":
            # What the program has made of the request is not what the subscriber takes back.
            subject.set(xpub, SUBSCRIBE=b"granted")
    for sub in subs:
        sub.close(linger=0)
    for _ in range(ends):
        assert told(subject, xpub, peer) == b"\x00topic"
    mark = peer.socket("SUB", SUBSCRIBE=b"mark")
    mark.connect(endpoint)
    assert told(subject, xpub, peer, mark) == b"\x01mark"


def test_a_subscriber_that_leaves_has_unsubscribed(subject: Side, peer: Side) -> None:
    xpub, sub = subject.socket("XPUB"), peer.socket("SUB")
    link(xpub, sub)
    for topic in (b"one", b"two"):
        peer.set(sub, SUBSCRIBE=topic)
        assert told(subject, xpub, peer, sub) == b"\x01" + topic
    sub.close(linger=0)
    assert {told(subject, xpub, peer), told(subject, xpub, peer)} == {b"\x00one", b"\x00two"}


def test_manual_decides_what_a_subscription_means(subject: Side, peer: Side) -> None:
    xpub, sub = subject.socket("XPUB", XPUB_MANUAL=1), peer.socket("SUB")
    link(xpub, sub)
    peer.set(sub, SUBSCRIBE=b"asked")
    assert told(subject, xpub, peer, sub) == b"\x01asked"
    subject.set(xpub, SUBSCRIBE=b"granted")
    # What was granted reaches the SUB, which filters again by what it asked for.
    peer.set(sub, SUBSCRIBE=b"mark")
    assert told(subject, xpub, peer, sub) == b"\x01mark"
    subject.set(xpub, SUBSCRIBE=b"mark")
    xpub.send(b"asked")
    xpub.send(b"mark")
    assert peer.receive(sub) == [b"mark"]


def test_manual_grants_to_an_xsub_what_it_did_not_ask_for(subject: Side, peer: Side) -> None:
    xpub, xsub = subject.socket("XPUB", XPUB_MANUAL=1), peer.socket("XSUB")
    link(xpub, xsub)
    xsub.send(b"\x01asked")
    assert told(subject, xpub, peer, xsub) == b"\x01asked"
    subject.set(xpub, SUBSCRIBE=b"granted")
    xpub.send(b"asked")
    xpub.send(b"granted")
    xpub.send(b"asked")
    assert not peer.readable(xsub) or peer.receive(xsub) == [b"granted"]


def test_a_welcome(subject: Side, peer: Side) -> None:
    xpub, sub = subject.socket("XPUB", XPUB_WELCOME_MSG=b"welcome"), peer.socket("SUB")
    peer.set(sub, SUBSCRIBE=b"w")
    link(xpub, sub)
    await_readable(peer, sub, subject, xpub)
    assert peer.receive(sub) == [b"welcome"]
    assert told(subject, xpub, peer, sub) == b"\x01w"


def test_inverted_matching(subject: Side, peer: Side) -> None:
    pub, sub = subject.socket("PUB", INVERT_MATCHING=1), peer.socket("SUB", INVERT_MATCHING=1)
    peer.set(sub, SUBSCRIBE=b"x")
    link(pub, sub)

    def heard() -> bool:
        pub.send(b"y")
        return peer.readable(sub, 20)

    until(heard)
    pub.send(b"x, not wanted")
    pub.send(b"y.last")
    while (message := peer.receive(sub)) != [b"y.last"]:
        assert message == [b"y"]


@pytest.mark.parametrize("subscribed", ["early", "late"])
def test_a_subscription_waits_for_every_publisher(subscribed: str, subject: Side, peer: Side) -> None:
    sub = subject.socket("SUB")
    xpubs = [peer.socket("XPUB") for _ in range(3)]
    if subscribed == "early":
        subject.set(sub, SUBSCRIBE=b"topic")
    for xpub in xpubs:
        link(xpub, sub)
    if subscribed == "late":
        subject.set(sub, SUBSCRIBE=b"topic")
    for xpub in xpubs:
        assert told(peer, xpub, subject, sub) == b"\x01topic"
        xpub.send(b"topic!")
        assert subject.receive(sub) == [b"topic!"]


def test_one_subscriber_hears_many_publishers_bound(subject: Side, peer: Side) -> None:
    sub = subject.socket("SUB", SUBSCRIBE=b"")
    endpoint = bind(sub)
    pubs = [peer.socket("XPUB") for _ in range(3)]
    for number, pub in enumerate(pubs):
        pub.connect(endpoint)
        assert told(peer, pub, subject, sub) == b"\x01"
        pub.send(b"%d" % number)
        assert subject.receive(sub) == [b"%d" % number]
