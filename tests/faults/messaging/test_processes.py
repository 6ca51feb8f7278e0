"""Faults of the process: forks, no descriptors left, signals, programs that exit without closing."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from tests.conformance.messaging.lab import NEEDS_LIBZMQ, SUBJECT, only_ours

Program = Callable[..., str]


@pytest.fixture(params=["ours", pytest.param("libzmq", marks=NEEDS_LIBZMQ)])
def program(request: pytest.FixtureRequest) -> Program:
    """Runs a program over one implementation; what it has written. It must end, and end well."""
    name = SUBJECT if request.param == "ours" else "zmq"
    return lambda code, expected=0: run(name, code, expected)


def run(name: str, code: str, expected: int = 0) -> str:
    """What a program has written that ends by this status."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name} as zmq\n" + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout


def test_ending_without_tidying_up(program: Program) -> None:
    assert "end" in program(
        """
        import warnings; warnings.simplefilter("ignore")
        context = zmq.Context(); context.linger = 0
        rep, req, sub = context.socket(zmq.REP), context.socket(zmq.REQ), context.socket(zmq.SUB)
        port = rep.bind_to_random_port("tcp://127.0.0.1")
        req.connect(f"tcp://127.0.0.1:{port}"); sub.connect("tcp://127.0.0.1:1")
        req.send(b"question"); rep.recv()
        print("end")
        """
    )


def test_ending_while_a_thread_waits(program: Program) -> None:
    assert "end" in program(
        """
        import threading, warnings; warnings.simplefilter("ignore")
        context = zmq.Context()
        pull = context.socket(zmq.PULL)
        pull.bind_to_random_port("tcp://127.0.0.1")
        waiting = threading.Event()
        def wait():
            waiting.set()
            try: pull.recv()
            except zmq.ZMQError: pass
        threading.Thread(target=wait, daemon=True).start()
        waiting.wait()
        print("end", flush=True)
        import os; os._exit(0)
        """
    )


@pytest.mark.parametrize("wait", ["pull.recv()", "pull.poll()", "zmq.select([pull], [], [])"])
def test_an_interrupt(wait: str, program: Program) -> None:
    assert "interrupted" in program(
        f"""
        import os, signal, threading, time
        context = zmq.Context()
        pull = context.socket(zmq.PULL)
        pull.bind_to_random_port("tcp://127.0.0.1")
        done = threading.Event()
        def interrupt():
            # Sent again until it is heard: the first may come before the call.
            while not done.wait(0.05):
                os.kill(os.getpid(), signal.SIGINT)
        try:
            threading.Thread(target=interrupt).start()
            {wait}
        except KeyboardInterrupt:
            done.set()
            print("interrupted")
        pull.close()
        context.term()
        """
    )


def test_a_signal_handler_that_returns_ends_no_wait(program: Program) -> None:
    assert "message" in program(
        """
        import os, signal, threading
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        heard = []
        enough = threading.Event()
        def note(*_):
            heard.append(1)
            if len(heard) >= 5: enough.set()
        signal.signal(signal.SIGUSR1, note)
        def disturb():
            while not enough.wait(0.01):
                os.kill(os.getpid(), signal.SIGUSR1)
            push.send(b"message")
        thread = threading.Thread(target=disturb)
        thread.start()
        print(pull.recv().decode())
        thread.join()
        push.close(); pull.close(); context.term()
        """
    )


def test_a_child_has_contexts_of_its_own(program: Program) -> None:
    assert (
        program(
            """
        import os, warnings; warnings.simplefilter("ignore")
        context = zmq.Context.instance()
        rep = context.socket(zmq.REP)
        port = rep.bind_to_random_port("tcp://127.0.0.1")
        for turn in range(3):
            child = os.fork()
            if child == 0:
                mine = zmq.Context.instance()
                assert mine is not context
                req = mine.socket(zmq.REQ)
                req.connect(f"tcp://127.0.0.1:{port}")
                req.send(b"question")
                os._exit(req.recv() != b"answer")
            assert rep.poll(25000)
            assert rep.recv() == b"question"
            rep.send(b"answer")
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        print("parent", end="")
        rep.close(); context.term()
        """
        )
        == "parent"
    )


@only_ours
def test_a_child_does_not_touch_its_parent_s_sockets() -> None:
    assert (
        run(
            SUBJECT,
            """
        import os, gc, warnings; warnings.simplefilter("ignore")
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        push.send(b"before")
        assert pull.recv() == b"before"
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: push.send(b"the child's"), lambda: pull.recv(zmq.DONTWAIT), lambda: pull.poll(0)):
                try: call()
                except zmq.ZMQError: refused += 1
            # Nor does letting them go.
            del push, pull, call
            gc.collect()
            os._exit(0 if refused == 3 else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        for number in range(100):
            push.send(b"%d" % number)
            assert pull.recv() == b"%d" % number
        print("whole", end="")
        push.close(); pull.close(); context.term()
        """,
        )
        == "whole"
    )


@only_ours
def test_without_descriptors_there_are_no_more_sockets_and_then_there_are() -> None:
    """libzmq ends the process here."""
    assert (
        run(
            SUBJECT,
            """
        import errno, resource, os
        context = zmq.Context()
        context.linger = 0
        first = context.socket(zmq.PAIR)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        sockets = []
        try:
            while len(sockets) < 1000:
                sockets.append(context.socket(zmq.PULL))
                sockets[-1].bind("tcp://127.0.0.1:*")
        except zmq.ZMQError as refused:
            assert refused.errno == errno.EMFILE, refused
        else:
            raise AssertionError("nothing was refused")
        for socket in sockets: socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        pull.bind("tcp://127.0.0.1:*")
        push.connect(pull.LAST_ENDPOINT)
        push.send(b"message")
        print(pull.recv().decode(), end="")
        for socket in (first, pull, push): socket.close()
        context.term()
        """,
        )
        == "message"
    )


def test_accepting_without_descriptors_goes_on_later(program: Program) -> None:
    assert (
        program(
            """
        import resource, os, socket, sys
        context = zmq.Context()
        pull = context.socket(zmq.PULL)
        pull.RCVTIMEO = 25000
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        pull.poll(0)
        spare = [socket.socket() for _ in range(10)]
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        fillers = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        try:
            while True: fillers.append(os.dup(0))
        except OSError: pass
        # They are in the listener's queue; nobody can accept them.
        for client in spare: client.connect(("127.0.0.1", port))
        assert not pull.poll(300)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers: os.close(filler)
        push = context.socket(zmq.PUSH)
        push.linger = 0
        push.connect(f"tcp://127.0.0.1:{port}")
        push.send(b"message")
        print(pull.recv().decode(), end="")
        for each in (*spare, pull, push): each.close()
        context.term()
        """
        )
        == "message"
    )


def test_a_terminated_program_ends(program: Program) -> None:
    assert (
        program(
            """
        import os, signal
        context = zmq.Context()
        pull = context.socket(zmq.PULL)
        pull.bind_to_random_port("tcp://127.0.0.1")
        import threading
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        pull.recv()
        """,
            -signal.SIGTERM,
        )
        == ""
    )
