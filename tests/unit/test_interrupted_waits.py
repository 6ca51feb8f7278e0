"""A signal is acted on in every wait, also one whose signal does not end a sleep in the kernel.

That happens when it comes just before the sleep begins, or to another thread. `interrupt_main` does nothing else: it
notes the signal, and wakes nobody.
"""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk import Bus, Pool

#: After this time a wait has missed the signal.
PATIENCE = 20.0

Wait = Callable[[], object]


class Noticed(Exception):
    """What the signal's handler raises."""


@contextmanager
def _signal_without_a_wake_up() -> Iterator[None]:
    """A signal, some time after the block began; one that ends any sleep, if that was missed."""
    ended = threading.Event()
    missed = []

    def handle(number: int, frame: object) -> None:
        raise Noticed

    def send() -> None:
        time.sleep(0.2)
        _thread.interrupt_main(signal.SIGUSR1)
        if not ended.wait(PATIENCE):
            missed.append(True)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        assert not missed


def _socket(stack: ExitStack, kind: int) -> Any:
    context = stack.enter_context(zmq.Context())
    context.linger = 0
    return stack.enter_context(context.socket(kind))


def _recv(stack: ExitStack) -> Wait:
    socket = _socket(stack, zmq.PULL)
    return lambda: socket.recv()


def _recv_with_a_timeout(stack: ExitStack) -> Wait:
    socket = _socket(stack, zmq.PULL)
    socket.rcvtimeo = 1_000_000
    return lambda: socket.recv_multipart()


def _recv_many(stack: ExitStack) -> Wait:
    socket = _socket(stack, zmq.PULL)
    return lambda: socket.recv_many(10)


def _recv_shm(stack: ExitStack) -> Wait:
    context = stack.enter_context(zmq.Context())
    bound, connected = (stack.enter_context(context.socket(zmq.PAIR)) for _ in range(2))
    bound.bind("shm://*")
    connected.connect(bound.last_endpoint.decode())
    connected.send(b"")
    bound.recv()
    return lambda: bound.recv()


def _send(stack: ExitStack) -> Wait:
    socket = _socket(stack, zmq.PUSH)
    return lambda: socket.send(b"")


def _poll(stack: ExitStack) -> Wait:
    socket = _socket(stack, zmq.PULL)
    return lambda: socket.poll()


def _poller(stack: ExitStack) -> Wait:
    poller = zmq.Poller()
    poller.register(_socket(stack, zmq.PULL), zmq.POLLIN)
    return lambda: poller.poll(1_000_000)


def _proxy(stack: ExitStack) -> Wait:
    front, back = _socket(stack, zmq.ROUTER), _socket(stack, zmq.DEALER)
    return lambda: zmq.proxy(front, back)


def _full_proxy(stack: ExitStack) -> Wait:
    front, back, client = (_socket(stack, kind) for kind in (zmq.PULL, zmq.PUSH, zmq.PUSH))
    front.bind("tcp://127.0.0.1:*")
    client.connect(front.last_endpoint.decode())
    client.send(b"to nobody")
    return lambda: zmq.proxy(front, back)


def _term(stack: ExitStack) -> Wait:
    context = zmq.Context()
    socket = context.socket(zmq.PULL)

    def end() -> None:
        socket.close()
        context.term()

    stack.callback(end)
    return context.term


def _bus_recv(stack: ExitStack) -> Wait:
    return stack.enter_context(Bus()).subscribe("topic").recv


def _bus_recv_with_a_timeout(stack: ExitStack) -> Wait:
    subscription = stack.enter_context(Bus()).subscribe("topic")
    return lambda: subscription.recv(timeout=1000)


def _bus_publish(stack: ExitStack) -> Wait:
    bus = stack.enter_context(Bus())
    subscription = bus.subscribe("topic", capacity=1, overflow="block")
    stack.callback(subscription.close)
    bus.publish("topic", 1)
    return lambda: bus.publish("topic", 2)


def _pool(stack: ExitStack) -> Pool:
    pool = Pool(1, kind="thread")
    stack.callback(pool.shutdown)
    return pool


def _blocked(stack: ExitStack) -> tuple[Pool, Any]:
    pool, gate = _pool(stack), threading.Event()
    future = pool.submit(gate.wait)
    stack.callback(gate.set)
    return pool, future


def _result(stack: ExitStack) -> Wait:
    _, future = _blocked(stack)
    return lambda: future.result()


def _map(stack: ExitStack) -> Wait:
    pool, gate = _pool(stack), threading.Event()
    stack.callback(gate.set)
    return lambda: list(pool.map(lambda _: gate.wait(), range(2)))


WAITS = [
    _recv,
    _recv_with_a_timeout,
    _recv_many,
    _recv_shm,
    _send,
    _poll,
    _poller,
    _proxy,
    _full_proxy,
    _term,
    _bus_recv,
    _bus_recv_with_a_timeout,
    _bus_publish,
    _result,
    _map,
]


@pytest.mark.parametrize("make", WAITS, ids=lambda make: make.__name__.strip("_"))
def test_a_signal_that_wakes_nobody_ends_a_wait(make: Callable[[ExitStack], Wait]) -> None:
    with ExitStack() as stack:
        wait = make(stack)
        with _signal_without_a_wake_up(), pytest.raises(Noticed):
            wait()


def test_a_wait_goes_on_when_the_handler_returns() -> None:
    """Slices of a wait are no results: neither a message that comes later nor a time that is over is missed."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        bound, connected = (stack.enter_context(context.socket(zmq.PAIR)) for _ in range(2))
        bound.bind("inproc://later")
        connected.connect("inproc://later")
        sender = threading.Timer(0.3, connected.send, [b"later"])
        sender.start()
        assert bound.recv() == b"later"
        sender.join()
        assert bound.poll(200) == 0
        bound.rcvtimeo = 200
        with pytest.raises(zmq.Again):
            bound.recv()
        subscription = stack.enter_context(Bus()).subscribe("topic")
        with pytest.raises(ropewalk.BusEmpty):
            subscription.recv(timeout=0.2)


PROGRAM = """
import sys, ropewalk.zmq as zmq
with zmq.Context() as context, context.socket(zmq.PAIR) as here:
    with context.socket(zmq.PAIR) as there:
        here.bind("tcp://127.0.0.1:*")
        there.connect(here.last_endpoint.decode())
        for _ in range(int(sys.argv[1])):
            try:
                there.send(b"")
                here.recv()
                sys.stdout.write(".")
                sys.stdout.flush()
                here.recv()
            except KeyboardInterrupt:
                sys.stdout.write("!")
                sys.stdout.flush()
"""


def test_an_interrupt_just_before_a_sleep_is_heard() -> None:
    """While a wait spins, a signal ends no system call."""
    rounds = 50
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(rounds)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        watchdog = threading.Timer(PATIENCE, program.kill)
        watchdog.start()
        for _ in range(rounds):
            assert program.stdout.read(1) == "."
            program.send_signal(signal.SIGINT)
            assert program.stdout.read(1) == "!"
        assert program.wait(PATIENCE) == 0
        watchdog.cancel()
