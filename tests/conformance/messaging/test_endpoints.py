"""Endpoints: wildcards, the endpoint that was really bound, and errors."""

from __future__ import annotations

import errno
import socket as sockets
from pathlib import Path

import pytest
from tests.conformance.messaging.lab import Side, address, bind, link, rebind
from tests.polling import until


def last(side: Side, socket: object) -> str:
    value: bytes = side.get(socket, "LAST_ENDPOINT")
    return value.rstrip(b"\0").decode()


def has_ipv6() -> bool:
    try:
        with sockets.socket(sockets.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("wildcard", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:0", "tcp://localhost:*"])
def test_a_wildcard_port(wildcard: str, subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    pull.bind(wildcard)
    endpoint = last(subject, pull)
    assert endpoint.startswith("tcp://127.0.0.1:")
    assert int(endpoint.rsplit(":", 1)[1]) > 0
    push.connect(endpoint)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]


@pytest.mark.parametrize("wildcard", ["tcp://*:*", "tcp://0.0.0.0:*"])
def test_every_interface(wildcard: str, subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    pull.bind(wildcard)
    endpoint = last(subject, pull)
    assert endpoint.startswith("tcp://0.0.0.0:")
    push.connect(endpoint.replace("0.0.0.0", "localhost"))
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]
    pull.unbind(endpoint)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL", IPV6=1), peer.socket("PUSH", IPV6=1)
    pull.bind("tcp://[::1]:*")
    endpoint = last(subject, pull)
    assert endpoint.startswith("tcp://[::1]:")
    push.connect(endpoint)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]


@pytest.mark.parametrize("six", [("both",), ("binding",), ("connecting",)], ids=lambda six: six[0])
@pytest.mark.parametrize("written", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"])
def test_this_host_by_any_name(written: str, six: tuple[str], subject: Side, peer: Side) -> None:
    """A name means the same to the socket that binds and to the one that connects, with IPv6 or without."""
    if written == "localhost" and six != ("both",) and len(sockets.getaddrinfo(written, 1, type=1)) > 1:
        pytest.skip("localhost has two addresses here, and the sockets choose differently")
    pull = subject.socket("PULL", IPV6=int("connecting" not in six))
    push = peer.socket("PUSH", IPV6=int("binding" not in six))
    pull.bind(f"tcp://{written}:*")
    number = last(subject, pull).rsplit(":", 1)[1]
    push.connect(f"tcp://{written}:{number}")
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]


def test_a_wildcard_path(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    pull.bind("ipc://*")
    endpoint = last(subject, pull)
    assert Path(endpoint.removeprefix("ipc://")).is_socket()
    push.connect(endpoint)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]


def test_an_abstract_path(subject: Side, peer: Side) -> None:
    pull, push = subject.socket("PULL"), peer.socket("PUSH")
    endpoint = f"ipc://@{address('inproc')[9:]}"
    pull.bind(endpoint)
    assert last(subject, pull) == endpoint
    push.connect(endpoint)
    push.send(b"message")
    assert subject.receive(pull) == [b"message"]


def test_a_wildcard_path_is_removed_with_its_socket(alone: Side) -> None:
    pull = alone.socket("PULL")
    pull.bind("ipc://*")
    endpoint = last(alone, pull)
    path = Path(endpoint.removeprefix("ipc://"))
    assert path.is_socket()
    pull.unbind(endpoint)
    until(lambda: not path.exists())


def test_a_path_left_behind_is_taken_over(alone: Side) -> None:
    endpoint = address("ipc")
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(endpoint.removeprefix("ipc://"))
    pull, push = alone.socket("PULL"), alone.socket("PUSH")
    pull.bind(endpoint)
    push.connect(endpoint)
    push.send(b"message")
    assert alone.receive(pull) == [b"message"]


def test_connecting_tells_the_last_endpoint_too(alone: Side) -> None:
    push = alone.socket("PUSH")
    for endpoint in ("tcp://127.0.0.1:1", address("ipc")):
        push.connect(endpoint)
        assert last(alone, push) == endpoint


def test_a_port_of_its_own(subject: Side, peer: Side) -> None:
    rep, req = subject.socket("REP"), peer.socket("REQ")
    number = rep.bind_to_random_port("tcp://127.0.0.1")
    assert last(subject, rep) == f"tcp://127.0.0.1:{number}"
    # The sender's own address before the semicolon.
    req.connect(f"tcp://127.0.0.1:0;127.0.0.1:{number}")
    req.send(b"question")
    assert subject.receive(rep) == [b"question"]


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_what_is_bound_is_taken(transport: str, subject: Side, peer: Side) -> None:
    if transport == "inproc":
        peer = subject
    endpoint = bind(subject.socket("PULL"), transport)
    with pytest.raises(peer.zmq.ZMQError) as taken:
        peer.socket("PULL").bind(endpoint)
    assert taken.value.errno == errno.EADDRINUSE


BIND_REFUSED = {
    "nothing": errno.EINVAL,
    "tcp://": errno.EINVAL,
    "tcp:/127.0.0.1:1": errno.EINVAL,
    "tcp://127.0.0.1": errno.EINVAL,
    "tcp://127.0.0.1:port": errno.EINVAL,
    "tcp://127.0.0.1:65536": errno.EINVAL,
    "tcp://no.such.interface.invalid:1": errno.ENODEV,
    "carrier-pigeon://coop": errno.EPROTONOSUPPORT,
    "ipc://" + 200 * "x": errno.ENAMETOOLONG,
    "ipc:///no/such/folder/at/all": errno.ENOENT,
}


@pytest.mark.parametrize("endpoint", list(BIND_REFUSED))
def test_bind_refuses(endpoint: str, alone: Side) -> None:
    with pytest.raises(alone.zmq.ZMQError) as refused:
        alone.socket("PULL").bind(endpoint)
    assert refused.value.errno == BIND_REFUSED[endpoint]


CONNECT_REFUSED = {
    "nothing": errno.EINVAL,
    "tcp://": errno.EINVAL,
    "tcp://127.0.0.1": errno.EINVAL,
    "tcp://127.0.0.1:port": errno.EINVAL,
    "tcp://127.0.0.1:*": errno.EINVAL,
    "carrier-pigeon://coop": errno.EPROTONOSUPPORT,
    "ipc://" + 200 * "x": errno.ENAMETOOLONG,
}


@pytest.mark.parametrize("endpoint", list(CONNECT_REFUSED))
def test_connect_refuses(endpoint: str, alone: Side) -> None:
    with pytest.raises(alone.zmq.ZMQError) as refused:
        alone.socket("PUSH").connect(endpoint)
    assert refused.value.errno == CONNECT_REFUSED[endpoint]


def test_what_was_never_joined_is_not_left(alone: Side) -> None:
    push = alone.socket("PUSH")
    for leave in (push.disconnect, push.unbind):
        for endpoint in ("tcp://127.0.0.1:1", "inproc://never"):
            with pytest.raises(alone.zmq.ZMQError) as missing:
                leave(endpoint)
            assert missing.value.errno == errno.ENOENT


def test_inproc_names_belong_to_a_context(alone: Side) -> None:
    endpoint = bind(alone.socket("PULL"), "inproc")
    elsewhere = Side(alone.zmq)
    elsewhere.socket("PULL").bind(endpoint)
    elsewhere.close()


def test_inproc_names_are_given_back(alone: Side) -> None:
    first, second = alone.socket("PULL"), alone.socket("PULL")
    endpoint = bind(first, "inproc")
    first.unbind(endpoint)
    push = alone.socket("PUSH")
    second.bind(endpoint)
    push.connect(endpoint)
    push.send(b"message")
    assert alone.receive(second) == [b"message"]


def test_a_closed_socket_has_no_endpoints(alone: Side) -> None:
    pull, push = alone.socket("PULL"), alone.socket("PUSH")
    endpoint = link(pull, push, "inproc")
    pull.close()
    rebind(alone, alone.socket("PULL"), endpoint)
