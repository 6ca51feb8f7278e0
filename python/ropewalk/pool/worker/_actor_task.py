"""`RunningTask`: the task that an actor of a Ray cluster runs, for the task's own code; and what it tells the program.

The program cannot be called from an actor. So it keeps one call of the actor, `Line.listen`, waiting beside the task:
that returns when the task has something to say, and is made again. What the program has for the task comes by calls
that return at once. A task that says nothing costs no call.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

from ropewalk.pool.wire import _exceptions, _serialize

#: Seconds between two reports of a task's progress; a call does not wait for them.
_PACE = 0.05
#: The longest note that is sent, in characters; the program cuts it to so many bytes.
_MOST_NOTE = 160

#: A task's number, and which attempt of it this is.
Attempt = tuple[int, int]
#: What is done, of how much, and a note.
Progress = tuple[float, float | None, str | None]
#: What a task says: how far it is, and its call of a function, which is a number and a pickle.
Said = tuple[Attempt, Progress | None, tuple[int, bytes] | None]
#: A run, as the program describes it: the task and the attempt, the seconds that are left to it, and whether it is
#: asked to stop already.
Run = tuple[int, int, float | None, bool]


class Line:
    """What an actor's task and the program tell each other; one for each actor."""

    def __init__(self) -> None:
        #: Guards all below and what a task has said. No code of the program's runs while it is held.
        self.changed = threading.Condition()
        self._attempt: Attempt = (0, 0)
        #: The last task that is asked to stop; the order may come before the task.
        self._stopped = 0
        #: What has not been heard yet.
        self._progress: Progress | None = None
        self._call: tuple[int, bytes] | None = None
        #: The number of the last call, and its answer: whether the function returned, and the pickle.
        self._calls = 0
        self._answer: tuple[bool, list[Any]] | None = None
        #: When the next progress may be heard.
        self._next = 0.0
        self._closed = False

    def begin(self, run: Run) -> RunningTask:
        """Begins a task."""
        number, attempt, left, asked = run
        with self.changed:
            self._attempt = number, attempt
            self._progress = self._call = self._answer = None
            if asked:
                self._stopped = number
        return RunningTask(self, self._attempt, left)

    def is_stopped(self, task: int) -> bool:
        """Whether this task is asked to stop."""
        return self._stopped == task

    def say(self, progress: Progress) -> None:
        """Has how far the task is heard; the caller holds the lock."""
        if self._progress is None:
            self.changed.notify_all()
        self._progress = progress

    def ask(self, call: bytes) -> tuple[bool, list[Any]]:
        """Has a call heard, and waits for its answer."""
        with self.changed:
            self._calls += 1
            self._call = self._calls, call
            self._answer = None
            self.changed.notify_all()
            while (answer := self._taken()) is None:
                self.changed.wait()
            return answer

    def _taken(self) -> tuple[bool, list[Any]] | None:
        answer, self._answer = self._answer, None
        return answer

    # --- the program's calls ----------------------------------------------------------------------------------------

    def listen(self) -> Said | None:
        """Waits until the task has something to say; `None` when the actor is to leave."""
        with self.changed:
            while not self._closed and self._call is None:
                wait = self._next - time.monotonic()
                if self._progress is not None and wait <= 0:
                    break
                self.changed.wait(None if self._progress is None else wait)
            if self._closed:
                return None
            progress, self._progress = self._progress, None
            call, self._call = self._call, None
            if progress is not None:
                self._next = time.monotonic() + _PACE
            return self._attempt, progress, call

    def stop(self, task: int) -> None:
        """Asks a task to stop, now or when it begins."""
        with self.changed:
            self._stopped = task

    def answer(self, task: int, number: int, returned: bool, parts: list[Any]) -> None:
        """Answers a call of a task."""
        with self.changed:
            if (task, number) == (self._attempt[0], self._calls):
                self._answer = returned, parts
                self.changed.notify_all()

    def close(self) -> None:
        """Lets `listen` return for good."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()


class RunningTask:
    """The task that a thread of an actor runs: see `ropewalk._worker.RunningTask`."""

    __slots__ = ("_attempt", "_calls", "_ends", "_last", "_line", "_over", "_pid", "_thread")

    def __init__(self, line: Line, attempt: Attempt, left: float | None) -> None:
        """For `Line.begin`; `enter` says which thread runs it."""
        self._line = line
        self._attempt = attempt
        self._ends = None if left is None else time.monotonic() + left
        self._last: Progress | None = None
        self._over = False
        self._pid = os.getpid()
        self._thread = 0
        #: Whether its thread waits for the answer to a call.
        self._calls = False

    def enter(self) -> None:
        """The calling thread runs it from now on."""
        self._thread = threading.get_ident()

    def end(self) -> Progress | None:
        """Ends it; returns what it has said last."""
        with self._line.changed:
            self._over = True
            return self._last

    def id(self) -> int:
        return self._attempt[0]

    def attempt(self) -> int:
        return self._attempt[1]

    def left(self) -> float | None:
        if self.ended():
            return 0.0
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def asked_to_stop(self) -> bool:
        return self._line.is_stopped(self._attempt[0])

    def ended(self) -> bool:
        return self._over or self.forked()

    def forked(self) -> bool:
        """Whether this is a forked child of the process that runs it."""
        return os.getpid() != self._pid

    def local_here(self) -> bool:
        """False: the functions of the program are elsewhere."""
        return False

    def beat(self) -> None:
        """Reports nothing: no pool of actors looks for tasks that hang."""

    def report(self, done: float, total: float, note: str | None) -> None:
        if self.forked():
            return  # Another thread may have held the lock.
        progress = done, None if math.isnan(total) else total, None if note is None else note[:_MOST_NOTE]
        with self._line.changed:
            if not self._over:
                self._last = progress
                self._line.say(progress)

    def call(self, call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
        if self.ended() or threading.get_ident() != self._thread:
            raise _serialize.errors().PoolError(
                "only the thread that runs a task can make its calls, and only while the task runs"
            )
        encoded = _serialize.encode_answer(call, None)
        if self._calls:
            # In a finalizer that runs during the wait.
            raise _serialize.errors().PoolError(
                "this thread waits for the answer to another call already, and a task makes one call at a time"
            )
        self._calls = True
        try:
            returned, parts = self._line.ask(encoded)
        finally:
            self._calls = False
        if not returned:
            _serialize.raise_answer(bytes(parts[0]), False)
        return _exceptions.loads(parts[0], ())
