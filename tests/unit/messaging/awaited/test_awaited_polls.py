"""Waiting for events: `poll`, and pollers of sockets and descriptors."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.unit.messaging.awaited.waiting import Pair, Run, turns

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Poller


def test_poll_tells_events(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        assert await pull.poll(0) == 0
        assert await pull.poll(5) == 0
        waiting = pull.poll()
        await turns()
        assert not waiting.done()
        assert await push.poll(10_000, zmq.POLLOUT) == zmq.POLLOUT
        push.send(b"x")
        assert await waiting == zmq.POLLIN
        assert await pull.poll(timeout=None) == zmq.POLLIN
        cancelled = pull.poll()
        cancelled.cancel()
        assert await pull.recv() == b"x"

    run(main())


def test_a_request_can_be_waited_for_until_it_can_be_sent(run: Run, pair: Pair) -> None:
    async def main() -> None:
        request, reply = pair(zmq.REQ, zmq.REP)
        await request.send(b"q")
        answer, writable = request.recv(), request.poll(flags=zmq.POLLOUT)
        assert await reply.recv() == b"q"
        await turns()
        assert not writable.done()
        await reply.send(b"a")
        assert await answer == b"a"
        assert await writable == zmq.POLLOUT

    run(main())


def test_a_poller_waits_for_all_sorts(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        near, far = socket.socketpair()
        with near, far, zmq.Context() as plain, plain.socket(zmq.PAIR) as one, plain.socket(zmq.PAIR) as two:
            one.bind("inproc://plain")
            two.connect("inproc://plain")
            poller = Poller()
            for each in (pull, one, near):
                poller.register(each, zmq.POLLIN)
            assert await poller.poll(0) == []
            assert await poller.poll(5) == []
            for send, ready, take in (
                (lambda: push.send(b"x"), pull, pull.recv),
                (lambda: two.send(b"x"), one, one.recv),
                (lambda: far.send(b"x"), near.fileno(), lambda: near.recv(1)),
            ):
                waiting = poller.poll()
                await turns()
                assert not waiting.done()
                send()
                assert await waiting == [(ready, zmq.POLLIN)]
                assert await poller.poll() == [(ready, zmq.POLLIN)]
                taken = take()
                assert (await taken if isinstance(taken, asyncio.Future) else taken) == b"x"
            poller.register(push, zmq.POLLOUT)
            assert await poller.poll(10_000) == [(push, zmq.POLLOUT)]

    run(main())


def test_pollers_share_a_blocking_socket(run: Run) -> None:
    async def main() -> None:
        with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
            one.bind("inproc://shared")
            two.connect("inproc://shared")
            pollers = [Poller() for _ in range(3)]
            for poller in pollers:
                poller.register(one, zmq.POLLIN)
            waiting = [poller.poll() for poller in pollers]
            cancelled = waiting.pop()
            await turns()
            cancelled.cancel()
            await turns()
            two.send(b"x")
            assert await asyncio.gather(*waiting) == [[(one, zmq.POLLIN)]] * 2

    run(main())


def test_closing_ends_a_poller_that_waits(run: Run, pair: Pair) -> None:
    async def main() -> None:
        _, pull = pair()
        poller = Poller()
        poller.register(pull, zmq.POLLIN)
        waiting = poller.poll()
        await turns()
        pull.close()
        with pytest.raises((asyncio.CancelledError, zmq.ZMQError)):
            await waiting

    run(main())
