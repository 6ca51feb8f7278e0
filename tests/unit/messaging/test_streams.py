"""Sockets in tornado's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
import ropewalk.zmq.asyncio as zmq_asyncio

pytest.importorskip("tornado", reason="tornado is not installed")

from ropewalk.zmq.eventloop.zmqstream import ZMQStream

RUNS = {"asyncio": asyncio.run, "ours": ropewalk.run}
Pairing = Callable[..., tuple[Any, Any]]


@pytest.fixture(params=list(RUNS))
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a coroutine on a loop."""
    return RUNS[request.param]


async def heard(messages: list[Any], count: int) -> list[Any]:
    """So many messages, once they are there."""
    async with asyncio.timeout(20):
        while len(messages) < count:
            await asyncio.sleep(0.001)
    return messages


def test_callbacks_receive_and_send(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        server, client = (ZMQStream(socket) for socket in pair(zmq.ROUTER, zmq.DEALER))
        answers: list[Any] = []
        sent: list[Any] = []
        server.on_recv_stream(lambda stream, message: stream.send_multipart([*message, b"answer"]))
        client.on_recv(answers.append)
        client.on_send(lambda message, tracker: sent.append((message, tracker)))
        for number in range(50):
            client.send(b"%d" % number)
        assert client.sending()
        assert await heard(answers, 50) == [[b"%d" % number, b"answer"] for number in range(50)]
        assert sent == [([b"%d" % number], None) for number in range(50)]
        assert not client.sending()
        assert client.receiving()
        for stream in (server, client):
            stream.close()
            assert stream.closed()
        with pytest.raises(OSError, match="closed"):
            client.send(b"late")

    run(main())


def test_what_is_there_already_is_received(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        bound, connected = pair(zmq.PULL, zmq.PUSH)
        for number in range(20):
            connected.send(b"%d" % number)
        assert bound.poll(20_000)
        stream = ZMQStream(bound)
        messages: list[Any] = []
        stream.on_recv(messages.append, copy=False)
        assert [frame.bytes for [frame] in await heard(messages, 20)] == [b"%d" % n for n in range(20)]
        stream.stop_on_recv()
        connected.send(b"later")
        await asyncio.sleep(0.02)
        assert len(messages) == 20
        stream.on_recv(messages.append)
        await heard(messages, 21)
        stream.close()

    run(main())


def test_encoded_messages_and_trackers(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        bound, connected = pair()
        stream, sent = ZMQStream(connected), []
        stream.send_string("text")
        stream.send_json({"a": 1})
        stream.send_pyobj([1, 2])
        stream.send(b"x", copy=False, track=True, callback=lambda _, tracker: sent.append(tracker))
        await heard(sent, 1)
        assert bound.recv_string() == "text"
        assert bound.recv_json() == {"a": 1}
        assert bound.recv_pyobj() == [1, 2]
        assert isinstance(sent[-1], zmq.MessageTracker)
        with pytest.raises(TypeError):
            stream.send_string(b"bytes")  # type: ignore[arg-type]
        stream.close()

    run(main())


def test_flush_works_at_once(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        bound, connected = pair()
        receiving, sending = ZMQStream(bound), ZMQStream(connected)
        messages: list[Any] = []
        receiving.on_recv(messages.append)
        for number in range(10):
            sending.send(b"%d" % number)
        assert sending.flush(zmq.POLLOUT) == 10
        assert bound.poll(20_000)
        count = 0
        while count < 3:
            count += receiving.flush(limit=3 - count)
        assert len(messages) == 3
        await heard(messages, 10)
        assert receiving.flush() == 0
        for stream in (receiving, sending):
            stream.close()

    run(main())


def test_coroutines_are_callbacks(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        bound, connected = pair()
        stream = ZMQStream(bound)
        messages: list[Any] = []

        async def take(message: list[bytes]) -> None:
            await asyncio.sleep(0)
            messages.append(message)

        stream.on_recv(take)
        connected.send(b"message")
        assert await heard(messages, 1) == [[b"message"]]
        stream.close()

    run(main())


def test_closing_tells(run: Any, pair: Pairing) -> None:
    async def main() -> None:
        bound, connected = pair()
        first, second = ZMQStream(bound), ZMQStream(connected)
        ended: list[str] = []
        first.set_close_callback(lambda: ended.append("first"))
        second.set_close_callback(lambda: ended.append("second"))
        first.on_recv(lambda _: first.close())
        second.send(b"the end")
        await heard(ended, 1)
        connected.close()
        with pytest.warns(UserWarning, match="closed before its stream"):
            assert second.closed()
        assert ended == ["first", "second"]

    run(main())


def test_an_asynchronous_socket_is_shadowed(run: Any) -> None:
    async def main() -> None:
        with zmq_asyncio.Context() as context:
            pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
            pull.bind("inproc://stream")
            push.connect("inproc://stream")
            with pytest.warns(RuntimeWarning, match="blocking"):
                stream = ZMQStream(pull)
            messages: list[Any] = []
            stream.on_recv(messages.append)
            await push.send(b"message")
            assert await heard(messages, 1) == [[b"message"]]
            stream.close()
            push.close()
            pull.close()

    run(main())
