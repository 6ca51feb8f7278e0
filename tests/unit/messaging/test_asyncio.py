"""Sockets that are awaited: what they return, in which order, and what cancelling, closing and timeouts do to it."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Poller, Socket

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "ropewalk"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a fresh loop, and gives it some time."""
    runner: Any = asyncio.run if request.param == "asyncio" else ropewalk.run

    async def within(main: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wait_for(main, 30)

    return lambda main: runner(within(main))


class Keeping(Context):
    """Keeps its sockets until it is destroyed: a test that lets go of one is warned otherwise."""

    kept: list[Socket]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["kept"] = []

    def socket(self, *args: Any, **kwargs: Any) -> Socket:
        self.kept.append(made := super().socket(*args, **kwargs))
        return made


@pytest.fixture
def context() -> Iterator[Context]:
    context = Keeping()
    yield context
    context.destroy(linger=0)
    # They know their context: descriptors would stay until the collector comes, which 3.14's may put off for long.
    context.kept.clear()


Pair = Callable[..., tuple[Socket, Socket]]


@pytest.fixture(params=["tcp", "inproc"])
def pair(context: Context, request: pytest.FixtureRequest) -> Pair:
    """Makes two connected sockets."""

    def make(left: int = zmq.PUSH, right: int = zmq.PULL, **options: Any) -> tuple[Socket, Socket]:
        first, second = context.socket(left), context.socket(right)
        for each in (first, second):
            for name, value in options.items():
                setattr(each, name, value)
        if request.param == "tcp":
            address = f"tcp://127.0.0.1:{first.bind_to_random_port('tcp://127.0.0.1')}"
        else:
            address = f"inproc://pair-{id(first)}"
            first.bind(address)
        second.connect(address)
        return first, second

    return make


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


def test_a_message_is_received(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        received = pull.recv()
        assert not received.done()
        assert await push.send(b"hello") is None
        assert await received == b"hello"

    run(main())


def test_what_is_there_is_received_at_once(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        for number in range(3):
            await push.send(b"%d" % number)
        assert await pull.poll(10_000) == zmq.POLLIN
        assert await pull.recv() == b"0"
        # All came in one piece or come soon; a future that is done was done by the call.
        await pull.poll(10_000)
        future = pull.recv()
        assert future.done()
        assert future.result() == b"1"
        assert await pull.recv() == b"2"

    run(main())


def test_a_send_happens_though_nobody_awaits_it(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        push.send(b"sent")
        assert await pull.recv() == b"sent"

    run(main())


def test_each_method_has_its_kind_of_message(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        await left.send_multipart([b"one", b"two"])
        assert await right.recv_multipart() == [b"one", b"two"]
        await left.send(b"first", zmq.SNDMORE)
        await left.send(b"last")
        assert await right.recv() == b"first"
        assert right.rcvmore
        assert await right.recv() == b"last"
        await left.send_string("grüße")
        assert await right.recv_string() == "grüße"
        await left.send_json({"a": [1, 2]})
        assert await right.recv_json() == {"a": [1, 2]}
        await left.send_pyobj({1, 2})
        assert await right.recv_pyobj() == {1, 2}
        await left.send_serialized([1, 2], lambda numbers: [b"%d" % number for number in numbers])
        assert await right.recv_serialized(lambda parts: [int(part) for part in parts]) == [1, 2]
        await left.send(b"x" * 10)
        buffer = bytearray(20)
        assert await right.recv_into(buffer) == 10
        assert bytes(buffer[:10]) == b"x" * 10
        await left.send(b"frame", copy=False)
        frame = await right.recv(copy=False)
        assert isinstance(frame, zmq.Frame)
        assert frame.bytes == b"frame"
        tracker = await left.send(b"tracked", copy=False, track=True)
        assert await right.recv() == b"tracked"
        await until(lambda: tracker.done)

    run(main())


def test_every_kind_of_receive_waits_too(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        buffer = bytearray(4)
        waiting: list[Awaitable[Any]] = [
            right.recv_multipart(),
            right.recv_string(),
            right.recv_json(),
            right.recv_pyobj(),
            right.recv_into(buffer),
            right.recv_serialized(len),
            right.recv(copy=False),
        ]
        await turns()
        await left.send_multipart([b"1", b"2"])
        await left.send_string("text")
        await left.send_json([3])
        await left.send_pyobj(4)
        await left.send(b"five")
        await left.send_multipart([b"6"] * 6)
        await left.send(b"seven")
        done = await asyncio.gather(*waiting)
        assert done[:6] == [[b"1", b"2"], "text", [3], 4, 4, 6]
        assert buffer == b"five"
        assert done[6].bytes == b"seven"

    run(main())


def test_many_at_once(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair(sndhwm=10, rcvhwm=10)
        messages = [b"%d" % number for number in range(500)]
        sending = push.send_many(messages)
        received: list[bytes] = []
        while len(received) < len(messages):
            some = await pull.recv_many(64)
            assert 1 <= len(some) <= 64
            received += some
        assert received == messages
        assert await sending == len(messages)
        assert await push.send_many([[b"a", b"b"], b"c"]) == 2
        received = await pull.recv_many(1)
        received += await pull.recv_many(1)
        assert received == [[b"a", b"b"], b"c"]

    run(main())


def test_waiters_are_served_in_order(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        waiting = [pull.recv() for _ in range(20)]
        for number in range(20):
            await push.send(b"%d" % number)
        assert await asyncio.gather(*waiting) == [b"%d" % number for number in range(20)]

    run(main())


def test_a_cancelled_receive_loses_no_message(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        received: list[bytes] = []
        for number in range(300):
            with_luck = asyncio.ensure_future(pull.recv())
            if number % 3 == 0:
                await turns(number % 4)
            await push.send(b"%d" % number)
            if number % 2:
                await turns(number % 5)
            with_luck.cancel()
            try:
                received.append(await with_luck)
            except asyncio.CancelledError:
                received.append(await pull.recv())
        assert received == [b"%d" % number for number in range(300)]

    run(main())


def test_receives_with_a_deadline_lose_no_message_and_pile_nothing_up(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pull.recv(), 0.0005)
        assert pull._watch.receivers <= 1
        await push.send(b"kept")
        assert await asyncio.wait_for(pull.recv(), 10) == b"kept"

    run(main())


def test_a_receive_can_be_waited_for_in_every_way(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        futures = {pull.recv(), pull.recv()}
        push.send(b"1")
        push.send(b"2")
        done, _ = await asyncio.wait(futures)
        assert sorted(future.result() for future in done) == [b"1", b"2"]
        push.send(b"3")
        assert await asyncio.gather(pull.recv()) == [b"3"]
        told: list[bytes] = []
        future = pull.recv()
        future.add_done_callback(lambda done: told.append(done.result()))
        push.send(b"4")
        await until(lambda: told)
        assert told == [b"4"]

    run(main())


def test_a_send_waits_for_room_and_keeps_its_place(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair(sndhwm=1, rcvhwm=1, sndbuf=4096, rcvbuf=4096)
        sends: list[asyncio.Future[Any]] = []
        while len(sends) < 10_000 and (not sends or sends[-1].done()):
            sends.append(push.send(b"%d" % len(sends) + b" " * 8192))
            # What has not left at once may leave in a moment.
            await asyncio.wait(sends[-1:], timeout=0.1)
        assert not sends[-1].done()
        cancelled = push.send(b"never")
        last = push.send(b"last")
        cancelled.cancel()
        await turns()
        assert not last.done()
        for number in range(len(sends)):
            assert int(await pull.recv()) == number
        assert await pull.recv() == b"last"
        await asyncio.gather(*sends, last)
        assert await pull.poll(20) == 0

    run(main())


def test_timeouts_of_the_socket_hold(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, pull = pair()
        pull.rcvtimeo = 10
        with pytest.raises(zmq.Again):
            await pull.recv()
        with pytest.raises(zmq.Again):
            await pull.recv_multipart()
        push.send(b"in time")
        pull.rcvtimeo = 10_000
        assert await pull.recv() == b"in time"
        alone = context.socket(zmq.PUSH)
        alone.sndtimeo = 10
        with pytest.raises(zmq.Again):
            await alone.send(b"nobody is there")
        with pytest.raises(zmq.Again):
            await alone.send_multipart([b"nobody", b"is there"])

    run(main())


def test_noblock_does_not_wait(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, pull = pair()
        with pytest.raises(zmq.Again):
            await pull.recv(zmq.NOBLOCK)
        with pytest.raises(zmq.Again):
            await context.socket(zmq.PUSH).send(b"", zmq.NOBLOCK)
        push.send(b"x")
        await pull.poll(10_000)
        assert await pull.recv(zmq.NOBLOCK) == b"x"

    run(main())


def test_errors_come_with_the_future(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, _ = pair()
        wrong = push.recv()
        with pytest.raises(zmq.ZMQError) as caught:
            await wrong
        assert caught.value.errno == zmq.ENOTSUP
        with pytest.raises(TypeError):
            await push.send("text")
        with pytest.raises(TypeError):
            await push.send_string(b"bytes")
        push.close()
        with pytest.raises(zmq.ZMQError) as caught:
            await push.send(b"")
        assert caught.value.errno == zmq.ENOTSOCK

    run(main())


def test_a_message_that_cannot_be_decoded_fails_its_own_receive(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        bad, good = pull.recv_json(), pull.recv_json()
        push.send(b"{")
        push.send(b"{}")
        with pytest.raises(ValueError):
            await bad
        assert await good == {}

    run(main())


def test_closing_cancels_who_waits(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        _, pull = pair()
        alone = context.socket(zmq.PUSH)
        waiting = [
            pull.recv(),
            pull.recv_multipart(),
            pull.poll(),
            alone.send(b""),
            alone.poll(flags=zmq.POLLOUT),
        ]
        await turns()
        pull.close()
        alone.close()
        for future in waiting:
            with pytest.raises(asyncio.CancelledError):
                await future

    run(main())


def test_the_end_of_the_context_ends_who_waits(run: Run) -> None:
    async def main() -> None:
        context = Context()
        pull = context.socket(zmq.PULL)
        waiting = [pull.recv(), pull.poll()]
        ended = threading.Thread(target=context.term)
        ended.start()
        for future in waiting:
            with pytest.raises(zmq.ContextTerminated):
                await future
        pull.close()
        await asyncio.to_thread(ended.join)

    run(main())


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


def test_a_receiver_is_not_forgotten_while_others_send(run: Run, pair: Pair) -> None:
    # Sending looks at the socket, and so may take the signal that the receiver waits for.
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)

        async def echo() -> None:
            for _ in range(200):
                await right.send(await right.recv())

        async def chatter(socket: Socket, other: asyncio.Task[None]) -> None:
            while not other.done():
                assert left.get(zmq.EVENTS) is not None
                await asyncio.sleep(0)

        echoing = asyncio.create_task(echo())
        chattering = asyncio.create_task(chatter(left, echoing))
        for number in range(200):
            received = left.recv()
            await left.send(b"%d" % number)
            assert await received == b"%d" % number
        await asyncio.gather(echoing, chattering)

    run(main())


def test_a_loop_that_only_receives_lets_others_run(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        ran = 0

        async def other() -> None:
            nonlocal ran
            while True:
                ran += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await turns()
        before = ran
        for _ in range(2000):
            await left.send(b"x")
            # It is there before it is asked for, so that no receive has to wait.
            assert right.get(zmq.EVENTS) is not None
            await right.recv()
        assert ran - before >= 2
        task.cancel()

    run(main())


def test_a_loop_that_only_sends_lets_others_run(run: Run, context: Context) -> None:
    async def main() -> None:
        publisher = context.socket(zmq.PUB)
        publisher.bind_to_random_port("tcp://127.0.0.1")
        ticks = 0

        async def other() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(2000):
            await publisher.send(b"nobody hears it")
        assert ticks >= 2
        task.cancel()

    run(main())


def test_an_idle_socket_does_not_keep_the_loop_busy(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        waiting = pull.recv()
        push.send(b"1")
        await waiting
        # These are wanted by nobody: the loop must not turn for them, and must hear of them again.
        for number in range(100):
            push.send(b"%d" % number)
        before = os.times()
        await asyncio.sleep(0.5)
        after = os.times()
        assert after.user + after.system - before.user - before.system < 0.4
        for number in range(100):
            assert await pull.recv() == b"%d" % number
        last = pull.recv()
        push.send(b"last")
        assert await last == b"last"

    run(main())


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


def test_two_tasks_talk_through_a_router(run: Run, pair: Pair) -> None:
    async def main() -> None:
        router, dealer = pair(zmq.ROUTER, zmq.DEALER)

        async def serve() -> None:
            for _ in range(500):
                identity, number = await router.recv_multipart()
                await router.send_multipart([identity, b"%d" % (int(number) * 2)])

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            for number in range(500):
                await dealer.send(b"%d" % number)
                assert await dealer.recv() == b"%d" % (number * 2)

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
