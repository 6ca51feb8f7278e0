"""The tasks of `soak`, as its workers import them: each notes in a file that it was begun."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

import ropewalk

#: Where the tasks of this worker note their numbers; opened by the initializer.
_marks = -1
_leaked: list[bytes] = []


def open_marks(path: str) -> None:
    """The initializer."""
    global _marks
    _marks = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def begin(number: int) -> None:
    # One write to a file that is opened to append: no other worker's bytes come in between.
    os.write(_marks, struct.pack("<q", number))


def plain(number: int, seconds: float = 0.0) -> int:
    begin(number)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return number


def asleep(number: int, seconds: float) -> int:
    begin(number)
    time.sleep(seconds)
    return number


def raising(number: int) -> int:
    begin(number)
    raise ValueError(number)


def leaving(number: int) -> int:
    begin(number)
    os._exit(3)


def leaking(number: int) -> int:
    begin(number)
    _leaked.append(bytes(1 << 20))
    return number


def echo(number: int, data: bytes) -> bytes:
    begin(number)
    return data


def until_attempt(number: int, attempt: int) -> int:
    begin(number)
    task = ropewalk.current_task()
    assert task is not None
    if task.attempt < attempt:
        raise ValueError(number)
    return number


def items(number: int, count: int) -> Iterator[tuple[int, int]]:
    begin(number)
    for item in range(count):
        yield number, item


class Counted:
    """A session's state, and an actor: how many calls it has had."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self, number: int) -> tuple[int, int]:
        begin(number)
        self.calls += 1
        return number, self.calls


def in_session(number: int) -> int:
    begin(number)
    session = ropewalk.current_session()
    assert session is not None
    assert session.state.call.__func__ is Counted.call
    return number
