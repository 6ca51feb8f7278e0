"""Sockets and threads: closing during another thread's wait, concurrent calls, interrupted waits."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq

Pairing = Callable[..., tuple[Any, Any]]


def _outcome(call: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """Run a call in a thread: its result or its error goes into the list."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("operation", ["recv", "recv_multipart", "recv_many", "poll"])
def test_closing_a_socket_ends_another_threads_wait(context: Any, operation: str) -> None:
    socket = context.socket(zmq.PULL)
    socket.rcvtimeo = -1
    socket.bind("tcp://127.0.0.1:*")
    begun = threading.Event()

    def wait() -> object:
        begun.set()
        if operation == "recv_many":
            return socket.recv_many(10)
        return getattr(socket, operation)()

    thread, outcome = _outcome(wait)
    assert begun.wait(10)
    socket.close()
    until(lambda: not thread.is_alive())
    assert isinstance(outcome[0], zmq.ZMQError)
    assert outcome[0].errno in (zmq.ENOTSOCK, zmq.ENOTSUP, zmq.ETERM)
    assert socket.closed


def test_closing_a_socket_ends_another_threads_send(context: Any) -> None:
    socket = context.socket(zmq.PUSH)
    socket.sndtimeo = -1
    begun = threading.Event()

    def wait() -> object:
        begun.set()
        return socket.send(b"to nobody")

    thread, outcome = _outcome(wait)
    assert begun.wait(10)
    socket.close()
    until(lambda: not thread.is_alive())
    assert isinstance(outcome[0], zmq.ZMQError)
    assert outcome[0].errno in (zmq.ENOTSOCK, zmq.ENOTSUP, zmq.ETERM)


def test_two_threads_at_one_socket_do_no_harm(pair: Pairing) -> None:
    puller, pusher = pair(zmq.PULL, zmq.PUSH)
    puller.rcvtimeo = 100
    total, received, refused = 2000, [], []

    def take() -> None:
        while len(received) < total:
            try:
                received.append(puller.recv())
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                refused.append(error)

    threads = [_outcome(take)[0] for _ in range(2)]
    for number in range(total):
        pusher.send(b"%d" % number)
    until(lambda: not any(thread.is_alive() for thread in threads))
    # Each message came to one of them, whole.
    assert sorted(received, key=int) == [b"%d" % number for number in range(total)]
    assert {error.errno for error in refused} <= {errno.EBUSY}


def test_each_thread_with_a_socket_of_its_own(context: Any) -> None:
    sink = context.socket(zmq.PULL)
    sink.bind("inproc://sink")

    def work(number: int) -> None:
        with context.socket(zmq.PUSH) as socket:
            socket.linger = -1
            socket.connect("inproc://sink")
            for count in range(100):
                socket.send(b"%d.%d" % (number, count))

    threads = [_outcome(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    received = [sink.recv() for _ in range(800)]
    for thread, outcome in threads:
        thread.join(20)
        assert outcome == [None]
    for number in range(8):
        mine = [message for message in received if message.startswith(b"%d." % number)]
        assert mine == [b"%d.%d" % (number, count) for count in range(100)]


def test_a_signals_handler_runs_while_it_waits(context: Any) -> None:
    socket = context.socket(zmq.PULL)

    class Stop(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Stop):
            socket.recv()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_wait_goes_on_after_a_signal(pair: Pairing) -> None:
    bound, connected = pair()
    seen: list[int] = []

    def send(number: int, frame: object) -> None:
        seen.append(number)
        connected.send(b"from the handler")

    before = signal.signal(signal.SIGALRM, send)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert bound.recv() == b"from the handler"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM]
