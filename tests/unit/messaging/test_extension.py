"""The extension module: the references that it holds, interpreters that may load it, and exit."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq
from ropewalk.zmq import _compiled

Pairing = Callable[..., tuple[Any, Any]]
#: Larger than what is copied all the same.
LARGE = zmq.COPY_THRESHOLD * 2


def is_lent(data: bytearray) -> bool:
    """Whether somebody holds the buffer: then it cannot grow."""
    try:
        data.append(0)
    except BufferError:
        return True
    data.pop()
    return False


@contextmanager
def signals(number: int, interval: float) -> Iterator[None]:
    """Sends this process a signal again and again, once this thread may be waiting."""
    done = threading.Event()

    def send() -> None:
        while not done.wait(interval):
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_a_shared_buffer_is_held_until_it_was_received(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL, "inproc://it")
    data = bytearray(LARGE)
    tracker = sender.send(data, copy=False, track=True)
    assert is_lent(data)
    assert not tracker.done
    frame = receiver.recv(copy=False)
    assert frame.bytes == data
    del frame
    # It waits without calling the extension module, so another thread has to release the bytes.
    tracker.wait(30)
    assert not is_lent(data)


def test_an_untracked_buffer_comes_back_when_nobody_calls(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL, "inproc://it")
    data = bytearray(LARGE)
    sender.send(data, copy=False)
    receiver.recv()
    until(lambda: not is_lent(data))


def test_many_messages_share_one_buffer(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    data = bytearray(LARGE)
    reader = threading.Thread(target=lambda: [receiver.recv(copy=False) for _ in range(300)])
    reader.start()
    trackers = [sender.send(data, copy=False, track=True) for _ in range(300)]
    reader.join()
    for tracker in trackers:
        tracker.wait(30)
    until(lambda: not is_lent(data))


def test_large_bytes_are_shared_and_given_back(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    data = b"x" * LARGE
    before = sys.getrefcount(data)
    sender.send(data)
    assert receiver.recv() == data
    until(lambda: sys.getrefcount(data) == before)


def test_what_was_not_sent_is_given_back(context: Any) -> None:
    sender = context.socket(zmq.PUSH)
    data = bytearray(LARGE)
    with pytest.raises(zmq.Again):
        sender.send(data, zmq.NOBLOCK, copy=False)
    assert not is_lent(data)


def test_a_view_keeps_a_received_frame(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    sender.send(b"y" * LARGE)
    view = receiver.recv(copy=False).buffer
    gc.collect()
    assert view == b"y" * LARGE


def test_a_frame_is_made_once() -> None:
    frame = zmq.Frame(b"first")
    view = memoryview(frame)
    with pytest.raises(RuntimeError):
        frame.__init__(b"second")  # type: ignore[misc]
    assert view == b"first"
    assert frame.buffer is frame.buffer


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [
        lambda socket: socket.recv(),
        lambda socket: socket.recv_multipart(),
        lambda socket: socket.recv_many(5),
        lambda socket: socket.recv_into(bytearray(8)),
        lambda socket: _compiled.zmq_poll([(socket, zmq.POLLIN)], 30_000),
        lambda socket: socket.context.term(),
    ],
    ids=["recv", "recv_multipart", "recv_many", "recv_into", "poll", "term"],
)
def test_a_handler_that_raises_ends_the_wait(wait: Callable[[Any], None]) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.PAIR)

    waiting: list[bool] = []

    # It raises once, and inside the block: else the sender might outlive the handler, and its signal end this process.
    def handler(*_: object) -> None:
        if waiting:
            waiting.clear()
            raise InterruptedError("by the handler")

    def interrupted() -> None:
        waiting.append(True)
        wait(socket)

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(InterruptedError, match="by the handler"), signals(signal.SIGUSR1, 0.02):
            interrupted()
    finally:
        signal.signal(signal.SIGUSR1, old)
        socket.close()
        context.term()
    assert context.closed


def test_signals_do_not_lengthen_a_timeout(pair: Pairing) -> None:
    receiver, _ = pair(zmq.PAIR, zmq.PAIR)
    receiver.rcvtimeo = 100
    seen: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with signals(signal.SIGUSR1, 0.01):
            began = time.monotonic()
            with pytest.raises(zmq.Again):
                receiver.recv()
            assert time.monotonic() - began >= 0.1
            until(lambda: seen)
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_other_threads_run_while_one_waits(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(receiver.recv()))
    reader.start()
    sender.send(b"at last")
    reader.join(30)
    assert received == [b"at last"]


# --- several messages, and none ---------------------------------------------------------------------------------------


def test_many_keeps_messages_apart(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL, "inproc://it")
    messages = [b"one", [b"two", b""], (b"three", bytearray(b"!")), memoryview(b"four"), [b"five"]]
    assert sender.send_many(messages) == 5
    expected = [b"one", [b"two", b""], [b"three", b"!"], b"four", b"five"]
    received: list[Any] = []
    while len(received) < 5:
        received += receiver.recv_many(2)
    assert received == expected
    assert receiver.recv_many(0) == []


def test_trying_says_no_instead_of_raising(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL, "inproc://it")
    assert receiver.try_recv() is None
    assert receiver.try_recv_multipart() is None
    assert sender.try_send(b"one")
    assert until(receiver.try_recv) == b"one"
    assert sender.try_send(bytearray(b"two"), zmq.SNDMORE)
    assert sender.try_send(b"three")
    assert until(receiver.try_recv_multipart) == [b"two", b"three"]
    while sender.try_send(b"more"):
        pass
    with pytest.raises(zmq.Again):
        sender.send(b"more", zmq.NOBLOCK)


# --- names for the same thing, and whose errors they raise ------------------------------------------------------------


def test_numbers_of_nothing_are_refused(context: Any) -> None:
    socket = context.socket(zmq.PAIR)
    number = socket.underlying
    socket.close()
    assert socket.underlying == 0
    for refused in (number, 1 << 40):
        with pytest.raises(zmq.ZMQError):
            zmq.Socket(shadow=refused)
        with pytest.raises(zmq.ZMQError):
            zmq.Context(shadow=refused)


def test_what_was_never_made_is_closed() -> None:
    socket: Any = zmq.Socket.__new__(zmq.Socket)
    assert socket.closed
    with pytest.raises(zmq.ZMQError):
        socket.recv()
    context: Any = zmq.Context.__new__(zmq.Context)
    assert context.closed
    with pytest.raises(RuntimeError):
        context.get(zmq.IO_THREADS)


def test_a_class_names_its_own_errors(context: Any) -> None:
    class Refused(Exception):
        pass

    class Socket(_compiled.Socket):
        _make_error = staticmethod(Refused)

    socket = Socket(context, zmq.PULL)
    try:
        with pytest.raises(Refused) as refused:
            socket.recv(zmq.NOBLOCK)
        assert refused.value.args[0] == zmq.EAGAIN == _compiled.zmq_errno()
    finally:
        socket.close()


# --- the process ------------------------------------------------------------------------------------------------------


# It forks though there are threads: that is what is tested.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_leaves_its_parents_sockets_alone(pair: Pairing) -> None:
    sender, receiver = pair(zmq.PUSH, zmq.PULL)
    data = bytearray(LARGE)
    tracker = sender.send(data, copy=False, track=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert sender.closed
            assert sender.context.closed
            with pytest.raises(zmq.ZMQError, match="fork"):
                sender.send(b"")
            sender.close()
            with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
                pull.bind("inproc://child")
                push.connect("inproc://child")
                own = push.send(bytearray(LARGE), copy=False, track=True)
                pull.recv()
                own.wait(30)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert receiver.recv() == data
    tracker.wait(30)
    sender.send(b"still here")
    assert receiver.recv() == b"still here"


LEAVES_THREADS = """
import threading, time
import ropewalk.zmq as zmq

context = zmq.Context()
context.linger = 0
sockets = [context.socket(zmq.PAIR) for _ in range(6)]
ready = threading.Barrier(7)

def wait(socket, timeout):
    socket.rcvtimeo = timeout
    ready.wait()
    while not socket.closed:
        try:
            socket.recv()
        except zmq.ZMQError:
            pass

for number, socket in enumerate(sockets):
    threading.Thread(target=wait, args=(socket, 1 if number % 2 else -1), daemon=True).start()
ready.wait()
"""


@pytest.mark.parametrize("end", ["", "[socket.close() for socket in sockets[::2]]"])
def test_a_process_leaves_while_threads_wait(end: str) -> None:
    code = LEAVES_THREADS + end
    for _ in range(3):
        command = [sys.executable, "-W", "ignore", "-c", code]
        left = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
        assert left.returncode == 0, left.stderr
