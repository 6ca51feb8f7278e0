"""The engine of flows: it owns the journal, and gives threads to runs that can go on.

A run is in a thread's hands, or queued for one, or suspended until a time or an event, or at rest. `_lock` guards these
states; the journal and the records have their own order. Every change of a run is first on the disk, and then in
`history`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Literal, Never

from ropewalk._errors import (
    FlowCancelled,
    FlowCodeChanged,
    FlowError,
    FlowsClosed,
    FlowUnknown,
    JournalError,
    is_of_shutdown,
    of_thread,
)
from ropewalk._retry import Retry
from ropewalk._step import hide_frames
from ropewalk.flows._execution import HELD_BACK, Carried, Unwound
from ropewalk.flows._failures import packed_error, text_of, unrecordable, without_secrets
from ropewalk.flows._flow import Flow, digest_of_code
from ropewalk.flows._history import History, RunHistory, files_of, history_of
from ropewalk.flows._keeper import Keeper
from ropewalk.flows._outbox import Outbox
from ropewalk.flows._packed import Packer, is_large
from ropewalk.flows._records import TITLE, Entry, Kind, encoded, made
from ropewalk.flows._run import Run
from ropewalk.journal import Journal

_log = logging.getLogger("ropewalk.flows")

#: So many names of events are logged at the end.
_SHOWN = 5

Phase = Literal["queued", "executing", "suspended", "resting", "ended"]


class _Later(threading.local):
    """What a thread calls when it has given the engine's lock back."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()


class Engine:
    """Runs the flows of one journal."""

    def __init__(self, path: str, pool: Executor | None, max_running: int, deliveries: Retry) -> None:
        self.path = path
        self.pool = pool
        self._owner = os.getpid()
        self._max_running = max_running
        self.journal = Journal(path)
        try:
            self.history = self._recovered()
        except BaseException:
            self.journal.close()
            raise
        self.packer = Packer(path + ".results")
        self.outbox = Outbox(self, deliveries)
        #: Guards the states of the runs, and everything below.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._later = _Later()
        self.runs: dict[str, Run[Any]] = {}
        self.ready: deque[Run[Any]] = deque()
        self._threads: set[threading.Thread] = set()
        #: Suspended runs by the time at which they go on.
        self._timers: list[tuple[float, int, Run[Any]]] = []
        self._numbers = itertools.count()
        #: Executions that wait for an event in their threads, and runs that were suspended until one.
        self._awaited: dict[str, set[Carried]] = {}
        self._until_event: dict[str, set[Run[Any]]] = {}
        #: The ids of runs whose starts are being written; set when that is over.
        self.starting: dict[str, threading.Event] = {}
        #: Whether a change was interrupted in its middle; see `_mending`.
        self.is_torn = False
        #: Held while runs are forgotten.
        self.forgetting = threading.Lock()
        #: Whether records were written that no thread waits for.
        self.is_unsynced = False
        self._executing: set[Carried] = set()
        self._closing: Literal["", "finish", "stop", "abort"] = ""
        self.keeper = Keeper(self)

    def _recovered(self) -> History:
        if self.journal.last == 0:
            self.journal.append(TITLE)
            return History(lean=True)
        return history_of(self.path, lean=True)

    def run(self, id: str) -> Run[Any]:
        """Returns the run of an id.

        Raises:
            FlowUnknown: there is none.
        """
        run = self.runs.get(id)
        if run is None:
            raise FlowUnknown(f"{self.path} has no run {id!r}")
        return run

    # --- the program's code -----------------------------------------------------------------------------------------

    def call_later(self, call: Callable[[], object]) -> None:
        """Lets this thread call what may be code of the program, once `call_now` says that it has no lock.

        Callbacks of runs and handlers of the log may wait for another thread, which may need the lock.
        """
        self._later.calls.append(call)

    def call_now(self) -> None:
        """Calls what this thread has put off."""
        calls = self._later.calls
        while calls:
            calls.popleft()()

    # --- records ----------------------------------------------------------------------------------------------------

    def record(self, made_entries: list[Entry]) -> None:
        """Puts records on the disk; when it returns they are there, and applied."""
        if len(made_entries) == 1:
            self.journal.append(encoded(made_entries[0]))
        else:
            self.journal.append_all([encoded(entry) for entry in made_entries])
        self.apply(made_entries)

    def record_soon(self, entry: Entry) -> None:
        """Writes a record with the next one of any thread, or a second later."""
        self.journal.append_nowait(encoded(entry))
        self.is_unsynced = True
        self.apply([entry])

    def apply(self, made_entries: Sequence[Entry]) -> None:
        """Applies records that are on the disk."""
        if all(map(_is_plain, made_entries)):
            # The ends of steps concern their own run alone, and its threads apply them.
            for entry in made_entries:
                self.history.apply(entry)
            return
        committed: list[RunHistory] = []
        with self.lock:
            for entry in made_entries:
                self.history.apply(entry)
                self.packer.recorded(files_of(entry))
                if entry.kind is Kind.FINISHED and entry.fields[3]:
                    run = self.history.numbered(entry.run)
                    if run is not None:
                        committed.append(run)
                elif entry.kind is Kind.EVENT:
                    self._wake(entry.text(0), entry.run)
        for run in committed:
            self.outbox.add(run)

    # --- what executions ask ----------------------------------------------------------------------------------------

    def event_after(self, name: str, position: int, run: int) -> tuple[int, bytes] | None:
        """Returns the first event of a name for a run from a position on: its position, and its packed value."""
        with self.lock:
            events = self.history.events.get(name)
            return None if events is None else events.after(position, run)

    def await_event(self, name: str, carried: Carried) -> None:
        """Wakes an execution when an event of a name comes."""
        with self.lock:
            self._awaited.setdefault(name, set()).add(carried)

    def await_no_event(self, name: str, carried: Carried) -> None:
        """Wakes an execution no more."""
        with self.lock:
            waiting = self._awaited.get(name, set())
            waiting.discard(carried)
            if not waiting:
                self._awaited.pop(name, None)

    def _wake(self, name: str, number: int) -> None:
        """Wakes the runs that wait for an event of a name, or the one whose number it is."""
        for carried in self._awaited.get(name, ()):
            if number in (0, carried.history.number):
                carried.woken.set()
        for run in tuple(self._until_event.get(name, ())):
            if number in (0, run._history.number) and run._waiting is not None and run._waiting.is_over():
                self.queue(run)

    def resume(self, run: Run[Any], flow: Flow[..., Any] | None) -> None:
        """Lets a run go on that has not ended, if its code allows it. The lock is held."""
        run._is_unknown = flow is None
        if flow is None:
            missing = FlowUnknown(
                f"this program has no flow of the name {run.flow!r}, and so the run {run.id!r} waits"
            )
            self.rest(run, missing)
            return
        run._problem = None
        history, code = run._history, digest_of_code(flow)
        if history.code != code:
            if any(step.state != "running" for step in history.steps.values()) and flow.code == "refuse":
                problem = FlowCodeChanged(
                    f"the code of the flow {flow.name} is not that with which the run {history.id!r} began. The run "
                    f"stays as it is; flows.get({history.id!r}).retry() goes on with the new code behind the finished "
                    f"steps, and `flows fork --from STEP` begins anew from a step"
                )
                self.call_later(partial(_log.warning, "%s", problem))
                self.rest(run, problem)
                return
            kind = Kind.RESTARTED if flow.code == "restart" else Kind.RECODED
            self.record([made(kind, history.number, code)])
        run._code_flow = flow
        self.queue(run)

    # --- threads ----------------------------------------------------------------------------------------------------

    def queue(self, run: Run[Any]) -> None:
        """Lets a thread execute a run soon."""
        if run._phase in ("queued", "executing") or self._closing in ("stop", "abort"):
            return
        self._wakes_no_more(run)
        run._phase = "queued"
        run._problem = None
        run._renew()
        self.ready.append(run)
        self._add_thread()

    def _add_thread(self) -> None:
        """Starts a thread for the runs that are queued, if there may be another one."""
        if len(self._threads) >= self._max_running:
            return
        thread = threading.Thread(target=self._work, name="ropewalk-flow", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.discard(thread)
            while self.ready and not self._threads:
                # Nobody would come for it.
                run = self.ready.popleft()
                self.rest(run, error if is_of_shutdown(error) else of_thread("ropewalk-flow", error))

    def _wakes_no_more(self, run: Run[Any]) -> None:
        """Forgets what a suspended run waits for."""
        waiting, run._waiting = run._waiting, None
        if waiting is not None and waiting.event is not None:
            runs = self._until_event.get(waiting.event, set())
            runs.discard(run)
            if not runs:
                self._until_event.pop(waiting.event, None)

    def _work(self) -> None:
        me = threading.current_thread()
        try:
            while self._work_once():
                pass
        finally:
            with self.lock:
                self._threads.discard(me)
                self._changed.notify_all()

    def _work_once(self) -> bool:
        """Executes the next run; returns whether there was one."""
        with self.lock:
            if not self.ready or self._closing in ("stop", "abort"):
                # In the same step: what is queued from here on gets a thread of its own.
                self._threads.discard(threading.current_thread())
                return False
            run = self.ready.popleft()
            carried = None
            if run._history.state == "running":
                run._phase = "executing"
                carried = run._carried = Carried(self, run._history)
                self._executing.add(carried)
        if carried is None:
            self.cancelled(run)
            self.call_now()
            return True
        try:
            self._execute(run, carried)
        except BaseException as error:  # A defect of ours shall cost no other run its thread.
            _log.exception("run %r has stopped", run.id)
            self.rest(run, error)
        finally:
            self._executing.discard(carried)
            self.call_now()
        return True

    def _execute(self, run: Run[Any], carried: Carried) -> None:
        assert run._code_flow is not None
        try:
            value = carried.go(run._code_flow)
        except Unwound as unwound:
            # A suspended run may wait for long: the values of its function are not kept meanwhile.
            self._unwind(run, carried, unwound.with_traceback(None))
        except BaseException as error:
            hide_frames(error)
            self._end(run, None, error)
        else:
            unasked = carried.unasked()
            if unasked:
                _log.warning(
                    "run %r has not asked again for %d steps that an earlier execution had finished: what %s passes to "
                    "its steps, or which steps it runs, depends on something that changes from one execution to the "
                    "next. Read the clock, random numbers and files in a step",
                    run.id,
                    unasked,
                    run.flow,
                )
            self._end(run, value, None)

    def abandon(self, carried: Carried, unwound: Unwound) -> Never:
        """Ends an execution whose function holds back what should end it, and blocks the thread, which is lost.

        No exception would end the function: it may be a loop that catches all of them. If the thread went on, it would
        take a core for good.
        """
        run = self.runs[carried.history.id]
        if unwound.why == "suspended":
            error = FlowError(
                f"the flow {run.flow} has held back {HELD_BACK} times what suspends a run while it waits: its code "
                f"catches BaseException. Write `except Exception` there, or raise again what is no Exception. The run "
                f"has failed, and its thread stays blocked until the program ends"
            )
            _log.error("run %r: %s", run.id, error)
            self._end(run, None, error)
        else:
            self._unwind(run, carried, unwound)
        with self.lock:
            self._executing.discard(carried)
            me = threading.current_thread()
            me.name = "ropewalk-flow-lost"
            self._threads.discard(me)
            if self.ready:
                self._add_thread()
            self._changed.notify_all()
        self.call_now()
        while True:
            threading.Event().wait()

    def _end(self, run: Run[Any], value: Any, error: BaseException | None) -> None:
        """Records the end of a run."""
        try:
            fields = b"succeeded", b"", b""
            if error is None:
                try:
                    fields = (b"succeeded", self.packer.pack(value), b"")
                except JournalError:
                    raise
                except Exception as unpicklable:
                    error = unrecordable("flow", run.flow, unpicklable)
            if error is not None:
                fields = (b"failed", packed_error(error), text_of(error).encode())
            with self.lock:
                if run._history.state == "running":
                    self.record([made(Kind.ENDED, run._history.number, *fields)])
        except JournalError as failure:
            self.rest(run, FlowsClosed(_CLOSED.format(run.id)) if self._closing else failure)
            return
        if run._history.state == "cancelled":
            self.cancelled(run)
        else:
            self._settle(run, "ended", value, None if error is None else without_secrets(error))

    def _unwind(self, run: Run[Any], carried: Carried, unwound: Unwound) -> None:
        match unwound.why:
            case "suspended":
                self._suspend(run, carried)
            case "cancelled":
                self.cancelled(run)
            case "closed":
                self.rest(run, FlowsClosed(_CLOSED.format(run.id)))
            case "broken" | "interrupted":
                cause = unwound.cause
                _log.warning("run %r has stopped, and can go on later: %s", run.id, cause)
                self.rest(run, cause or FlowError(f"the run {run.id!r} has stopped"))

    def _suspend(self, run: Run[Any], carried: Carried) -> None:
        waiting = carried.waiting
        assert waiting is not None
        with self.lock:
            is_cancelled = run._history.state == "cancelled"
            if not is_cancelled:
                run._phase, run._carried, run._waiting = "suspended", None, waiting
                if waiting.event is not None:
                    self._until_event.setdefault(waiting.event, set()).add(run)
                if waiting.until is not None:
                    heapq.heappush(self._timers, (waiting.until, next(self._numbers), run))
                if waiting.is_over():
                    self.queue(run)
                self._changed.notify_all()
        if is_cancelled:
            self.cancelled(run)

    def rest(self, run: Run[Any], problem: BaseException) -> None:
        """Lets a run be as it is, though it has not ended, and says why."""
        run._problem = problem
        self._settle(run, "resting", None, problem)

    def end_cancelled(self, run: Run[Any]) -> None:
        """Ends what a run does whose cancellation is recorded. The lock is held."""
        carried = run._carried
        if run in self.ready:
            self.ready.remove(run)
        if run._phase == "resting":
            # What stopped it is no longer its outcome.
            run._problem, run._is_unknown = None, False
            run._renew(anew=True)
        if carried is None:
            self.cancelled(run)
        else:
            self.call_later(partial(carried.stop, "cancelled", running=True))

    def look_again(self) -> None:
        """Wakes what may go on, and gives threads to what is queued. The lock is held."""
        self._threads -= {thread for thread in self._threads if thread.ident is None}
        for waiting in self._awaited.values():
            for carried in waiting:
                carried.woken.set()
        for run in self.runs.values():
            if run._phase == "queued" and run not in self.ready:
                self.ready.append(run)
            elif run._phase == "suspended" and (run._waiting is None or run._waiting.is_over()):
                self.queue(run)
        for _ in self.ready:
            self._add_thread()

    def cancelled(self, run: Run[Any]) -> None:
        """Gives those that wait for a run its cancellation, which is recorded."""
        self._settle(run, "ended", None, FlowCancelled(f"the run {run.id!r} of {run.flow} was cancelled"))

    def _settle(self, run: Run[Any], phase: Phase, value: Any, error: BaseException | None) -> None:
        """Ends an execution, and gives those that wait for it the outcome."""
        with self.lock:
            self._wakes_no_more(run)
            run._phase, run._carried = phase, None
            # In the same step: a retry from here on makes room for an outcome of its own.
            settle = run._claim()
            self._changed.notify_all()
        self.call_later(partial(settle, value, error))

    def refuse_request(self, request: int, what: str, why: str) -> None:
        """Records that a request was refused, if there is one."""
        if request:
            self.record([made(Kind.REFUSED, 0, what.encode(), why.encode(), request=request)])

    # --- what the keeper asks ---------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """Whether the flows are being closed, or were."""
        return self._closing != ""

    def executing(self) -> list[Carried]:
        """Returns the executions that have a thread."""
        return list(self._executing)

    def wake_due(self) -> None:
        """Lets the runs go on whose time has come."""
        with self.lock:
            now = time.time()
            while self._timers and self._timers[0][0] <= now:
                run = heapq.heappop(self._timers)[2]
                if run._phase == "suspended" and run._waiting is not None and run._waiting.is_over():
                    self.queue(run)

    def pause(self, seconds: float) -> bool:
        """Waits until a run's time has come, so many seconds at most; returns whether the flows are open."""
        with self.lock:
            due = self._timers[0][0] - time.time() if self._timers else seconds
            if not self._closing:
                self._changed.wait(max(0.0, min(due, seconds)))
            return not self._closing

    # --- the end ----------------------------------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        """Whether no run is in a thread's hands or queued for one, but for the calling thread's."""
        return not self.ready and self._threads <= {threading.current_thread()}

    def wait(self, timeout: float | None) -> bool:
        """Waits until every run has ended, or sleeps, or waits for an event, and its effects are delivered."""
        self.check_owner()
        end = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            if not self._changed.wait_for(self._is_idle, timeout):
                return False
        return self.outbox.wait(None if end is None else max(0.0, end - time.monotonic()))

    def close(self, how: Literal["finish", "stop", "abort"]) -> None:
        """Ends the work: after the runs that are running, after their steps, or at once."""
        if os.getpid() != self._owner:
            return
        if how == "finish" and not self.journal.closed:
            self.wait(None)
        with self.lock:
            self._closing = how
            carried = [run._carried for run in self.runs.values() if run._carried is not None]
            self._changed.notify_all()
        for one in carried:
            one.stop("closed", running=how == "abort")
        if how != "abort":
            with self.lock:
                self._changed.wait_for(lambda: self._threads <= {threading.current_thread()})
        self.outbox.close(wait=how != "abort")
        if how != "abort" and self.keeper.is_alive() and threading.current_thread() is not self.keeper:
            self.keeper.join()
        self._say_what_waits()
        self.journal.close()
        for run in list(self.runs.values()):
            if run._phase in ("queued", "executing", "suspended"):
                self.rest(run, FlowsClosed(_CLOSED.format(run.id)))
        self.call_now()

    def _say_what_waits(self) -> None:
        """Logs how many runs sleep or wait: a program that ends with them looks as if it had done everything."""
        found = [run._waiting for run in list(self.runs.values()) if run._phase == "suspended"]
        waits = [waiting for waiting in found if waiting is not None]
        times = [waiting.until for waiting in waits if waiting.event is None and waiting.until is not None]
        names = list(dict.fromkeys(waiting.event for waiting in waits if waiting.event is not None))
        parts: list[str] = []
        if times:
            first = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(times)))
            parts.append(f"{len(times)} for a time, the first until {first}")
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            parts.append(f"{len(waits) - len(times)} for events ({shown})")
        if parts:
            _log.info(
                "%s was closed with %d run%s asleep or waiting: %s. They go on when Flows opens the file again",
                self.path,
                len(waits),
                "" if len(waits) == 1 else "s",
                ", and ".join(parts),
            )

    def check_owner(self) -> None:
        """Refuses a forked child, in which nothing runs.

        Raises:
            FlowsClosed: this process is one.
        """
        if os.getpid() != self._owner:
            raise FlowsClosed("these flows belong to the process that this one was forked from")

    def check_open(self) -> None:
        """Refuses what comes after the end.

        Raises:
            FlowsClosed: the flows were closed, or belong to another process.
        """
        self.check_owner()
        if self.journal.closed or self._closing:
            raise FlowsClosed("the flows were closed")


def _is_plain(entry: Entry) -> bool:
    """Whether a record is the end of a step that has no effects, and nothing in files."""
    return (
        entry.kind is Kind.FINISHED and not entry.fields[3] and not is_large(entry.fields[2])
    ) or entry.kind is Kind.FAILED


_CLOSED = "the flows were closed before the run {!r} had ended. It goes on when Flows opens the journal again"
