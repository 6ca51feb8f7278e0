"""Sending and receiving: bytes and buffers, parts, text, objects, many at once."""

from __future__ import annotations

import array
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]


def test_bytes_go_both_ways(pair: Pairing, endpoint: str) -> None:
    bound, connected = pair(endpoint=endpoint)
    connected.send(b"there")
    assert bound.recv() == b"there"
    bound.send(b"and back")
    assert connected.recv() == b"and back"


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 1_000_000])
@pytest.mark.parametrize("copy", [True, False])
def test_every_size_arrives_whole(pair: Pairing, size: int, copy: bool) -> None:
    bound, connected = pair()
    data = bytes(range(256)) * (size // 256 + 1)
    connected.send(data[:size], copy=copy)
    received = bound.recv(copy=copy)
    assert bytes(received) == data[:size]


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview, lambda data: array.array("B", data), lambda data: zmq.Frame(data)]
)
@pytest.mark.parametrize("copy", [True, False])
def test_any_buffer_is_sent(pair: Pairing, make: Callable[[bytes], Any], copy: bool) -> None:
    bound, connected = pair()
    connected.send(make(b"buffered"), copy=copy)
    assert bound.recv() == b"buffered"


@pytest.mark.parametrize("data", ["text", 5, None, object(), [b"list"]])
def test_what_is_no_buffer_is_refused(pair: Pairing, data: Any) -> None:
    bound, connected = pair()
    for copy in (True, False):
        with pytest.raises(TypeError):
            connected.send(data, copy=copy)
    with pytest.raises(TypeError):
        connected.send_multipart([b"first", data])
    # Nothing of the refused ones is on its way.
    connected.send(b"next")
    assert bound.recv_multipart() == [b"next"]


def test_parts_arrive_together_and_in_order(pair: Pairing, endpoint: str) -> None:
    bound, connected = pair(endpoint=endpoint)
    parts = [b"a", b"", b"c" * 70_000, b"d"]
    connected.send_multipart(parts)
    assert bound.recv_multipart() == parts
    connected.send_multipart(tuple(parts), copy=False)
    frames = bound.recv_multipart(copy=False)
    assert [frame.bytes for frame in frames] == parts
    assert [frame.more for frame in frames] == [True, True, True, False]
    assert all(type(frame) is zmq.Frame for frame in frames)


def test_parts_one_by_one(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send(b"first", zmq.SNDMORE)
    connected.send(b"last")
    assert bound.recv() == b"first"
    assert bound.rcvmore
    assert bound.recv_multipart() == [b"last"]
    assert not bound.rcvmore


def test_a_message_has_a_part(pair: Pairing) -> None:
    _, connected = pair()
    with pytest.raises(ValueError, match="part"):
        connected.send_multipart([])


def test_parts_by_name(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send_multipart(msg_parts=[b"a", b"b"], flags=0, copy=True, track=False)
    assert bound.recv_multipart(flags=0, copy=True, track=False) == [b"a", b"b"]


def test_text(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send_string("wörd")
    assert bound.recv() == "wörd".encode()
    connected.send_string("wörd", encoding="utf-16")
    assert bound.recv_string(encoding="utf-16") == "wörd"
    connected.send_unicode("same")
    assert bound.recv_unicode() == "same"
    with pytest.raises(TypeError):
        connected.send_string(b"bytes")


def test_text_that_is_none(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        bound.recv_string()


def test_json(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send_json({"a": [1, 2.5, None]}, sort_keys=True)
    assert bound.recv_json() == {"a": [1, 2.5, None]}
    connected.send_json(2)
    assert bound.recv_json(parse_int=str) == "2"


def test_objects(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send_pyobj({1: (2, b"3")})
    assert bound.recv_pyobj() == {1: (2, b"3")}
    connected.send_pyobj(..., protocol=pickle.HIGHEST_PROTOCOL)
    assert bound.recv_pyobj() is ...


def test_what_cannot_be_pickled_is_not_sent(pair: Pairing) -> None:
    bound, connected = pair()
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        connected.send_pyobj(lambda: None)
    connected.send(b"next")
    assert bound.recv() == b"next"


def test_a_form_of_ones_own(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send_serialized([1, 2], lambda numbers: [b"%d" % number for number in numbers])
    assert bound.recv_serialized(lambda parts: [int(part) for part in parts]) == [1, 2]
    connected.send_serialized([3], lambda numbers: [b"%d" % number for number in numbers], copy=False)
    assert bound.recv_serialized(lambda frames: [int(frame.bytes) for frame in frames], copy=False) == [3]


def test_receiving_into_a_buffer(pair: Pairing) -> None:
    bound, connected = pair()
    room = bytearray(8)
    connected.send(b"12345")
    assert bound.recv_into(room) == 5
    assert room == b"12345\0\0\0"
    connected.send(b"abcdefghijk")
    assert bound.recv_into(room) == 11
    assert room == b"abcdefgh"
    connected.send(b"xyz")
    assert bound.recv_into(room, nbytes=2) == 3
    assert room == b"xycdefgh"


def test_a_buffer_that_cannot_be_received_into(pair: Pairing) -> None:
    bound, connected = pair()
    connected.send(b"kept")
    with pytest.raises((BufferError, ValueError)):
        bound.recv_into(b"read-only")
    with pytest.raises(ValueError, match="9"):
        bound.recv_into(bytearray(8), nbytes=9)
    with pytest.raises((ValueError, OverflowError)):
        bound.recv_into(bytearray(8), nbytes=-1)
    assert bound.recv() == b"kept"


def test_many_at_once(pair: Pairing) -> None:
    bound, connected = pair(zmq.PULL, zmq.PUSH)
    messages: list[Any] = [b"%d" % number for number in range(100)]
    messages[50] = [b"in", b"parts"]
    sent = 0
    while sent < len(messages):
        sent += connected.send_many(messages[sent:])
    received: list[Any] = []
    while len(received) < len(messages):
        batch = bound.recv_many(7)
        assert 1 <= len(batch) <= 7
        received += batch
    assert received == messages
    with pytest.raises(zmq.Again):
        bound.recv_many(1, zmq.NOBLOCK)


def test_not_waiting(pair: Pairing) -> None:
    bound, _ = pair()
    for attempt in (
        lambda: bound.recv(zmq.NOBLOCK),
        lambda: bound.recv(zmq.DONTWAIT, copy=False),
        lambda: bound.recv_multipart(flags=zmq.NOBLOCK),
        lambda: bound.recv_string(zmq.NOBLOCK),
        lambda: bound.recv_into(bytearray(1), flags=zmq.NOBLOCK),
    ):
        with pytest.raises(zmq.Again) as caught:
            attempt()
        assert caught.value.errno == zmq.EAGAIN


def test_not_waiting_to_send(context: Any) -> None:
    with context.socket(zmq.PUSH) as lonely:
        with pytest.raises(zmq.Again):
            lonely.send(b"to nobody", zmq.NOBLOCK)
        lonely.sndtimeo = 1
        with pytest.raises(zmq.Again):
            lonely.send_multipart([b"to", b"nobody"])


def test_waiting_has_an_end(pair: Pairing) -> None:
    bound, _ = pair()
    bound.rcvtimeo = 1
    with pytest.raises(zmq.Again):
        bound.recv()
    with pytest.raises(zmq.Again):
        bound.recv(copy=False)


def test_the_order_of_requests(pair: Pairing) -> None:
    replier, requester = pair(zmq.REP, zmq.REQ)
    with pytest.raises(zmq.ZMQError) as caught:
        requester.recv(zmq.NOBLOCK)
    assert caught.value.errno == zmq.EFSM
    requester.send(b"question")
    with pytest.raises(zmq.ZMQError) as caught:
        requester.send(b"another")
    assert caught.value.errno == zmq.EFSM
    assert replier.recv() == b"question"
    replier.send(b"answer")
    assert requester.recv() == b"answer"


def test_a_router_names_its_peers(pair: Pairing) -> None:
    router, dealer = pair(zmq.ROUTER, zmq.DEALER)
    dealer.send(b"hello")
    name, text = router.recv_multipart()
    assert text == b"hello"
    router.send_multipart([name, b"to you"])
    assert dealer.recv_multipart() == [b"to you"]


def test_a_router_that_must_deliver(context: Any) -> None:
    with context.socket(zmq.ROUTER) as router:
        router.router_mandatory = 1
        router.bind("inproc://router")
        with pytest.raises(zmq.ZMQError) as caught:
            router.send_multipart([b"nobody", b"anything"])
        assert caught.value.errno == zmq.EHOSTUNREACH


def test_topics(context: Any) -> None:
    with context.socket(zmq.XPUB) as publisher, context.socket(zmq.SUB) as subscriber:
        publisher.bind("tcp://127.0.0.1:*")
        subscriber.subscribe("a")
        subscriber.connect(publisher.last_endpoint)
        assert publisher.recv() == b"\x01a"
        publisher.send(b"b: not wanted")
        publisher.send(b"a: wanted")
        assert subscriber.recv() == b"a: wanted"
        subscriber.unsubscribe(b"a")
        assert publisher.recv() == b"\x00a"
        # The option by the name of the method.
        subscriber.subscribe = "c"
        assert publisher.recv() == b"\x01c"
        subscriber.unsubscribe = b"c"
        assert publisher.recv() == b"\x00c"


def test_a_socket_of_one_direction(pair: Pairing) -> None:
    puller, pusher = pair(zmq.PULL, zmq.PUSH)
    for attempt in (lambda: puller.send(b""), lambda: pusher.recv(zmq.NOBLOCK)):
        with pytest.raises(zmq.ZMQError) as caught:
            attempt()
        assert caught.value.errno == zmq.ENOTSUP
