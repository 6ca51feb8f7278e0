"""PLAIN, CURVE and ZAP: which peers may connect, the requests to the handler, and refusals."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tests.conformance.messaging.lab import TRANSPORTS, Side, Zap, admit, bind, link, only_ours, rebind, works
from tests.conformance.messaging.wire import Wire, message
from tests.polling import until

FAILED = ("HANDSHAKE_FAILED_AUTH", "HANDSHAKE_FAILED_PROTOCOL", "HANDSHAKE_FAILED_NO_DETAIL", "DISCONNECTED")


def keys(side: Side) -> tuple[bytes, bytes]:
    pair: tuple[bytes, bytes] = side.zmq.curve_keypair()
    return pair


def z85(side: Side) -> Any:
    return importlib.import_module(side.zmq.__name__ + ".utils.z85")


def curve(server: Side, accepting: Any, client: Side, joining: Any) -> tuple[bytes, bytes]:
    """Both ends set up as they should be; the client's public key and the server's secret one."""
    public, secret = keys(server)
    mine, mine_secret = keys(client)
    server.set(accepting, CURVE_SERVER=1, CURVE_SECRETKEY=secret)
    client.set(joining, CURVE_SERVERKEY=public, CURVE_PUBLICKEY=mine, CURVE_SECRETKEY=mine_secret)
    return mine, secret


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_a_handler_is_told_about_plain(transport: str, subject: Side, peer: Side) -> None:
    zap = Zap(subject, admit)
    pull = subject.socket("PULL", PLAIN_SERVER=1, ZAP_DOMAIN=b"domain")
    push = peer.socket("PUSH", PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret", ROUTING_ID=b"its name")
    link(pull, push, transport)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]
    [request] = zap.requests
    assert request["version"] == b"1.0"
    assert request["domain"] == b"domain"
    assert request["mechanism"] == b"PLAIN"
    assert request["credentials"] == [b"admin", b"secret"]
    if transport == "tcp":
        assert request["address"] == b"127.0.0.1"


def test_what_a_handler_is_told_about_null(subject: Side, peer: Side) -> None:
    zap = Zap(subject, admit)
    pull = subject.socket("PULL", ZAP_DOMAIN=b"domain")
    push = peer.socket("PUSH")
    link(pull, push)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]
    [request] = zap.requests
    assert request["mechanism"] == b"NULL"
    assert request["credentials"] == []


def test_what_a_handler_is_told_about_curve(subject: Side, peer: Side) -> None:
    zap = Zap(subject, admit)
    rep, req = subject.socket("REP", ROUTING_ID=b"server's"), peer.socket("REQ")
    public, _ = curve(subject, rep, peer, req)
    link(rep, req)
    req.send(b"question")
    assert subject.receive(rep) == [b"question"]
    rep.send(b"answer")
    assert peer.receive(req) == [b"answer"]
    [request] = zap.requests
    assert request["mechanism"] == b"CURVE"
    assert request["identity"] == b"server's"
    [credential] = request["credentials"]
    assert len(credential) == 32
    assert z85(subject).encode(credential) == public


def test_who_a_peer_is_is_not_its_own_to_say(alone: Side) -> None:
    Zap(alone, lambda _: (b"200", b"ada"))
    pull = alone.socket("PULL", ZAP_DOMAIN=b"domain")
    with Wire.connect(bind(pull)) as wire:
        wire.handshake(b"PUSH", **{"User-Id": b"admin", "Peer-Address": b"192.0.2.1", "X-Own": b"own"})
        wire.send(message(b"message"))
        frame = pull.recv(copy=False)
    assert frame.get("User-Id") == "ada"
    assert frame.get("Peer-Address") == "127.0.0.1"
    assert frame.get("X-Own") == "own"


@only_ours
def test_nobody_is_whom_no_handler_knows(ours: Side) -> None:
    pull = ours.socket("PULL")
    with Wire.connect(bind(pull)) as wire:
        wire.handshake(b"PUSH", **{"User-Id": b"admin", "Peer-Address": b"192.0.2.1"})
        wire.send(message(b"message"))
        frame = pull.recv(copy=False)
    with pytest.raises(ours.zmq.ZMQError):
        frame.get("User-Id")
    assert frame.get("Peer-Address") == "127.0.0.1"


def test_without_a_domain_null_is_not_judged(subject: Side, peer: Side) -> None:
    zap = Zap(subject, lambda _request: (b"400", b""))
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    link(pull, push)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]
    assert zap.requests == []


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
@pytest.mark.parametrize("status", [b"300", b"400", b"500"])
def test_a_refusal(status: bytes, mechanism: str, subject: Side, peer: Side) -> None:
    zap = Zap(subject, lambda _request: (status, b""))
    pull, push = subject.socket("PULL", ZAP_DOMAIN=b"domain"), peer.socket("PUSH", RECONNECT_IVL=10)
    if mechanism == "PLAIN":
        subject.set(pull, PLAIN_SERVER=1)
        peer.set(push, PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"wrong")
    elif mechanism == "CURVE":
        curve(subject, pull, peer, push)
    watch, other = subject.watch(pull), peer.watch(push)
    link(pull, push)
    peer.try_send(push, b"message")
    assert watch.until("HANDSHAKE_FAILED_AUTH")[1] == int(status)
    is_plain = mechanism == "PLAIN"
    if status != b"300":
        # A temporary failure is not reported to the peer. libzmq may also close before its ERROR is sent, and its PLAIN
        # uses another name for that command.
        name, value, _ = other.until(*FAILED)
        assert (name, value) == ("HANDSHAKE_FAILED_AUTH", int(status)) or name == "DISCONNECTED" or is_plain
    assert zap.requests[0]["mechanism"] == mechanism.encode()
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen + other.seen
    assert not subject.readable(pull)


def test_one_is_let_in_and_another_is_not(subject: Side, peer: Side) -> None:
    def judge(request: dict[str, Any]) -> tuple[bytes, bytes]:
        return (b"200", b"good") if request["credentials"] == [b"good", b"word"] else (b"400", b"")

    Zap(subject, judge)
    pull = subject.socket("PULL", PLAIN_SERVER=1)
    watch = subject.watch(pull)
    endpoint = bind(pull)
    bad = peer.socket("PUSH", PLAIN_USERNAME=b"good", PLAIN_PASSWORD=b"guess")
    bad.connect(endpoint)
    peer.try_send(bad, b"bad")
    watch.until("HANDSHAKE_FAILED_AUTH")
    good = peer.socket("PUSH", PLAIN_USERNAME=b"good", PLAIN_PASSWORD=b"word")
    good.connect(endpoint)
    good.send(b"good")
    frame = pull.recv(copy=False)
    assert frame.bytes == b"good"
    assert frame.get("User-Id") == "good"
    assert not subject.readable(pull)


def test_a_handler_that_dies_lets_nobody_in(subject: Side, peer: Side) -> None:
    zap = Zap(subject, lambda _request: None)
    pull = subject.socket("PULL", PLAIN_SERVER=1, HANDSHAKE_IVL=200)
    push = peer.socket("PUSH", RECONNECT_IVL=10, PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    watch = subject.watch(pull)
    link(pull, push)
    peer.try_send(push, b"message")
    zap.wait_dead()
    watch.until(*FAILED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen
    assert not subject.readable(pull)
    # Another one takes its place.
    until(lambda: works(subject, subject.zmq.EADDRINUSE, Zap, subject, admit))
    assert subject.receive(pull) == [b"message"]


@pytest.mark.parametrize(
    "answer",
    [
        [b"2.0", b"1", b"200", b"", b"", b""],
        [b"1.0", b"another", b"200", b"", b"", b""],
        [b"1.0", b"1", b"2000", b"", b"", b""],
        [b"1.0", b"1", b"xyz", b"", b"", b""],
        [b"1.0", b"1", b"200"],
        [b"1.0", b"1", b"200", b"", b"", b"\xff\xff\xff"],
    ],
    ids=["version", "request", "long status", "no status", "too few parts", "metadata"],
)
def test_an_answer_that_is_none_lets_nobody_in(answer: list[bytes], subject: Side, peer: Side) -> None:
    Zap(subject, admit, answer)
    pull = subject.socket("PULL", PLAIN_SERVER=1, HANDSHAKE_IVL=500)
    push = peer.socket("PUSH", PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    watch = subject.watch(pull)
    link(pull, push)
    peer.try_send(push, b"message")
    watch.until(*FAILED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen
    assert not subject.readable(pull)


def test_plain_without_a_handler_lets_nobody_in(subject: Side, peer: Side) -> None:
    pull = subject.socket("PULL", PLAIN_SERVER=1, HANDSHAKE_IVL=500)
    push = peer.socket("PUSH", PLAIN_USERNAME=b"admin", PLAIN_PASSWORD=b"secret")
    watch = subject.watch(pull)
    link(pull, push)
    peer.try_send(push, b"message")
    watch.until(*FAILED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen


def test_a_domain_is_enforced_if_that_is_asked(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL", ZAP_DOMAIN=b"domain", HANDSHAKE_IVL=500), peer.socket("PUSH")
    subject.set(pull, ZAP_ENFORCE_DOMAIN=1)
    watch = subject.watch(pull)
    link(pull, push)
    peer.try_send(push, b"message")
    watch.until(*FAILED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen


@pytest.mark.parametrize("wrong", ["server key", "client keys"])
def test_curve_with_a_wrong_key(wrong: str, subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL", HANDSHAKE_IVL=500), peer.socket("PUSH", RECONNECT_IVL=10)
    curve(subject, pull, peer, push)
    if wrong == "server key":
        peer.set(push, CURVE_SERVERKEY=keys(peer)[0])
    else:
        peer.set(push, CURVE_PUBLICKEY=keys(peer)[0])
    watch = subject.watch(pull)
    link(pull, push)
    peer.try_send(push, b"message")
    watch.until(*FAILED)
    assert "HANDSHAKE_SUCCEEDED" not in watch.seen
    assert not subject.readable(pull)


def test_curve_keys_are_kept_through_reconnects(subject: Side, peer: Side) -> None:
    push = subject.socket("PUSH", RECONNECT_IVL=10)
    pull = peer.socket("PULL")
    _, secret = curve(peer, pull, subject, push)
    watch = subject.watch(push)
    endpoint = link(pull, push)
    for turn in range(3):
        push.send(b"%d" % turn)
        assert peer.receive(pull) == [b"%d" % turn]
        pull.close(linger=0)
        watch.until("DISCONNECTED")
        pull = peer.socket("PULL", CURVE_SERVER=1, CURVE_SECRETKEY=secret)
        rebind(peer, pull, endpoint)


def test_keys_fit_each_other(subject: Side, peer: Side) -> None:
    for _ in range(20):
        public, secret = keys(subject)
        assert len(public) == len(secret) == 40
        assert peer.zmq.curve_public(secret) == public
        decoded = z85(peer).decode(public)
        assert len(decoded) == 32
        assert z85(subject).encode(decoded) == public


def test_the_mechanism_is_told(alone: Side) -> None:
    socket = alone.socket("PULL")
    assert alone.get(socket, "MECHANISM") == alone.zmq.NULL
    alone.set(socket, PLAIN_SERVER=1)
    assert alone.get(socket, "MECHANISM") == alone.zmq.PLAIN
    alone.set(socket, CURVE_SERVER=1)
    assert alone.get(socket, "MECHANISM") == alone.zmq.CURVE


@pytest.mark.parametrize("key", [b"", b"short", 41 * b"x", 40 * b"\x01"])
def test_what_is_no_key_is_refused(key: bytes, alone: Side) -> None:
    for option in ("CURVE_SERVERKEY", "CURVE_PUBLICKEY", "CURVE_SECRETKEY"):
        with pytest.raises(alone.zmq.ZMQError) as refused:
            alone.set(alone.socket("PULL"), **{option: key})
        assert refused.value.errno == alone.zmq.EINVAL
