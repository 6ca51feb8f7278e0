"""Asynchronous sockets and contexts: in several loops, dropped unclosed, and beside blocking ones."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from tests.unit.messaging.awaited.waiting import Pair, Run, turns

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Socket


def test_a_socket_may_go_from_one_loop_to_the_next(run: Run, pair: Pair) -> None:
    push, pull = pair()

    async def main(number: int) -> None:
        received = pull.recv()
        await turns()
        await push.send(b"%d" % number)
        assert await received == b"%d" % number
        # One that waits when its loop ends is forgotten.
        pull.recv()

    for number in range(3):
        run(main(number))


def test_a_forgotten_socket_is_closed(run: Run) -> None:
    async def main() -> None:
        context = Context()
        pull = context.socket(zmq.PULL)
        waiting = pull.recv()
        await turns()
        fd, known = pull.fileno(), weakref.ref(pull)
        forgotten = [pull]
        del pull
        with pytest.warns(ResourceWarning, match="Unclosed socket"):
            forgotten.clear()
        gc.collect()
        assert known() is None
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not asyncio.get_running_loop().remove_reader(fd)
        context.term()

    run(main())


def test_a_blocking_socket_has_an_asynchronous_face(run: Run) -> None:
    async def main(push: zmq.Socket[bytes], pull: zmq.Socket[bytes]) -> None:
        face = Socket.from_socket(pull)
        received = face.recv()
        push.send(b"x")
        assert await received == b"x"
        assert face.underlying == pull.underlying
        assert Socket(pull).underlying == pull.underlying

    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        push.bind("inproc://faces")
        pull.connect("inproc://faces")
        run(main(push, pull))


def test_contexts_of_both_kinds_are_kept_apart() -> None:
    blocking, asynchronous = zmq.Context.instance(), Context.instance()
    try:
        assert type(blocking) is zmq.Context
        assert type(asynchronous) is Context
        with asynchronous.socket(zmq.PUB) as publisher:
            assert type(publisher) is Socket
    finally:
        blocking.term()
        asynchronous.term()
