"""Binding and connecting: undoing it, many endpoints, ports that the system chooses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]


def test_bind_and_connect_as_context_managers(context: Any) -> None:
    with context.socket(zmq.PULL) as puller, context.socket(zmq.PUSH) as pusher:
        with puller.bind("tcp://127.0.0.1:*") as bound:
            assert bound is puller
            endpoint = puller.last_endpoint.decode()
            with pusher.connect(endpoint) as connected:
                assert connected is pusher
                pusher.send(b"x")
                assert puller.recv() == b"x"
            with pytest.raises(zmq.Again):
                pusher.send(b"to nobody", zmq.NOBLOCK)
        # The port is free again, perhaps not at once.
        with context.socket(zmq.PULL) as other:
            until(lambda: _binds(other, endpoint))


def _binds(socket: Any, endpoint: str) -> bool:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno != zmq.EADDRINUSE:
            raise
        return False
    return True


def test_the_context_manager_of_a_closed_socket_does_nothing(context: Any) -> None:
    with context.socket(zmq.PULL) as socket:
        bound = socket.bind("inproc://here")
        assert "inproc://here" in repr(bound)
        with bound:
            socket.close()


def test_unbinding_what_was_never_bound(context: Any) -> None:
    with context.socket(zmq.PULL) as socket:
        for attempt in (socket.unbind, socket.disconnect):
            with pytest.raises(zmq.ZMQError) as caught:
                attempt("tcp://127.0.0.1:5")
            assert caught.value.errno in (zmq.Errno.EINVAL, 2)


def test_addresses_are_text_or_bytes(context: Any) -> None:
    with context.socket(zmq.PULL) as puller, context.socket(zmq.PUSH) as pusher:
        puller.bind(b"inproc://bytes")
        pusher.connect("inproc://bytes")
        pusher.send(b"x")
        assert puller.recv() == b"x"


def test_a_random_port(context: Any) -> None:
    with context.socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        assert socket.last_endpoint == b"tcp://127.0.0.1:%d" % port


def test_a_random_port_in_a_range(context: Any) -> None:
    with context.socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1", min_port=20_000, max_port=30_000)
        assert 20_000 <= port < 30_000


def test_no_port_left(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with context.socket(zmq.REP) as first, context.socket(zmq.REP) as second:
        taken = first.bind_to_random_port("tcp://127.0.0.1")
        monkeypatch.setattr(random, "randrange", lambda *_: taken)
        with pytest.raises(zmq.ZMQBindError):
            second.bind_to_random_port("tcp://127.0.0.1", min_port=taken, max_port=taken + 1, max_tries=3)


def test_no_port_at_a_place_that_is_not_here(context: Any) -> None:
    with context.socket(zmq.REP) as socket, pytest.raises(zmq.ZMQError):
        socket.bind_to_random_port("tcp://192.0.2.1")


def test_many_peers_on_many_endpoints(context: Any) -> None:
    puller = context.socket(zmq.PULL)
    endpoints = ["inproc://first", "inproc://second"]
    for endpoint in endpoints:
        puller.bind(endpoint)
    pushers = [context.socket(zmq.PUSH) for _ in range(6)]
    for number, pusher in enumerate(pushers):
        pusher.connect(endpoints[number % 2])
        pusher.send(b"%d" % number)
    assert sorted(puller.recv() for _ in pushers) == [b"%d" % number for number in range(6)]


def test_connecting_before_there_is_somebody(context: Any) -> None:
    pusher, puller = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    pusher.connect("inproc://later")
    pusher.send(b"early")
    puller.bind("inproc://later")
    assert puller.recv() == b"early"


def test_the_monitor_is_one_socket(context: Any) -> None:
    with context.socket(zmq.REP) as socket:
        monitor = socket.get_monitor_socket(zmq.EVENT_LISTENING)
        assert monitor.type == zmq.PAIR
        assert socket.get_monitor_socket() is monitor
        socket.bind("tcp://127.0.0.1:*")
        number, address = monitor.recv_multipart()
        assert int.from_bytes(number[:2], "little") == zmq.EVENT_LISTENING
        assert address == socket.last_endpoint
        socket.disable_monitor()
        monitor.close()
