"""Readiness: poll, pollers over sockets and descriptors, and FD and EVENTS as an event loop uses them."""

from __future__ import annotations

import os
import select
import socket as sockets
from typing import Any

import pytest
from tests.conformance.messaging.lab import PATIENCE, Side, await_readable, background, link
from tests.polling import until


def wait_for_message(side: Side, socket: Any) -> None:
    """As an event loop waits: EVENTS first, its descriptor only if there is nothing, and EVENTS again."""
    poller = select.poll()
    poller.register(side.get(socket, "FD"), select.POLLIN)
    while not side.get(socket, "EVENTS") & side.zmq.POLLIN:
        assert poller.poll(PATIENCE), "the descriptor does not tell of the message"


def test_the_descriptor_tells_of_every_message(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    link(pull, push)
    for number in range(300):
        push.send(b"%d" % number)
        wait_for_message(subject, pull)
        assert subject.try_receive(pull) == [b"%d" % number]


def test_the_descriptor_tells_of_a_stream(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    link(pull, push)

    def send() -> None:
        for number in range(5_000):
            push.send(b"%d" % number)

    received = 0
    with background(send):
        while received < 5_000:
            wait_for_message(subject, pull)
            while message := subject.try_receive(pull):
                assert message == [b"%d" % received]
                received += 1


def test_the_descriptor_serves_both_directions(subject: Side, peer: Side) -> None:
    rep, req = subject.socket("REP"), peer.socket("REQ")
    link(rep, req)
    for number in range(100):
        req.send(b"%d" % number)
        wait_for_message(subject, rep)
        assert subject.try_receive(rep) == [b"%d" % number]
        assert subject.get(rep, "EVENTS") & subject.zmq.POLLOUT
        assert subject.try_send(rep, b"answer")
        assert peer.receive(req) == [b"answer"]


def test_the_descriptor_within_a_process(alone: Side) -> None:
    pull, push = alone.socket("PULL"), alone.socket("PUSH")
    link(pull, push, "inproc")
    for number in range(100):
        push.send(b"%d" % number)
        wait_for_message(alone, pull)
        assert alone.try_receive(pull) == [b"%d" % number]


def test_the_descriptor_stays_and_is_not_raw(alone: Side) -> None:
    socket = alone.socket("DEALER")
    descriptor = alone.get(socket, "FD")
    link(alone.socket("DEALER"), socket)
    socket.send(b"message")
    assert alone.get(socket, "FD") == descriptor
    assert socket.fileno() == descriptor


def test_what_a_socket_is_ready_for(subject: Side, peer: Side) -> None:
    zmq = subject.zmq
    a, b = subject.socket("PAIR"), peer.socket("PAIR")
    assert subject.get(a, "EVENTS") == 0
    link(b, a)
    until(lambda: subject.get(a, "EVENTS") == zmq.POLLOUT)
    b.send(b"one")
    await_readable(subject, a, peer)
    assert a.poll(0, zmq.POLLIN | zmq.POLLOUT) == zmq.POLLIN | zmq.POLLOUT
    assert a.poll(0, zmq.POLLOUT) == zmq.POLLOUT
    subject.receive(a)
    assert a.poll(0, zmq.POLLIN | zmq.POLLOUT) == zmq.POLLOUT


def test_who_only_sends_is_never_readable(alone: Side) -> None:
    push, pull = alone.socket("PUSH"), alone.socket("PULL")
    link(pull, push)
    push.send(b"message")
    await_readable(alone, pull, alone)
    assert pull.poll(0, alone.zmq.POLLOUT) == 0
    assert push.poll(0, alone.zmq.POLLIN) == 0


def test_whose_turn_it_is(alone: Side) -> None:
    req, rep = alone.socket("REQ"), alone.socket("REP")
    link(rep, req)
    until(lambda: alone.writable(req))
    assert not alone.writable(rep)
    req.send(b"question")
    assert not alone.writable(req)
    await_readable(alone, rep, alone)
    assert not alone.writable(rep)
    alone.receive(rep)
    assert alone.writable(rep)
    assert not alone.readable(rep)


def test_a_poller_of_sockets_and_descriptors(subject: Side, peer: Side) -> None:
    zmq = subject.zmq
    pulls = [subject.socket("PULL") for _ in range(3)]
    pushes = [peer.socket("PUSH") for _ in range(3)]
    for pull, push in zip(pulls, pushes, strict=True):
        link(pull, push)
    reader, writer = os.pipe()
    left, right = sockets.socketpair()
    try:
        poller = zmq.Poller()
        for pull in pulls:
            poller.register(pull, zmq.POLLIN)
        poller.register(reader, zmq.POLLIN)
        poller.register(left, zmq.POLLIN | zmq.POLLOUT)
        assert dict(poller.poll(0)) == {left.fileno(): zmq.POLLOUT}
        poller.modify(left, zmq.POLLIN)
        assert poller.poll(0) == []
        pushes[1].send(b"message")
        assert dict(poller.poll(PATIENCE)) == {pulls[1]: zmq.POLLIN}
        os.write(writer, b"x")
        assert dict(poller.poll(PATIENCE)) == {pulls[1]: zmq.POLLIN, reader: zmq.POLLIN}
        subject.receive(pulls[1])
        poller.unregister(reader)
        right.send(b"x")
        assert dict(poller.poll(PATIENCE)) == {left.fileno(): zmq.POLLIN}
    finally:
        os.close(reader)
        os.close(writer)
        left.close()
        right.close()


def test_a_poller_wakes_for_whoever_is_first(subject: Side, peer: Side) -> None:
    zmq = subject.zmq
    pulls = [subject.socket("PULL") for _ in range(4)]
    pushes = [peer.socket("PUSH") for _ in range(4)]
    poller = zmq.Poller()
    for pull, push in zip(pulls, pushes, strict=True):
        link(pull, push)
        poller.register(pull, zmq.POLLIN)
    for turn in range(40):
        with background(lambda turn=turn: pushes[turn % 4].send(b"%d" % turn)):
            assert poller.poll(PATIENCE) == [(pulls[turn % 4], zmq.POLLIN)]
        assert subject.receive(pulls[turn % 4]) == [b"%d" % turn]


def test_select(subject: Side, peer: Side) -> None:
    a, b = subject.socket("PAIR"), peer.socket("PAIR")
    link(a, b)
    b.send(b"message")
    await_readable(subject, a, peer)
    assert subject.zmq.select([a], [a], [], 0) == ([a], [a], [])


def test_waiting_is_over_in_time(alone: Side) -> None:
    pull = alone.socket("PULL", RCVTIMEO=10)
    assert pull.poll(10) == 0
    with pytest.raises(alone.zmq.Again):
        pull.recv()
    alone.set(pull, RCVTIMEO=0)
    with pytest.raises(alone.zmq.Again):
        pull.recv()
    with pytest.raises(alone.zmq.Again):
        pull.recv(alone.zmq.DONTWAIT)


def test_what_cannot_be_done_at_all(alone: Side) -> None:
    for kind, call in (("PUSH", "recv"), ("PUB", "recv"), ("PULL", "send"), ("SUB", "send")):
        socket = alone.socket(kind)
        with pytest.raises(alone.zmq.ZMQError) as refused:
            getattr(socket, call)(*([b"message"] if call == "send" else []))
        assert refused.value.errno == alone.zmq.ENOTSUP
