"""The parts of `Store.run_all` at work: in threads that help the caller, or in worker processes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextvars import Context, copy_context
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeAlias

from ropewalk._errors import QueueFull, StateError
from ropewalk.state._remote import runs_elsewhere
from ropewalk.state._threads import Call

if TYPE_CHECKING:
    from ropewalk.state._prepared import Prepared
    from ropewalk.state._store import Store

#: A task and its arguments.
Taken: TypeAlias = tuple[Any, tuple[Any, ...], dict[str, Any]]
#: What a job returned, and its commit, if it has one.
Outcome: TypeAlias = tuple[Any, tuple[int, int] | None]
#: The outcomes of jobs in their order; `None` at the end for one that runs again after a conflict.
Ended: TypeAlias = "list[Outcome | None]"


class Outcomes:
    """What the jobs of a run have returned so far. Each part writes to a list of its own, in one thread at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[tuple[Sequence[int], Ended]] = []
        #: The job that has raised what ends the run, or that would be next; `None` if none is known.
        self.at: int | None = None
        #: Whether what ends the run says what was committed.
        self.is_noted = False

    @property
    def have_begun(self) -> bool:
        """Whether a job has."""
        return bool(self._parts)

    def part(self, numbers: Sequence[int]) -> Ended:
        """Returns the list for the outcomes of jobs that run in this order."""
        ended: Ended = []
        self._parts.append((numbers, ended))
        return ended

    def all(self) -> Ended:
        """The outcome of each job; `None` for one that has not ended."""
        found: Ended = [None] * self._count
        for numbers, ended in list(self._parts):
            for number, outcome in zip(numbers, ended, strict=False):
                found[number] = outcome
        return found


def run_job(store: Store[Any], one: Prepared, job: Taken, claim: int, ended: Ended) -> None:
    """Runs a job and keeps its outcome."""
    function, rule, meta, _ = one
    _, args, kwargs = job
    # In one call that is not Python: an interrupt would else come between the commit and the note of it.
    ended.extend(starmap(store._attempt, ((function, rule, meta, claim, args, kwargs),)))
    if ended[-1] is None:
        ended[-1:] = starmap(store._again, ((one, args, kwargs),))


class _Failures:
    """What jobs have raised."""

    def __init__(self) -> None:
        self._found: list[tuple[int, BaseException]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, number: int, error: BaseException) -> None:
        self._found.append((number, error))

    def first(self) -> tuple[int, BaseException] | None:
        """The one to raise: that of the first job, but an interrupt goes before all errors; the others are dropped."""
        # The frames that the exceptions refer to have this object.
        found, self._found = self._found, []
        return min(found, key=lambda one: (isinstance(one[1], Exception), one[0]), default=None)


class SideBySide:
    """Parts that run in the calling thread and in those that help it.

    Every thread takes the next part when it has done one. So the caller waits for no thread that has not begun: where
    the pool is full, the caller does everything.
    """

    def __init__(
        self,
        store: Store[Any],
        prepared: dict[int, Any],
        taken: list[Taken],
        outcomes: Outcomes,
        claim: int,
    ) -> None:
        self._store = store
        self._prepared = prepared
        self._taken = taken
        self._outcomes = outcomes
        self._claim = claim
        self._todo: deque[tuple[list[int], Context]] = deque()
        self._failures = _Failures()
        #: No further job begins.
        self._is_over = False
        #: Threads that help and have not ended.
        self._helping = 0
        self._changed = threading.Condition()
        #: Calls for help. They are emptied at the end, because the threads may have no time for them until much later.
        self._calls: list[Call] = []
        self._futures: list[Future[None]] = []
        #: A job may fork. The child has no threads that help.
        self._pid = os.getpid()

    def run(self, parts: list[list[int]]) -> tuple[int, BaseException] | None:
        """Runs all; returns the job that has failed and its exception."""
        # In a copy for each part, what a job sets is seen by the later jobs of its part, whichever thread runs them.
        self._todo.extend((part, copy_context()) for part in parts)
        try:
            self._call_for_help(len(parts) - 1)
            self._work()
            self._dismiss()
            self._join()
        except BaseException:
            # Ctrl-C between two jobs, or in the wait. A second one does not wait.
            self._is_over = True
            self._dismiss()
            self._join()
            raise
        if not self._failures and not self._is_here():
            raise StateError(
                "this process was forked by a job of run_all. Other jobs run in the process that it was forked from"
            )
        # Not kept in a name: the exception refers to this frame.
        return self._failures.first()

    def _is_here(self) -> bool:
        """Whether this is the process in which the run began."""
        return os.getpid() == self._pid

    def _call_for_help(self, times: int) -> None:
        executor, threads = self._store._pool, self._store._threads
        # A call for help is not worth a task that waits.
        may_drop = getattr(executor, "_may_drop", lambda: False)()
        if executor is None or may_drop or runs_elsewhere(executor):
            call = Call(self._help)
            self._calls.append(call)
            threads.call(call, times)
            return
        if threads.have_no_time():
            return
        submit: Callable[[Callable[[], None]], Future[None]] = getattr(
            executor, "submit_nowait", executor.submit
        )
        for _ in range(times):
            call = threads.asked(self._help)
            self._calls.append(call)
            try:
                self._futures.append(submit(call))
            except QueueFull:
                return

    def _dismiss(self) -> None:
        """Takes the calls for help back."""
        for call in self._calls:
            call.withdraw()
            self._store._threads.withdraw(call)
        for future in self._futures:
            future.cancel()

    def _help(self) -> None:
        with self._changed:
            if self._is_over or not self._todo:
                return
            self._helping += 1
        held = self._store._held
        # The caller's claim is that of all its jobs; this thread may be in a transaction of its own.
        before, held.claim = held.claim, self._claim
        try:
            self._work()
        finally:
            held.claim = before
            # In a forked child nothing waits, and another thread may have had the lock.
            if self._is_here():
                with self._changed:
                    self._helping -= 1
                    self._changed.notify_all()

    def _join(self) -> None:
        if not self._is_here():
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._helping)

    def _work(self) -> None:
        while not self._is_over and self._is_here():
            try:
                part, context = self._todo.popleft()
            except IndexError:
                return
            context.run(self._run_part, part)

    def _run_part(self, part: list[int]) -> None:
        store, prepared, claim = self._store, self._prepared, self._claim
        ended = self._outcomes.part(part)
        for number in part:
            if self._is_over or not self._is_here():
                return
            job = self._taken[number]
            try:
                run_job(store, prepared[id(job[0])], job, claim, ended)
            except BaseException as error:
                self._is_over = True
                self._failures.add(number, error)
                return


class Elsewhere:
    """Parts whose jobs go to worker processes, each once the one before it in its part has committed."""

    def __init__(self, store: Store[Any], executor: Executor, taken: list[Taken], outcomes: Outcomes) -> None:
        self._store = store
        self._executor = executor
        self._taken = taken
        self._outcomes = outcomes
        self._failures = _Failures()
        self._going: dict[Future[Any], tuple[int, Iterator[int], Ended]] = {}

    def run(self, parts: list[list[int]]) -> tuple[int, BaseException] | None:
        """Runs all; returns the job that has failed and its exception."""
        try:
            for part in parts:
                self._begin(iter(part))
            while self._going:
                for future in wait(self._going, return_when=FIRST_COMPLETED).done:
                    self._note(future)
                    self._begin(self._going.pop(future)[1])
        except BaseException:
            # Ctrl-C: what a worker has is committed yet. A second one does not wait.
            try:
                wait(self._going)
            finally:
                for future in list(self._going):
                    if future.done():
                        self._note(future)
            raise
        return self._failures.first()

    def _note(self, future: Future[Any]) -> None:
        """Keeps the outcome of a job that has ended."""
        number, _, ended = self._going[future]
        error = CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._failures.add(number, error)
            return
        # Its commit is on the disk by now.
        ended[:] = [(future.result(), None)]

    def _begin(self, rest: Iterator[int]) -> None:
        number = None if self._failures else next(rest, None)
        if number is None:
            return
        task, args, kwargs = self._taken[number]
        ended = self._outcomes.part((number,))
        try:
            future = self._store.submit(task, *args, **kwargs)
        except Exception as error:
            self._failures.add(number, error)
        else:
            self._going[future] = number, rest, ended
