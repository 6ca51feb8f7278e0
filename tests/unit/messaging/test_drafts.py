"""The socket types that libzmq calls drafts: single-part messages, and use by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]


def test_they_are_here() -> None:
    assert zmq.DRAFT_API
    assert zmq.has("draft")


def test_a_server_answers_the_client_that_asked(context: Any, pair: Pairing) -> None:
    server, first = pair(zmq.SERVER, zmq.CLIENT)
    second = context.socket(zmq.CLIENT)
    second.connect(server.last_endpoint)
    for client, text in ((first, b"one"), (second, b"two")):
        client.send(text)
    for _ in range(2):
        frame = server.recv(copy=False)
        assert frame.routing_id
        assert frame.routing_id == frame.get("routing_id") == frame["routing_id"]
        server.send(frame.bytes.upper(), routing_id=frame.routing_id)
    assert (first.recv(), second.recv()) == (b"ONE", b"TWO")


def test_a_frame_says_whom_it_is_for(pair: Pairing) -> None:
    server, client = pair(zmq.SERVER, zmq.CLIENT)
    client.send(b"question")
    number = server.recv(copy=False).routing_id
    answer = zmq.Frame(b"answer")
    answer.routing_id = number
    server.send(answer)
    assert client.recv() == b"answer"
    server.send_json([1], routing_id=number)
    assert client.recv_json() == [1]


def test_a_server_knows_no_client_that_is_not_there(pair: Pairing) -> None:
    server, _ = pair(zmq.SERVER, zmq.CLIENT)
    with pytest.raises(zmq.ZMQError) as caught:
        server.send(b"to nobody", routing_id=12345)
    assert caught.value.errno == zmq.EHOSTUNREACH
    with pytest.raises(zmq.ZMQError) as caught:
        zmq.Frame(b"").routing_id = 0
    assert caught.value.errno == zmq.EINVAL


def test_a_dish_receives_its_groups(pair: Pairing) -> None:
    dish, radio = pair(zmq.DISH, zmq.RADIO)
    dish.join("wanted")
    dish.join(b"also")

    def arrives() -> bool:
        radio.send(b"no", group="unwanted")
        radio.send(b"yes", group="wanted")
        return bool(dish.poll(10))

    # What is sent before the radio has heard of the group is dropped.
    until(arrives)
    frame = dish.recv(copy=False)
    assert (frame.bytes, frame.group) == (b"yes", "wanted")
    dish.leave("wanted")
    with pytest.raises(zmq.ZMQError) as caught:
        dish.leave("wanted")
    assert caught.value.errno == zmq.EINVAL


def test_a_group_is_set_on_a_frame() -> None:
    frame = zmq.Frame(b"")
    assert frame.group == ""
    frame.group = "one"
    assert frame.group == frame["group"] == "one"
    with pytest.raises(zmq.ZMQError):
        frame.group = "x" * 300


@pytest.mark.parametrize(("first", "second"), [("GATHER", "SCATTER"), ("CHANNEL", "CHANNEL")])
def test_messages_of_one_part(pair: Pairing, first: str, second: str) -> None:
    bound, connected = pair(zmq.SocketType[first], zmq.SocketType[second])
    connected.send(b"there")
    assert bound.recv() == b"there"
    for attempt in (lambda: connected.send(b"", zmq.SNDMORE), lambda: connected.send_multipart([b"a", b"b"])):
        with pytest.raises(zmq.ZMQError) as caught:
            attempt()
        assert caught.value.errno == zmq.EINVAL


def test_peers_name_each_other(context: Any) -> None:
    bound, connected = context.socket(zmq.PEER), context.socket(zmq.PEER)
    bound.bind("tcp://127.0.0.1:*")
    number = connected.connect_peer(bound.last_endpoint)
    connected.send(b"there", routing_id=number)
    frame = bound.recv(copy=False)
    bound.send(b"and back", routing_id=frame.routing_id)
    back = connected.recv(copy=False)
    assert (back.bytes, back.routing_id) == (b"and back", number)


def test_several_threads_at_one_client(pair: Pairing) -> None:
    server, client = pair(zmq.SERVER, zmq.CLIENT)
    assert client.get(zmq.THREAD_SAFE) == 1
    count, each = 4, 250

    def work(number: int) -> None:
        for place in range(each):
            client.send(b"%d.%d" % (number, place))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    received = [server.recv() for _ in range(count * each)]
    for thread in threads:
        thread.join(20)
    for number in range(count):
        mine = [message for message in received if message.startswith(b"%d." % number)]
        assert mine == [b"%d.%d" % (number, place) for place in range(each)]
