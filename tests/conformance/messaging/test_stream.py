"""STREAM: raw TCP at one end, messages of a routing id and bytes at the other."""

from __future__ import annotations

import socket as sockets
from typing import Any

import pytest
from tests.conformance.messaging.lab import PATIENCE, Side, bind, port
from tests.conformance.messaging.wire import Listener, readable
from tests.polling import until


def collect(side: Side, stream: Any, size: int) -> tuple[bytes, bytes]:
    """So many bytes from one connection: its name and they."""
    data, names = b"", set()
    while len(data) < size:
        name, piece = side.receive(stream)
        names.add(name)
        data += piece
    [name] = names
    return name, data


def test_serving_a_raw_client(alone: Side) -> None:
    stream = alone.socket("STREAM")
    number = port(bind(stream))
    with sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000) as client:
        name, hello = alone.receive(stream)
        assert (len(name), hello) == (5, b"")
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert collect(alone, stream, 18) == (name, b"GET / HTTP/1.0\r\n\r\n")
        stream.send_multipart([name, b"HTTP/1.0 200 OK\r\n\r\n"])
        answer = b""
        while len(answer) < 19:
            answer += client.recv(100)
        assert answer == b"HTTP/1.0 200 OK\r\n\r\n"
    # An empty message reports its end, as one reported its beginning.
    assert alone.receive(stream) == [name, b""]


def test_closing_a_raw_client(alone: Side) -> None:
    stream = alone.socket("STREAM")
    number = port(bind(stream))
    with sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000) as client:
        name, _ = alone.receive(stream)
        stream.send_multipart([name, b"last words"])
        assert client.recv(100) == b"last words"
        stream.send_multipart([name, b""])
        # In no call, libzmq's socket would not finish closing it.
        until(lambda: alone.readable(stream) or readable(client, 10))
        assert client.recv(100) == b""


def test_being_a_raw_client(alone: Side) -> None:
    stream = alone.socket("STREAM")
    with Listener() as listener:
        stream.connect(listener.endpoint)
        with listener.accept() as wire:
            name, hello = alone.receive(stream)
            assert hello == b""
            stream.send_multipart([name, b"hello"])
            assert wire.read(5) == b"hello"
            wire.send(b"answer")
            assert collect(alone, stream, 6) == (name, b"answer")


def test_the_peer_s_name_is_known_before_the_connection_is_up(alone: Side) -> None:
    stream = alone.socket("STREAM")
    assert alone.get(stream, "ROUTING_ID") == b""
    with Listener() as listener:
        stream.connect(listener.endpoint)
        name = alone.get(stream, "ROUTING_ID")
        assert len(name) == 5
        stream.send_multipart([name, b"hello"])
        with listener.accept() as wire:
            assert wire.read(5) == b"hello"
            wire.send(b"answer")
            assert alone.receive(stream) == [name, b""]
            assert collect(alone, stream, 6) == (name, b"answer")


def test_who_is_not_there_yet_is_sent_to(alone: Side) -> None:
    stream = alone.socket("STREAM")
    stream.connect("tcp://127.0.0.1:1")
    name = alone.get(stream, "ROUTING_ID")
    for _ in range(3):
        assert alone.try_send(stream, name, b"bytes")


def test_a_name_of_the_program_s_own(alone: Side) -> None:
    stream = alone.socket("STREAM", CONNECT_ROUTING_ID=b"mine")
    with Listener() as listener:
        stream.connect(listener.endpoint)
        assert alone.get(stream, "ROUTING_ID") == b""
        stream.send_multipart([b"mine", b"hello"])
        with listener.accept() as wire:
            assert wire.read(5) == b"hello"


def test_the_name_of_who_has_come_last(alone: Side) -> None:
    stream = alone.socket("STREAM")
    number = port(bind(stream))
    with sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000):
        name, _ = alone.receive(stream)
        assert alone.get(stream, "ROUTING_ID") == name


def test_at_once_means_no_name_before_the_connection(alone: Side) -> None:
    stream = alone.socket("STREAM", IMMEDIATE=1)
    stream.connect("tcp://127.0.0.1:1")
    assert alone.get(stream, "ROUTING_ID") == b""


def test_megabytes_each_way(alone: Side) -> None:
    stream = alone.socket("STREAM")
    number = port(bind(stream))
    data = bytes(range(256)) * 4096
    with sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000) as client:
        name, _ = alone.receive(stream)
        stream.send_multipart([name, data])
        received = b""
        while len(received) < len(data):
            received += client.recv(1 << 20)
        assert received == data
        for start in range(0, len(data), 1 << 16):
            client.sendall(data[start : start + (1 << 16)])
            assert collect(alone, stream, 1 << 16)[1] == data[start : start + (1 << 16)]


def test_without_notice(alone: Side) -> None:
    stream = alone.socket("STREAM", STREAM_NOTIFY=0)
    number = port(bind(stream))
    with sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000) as client:
        client.sendall(b"first")
        assert collect(alone, stream, 5)[1] == b"first"


def test_many_raw_clients(alone: Side) -> None:
    stream = alone.socket("STREAM", STREAM_NOTIFY=0)
    number = port(bind(stream))
    clients = [sockets.create_connection(("127.0.0.1", number), PATIENCE / 1000) for _ in range(20)]
    for mark, client in enumerate(clients):
        client.sendall(b"%02d" % mark)
    for _ in clients:
        name, mark = collect(alone, stream, 2)
        stream.send_multipart([name, b"to " + mark])
    for mark, client in enumerate(clients):
        answer = b""
        while len(answer) < 5:
            answer += client.recv(5 - len(answer))
        assert answer == b"to %02d" % mark
        client.close()


def test_nobody_of_that_name(alone: Side) -> None:
    stream = alone.socket("STREAM")
    bind(stream)
    with pytest.raises(alone.zmq.ZMQError) as refused:
        stream.send_multipart([b"nobody", b"bytes"])
    assert refused.value.errno == alone.zmq.EHOSTUNREACH
