"""A closed socket keeps nothing, however long its object lives."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq
import ropewalk.zmq.asyncio as zmq_asyncio


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled() -> int:
    """How many descriptors there are when nothing is given back any more."""
    counts = [descriptors()]
    until(lambda: counts.append(descriptors()) or counts[-20:] == [counts[-1]] * 20)
    return counts[-1]


@pytest.mark.parametrize("use", ["unused", "bound", "watched", "connected", "monitored"])
def test_its_descriptors_are_given_back(use: str, context: Any) -> None:
    context.socket(zmq.PULL).close()
    before = settled()
    kept = []
    for number in range(10):
        socket = context.socket(zmq.REP)
        kept.append(socket)
        if use != "unused":
            port = socket.bind_to_random_port("tcp://127.0.0.1")
        if use == "watched":
            assert socket.FD > 0
        if use == "monitored":
            kept.append(socket.get_monitor_socket())
        if use == "connected":
            other = context.socket(zmq.REQ)
            kept.append(other)
            other.connect(f"tcp://127.0.0.1:{port}")
            other.send(b"%d" % number)
            assert socket.recv() == b"%d" % number
    assert descriptors() > before
    for socket in kept:
        socket.close(linger=0)
    until(lambda: descriptors() <= before)
    assert all(socket.closed for socket in kept)
    with pytest.raises(zmq.ZMQError) as refused:
        kept[0].recv(zmq.NOBLOCK)
    assert refused.value.errno == zmq.ENOTSOCK


def test_asynchronous_ones_too() -> None:
    async def use() -> None:
        with zmq_asyncio.Context() as context:
            context.socket(zmq.PULL).close()
            before = settled()
            kept = []
            for _ in range(10):
                pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
                kept += [pull, push]
                port = pull.bind_to_random_port("tcp://127.0.0.1")
                waiting = pull.recv()
                push.connect(f"tcp://127.0.0.1:{port}")
                await push.send(b"message")
                assert await waiting == b"message"
                kept.append(pull.recv())
            for socket in kept:
                if not isinstance(socket, asyncio.Future):
                    socket.close(linger=0)
            until(lambda: descriptors() <= before)

    asyncio.run(use())


def test_a_call_that_goes_on_ends_in_order(context: Any) -> None:
    for _ in range(20):
        socket = context.socket(zmq.PULL)
        socket.bind("inproc://waiting")
        errors: list[int] = []
        began = threading.Event()

        def wait(socket: Any = socket, began: threading.Event = began, errors: list[int] = errors) -> None:
            began.set()
            try:
                socket.recv()
            except zmq.ZMQError as error:
                errors.append(error.errno)

        thread = threading.Thread(target=wait)
        thread.start()
        began.wait(20)
        socket.close()
        thread.join(20)
        assert errors == [zmq.ENOTSOCK]
