"""Peers in other processes that are killed, stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.messaging.lab import Background, Side, await_readable, bind, vacant
from tests.polling import until

#: What every peer begins with: its module, its sockets, and where it binds or connects.
PREAMBLE = """
import sys, importlib
zmq = importlib.import_module(sys.argv[1])
context = zmq.Context()
def socket(kind, **options):
    made = context.socket(getattr(zmq, kind))
    for name, value in options.items():
        made.setsockopt(getattr(zmq, name), value)
    return made
endpoint = sys.argv[2]
"""
PULL = "pull = socket('PULL')\npull.bind(endpoint)\nprint('ready', flush=True)\n"
#: Writes what it receives, a line for each message.
TELLER = PULL + "while True: print(pull.recv().decode(), flush=True)"
ECHO = """
rep = socket('REP')
rep.bind(endpoint)
print('ready', flush=True)
while True: rep.send(rep.recv())
"""
SENDER = """
push = socket('PUSH')
push.connect(endpoint)
push.send_multipart([b'part of one', b'part of two'])
print('ready', flush=True)
push.send(b'next')
number = 0
while True:
    push.send_multipart([b'%d' % number, bytes(1 << 20), b'%d' % number])
    number += 1
"""
PUBLISHER = """
pub = socket('PUB')
pub.bind(endpoint)
print('ready', flush=True)
while True: pub.send_multipart([b'topic', bytes(1000)])
"""

Start = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def start(peer: Side) -> Iterator[Start]:
    """Starts a program over the peer's implementation, and returns when it is ready."""
    running: list[subprocess.Popen[str]] = []

    def begin(program: str, endpoint: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), peer.zmq.__name__, endpoint],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in running:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the process, frozen or not."""
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def test_killed_and_started_again(start: Start, subject: Side) -> None:
    endpoint = vacant()
    process = start(TELLER, endpoint)
    push = subject.socket("PUSH", RECONNECT_IVL=10)
    watch = subject.watch(push)
    push.connect(endpoint)
    push.send(b"before")
    assert process.stdout
    assert process.stdout.readline() == "before\n"
    for turn in range(2):
        kill(process)
        watch.until("DISCONNECTED")
        for number in range(100):
            push.send(b"%d.%d" % (turn, number))
        process = start(TELLER, endpoint)
        assert process.stdout
        for number in range(100):
            assert process.stdout.readline() == f"{turn}.{number}\n"


def test_an_answer_that_never_comes_is_asked_for_again(start: Start, subject: Side) -> None:
    endpoint = vacant()
    process = start(ECHO, endpoint)
    req = subject.socket("REQ", REQ_RELAXED=1, REQ_CORRELATE=1, RECONNECT_IVL=10)
    watch = subject.watch(req)
    req.connect(endpoint)
    req.send(b"one")
    assert subject.receive(req) == [b"one"]
    os.kill(process.pid, signal.SIGSTOP)
    req.send(b"two")
    kill(process)
    watch.until("DISCONNECTED")
    start(ECHO, endpoint)
    req.send(b"three")
    assert subject.receive(req) == [b"three"]


@pytest.mark.parametrize("turn", range(3))
def test_killed_amidst_a_stream(turn: int, start: Start, subject: Side) -> None:
    pull = subject.socket("PULL", RCVHWM=10)
    watch = subject.watch(pull)
    process = start(SENDER, bind(pull))
    assert subject.receive(pull) == [b"part of one", b"part of two"]
    assert subject.receive(pull) == [b"next"]
    received = [subject.receive(pull) for _ in range(5 + 3 * turn)]
    kill(process)
    until(
        lambda: bool(
            received.append(message) if (message := subject.try_receive(pull)) else watch.has("DISCONNECTED")
        )
    )
    while message := subject.try_receive(pull):
        received.append(message)
    # Whole ones only, none of them missing.
    for number, (first, body, last) in enumerate(received):
        assert first == last == b"%d" % number
        assert body == bytes(1 << 20)


def test_a_frozen_peer_is_dropped(start: Start, subject: Side) -> None:
    endpoint = vacant()
    process = start(ECHO, endpoint)
    req = subject.socket("REQ", HEARTBEAT_IVL=50, HEARTBEAT_TIMEOUT=500, RECONNECT_IVL=10)
    watch = subject.watch(req)
    req.connect(endpoint)
    req.send(b"one")
    assert subject.receive(req) == [b"one"]
    os.kill(process.pid, signal.SIGSTOP)
    watch.until("DISCONNECTED")
    os.kill(process.pid, signal.SIGCONT)
    watch.until("HANDSHAKE_SUCCEEDED")
    req.send(b"two")
    assert subject.receive(req) == [b"two"]


def test_a_frozen_subscriber_delays_nobody(start: Start, subject: Side) -> None:
    pub = subject.socket("XPUB", SNDHWM=10)
    endpoint = bind(pub)
    program = """
    sub = socket('SUB', SUBSCRIBE=b'')
    sub.connect(endpoint)
    sub.recv()
    print('ready', flush=True)
    while True: print(len(sub.recv()), flush=True)
    """
    with_frozen: list[Any] = []

    def publish() -> bool:
        pub.send(b"first")
        return bool(with_frozen)

    starting = Background(lambda: with_frozen.append(start(program, endpoint)))
    until(publish)
    starting.result()
    os.kill(with_frozen[0].pid, signal.SIGSTOP)
    quick = subject.socket("SUB", SUBSCRIBE=b"")
    quick.connect(endpoint)
    until(lambda: (pub.send(b"first"), subject.readable(quick, 10))[1])
    for number in range(300):
        body = [b"%d" % number, bytes(100_000)]
        # A mark of ten is soon reached, also by who reads; what is sent again arrives.
        until(lambda body=body: (pub.send_multipart(body), subject.readable(quick, 10))[1])
        while message := subject.try_receive(quick):
            assert message[0] in (b"first", b"%d" % number, b"%d" % (number - 1))
    kill(with_frozen[0])


def test_a_publisher_is_killed_and_started_again(start: Start, subject: Side) -> None:
    endpoint = vacant()
    process = start(PUBLISHER, endpoint)
    sub = subject.socket("SUB", SUBSCRIBE=b"topic", RECONNECT_IVL=10, RCVHWM=10)
    watch = subject.watch(sub)
    sub.connect(endpoint)
    for _ in range(3):
        for _ in range(50):
            assert subject.receive(sub) == [b"topic", bytes(1000)]
        kill(process)
        while not watch.has("DISCONNECTED"):
            subject.try_receive(sub)
        watch.seen.clear()
        while subject.try_receive(sub):
            pass
        process = start(PUBLISHER, endpoint)
        await_readable(subject, sub, subject)
