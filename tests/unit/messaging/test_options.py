"""Options of sockets: numbers, bytes and text, as attributes, and refused values."""

from __future__ import annotations

from typing import Any

import pytest

import ropewalk.zmq as zmq


@pytest.fixture
def socket(context: Any) -> Any:
    """Some socket."""
    return context.socket(zmq.DEALER)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (zmq.LINGER, 250),
        (zmq.SNDHWM, 12),
        (zmq.RCVTIMEO, 77),
        (zmq.MAXMSGSIZE, 2**40),
        (zmq.AFFINITY, 3),
        (zmq.RECONNECT_IVL, 50),
        (zmq.IMMEDIATE, 1),
        (zmq.IPV6, 1),
        (zmq.ROUTING_ID, b"me"),
        (zmq.ZAP_DOMAIN, b"global"),
        (zmq.PLAIN_USERNAME, b"somebody"),
        (zmq.TCP_KEEPALIVE_IDLE, 30),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_is_set_is_got(socket: Any, option: zmq.SocketOption, value: int | bytes) -> None:
    socket.set(option, value)
    assert socket.get(option) == value
    assert socket.getsockopt(option) == value
    assert getattr(socket, option.name.lower()) == value
    assert getattr(socket, option.name) == value


def test_attributes_set_too(socket: Any) -> None:
    socket.linger = 5
    socket.IDENTITY = b"someone"
    assert socket.get(zmq.LINGER) == 5
    assert socket.identity == socket.routing_id == b"someone"


def test_the_defaults_are_the_protocols(context: Any) -> None:
    with zmq.Context() as plain, plain.socket(zmq.PUSH) as socket:
        assert socket.linger == -1
        assert socket.sndhwm == socket.rcvhwm == socket.hwm == 1000
        assert socket.rcvtimeo == socket.sndtimeo == -1
        assert socket.reconnect_ivl == 100
        assert socket.handshake_ivl == 30_000
        assert socket.mechanism == zmq.NULL


@pytest.mark.parametrize("option", [zmq.SNDHWM_BYTES, zmq.RCVHWM_BYTES])
def test_limits_in_bytes(socket: Any, option: zmq.SocketOption) -> None:
    assert socket.get(option) == 0
    socket.set(option, 2**33)
    assert socket.get(option) == 2**33
    with pytest.raises(zmq.ZMQError) as caught:
        socket.set(option, -1)
    assert caught.value.errno == zmq.EINVAL


def test_hwm_is_both(socket: Any) -> None:
    socket.hwm = 3
    assert (socket.sndhwm, socket.rcvhwm) == (3, 3)
    socket.set_hwm(4)
    assert socket.get_hwm() == 4


def test_the_type_is_told(socket: Any) -> None:
    assert socket.type is zmq.SocketType.DEALER
    assert socket.get(zmq.TYPE) == zmq.DEALER
    with pytest.warns(DeprecationWarning, match="socket_type"):
        assert socket.socket_type == zmq.DEALER
    assert "zmq.DEALER" in repr(socket)


def test_text_is_encoded_and_decoded(socket: Any) -> None:
    socket.setsockopt_string(zmq.ROUTING_ID, "täst")
    assert socket.get(zmq.ROUTING_ID) == "täst".encode()
    assert socket.getsockopt_string(zmq.ROUTING_ID) == "täst"
    socket.set_string(zmq.ROUTING_ID, "täst", encoding="latin-1")
    assert socket.get_string(zmq.ROUTING_ID, "latin-1") == "täst"
    with pytest.raises(TypeError):
        socket.get_string(zmq.LINGER)
    with pytest.raises(TypeError):
        socket.set_string(zmq.ROUTING_ID, b"bytes")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (zmq.LINGER, b"1"),
        (zmq.LINGER, "1"),
        (zmq.ROUTING_ID, 1),
        (zmq.ROUTING_ID, "text"),
        (zmq.MAXMSGSIZE, 1.5),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(socket: Any, option: int, value: Any) -> None:
    with pytest.raises(TypeError):
        socket.set(option, value)


def test_a_number_that_is_too_large_is_refused(socket: Any) -> None:
    with pytest.raises(OverflowError):
        socket.set(zmq.LINGER, 2**40)


def test_unknown_options_are_refused(socket: Any) -> None:
    for number in (9999, -1):
        with pytest.raises(zmq.ZMQError) as caught:
            socket.set(number, 1)
        assert caught.value.errno == zmq.EINVAL
        with pytest.raises(zmq.ZMQError) as caught:
            socket.get(number)
        assert caught.value.errno == zmq.EINVAL


def test_what_cannot_be_set_is_refused(socket: Any) -> None:
    with pytest.raises(zmq.ZMQError) as caught:
        socket.set(zmq.TYPE, zmq.PUB)
    assert caught.value.errno == zmq.EINVAL


def test_what_cannot_be_got_is_no_attribute(context: Any) -> None:
    with context.socket(zmq.SUB) as socket:
        assert not hasattr(socket, "unsubscribe_nothing")
        assert not hasattr(socket, "connect_routing_id")
        with pytest.raises(zmq.ZMQError):
            socket.get(zmq.SUBSCRIBE)


def test_subscribe_is_for_subscribers(context: Any, socket: Any) -> None:
    with pytest.raises(zmq.ZMQError) as caught:
        socket.subscribe(b"")
    assert caught.value.errno == zmq.EINVAL


def test_unknown_attributes_are_refused(socket: Any) -> None:
    with pytest.raises(AttributeError, match="NO_SUCH_OPTION"):
        socket.no_such_option = 1
    assert not hasattr(socket, "no_such_option")


def test_a_subclass_may_have_attributes(context: Any) -> None:
    class Counting(zmq.Socket[bytes]):
        count = 0
        label: str
        #: What a class declares is its own, even where an option has the same name.
        backlog: str  # type: ignore[misc]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.label = "counting"
            self.backlog = "mine"

    with Counting(context, zmq.PULL) as socket:
        socket.count += 1
        assert (socket.count, socket.label, socket.backlog) == (1, "counting", "mine")
        assert socket.get(zmq.BACKLOG) == 100


def test_last_endpoint_tells_the_port(context: Any) -> None:
    with context.socket(zmq.REP) as socket:
        socket.bind("tcp://127.0.0.1:*")
        endpoint = socket.last_endpoint
        assert endpoint.startswith(b"tcp://127.0.0.1:")
        assert int(endpoint.rsplit(b":", 1)[1]) > 0
        assert socket.get_string(zmq.LAST_ENDPOINT) == endpoint.decode()


def test_the_descriptor_is_the_sockets_own(socket: Any) -> None:
    assert socket.fileno() == socket.fd == socket.get(zmq.FD) >= 0


def test_a_closed_socket_has_no_options(socket: Any) -> None:
    socket.close()
    for attempt in (lambda: socket.get(zmq.LINGER), lambda: socket.set(zmq.LINGER, 1)):
        with pytest.raises(zmq.ZMQError) as caught:
            attempt()
        assert caught.value.errno == zmq.ENOTSOCK
