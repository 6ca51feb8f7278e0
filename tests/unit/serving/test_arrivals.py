"""What a server's main thread waits for: no signal and nothing that a thread puts is missed."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from tests.polling import until

from ropewalk.serving._signals import signals


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    main = threading.get_ident()

    def send() -> None:
        until(lambda: sys._current_frames()[main].f_code.co_name == "get")
        # The kernel may give a signal of the process to any of its threads.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with signals() as (came, heard):
        heard.set()
        sender = threading.Thread(target=send)
        sender.start()
        assert came.get() == signal.SIGTERM
        sender.join()


def test_what_comes_before_the_wait_is_found_in_it() -> None:
    with signals() as (came, heard):
        heard.set()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        error = ValueError("x")
        threading.Thread(target=came.put, args=(error,)).start()
        assert [came.get() for _ in range(4)] == [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, error]


def test_ctrl_c_interrupts_before_it_is_heard() -> None:
    with signals() as (_, _), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_more_than_the_pipe_holds_is_not_waited_for() -> None:
    with signals() as (came, _):
        for number in range(100_000):
            came.put(number)
        assert [came.get() for _ in range(100_000)] == list(range(100_000))


def test_what_comes_after_the_end_writes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with signals() as (came, _):
        pass
    with monkeypatch.context() as patched:
        # The number of a closed descriptor may be another's by now.
        patched.setattr(os, "write", lambda *_: pytest.fail("it writes"))
        came.put(1)
    assert signal.set_wakeup_fd(-1) == -1
    assert [signal.getsignal(number) for number in numbers] == before
