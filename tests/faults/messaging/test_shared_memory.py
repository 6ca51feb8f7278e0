"""Peers over shared memory in other processes: they are killed, stopped and forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conformance.messaging.lab import Side
from tests.polling import until

PREAMBLE = """
import os, sys
import ropewalk.zmq as zmq
context = zmq.Context()
endpoint = sys.argv[1]
"""
ECHO = """
rep = context.socket(zmq.REP)
rep.bind(endpoint)
print('ready', flush=True)
while True: rep.send(rep.recv())
"""
SENDER = """
push = context.socket(zmq.PUSH)
push.connect(endpoint)
print('ready', flush=True)
number = 0
while True:
    push.send_multipart([b'%d' % number, bytes(number % 3 * 100_000), b'%d' % number])
    number += 1
"""
DEAF = """
pull = context.socket(zmq.PULL)
pull.rcvhwm = 1
pull.connect(endpoint)
pull.recv()
print('ready', flush=True)
import time
time.sleep(60)
"""

Start = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def endpoint() -> str:
    """An endpoint that nobody has bound."""
    return f"shm://{tempfile.mkdtemp(prefix='wl-')}/s"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program, which tells itself when it is ready."""
    running: list[subprocess.Popen[str]] = []

    def begin(program: str, endpoint: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), endpoint],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        kill(process)


def ready(process: subprocess.Popen[str]) -> None:
    """Waits until the process says so."""
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the process, frozen or not."""
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def connections() -> int:
    """The process's sockets."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        # Another thread may close it meanwhile.
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


def test_a_server_is_killed_and_started_again(start: Start, ours: Side, endpoint: str) -> None:
    req = ours.socket("REQ", REQ_RELAXED=1, REQ_CORRELATE=1, RECONNECT_IVL=10)
    watch = ours.watch(req)
    req.connect(endpoint)
    for turn in range(3):
        process = start(ECHO, endpoint)
        ready(process)
        for number in range(200):
            req.send(b"%d.%d" % (turn, number))
            assert ours.receive(req) == [b"%d.%d" % (turn, number)]
        os.kill(process.pid, signal.SIGSTOP)
        req.send(b"nobody answers")
        kill(process)
        watch.until("DISCONNECTED")


@pytest.mark.parametrize("turn", range(3))
def test_what_a_killed_peer_had_written_is_whole(turn: int, start: Start, ours: Side, endpoint: str) -> None:
    pull = ours.socket("PULL", RCVHWM=10)
    watch = ours.watch(pull)
    pull.bind(endpoint)
    process = start(SENDER, endpoint)
    received = [ours.receive(pull) for _ in range(100 + 50 * turn)]
    kill(process)
    until(
        lambda: bool(
            received.append(message) if (message := ours.try_receive(pull)) else watch.has("DISCONNECTED")
        )
    )
    while message := ours.try_receive(pull):
        received.append(message)
    for number, (first, body, last) in enumerate(received):
        assert first == last == b"%d" % number
        assert len(body) == number % 3 * 100_000


def test_a_peer_that_does_not_read_is_waited_for_and_forgotten(
    start: Start, ours: Side, endpoint: str
) -> None:
    push = ours.socket("PUSH", SNDHWM=5, LINGER=0)
    watch = ours.watch(push)
    push.bind(endpoint)
    process = start(DEAF, endpoint)
    push.send(b"first")
    ready(process)
    sent = 0
    # What it may hold: its mark, the pipe, and our mark.
    while push.poll(0, ours.zmq.POLLOUT):
        push.send(bytes(20_000), ours.zmq.NOBLOCK)
        sent += 1
        assert sent < 100
    assert sent > 0
    kill(process)
    watch.until("DISCONNECTED")


def test_many_connections_come_and_go(ours: Side, endpoint: str) -> None:
    pull = ours.socket("PULL")
    pull.bind(endpoint)
    before = connections()
    for _ in range(5):
        pushes = [ours.socket("PUSH") for _ in range(40)]
        for number, push in enumerate(pushes):
            push.connect(endpoint)
            push.send(b"%d" % number)
        assert sorted(int(ours.receive(pull)[0]) for _ in pushes) == list(range(40))
        for push in pushes:
            push.close()
        until(lambda: ours.try_receive(pull) or connections() == before)
    assert "ropewalk-pipe" not in Path("/proc/self/maps").read_text()


def allocated() -> list[int]:
    """Bytes of shared memory behind each connection of this process; both of its ends are here."""
    found: dict[int, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "ropewalk-pipe" in line:
            file = os.stat(f"/proc/self/map_files/{line.split()[0]}")
            found[file.st_ino] = 512 * file.st_blocks
    return list(found.values())


def test_an_idle_connection_takes_as_much_memory_as_it_has_carried(ours: Side, endpoint: str) -> None:
    pull = ours.socket("PULL")
    pull.bind(endpoint)
    pushes = [ours.socket("PUSH") for _ in range(20)]
    for push in pushes:
        push.connect(endpoint)
        push.send(b"hello")
        assert ours.receive(pull) == [b"hello"]
    try:
        idle = allocated()
    except PermissionError:
        pytest.skip("this process may not look at the files behind its memory")
    # The words, and a page each way.
    assert idle == [3 * 4096] * 20
    for _ in range(20):
        pushes[0].send(bytes(20_000))
        assert ours.receive(pull) == [bytes(20_000)]
    # One of them has carried more than a lap one way.
    assert sorted(allocated()) == [3 * 4096] * 19 + [128 * 1024 + 2 * 4096]


def test_a_forked_child_leaves_the_connection_alone(ours: Side, endpoint: str) -> None:
    rep, req = ours.socket("REP"), ours.socket("REQ")
    rep.bind(endpoint)
    req.connect(endpoint)
    req.send(b"one")
    assert ours.receive(rep) == [b"one"]
    child = os.fork()
    if child == 0:
        try:
            req.recv()
        except ours.zmq.ZMQError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    rep.send(b"two")
    assert ours.receive(req) == [b"two"]
