"""The thread-safe types, ours to ours: libzmq's wheels are built without them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.messaging.lab import (
    SUBJECT,
    TRANSPORTS,
    Background,
    Side,
    address,
    await_readable,
    bind,
    link,
    secure,
    works,
)
from tests.polling import until

pytestmark = pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq's wheels have no draft types")
EVERYWHERE = pytest.mark.parametrize("transport", [*TRANSPORTS, "inproc"])


@EVERYWHERE
@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_client_and_server(transport: str, mechanism: str, ours: Side) -> None:
    server = ours.socket("SERVER")
    clients = [ours.socket("CLIENT") for _ in range(3)]
    if transport != "inproc":
        public, secret = ours.zmq.curve_keypair()
        for client in clients if mechanism == "CURVE" else []:
            ours.set(server, CURVE_SERVER=1, CURVE_SECRETKEY=secret)
            ours.set(client, CURVE_SERVERKEY=public, CURVE_PUBLICKEY=public, CURVE_SECRETKEY=secret)
    endpoint = bind(server, transport)
    for number, client in enumerate(clients):
        client.connect(endpoint)
        client.send(b"from %d" % number)
    answers = {}
    for _ in clients:
        frame = server.recv(copy=False)
        assert frame.routing_id != 0
        answers[frame.bytes] = frame.routing_id
    assert len(set(answers.values())) == 3
    for body, identity in answers.items():
        server.send(b"to " + body, routing_id=identity)
        # More than one answer is no matter, nor is another question before it.
        server.send(b"again", routing_id=identity)
    for number, client in enumerate(clients):
        assert client.recv() == b"to from %d" % number
        assert client.recv() == b"again"


def test_a_server_knows_whom_it_answers(ours: Side) -> None:
    server = ours.socket("SERVER")
    bind(server)
    for identity in (0, 12345):
        with pytest.raises(ours.zmq.ZMQError) as refused:
            server.send(b"answer", routing_id=identity)
        assert refused.value.errno == ours.zmq.EHOSTUNREACH


@EVERYWHERE
def test_radio_and_dish(transport: str, ours: Side) -> None:
    radio, dish, other = ours.socket("RADIO"), ours.socket("DISH"), ours.socket("DISH")
    endpoint = bind(radio, transport)
    dish.connect(endpoint)
    other.connect(endpoint)
    dish.join("news")
    dish.join("new")
    other.join("sport")

    def heard() -> bool:
        radio.send(b"?", group="new")
        radio.send(b"?", group="sport")
        return ours.readable(dish, 10) and ours.readable(other, 10)

    until(heard)
    radio.send(b"not a prefix", group="newspaper")
    radio.send(b"wanted", group="news")
    radio.send(b"goals", group="sport")
    while (frame := dish.recv(copy=False)).bytes != b"wanted":
        assert (frame.bytes, frame.group) == (b"?", "new")
    assert frame.group == "news"
    while (frame := other.recv(copy=False)).bytes != b"goals":
        assert frame.group == "sport"
    dish.leave("news")
    dish.join("mark")

    def marked() -> bool:
        radio.send(b"!", group="mark")
        return ours.readable(dish, 10)

    until(marked)
    while ours.readable(dish):
        ours.try_receive(dish)
    radio.send(b"not any more", group="news")
    radio.send(b"last", group="mark")
    assert dish.recv() == b"last"


def test_groups_are_joined_once(ours: Side) -> None:
    dish = ours.socket("DISH")
    dish.join("news")
    for call, group in ((dish.join, "news"), (dish.leave, "sport"), (dish.join, 256 * "x")):
        with pytest.raises(ours.zmq.ZMQError) as refused:
            call(group)
        assert refused.value.errno == ours.zmq.EINVAL


@EVERYWHERE
def test_scatter_and_gather(transport: str, ours: Side) -> None:
    scatter, gathers = ours.socket("SCATTER"), [ours.socket("GATHER") for _ in range(2)]
    endpoint = bind(scatter, transport)
    watch = ours.watch(scatter)
    for gather in gathers:
        gather.connect(endpoint)
        if transport != "inproc":
            watch.until("HANDSHAKE_SUCCEEDED")
    assert ours.writable(scatter)
    for number in range(100):
        scatter.send(b"%d" % number)
    shares = [[int(gather.recv()) for _ in range(50)] for gather in gathers]
    assert sorted(shares[0] + shares[1]) == list(range(100))


@EVERYWHERE
def test_channels(transport: str, ours: Side) -> None:
    a, b = ours.socket("CHANNEL"), ours.socket("CHANNEL")
    link(a, b, transport)
    for number in range(50):
        a.send(b"%d" % number)
        assert b.recv() == b"%d" % number
        b.send(b"%d" % -number)
        assert a.recv() == b"%d" % -number


@EVERYWHERE
def test_peers(transport: str, ours: Side) -> None:
    a, b = ours.socket("PEER"), ours.socket("PEER")
    identity = a.connect_peer(bind(b, transport)) if hasattr(a, "connect_peer") else None
    if identity is None:
        pytest.skip("pyzmq's Socket has no connect_peer")
    until(lambda: works(ours, ours.zmq.EHOSTUNREACH, lambda: a.send(b"question", routing_id=identity)))
    frame = b.recv(copy=False)
    assert frame.bytes == b"question"
    b.send(b"answer", routing_id=frame.routing_id)
    answer = a.recv(copy=False)
    assert answer.bytes == b"answer"
    assert answer.routing_id == identity


@pytest.mark.parametrize("kind", ["CLIENT", "SCATTER", "CHANNEL", "SERVER", "RADIO"])
def test_messages_have_one_part(kind: str, ours: Side) -> None:
    socket = ours.socket(kind)
    other: Any = ours.socket(
        {"CLIENT": "SERVER", "SCATTER": "GATHER", "CHANNEL": "CHANNEL"}.get(kind, "CLIENT")
    )
    if kind in ("CLIENT", "SCATTER", "CHANNEL"):
        link(other, socket)
    with pytest.raises(ours.zmq.ZMQError) as refused:
        socket.send(b"one", ours.zmq.SNDMORE)
    assert refused.value.errno == ours.zmq.EINVAL


def test_many_threads_send_by_one_socket(ours: Side) -> None:
    client, server = ours.socket("CLIENT", SNDHWM=0), ours.socket("SERVER", RCVHWM=0)
    link(server, client)

    def send(name: int) -> None:
        for number in range(1_000):
            client.send(b"%d %d" % (name, number))

    threads = [Background(lambda name=name: send(name)) for name in range(4)]
    heard: list[list[int]] = [[] for _ in range(4)]
    for _ in range(4_000):
        name, number = server.recv().split()
        heard[int(name)].append(int(number))
    for thread in threads:
        thread.result()
    assert heard == [list(range(1_000))] * 4


def test_many_threads_receive_by_one_socket(ours: Side) -> None:
    scatter, gather = ours.socket("SCATTER", SNDHWM=0), ours.socket("GATHER", RCVHWM=0)
    link(gather, scatter)
    for number in range(2_000):
        scatter.send(b"%d" % number)
    for _ in range(4):
        scatter.send(b"end")

    def receive() -> list[int]:
        found = []
        while (body := gather.recv()) != b"end":
            found.append(int(body))
        return found

    threads = [Background(receive) for _ in range(4)]
    heard = [thread.result() for thread in threads]
    assert sorted(sum(heard, start=list[int]())) == list(range(2_000))


@pytest.mark.parametrize(
    "kinds", [("CLIENT", "CLIENT"), ("SERVER", "DEALER"), ("RADIO", "SUB"), ("GATHER", "PUSH")]
)
def test_types_that_may_not_talk(kinds: tuple[str, str], ours: Side) -> None:
    a, b = ours.socket(kinds[0]), ours.socket(kinds[1])
    watch, other = ours.watch(a), ours.watch(b)
    link(a, b)
    for each in (watch, other):
        each.until("HANDSHAKE_FAILED_PROTOCOL", "HANDSHAKE_FAILED_NO_DETAIL", "DISCONNECTED")
        assert "HANDSHAKE_SUCCEEDED" not in each.seen


def test_a_client_connects_before_there_is_a_server(ours: Side) -> None:
    client, server = ours.socket("CLIENT"), ours.socket("SERVER")
    endpoint = address("inproc")
    client.connect(endpoint)
    client.send(b"early")
    server.bind(endpoint)
    await_readable(ours, server, ours)
    assert server.recv() == b"early"


def test_secure_pairs(ours: Side) -> None:
    scatter, gather = ours.socket("SCATTER"), ours.socket("GATHER")
    secure("PLAIN", ours, gather, ours, scatter)
    link(gather, scatter)
    scatter.send(b"message")
    assert gather.recv() == b"message"
