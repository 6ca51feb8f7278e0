"""Subscription messages and counts, by options that libzmq's wheels lack."""

from __future__ import annotations

import pytest
from tests.conformance.messaging.lab import SUBJECT, Side, bind, subscribe
from tests.conformance.messaging.wire import Listener, Wire, message

pytestmark = pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq's wheels have no draft options")


@pytest.mark.parametrize("first", [0, 1])
def test_whether_later_parts_subscribe(first: int, ours: Side) -> None:
    xpub = ours.socket("XPUB", ONLY_FIRST_SUBSCRIBE=first)
    with Wire.connect(bind(xpub)) as wire:
        wire.handshake(b"XSUB")
        wire.send(message(b"\x01first") + message(b"words", b"\x01second") + message(b"\x01last"))
        received = []
        while received[-1:] != [[b"\x01last"]]:
            received.append(ours.receive(xpub))
        if first:
            assert received == [[b"\x01first"], [b"words", b"\x01second"], [b"\x01last"]]
        else:
            assert sorted(received) == sorted([[b"\x01first"], [b"words"], [b"\x01second"], [b"\x01last"]])
        for topic in (b"second", b"last"):
            xpub.send(topic)
        assert wire.read_message() == [b"last" if first else b"second"]


def test_topics_are_counted(ours: Side) -> None:
    pub, sub = ours.socket("XPUB"), ours.socket("SUB")
    sub.connect(bind(pub))
    assert ours.get(sub, "TOPICS_COUNT") == 0
    for topic in (b"a", b"ab", b"a"):
        ours.set(sub, SUBSCRIBE=topic)
    subscribe(ours, pub, ours, sub, b"z")
    assert ours.get(sub, "TOPICS_COUNT") == ours.get(pub, "TOPICS_COUNT") == 3
    ours.set(sub, UNSUBSCRIBE=b"a")
    assert ours.get(sub, "TOPICS_COUNT") == 3
    ours.set(sub, UNSUBSCRIBE=b"a")
    assert ours.get(sub, "TOPICS_COUNT") == 2


@pytest.mark.parametrize("verbose", [0, 1])
def test_whether_each_cancellation_is_told(verbose: int, ours: Side) -> None:
    xsub = ours.socket("XSUB", XSUB_VERBOSE_UNSUBSCRIBE=verbose)
    with Listener() as listener:
        xsub.connect(listener.endpoint)
        with listener.accept() as wire:
            wire.handshake(b"XPUB")
            xsub.send(b"\x01begin")
            assert wire.read_command() == (b"SUBSCRIBE", b"begin")
            for request in (b"\x01a", b"\x01a", b"\x00a", b"\x00a", b"\x01end"):
                xsub.send(request)
            told = []
            while told[-1:] != [(b"SUBSCRIBE", b"end")]:
                told.append(wire.read_command())
    assert [topic for name, topic in told if name == b"CANCEL"] == [b"a"] * (1 + verbose)


def test_the_value_that_was_missed_is_for_who_asked(ours: Side) -> None:
    xpub = ours.socket("XPUB", XPUB_MANUAL_LAST_VALUE=1)
    subs = [ours.socket("SUB", SUBSCRIBE=b"topic") for _ in range(2)]
    endpoint = bind(xpub)
    for number, sub in enumerate(subs):
        sub.connect(endpoint)
        assert xpub.recv() == b"\x01topic"
        xpub.setsockopt(ours.zmq.SUBSCRIBE, b"topic")
        xpub.send(b"topic: for %d" % number)
        assert sub.recv() == b"topic: for %d" % number
    xpub.send(b"topic: for both")
    for sub in subs:
        assert sub.recv() == b"topic: for both"


def test_raw_peers_of_a_router(ours: Side) -> None:
    router = ours.socket("ROUTER", ROUTER_RAW=1)
    with Wire.connect(bind(router)) as wire:
        wire.send(b"anything")
        name, said = ours.receive(router)
        assert said == b"anything"
        router.send_multipart([name, b"an answer"])
        assert wire.read(9) == b"an answer"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("NORM_MODE", 1),
        ("VMCI_BUFFER_SIZE", 65_536),
        ("VMCI_CONNECT_TIMEOUT", 100),
        ("WSS_HOSTNAME", b"name"),
        ("WSS_TRUST_SYSTEM", 1),
        ("GSSAPI_SERVER", 1),
        ("GSSAPI_PRINCIPAL", b"name"),
        ("GSSAPI_PLAINTEXT", 1),
        ("SOCKS_PROXY", b"127.0.0.1:1080"),
        ("SOCKS_USERNAME", b"name"),
        ("SOCKS_PASSWORD", b"secret"),
        ("IPC_FILTER_PID", 1),
        ("IPC_FILTER_UID", 1),
        ("IPC_FILTER_GID", 1),
        ("TCP_ACCEPT_FILTER", b"127.0.0.1"),
        ("IN_BATCH_SIZE", 8192),
        ("OUT_BATCH_SIZE", 8192),
        ("BUSY_POLL", 1),
    ],
)
def test_what_is_not_there_is_refused(option: str, value: int | bytes, ours: Side) -> None:
    for kind in ("PUB", "DEALER", "STREAM"):
        with pytest.raises(ours.zmq.ZMQError) as refused:
            ours.set(ours.socket(kind), **{option: value})
        assert refused.value.errno == ours.zmq.EINVAL


@pytest.mark.parametrize("option", ["THREAD_SCHED_POLICY", "THREAD_AFFINITY_CPU_ADD", "THREAD_NAME_PREFIX"])
def test_a_context_has_no_threads_to_tune(option: str, ours: Side) -> None:
    with pytest.raises(ours.zmq.ZMQError) as refused:
        ours.context.set(getattr(ours.zmq, option), 1)
    assert refused.value.errno == ours.zmq.EINVAL
