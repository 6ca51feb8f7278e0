"""Peers that must not connect: wrong socket types, wrong mechanisms."""

from __future__ import annotations

import pytest
from tests.conformance.messaging.lab import MECHANISMS, Side, link, secure
from tests.conformance.messaging.test_pairs import PAIRS

KINDS = ("REQ", "REP", "DEALER", "ROUTER", "PUB", "SUB", "XPUB", "XSUB", "PUSH", "PULL", "PAIR")
MAY_TALK = {frozenset(pair) for pair in PAIRS}
WRONG = [(a, b) for a in KINDS for b in KINDS if frozenset((a, b)) not in MAY_TALK]
ENDED = ("HANDSHAKE_FAILED_PROTOCOL", "HANDSHAKE_FAILED_NO_DETAIL", "DISCONNECTED")
SENDS = {"REQ", "DEALER", "PUSH", "PAIR"}


@pytest.mark.parametrize("kinds", WRONG, ids="-".join)
def test_types_that_may_not_talk(kinds: tuple[str, str], subject: Side, peer: Side) -> None:
    a, b = subject.socket(kinds[0]), peer.socket(kinds[1])
    watch, other = subject.watch(a), peer.watch(b)
    link(a, b)
    if kinds[1] in SENDS:
        peer.try_send(b, b"message")
    watch.until(*ENDED)
    other.until(*ENDED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen + other.seen
    assert not subject.readable(a)


@pytest.mark.parametrize("server", MECHANISMS)
@pytest.mark.parametrize("client", MECHANISMS)
def test_mechanisms_that_differ(server: str, client: str, subject: Side, peer: Side) -> None:
    if server == client:
        return
    accepting, joining = subject.socket("PULL"), peer.socket("PUSH")
    secure(server, subject, accepting, peer, peer.socket("PUSH"))
    if client == "PLAIN":
        peer.set(joining, PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    else:
        secure(client, peer, peer.socket("PULL"), peer, joining)
    watch, other = subject.watch(accepting), peer.watch(joining)
    link(accepting, joining)
    peer.try_send(joining, b"message")
    watch.until(*ENDED)
    other.until(*ENDED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen + other.seen
    assert not subject.readable(accepting)


def test_two_servers_do_not_talk(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PULL", HANDSHAKE_IVL=200), peer.socket("PUSH")
    secure("CURVE", subject, a, peer, peer.socket("PUSH"))
    secure("CURVE", peer, b, subject, subject.socket("PULL"))
    watch = subject.watch(a)
    link(a, b)
    peer.try_send(b, b"message")
    watch.until(*ENDED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen
    assert not subject.readable(a)
