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
from typing import Any, Literal, Never

from ropewalk._errors import (
    FlowCancelled,
    FlowCodeChanged,
    FlowError,
    FlowExists,
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
from ropewalk.flows._flow import Flow, digest_of_code, known
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
        self._outbox = Outbox(self, deliveries)
        #: Guards the states of the runs, and everything below.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.runs: dict[str, Run[Any]] = {}
        self._ready: deque[Run[Any]] = deque()
        self._threads: set[threading.Thread] = set()
        #: Suspended runs by the time at which they go on.
        self._timers: list[tuple[float, int, Run[Any]]] = []
        self._numbers = itertools.count()
        #: Executions that wait for an event in their threads, and runs that were suspended until one.
        self._awaited: dict[str, set[Carried]] = {}
        self._until_event: dict[str, set[Run[Any]]] = {}
        #: The ids of runs whose starts are being written; set when that is over.
        self._starting: dict[str, threading.Event] = {}
        #: Held while runs are forgotten.
        self.forgetting = threading.Lock()
        #: Whether records were written that no thread waits for.
        self.is_unsynced = False
        self._executing: set[Carried] = set()
        self._closing: Literal["", "finish", "stop", "abort"] = ""
        self._keeper = Keeper(self)

    def _recovered(self) -> History:
        if self.journal.last == 0:
            self.journal.append(TITLE)
            return History(lean=True)
        return history_of(self.path, lean=True)

    def open(self, *, resume: bool) -> None:
        """Lets the runs go on that have not ended."""
        with self.lock:
            for history in self.history.runs.values():
                self.runs[history.id] = Run[Any](self, history)
            # First: a run may have been cancelled while no process had it.
            self._keeper.serve()
            for run in list(self.runs.values()):
                if resume and run._history.state == "running" and run._phase == "resting":
                    self._resume(run, known(run.flow))
                self._outbox.add(run._history)
        self._keeper.start()
        missing = sorted({run.flow for run in self.runs.values() if run._is_unknown})
        if missing:
            _log.warning(
                "%s: runs of %s wait for their code; they go on once the program has defined these flows and starts "
                "one of their runs",
                self.path,
                ", ".join(missing),
            )

    def run(self, id: str) -> Run[Any]:
        """Returns the run of an id.

        Raises:
            FlowUnknown: there is none.
        """
        run = self.runs.get(id)
        if run is None:
            raise FlowUnknown(f"{self.path} has no run {id!r}")
        return run

    # --- records ----------------------------------------------------------------------------------------------------

    def record(self, made_entries: list[Entry]) -> None:
        """Puts records on the disk; when it returns they are there, and applied."""
        if len(made_entries) == 1:
            self.journal.append(encoded(made_entries[0]))
        else:
            self.journal.append_all([encoded(entry) for entry in made_entries])
        self._apply(made_entries)

    def record_soon(self, entry: Entry) -> None:
        """Writes a record with the next one of any thread, or a second later."""
        self.journal.append_nowait(encoded(entry))
        self.is_unsynced = True
        self._apply([entry])

    def _apply(self, made_entries: Sequence[Entry]) -> None:
        if all(map(_is_plain, made_entries)):
            # The ends of steps concern their own run alone, and its threads apply them.
            for entry in made_entries:
                self.history.apply(entry)
            return
        with self.lock:
            for entry in made_entries:
                self.history.apply(entry)
                self.packer.recorded(files_of(entry))
                if entry.kind is Kind.FINISHED and entry.fields[3]:
                    run = self.history.numbered(entry.run)
                    if run is not None:
                        self._outbox.add(run)
                elif entry.kind is Kind.EVENT:
                    self._wake(entry.text(0), entry.run)

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
                self._queue(run)

    # --- starting ---------------------------------------------------------------------------------------------------

    def start(
        self, flow: Flow[..., Any], id: str, arguments_key: bytes, arguments: tuple[Any, ...]
    ) -> Run[Any]:
        """Starts a run, or returns the one of this id. When it returns, the start is on the disk."""
        code = digest_of_code(flow)
        while True:
            self.check_owner()
            with self.lock:
                self.check_open()
                found = self.runs.get(id)
                if found is not None:
                    return self._found(found, flow, arguments_key)
                other = self._starting.get(id)
                if other is None:
                    mine = self._starting[id] = threading.Event()
                    number = self.history.next_number
                    self.history.next_number += 1
                    break
            # Another thread writes the start of this id: what it has written is what this call returns.
            other.wait()
        try:
            try:
                packed = self.packer.pack(arguments)
            except JournalError:
                raise
            except Exception as error:
                raise TypeError(
                    f"the arguments of {flow.name} cannot be recorded: {error}. Pass what they are made from, for "
                    f"instance a path instead of an open file"
                ) from error
            entry = made(
                Kind.STARTED, number, id.encode(), flow.name.encode(), code, arguments_key, packed, b""
            )
            self.journal.append(encoded(entry))
            with self.lock:
                self._apply([entry])
                run = self.runs[id] = Run[Any](self, self.history.runs[id])
                run._code_flow = flow
                self._queue(run)
                for unknown in [
                    one for one in self.runs.values() if one._is_unknown and one.flow == flow.name
                ]:
                    self._resume(unknown, flow)
            return run
        finally:
            with self.lock:
                del self._starting[id]
            mine.set()

    def _found(self, found: Run[Any], flow: Flow[..., Any], arguments_key: bytes) -> Run[Any]:
        """Returns a run that is there, and lets it go on if it rests."""
        self._check_same(found._history, flow, arguments_key)
        if found._phase == "resting" and found._history.state == "running":
            self._resume(found, flow)
            if isinstance(found._problem, FlowCodeChanged):
                raise found._problem
        return found

    def _check_same(self, history: RunHistory, flow: Flow[..., Any], arguments_key: bytes) -> None:
        if history.flow != flow.name:
            raise FlowExists(f"the id {history.id!r} is that of a run of {history.flow}, not of {flow.name}")
        if history.arguments_key != arguments_key:
            raise FlowExists(
                f"the id {history.id!r} is that of a run of {history.flow} with other arguments; an id stands for one "
                f"call"
            )

    def _resume(self, run: Run[Any], flow: Flow[..., Any] | None) -> None:
        """Lets a run go on that has not ended, if its code allows it."""
        run._is_unknown = flow is None
        if flow is None:
            missing = FlowUnknown(
                f"this program has no flow of the name {run.flow!r}, and so the run {run.id!r} waits"
            )
            self._rest(run, missing)
            return
        run._problem = None
        history, code = run._history, digest_of_code(flow)
        if history.code != code:
            if any(step.state != "running" for step in history.steps.values()) and flow.code == "refuse":
                problem = FlowCodeChanged(
                    f"the code of the flow {flow.name} is not that with which the run {history.id!r} began. The run "
                    f"stays as it is; flows.get({history.id!r}).retry() goes on with the new code behind the "
                    f"finished steps, and `flows fork --from STEP` begins anew from a step"
                )
                _log.warning("%s", problem)
                self._rest(run, problem)
                return
            kind = Kind.RESTARTED if flow.code == "restart" else Kind.RECODED
            self.record([made(kind, history.number, code)])
        run._code_flow = flow
        self._queue(run)

    # --- threads ----------------------------------------------------------------------------------------------------

    def _queue(self, run: Run[Any]) -> None:
        if run._phase in ("queued", "executing") or self._closing in ("stop", "abort"):
            return
        self._wakes_no_more(run)
        run._phase = "queued"
        run._problem = None
        run._renew()
        self._ready.append(run)
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
            while self._ready and not self._threads:
                # Nobody would come for it.
                run = self._ready.popleft()
                self._rest(run, error if is_of_shutdown(error) else of_thread("ropewalk-flow", error))

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
            if not self._ready or self._closing in ("stop", "abort"):
                # In the same step: what is queued from here on gets a thread of its own.
                self._threads.discard(threading.current_thread())
                return False
            run = self._ready.popleft()
            carried = None
            if run._history.state == "running":
                run._phase = "executing"
                carried = run._carried = Carried(self, run._history)
                self._executing.add(carried)
        if carried is None:
            self._cancelled(run)
            return True
        try:
            self._execute(run, carried)
        except BaseException as error:  # A defect of ours shall cost no other run its thread.
            _log.exception("run %r has stopped", run.id)
            self._rest(run, error)
        finally:
            self._executing.discard(carried)
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
            if self._ready:
                self._add_thread()
            self._changed.notify_all()
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
            self._rest(run, FlowsClosed(_CLOSED.format(run.id)) if self._closing else failure)
            return
        if run._history.state == "cancelled":
            self._cancelled(run)
        else:
            self._settle(run, "ended", value, None if error is None else without_secrets(error))

    def _unwind(self, run: Run[Any], carried: Carried, unwound: Unwound) -> None:
        match unwound.why:
            case "suspended":
                self._suspend(run, carried)
            case "cancelled":
                self._cancelled(run)
            case "closed":
                self._rest(run, FlowsClosed(_CLOSED.format(run.id)))
            case "broken" | "interrupted":
                cause = unwound.cause
                _log.warning("run %r has stopped, and can go on later: %s", run.id, cause)
                self._rest(run, cause or FlowError(f"the run {run.id!r} has stopped"))

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
                    self._queue(run)
                self._changed.notify_all()
        if is_cancelled:
            self._cancelled(run)

    def _rest(self, run: Run[Any], problem: BaseException) -> None:
        run._problem = problem
        self._settle(run, "resting", None, problem)

    def _cancelled(self, run: Run[Any]) -> None:
        self._settle(run, "ended", None, FlowCancelled(f"the run {run.id!r} of {run.flow} was cancelled"))

    def _settle(self, run: Run[Any], phase: Phase, value: Any, error: BaseException | None) -> None:
        """Ends an execution, and gives those that wait for it the outcome."""
        with self.lock:
            self._wakes_no_more(run)
            run._phase, run._carried = phase, None
            # In the same step: a retry from here on makes room for an outcome of its own.
            settle = run._claim()
            self._changed.notify_all()
        settle(value, error)

    # --- what runs and requests ask ---------------------------------------------------------------------------------

    def send(self, name: str, packed: bytes, id: str | None, request: int = 0) -> None:
        """Records an event for all runs, or for one."""
        # Under the lock: events of a name are numbered, so memory has them in the order of the journal.
        self.check_owner()
        with self.lock:
            self.check_open()
            number = 0
            if id is not None:
                history = self.run(id)._history
                if history.state == "succeeded":
                    raise FlowError(f"the run {id!r} has succeeded, and receives no event any more")
                number = history.number
            self.record([made(Kind.EVENT, number, name.encode(), packed, request=request)])

    def start_fork(
        self,
        id: str,
        new: str | None,
        flow: Flow[..., Any] | None,
        records: Callable[[int, str], list[Entry]],
    ) -> Run[Any]:
        """Starts a fork of a run, by the records that a function returns for a number and an id."""
        with self.lock:
            self.check_open()
            if new is None:
                new = next(f"{id}-fork-{n}" for n in itertools.count(1) if f"{id}-fork-{n}" not in self.runs)
            if new in self.runs or new in self._starting:
                raise FlowExists(f"there is a run {new!r} already")
            self.record(records(self.history.next_number, new))
            run = self.runs[new] = Run[Any](self, self.history.runs[new])
            self._resume(run, flow)
        return run

    def cancel(self, run: Run[Any], request: int = 0) -> bool:
        """Cancels a run; returns whether it is cancelled."""
        self.check_owner()
        with self.lock:
            self.check_open()
            if run._history.state != "running":
                state = run._history.state
                why = "it is cancelled" if state == "cancelled" else f"it has {state}"
                self.refuse_request(request, f"cancel {run.id}", why)
                return run._history.state == "cancelled"
            self.record([made(Kind.ENDED, run._history.number, b"cancelled", b"", b"", request=request)])
            carried = run._carried
            if run._phase == "queued":
                self._ready.remove(run)
            if run._phase == "resting":
                # What stopped it is no longer its outcome.
                run._problem, run._is_unknown = None, False
                run._renew(anew=True)
        if carried is None:
            self._cancelled(run)
        else:
            carried.stop("cancelled", running=True)
        return True

    def retry(self, run: Run[Any], request: int = 0) -> None:
        """Lets a run go on that has failed, was cancelled or has stopped."""
        self.check_owner()
        with self.lock:
            self.check_open()
            if run._phase in ("queued", "executing", "suspended"):
                raise FlowError(f"the run {run.id!r} is running; it can be tried again once it has failed")
            if run._history.state == "succeeded":
                raise FlowError(f"the run {run.id!r} has succeeded; fork it to run some of its steps again")
            flow = known(run.flow)
            if flow is None:
                raise FlowUnknown(f"this program has no flow of the name {run.flow!r}")
            made_entries = [made(Kind.RETRIED, run._history.number, request=request)]
            code = digest_of_code(flow)
            if code != run._history.code:
                made_entries.append(made(Kind.RECODED, run._history.number, code))
            self.record(made_entries)
            run._problem, run._is_unknown, run._code_flow = None, False, flow
            run._renew(anew=True)
            self._queue(run)

    def refuse_request(self, request: int, what: str, why: str) -> None:
        """Records that a request was refused, if there is one."""
        if request:
            self.record([made(Kind.REFUSED, 0, what.encode(), why.encode(), request=request)])

    # --- what the keeper asks ---------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """Whether the flows are being closed, or were."""
        return self._closing != ""

    def executing(self) -> tuple[Carried, ...]:
        """Returns the executions that have a thread."""
        return tuple(self._executing)

    def wake_due(self) -> None:
        """Lets the runs go on whose time has come."""
        with self.lock:
            now = time.time()
            while self._timers and self._timers[0][0] <= now:
                run = heapq.heappop(self._timers)[2]
                if run._phase == "suspended" and run._waiting is not None and run._waiting.is_over():
                    self._queue(run)

    def rest(self, seconds: float) -> bool:
        """Waits until a run's time has come, so many seconds at most; returns whether the flows are open."""
        with self.lock:
            due = self._timers[0][0] - time.time() if self._timers else seconds
            if not self._closing:
                self._changed.wait(max(0.0, min(due, seconds)))
            return not self._closing

    # --- the end ----------------------------------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        """Whether no run is in a thread's hands or queued for one, but for the calling thread's."""
        return not self._ready and self._threads <= {threading.current_thread()}

    def wait(self, timeout: float | None) -> bool:
        """Waits until every run has ended, or sleeps, or waits for an event, and its effects are delivered."""
        self.check_owner()
        end = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            if not self._changed.wait_for(self._is_idle, timeout):
                return False
        return self._outbox.wait(None if end is None else max(0.0, end - time.monotonic()))

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
        self._outbox.close(wait=how != "abort")
        if how != "abort" and self._keeper.is_alive() and threading.current_thread() is not self._keeper:
            self._keeper.join()
        self._say_what_waits()
        self.journal.close()
        for run in list(self.runs.values()):
            if run._phase in ("queued", "executing", "suspended"):
                self._rest(run, FlowsClosed(_CLOSED.format(run.id)))

    def _say_what_waits(self) -> None:
        """Logs how many runs sleep or wait: a program that ends with them looks as if it had done everything."""
        found = [run._waiting for run in tuple(self.runs.values()) if run._phase == "suspended"]
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
