"""Sockets for gevent: greenlets wait, and the thread goes on."""

from __future__ import annotations

import os
from typing import Any

import pytest

import ropewalk.zmq as blocking

gevent: Any = pytest.importorskip("gevent", reason="gevent is not installed")

import ropewalk.zmq.green as zmq  # noqa: E402 - it needs gevent.

PATIENCE = 20


class Keeping(zmq.Context):
    """Keeps its sockets until it is destroyed: a test need not close what it has made."""

    _instance = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["opened"] = []

    def _add_socket(self, socket: Any) -> None:
        super()._add_socket(socket)
        self.__dict__["opened"].append(socket)


@pytest.fixture
def context() -> Any:
    context = Keeping()
    yield context
    context.destroy(linger=0)


def linked(context: Any, first: int, second: int, endpoint: str = "tcp://127.0.0.1:*") -> tuple[Any, Any]:
    bound, connected = context.socket(first), context.socket(second)
    bound.bind(endpoint)
    connected.connect(bound.last_endpoint.decode())
    return bound, connected


def all_of(*greenlets: Any) -> list[Any]:
    """Their results, once all have ended."""
    gevent.joinall(greenlets, timeout=PATIENCE, raise_error=True)
    assert all(greenlet.ready() for greenlet in greenlets)
    return [greenlet.value for greenlet in greenlets]


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "inproc://green"])
def test_others_run_while_one_waits(endpoint: str, context: Any) -> None:
    rep, req = linked(context, zmq.REP, zmq.REQ, endpoint)

    def serve() -> None:
        for _ in range(100):
            rep.send_multipart([*rep.recv_multipart(), b"answer"])

    def ask() -> list[Any]:
        answers = []
        for number in range(100):
            req.send(b"%d" % number)
            answers.append(req.recv_multipart())
        return answers

    _, answers = all_of(gevent.spawn(serve), gevent.spawn(ask))
    assert answers == [[b"%d" % number, b"answer"] for number in range(100)]


def test_many_greenlets_wait_for_one_socket(context: Any) -> None:
    pull, push = linked(context, zmq.PULL, zmq.PUSH)
    receivers = [gevent.spawn(pull.recv) for _ in range(20)]
    gevent.sleep(0)
    senders = [gevent.spawn(push.send, b"%d" % number) for number in range(20)]
    all_of(*senders)
    assert sorted(all_of(*receivers)) == sorted(b"%d" % number for number in range(20))


def test_a_sender_waits_for_room(context: Any) -> None:
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    push.sndhwm = pull.rcvhwm = 1
    pull.bind("inproc://room")
    push.connect("inproc://room")

    def send() -> None:
        for number in range(200):
            push.send(b"%d" % number)

    def receive() -> list[bytes]:
        return [pull.recv() for _ in range(200)]

    _, received = all_of(gevent.spawn(send), gevent.spawn(receive))
    assert received == [b"%d" % number for number in range(200)]


def test_an_operation_wakes_who_waits_for_another(context: Any) -> None:
    """A send may read what has come, and so consume what the descriptor reports to the receiver."""
    one, other = linked(context, zmq.PAIR, zmq.PAIR)
    receiver = gevent.spawn(one.recv)
    gevent.sleep(0)
    other.send(b"message")
    for _ in range(1000):
        one.send(b"busy")
    assert all_of(receiver) == [b"message"]


def test_timeouts_hold(context: Any) -> None:
    socket = context.socket(zmq.PAIR)
    socket.rcvtimeo = socket.sndtimeo = 10
    for call in (socket.recv, socket.recv_multipart, lambda: socket.send(b"x"), lambda: socket.recv_many(1)):
        with pytest.raises(zmq.Again):
            call()
        with pytest.raises(zmq.Again):
            gevent.spawn(call).get(timeout=PATIENCE)
    assert socket.poll(5) == 0


def test_closing_ends_waits(context: Any) -> None:
    socket = context.socket(zmq.PULL)
    socket.bind("inproc://closing")
    waiting = [gevent.spawn(socket.recv) for _ in range(3)]
    gevent.sleep(0)
    socket.close()
    for greenlet in waiting:
        with pytest.raises(zmq.ZMQError) as refused:
            greenlet.get(timeout=PATIENCE)
        assert refused.value.errno == zmq.ENOTSOCK


def test_pollers_wait_for_sockets_and_descriptors(context: Any) -> None:
    pull, push = linked(context, zmq.PULL, zmq.PUSH)
    reading, writing = os.pipe()
    try:
        poller = zmq.Poller()
        poller.register(pull, zmq.POLLIN)
        poller.register(reading, zmq.POLLIN)
        assert poller.poll(1) == []
        assert poller.poll(0) == []
        waiting = gevent.spawn(poller.poll)
        gevent.sleep(0)
        os.write(writing, b"x")
        assert all_of(waiting) == [[(reading, zmq.POLLIN)]]
        os.read(reading, 1)
        waiting = gevent.spawn(poller.poll, PATIENCE * 1000)
        gevent.sleep(0)
        push.send(b"message")
        assert all_of(waiting) == [[(pull, zmq.POLLIN)]]
        assert pull.poll(PATIENCE * 1000) == zmq.POLLIN
    finally:
        os.close(reading)
        os.close(writing)


def test_other_methods_wait_too(context: Any) -> None:
    bound, connected = linked(context, zmq.PAIR, zmq.PAIR)

    def receive() -> list[Any]:
        buffer = bytearray(10)
        return [
            bound.recv_json(),
            bound.recv_string(),
            bound.recv_into(buffer),
            bytes(buffer[:4]),
            bound.recv_many(10),
        ]

    def send() -> None:
        connected.send_json({"a": 1})
        connected.send_string("text")
        connected.send(b"into")
        assert connected.send_many([b"one", b"two"]) == 2

    received, _ = all_of(gevent.spawn(receive), gevent.spawn(send))
    assert received[:4] == [{"a": 1}, "text", 4, b"into"]
    assert received[4][0] == b"one"


def test_a_device_runs_beside(context: Any) -> None:
    front, back = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    front.bind("inproc://front")
    back.bind("inproc://back")
    passing = gevent.spawn(zmq.proxy, front, back)
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    push.connect("inproc://front")
    pull.connect("inproc://back")
    for number in range(20):
        push.send(b"%d" % number)
        assert pull.recv() == b"%d" % number
    # The thread ends with the context.
    for socket in (push, pull):
        socket.close(linger=0)
    ending = gevent.get_hub().threadpool.spawn(context.term)
    with pytest.raises(zmq.ContextTerminated):
        passing.get(timeout=PATIENCE)
    for socket in (front, back):
        socket.close(linger=0)
    ending.get(timeout=PATIENCE)


def test_its_names_are_those_of_the_blocking_package() -> None:
    assert set(blocking.__all__) <= set(zmq.__all__)
    assert zmq.Context.instance() is not blocking.Context.instance()
    zmq.Context.instance().term()
    blocking.Context.instance().term()
