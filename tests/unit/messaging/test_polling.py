"""Pollers and select, over sockets, descriptors and file objects."""

from __future__ import annotations

import os
import signal
import socket as system
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.messaging.conftest import PATIENCE

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]


def test_a_socket_is_ready_when_there_is_a_message(pair: Pairing, endpoint: str) -> None:
    bound, connected = pair(endpoint=endpoint)
    assert bound.poll(0) == 0
    connected.send(b"x")
    assert bound.poll(PATIENCE) == zmq.POLLIN
    assert bound.poll(PATIENCE, zmq.POLLIN | zmq.POLLOUT) == zmq.POLLIN | zmq.POLLOUT
    assert bound.recv() == b"x"
    assert bound.poll(1) == 0
    assert bound.events == zmq.POLLOUT


def test_a_closed_socket_is_not_polled(context: Any) -> None:
    socket = context.socket(zmq.PULL)
    socket.close()
    with pytest.raises(zmq.ZMQError):
        socket.poll(0)


def test_a_poller_tells_which(pair: Pairing) -> None:
    (first, to_first), (second, to_second) = pair(), pair()
    poller = zmq.Poller()
    poller.register(first, zmq.POLLIN)
    poller.register(second, zmq.POLLIN)
    assert poller.poll(0) == []
    to_second.send(b"2")
    assert poller.poll(PATIENCE) == [(second, zmq.POLLIN)]
    to_first.send(b"1")
    assert first.poll(PATIENCE)
    assert dict(poller.poll(PATIENCE)) == {first: zmq.POLLIN, second: zmq.POLLIN}


def test_registering_and_unregistering(context: Any) -> None:
    sockets = [context.socket(zmq.PULL) for _ in range(4)]
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket)
    poller.register(sockets[0], zmq.POLLIN)
    poller.modify(sockets[1], zmq.POLLOUT)
    poller.unregister(sockets[2])
    assert poller.sockets == [
        (sockets[0], zmq.POLLIN),
        (sockets[1], zmq.POLLOUT),
        (sockets[3], zmq.POLLIN | zmq.POLLOUT),
    ]
    poller.register(sockets[0], 0)
    assert sockets[0] not in poller
    assert sockets[3] in poller
    poller.modify(sockets[3], zmq.POLLERR)
    assert poller.sockets == [(sockets[1], zmq.POLLOUT), (sockets[3], zmq.POLLERR)]
    poller.register(sockets[2], 0)
    assert sockets[2] not in poller
    with pytest.raises(KeyError):
        poller.unregister(sockets[2])


def test_descriptors_and_files_beside_sockets(pair: Pairing) -> None:
    bound, connected = pair()
    left, right = system.socketpair()
    reader, writer = os.pipe()
    with left, right:
        poller = zmq.Poller()
        for each in (bound, left, reader):
            poller.register(each, zmq.POLLIN)
        assert poller.poll(0) == []
        right.send(b"x")
        assert poller.poll(PATIENCE) == [(left.fileno(), zmq.POLLIN)]
        os.write(writer, b"x")
        connected.send(b"x")
        assert bound.poll(PATIENCE)
        assert dict(poller.poll(PATIENCE)) == {
            bound: zmq.POLLIN,
            left.fileno(): zmq.POLLIN,
            reader: zmq.POLLIN,
        }
    os.close(reader)
    os.close(writer)


def test_what_cannot_be_polled() -> None:
    poller = zmq.Poller()
    poller.register("no socket")
    with pytest.raises(TypeError):
        poller.poll(0)

    class Broken:
        def fileno(self) -> int:
            raise OSError

    poller = zmq.Poller()
    poller.register(Broken())
    with pytest.raises(ValueError, match="fileno"):
        poller.poll(0)


def test_an_empty_poller_does_not_wait() -> None:
    assert zmq.Poller().poll() == []


@pytest.mark.parametrize("timeout", [0, 1, 1.9, -0.0])
def test_no_event_in_time(context: Any, timeout: float) -> None:
    poller = zmq.Poller()
    poller.register(context.socket(zmq.PULL), zmq.POLLIN)
    assert poller.poll(timeout) == []


def test_waiting_for_ever_ends_with_a_message(pair: Pairing) -> None:
    bound, connected = pair()
    poller = zmq.Poller()
    poller.register(bound, zmq.POLLIN)
    sender = threading.Thread(target=connected.send, args=(b"x",))
    sender.start()
    assert poller.poll(None) == [(bound, zmq.POLLIN)]
    sender.join(20)


def test_select(pair: Pairing) -> None:
    bound, connected = pair()
    left, right = system.socketpair()
    with left, right:
        assert zmq.select([bound, left], [], [], 0) == ([], [], [])
        connected.send(b"x")
        assert bound.poll(PATIENCE)
        right.send(b"x")
        readable, writable, failed = zmq.select([bound, left], [bound], [bound], 20)
        assert set(readable) == {bound, left.fileno()}
        assert writable == [bound]
        assert failed == []


def test_a_signal_does_not_end_a_poll(context: Any) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    socket = context.socket(zmq.PULL)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert socket.poll(200) == 0
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM]
