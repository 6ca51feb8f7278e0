"""Threads that interfere: closing during a wait, ending a context, using one socket at once."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.messaging.lab import (
    Background,
    Side,
    address,
    background,
    bind,
    link,
    only_ours,
    works,
)
from tests.polling import until


def waiting(ident: int) -> bool:
    """Whether the thread sleeps in a system call, as one that waits for a message does."""
    with open(f"/proc/self/task/{ident}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


def start(work: Callable[[], Any]) -> Background:
    """Runs the work, and returns when it waits."""
    ident: list[int] = []

    def named() -> Any:
        ident.append(threading.get_native_id())
        return work()

    running = Background(named)
    until(lambda: ident and waiting(ident[0]))
    return running


BLOCKED: dict[str, Callable[[Side], Callable[[], Any]]] = {}


def blocked(make: Callable[[Side], Callable[[], Any]]) -> Callable[[Side], Callable[[], Any]]:
    """Something that waits for ever."""
    BLOCKED[make.__name__] = make
    return make


@blocked
def receiving(side: Side) -> Callable[[], Any]:
    socket = side.socket("PULL", RCVTIMEO=-1)
    bind(socket)
    return lambda: socket.recv()


@blocked
def receiving_from_a_peer(side: Side) -> Callable[[], Any]:
    socket = side.socket("PULL", RCVTIMEO=-1)
    link(socket, side.socket("PUSH"))
    return lambda: socket.recv_multipart()


@blocked
def sending(side: Side) -> Callable[[], Any]:
    socket = side.socket("PUSH", SNDTIMEO=-1)
    bind(socket)
    return lambda: socket.send(b"message")


@blocked
def sending_to_a_full_peer(side: Side) -> Callable[[], Any]:
    socket = side.socket("PUSH", SNDTIMEO=-1, SNDHWM=1)
    link(side.socket("PULL", RCVHWM=1), socket, "inproc")

    def send() -> None:
        while True:
            socket.send(b"message")

    return send


@blocked
def polling(side: Side) -> Callable[[], Any]:
    socket = side.socket("PULL")
    bind(socket)
    return lambda: socket.poll(None)


@blocked
def proxying(side: Side) -> Callable[[], Any]:
    front, back = side.socket("ROUTER", RCVTIMEO=-1), side.socket("DEALER", RCVTIMEO=-1)
    bind(front)
    bind(back)
    return lambda: side.zmq.proxy(front, back)


@pytest.mark.parametrize("what", list(BLOCKED))
def test_a_context_that_ends_wakes_everybody(what: str, alone: Side) -> None:
    mine = Side(alone.zmq)
    running = start(BLOCKED[what](mine))
    ending = Background(mine.context.term)
    with pytest.raises(alone.zmq.ContextTerminated):
        running.result()
    # It waits until every socket is closed.
    mine.close_sockets()
    ending.result()


def test_what_is_begun_after_the_end(alone: Side) -> None:
    mine = Side(alone.zmq)
    socket = mine.socket("PAIR")
    ending = Background(mine.context.term)
    until(lambda: not works(alone, alone.zmq.ETERM, socket.poll, 0))
    for call in (
        lambda: socket.send(b"message"),
        lambda: socket.recv(),
        lambda: bind(socket),
        lambda: socket.connect("tcp://127.0.0.1:1"),
        lambda: mine.context.socket(alone.zmq.PAIR),
    ):
        with pytest.raises(alone.zmq.ZMQError) as refused:
            call()
        assert refused.value.errno in (alone.zmq.ETERM, errno.EFAULT)
    socket.close()
    ending.result()


@only_ours
@pytest.mark.parametrize(
    "what", ["receiving", "receiving_from_a_peer", "sending", "sending_to_a_full_peer", "polling"]
)
def test_a_socket_that_is_closed_wakes_its_waiter(what: str, ours: Side) -> None:
    """With libzmq this is undefined; with ours the waiting call raises."""
    known = len(ours._sockets)
    running = start(BLOCKED[what](ours))
    socket = ours._sockets[known]
    socket.close()
    with pytest.raises(ours.zmq.ZMQError) as told:
        running.result()
    assert told.value.errno in (ours.zmq.ENOTSOCK, errno.ENOTSOCK)


@only_ours
def test_a_socket_that_two_threads_send_by(ours: Side) -> None:
    push, pull = ours.socket("PUSH", SNDHWM=0), ours.socket("PULL", RCVHWM=0)
    link(pull, push)
    sent: list[list[bytes]] = [[], []]

    def send(name: int) -> None:
        for number in range(2_000):
            parts = [b"%d" % name, b"%d" % number]
            # Refused is right, whole is right: mixed up is not.
            if works(ours, errno.EBUSY, push.send_multipart, parts):
                sent[name].append(parts[1])

    with background(lambda: send(0)), background(lambda: send(1)):
        pass
    heard: list[list[bytes]] = [[], []]
    for _ in range(len(sent[0]) + len(sent[1])):
        name, number = ours.receive(pull)
        heard[int(name)].append(number)
    assert heard == sent
    assert ours.try_receive(pull) is None


@only_ours
@pytest.mark.parametrize("copy", [True, False])
def test_a_socket_that_two_threads_receive_by(copy: bool, ours: Side) -> None:
    push, pull = ours.socket("PUSH", SNDHWM=0), ours.socket("PULL", RCVHWM=0)
    link(pull, push)
    total = 4_000
    for number in range(total):
        push.send_multipart([b"%d" % number, b"%d" % -number])
    heard: list[list[bytes]] = []

    def receive() -> None:
        while len(heard) < total:
            try:
                heard.append([bytes(part) for part in pull.recv_multipart(ours.zmq.DONTWAIT, copy=copy)])
            except ours.zmq.ZMQError as refused:
                if refused.errno not in (errno.EBUSY, errno.EAGAIN):
                    raise

    with background(receive), background(receive):
        pass
    assert sorted(int(first) for first, _ in heard) == list(range(total))
    assert all(int(first) == -int(second) for first, second in heard)


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_threads_with_a_socket_each(transport: str, alone: Side) -> None:
    pull = alone.socket("PULL")
    endpoint = bind(pull, transport)

    def send(name: int) -> None:
        push = alone.socket("PUSH")
        push.connect(endpoint)
        for number in range(3_000):
            push.send_multipart([b"%d" % name, b"%d" % number])
        push.close()

    heard: list[list[int]] = [[] for _ in range(4)]
    threads = [Background(lambda name=name: send(name)) for name in range(4)]
    for _ in range(12_000):
        name, number = alone.receive(pull)
        heard[int(name)].append(int(number))
    for thread in threads:
        thread.result()
    assert heard == [list(range(3_000))] * 4


def test_a_socket_passed_from_thread_to_thread(alone: Side) -> None:
    req, rep = alone.socket("REQ"), alone.socket("REP")
    link(rep, req)

    def turn() -> None:
        req.send(b"question")
        rep.send(rep.recv())
        assert req.recv() == b"question"

    for _ in range(50):
        Background(turn).result()


def test_sockets_made_and_closed_in_many_threads(alone: Side) -> None:
    endpoint = bind(alone.socket("ROUTER"))

    def churn(seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(60):
            socket = alone.context.socket(choice.choice([alone.zmq.DEALER, alone.zmq.REQ]))
            socket.setsockopt(alone.zmq.LINGER, 0)
            socket.connect(endpoint if choice.random() < 0.8 else address("inproc"))
            if choice.random() < 0.7:
                socket.send(b"message")
            socket.poll(choice.randrange(2))
            socket.close()

    for thread in [Background(lambda seed=seed: churn(seed)) for seed in range(4)]:
        thread.result()


def test_contexts_made_and_ended_in_many_threads(alone: Side) -> None:
    def churn() -> None:
        for _ in range(15):
            mine = Side(alone.zmq)
            push, pull = mine.socket("PUSH"), mine.socket("PULL")
            link(pull, push, "tcp")
            push.send(b"message")
            assert mine.receive(pull) == [b"message"]
            mine.close()

    for thread in [Background(churn) for _ in range(4)]:
        thread.result()


def test_destroying_a_context_that_is_busy(alone: Side) -> None:
    for _ in range(10):
        mine = Side(alone.zmq)
        push, pull = mine.socket("PUSH", SNDHWM=0), mine.socket("PULL", RCVHWM=0)
        link(pull, push)
        for _ in range(500):
            push.send(bytes(1000))
        mine.context.destroy(linger=0)
