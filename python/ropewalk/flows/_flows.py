"""`Flows`: the runs of one journal, in the hands of this process."""

from __future__ import annotations

import atexit
import inspect
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import timedelta
from itertools import islice
from os.path import realpath
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ropewalk._checked import checked_count, checked_limit, checked_switch
from ropewalk._errors import FlowError, FlowUnknown, JournalLocked
from ropewalk._keys import key_of
from ropewalk._retry import Retry
from ropewalk.flows._changes import open_runs, send as send_here, start
from ropewalk.flows._engine import Engine
from ropewalk.flows._flow import Flow
from ropewalk.flows._forgetting import forget
from ropewalk.flows._forking import fork
from ropewalk.flows._history import entries, history_of
from ropewalk.flows._packed import pickled
from ropewalk.flows._requests import event, post
from ropewalk.flows._run import Run
from ropewalk.flows._steps import execution
from ropewalk.pool.parent._exit import was_interrupted

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

T = TypeVar("T")

#: Tried without end, from a second to a minute apart.
_DELIVERIES = Retry(attempts=None, backoff=1.0, max_delay=60.0, jitter="equal")
_NO_ID = re.compile(r"[\x00-\x1f\x7f]")
#: Flows that are open, for the end of the interpreter.
_OPEN: set[Flows] = set()
_SERIAL = itertools.count(1)


class Flows:
    """The runs of one journal: starts flows, and lets those go on that an earlier process has left.

    One process has a journal open at a time, and loses it in the moment in which it dies; the next one then carries its
    runs on. As a context manager it waits at the end of the block until every run has ended, or sleeps, or waits for an
    event, and logs how many are left; after an exception it stops behind the steps that are running, and after Ctrl-C
    at once.

    Args:
        path: the journal's file. Results of more than 64 KiB are files in the folder ``<path>.results``, and what other
            processes ask for is in ``<path>.requests``.
        pool: the executor on which steps run, a `Pool` for instance; without one they run in their flow's thread.
        max_running: how many runs have a thread at a time. Those that sleep, or wait for an event, for more than a
            second have none.
        resume: whether runs that have not ended go on at once. The flows must be defined before.
        deliveries: how often and when the delivery of an effect is tried again.

    Raises:
        JournalLocked: another process, or this one, has the journal open; the message names the process.
        NotAJournal: the file is another one.
        JournalCorrupt: committed records are damaged.
        JournalUnsafe: other users may write the file.

    Examples:
        >>> import ropewalk, tempfile
        >>> from ropewalk.flows import Flows, flow, step
        >>> @flow
        ... def area(width, height):
        ...     return step(max, width, 0) * step(max, height, 0)
        >>> path = tempfile.mkdtemp() + "/area.wal"
        >>> with Flows(path) as flows:
        ...     print(flows.start(area, 3, 4, id="first").result())
        12
        >>> with Flows(path) as flows:  # It has ended: nothing is run again.
        ...     print(flows.get("first").result())
        12
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pool: Executor | None = None,
        max_running: int = 64,
        resume: bool = True,
        deliveries: Retry = _DELIVERIES,
    ) -> None:
        """Opens the journal, and lets its runs go on."""
        checked_count("max_running", max_running, 1, 10_000)
        checked_switch("resume", resume)
        if isinstance(pool, type) or (pool is not None and not hasattr(pool, "submit")):
            raise TypeError(f"pool must be an executor, or None, not {pool!r}")
        if not isinstance(cast("Any", deliveries), Retry):
            raise TypeError(f"deliveries must be a Retry, not {deliveries!r}")
        _end_before_executors()
        self._path = realpath(path)
        caller = sys._getframe(1)
        self._place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        try:
            self._engine = Engine(self._path, pool, max_running, deliveries)
        except JournalLocked as error:
            for other in tuple(_OPEN):
                if other._path == self._path:
                    error.add_note(f"It was opened by the Flows that {other._place} has made.")
            raise
        try:
            open_runs(self._engine, resume=resume)
        except BaseException:
            self._engine.close("abort")
            raise
        _OPEN.add(self)

    def start(self, flow: Flow[..., T], /, *args: Any, id: str | None = None, **kwargs: Any) -> Run[T]:
        """Starts a run of a flow, or returns the run of this id that is there.

        The start is on the disk when this returns. The same id with the same flow and arguments is the same run: it is
        never started twice, and one that has ended keeps its result.

        Args:
            flow: a function with the decorator `flow`.
            args: its arguments; they must be picklable.
            id: what names the run. Without one each call is a run of its own.
            kwargs: its keyword arguments.

        Raises:
            FlowExists: the id is that of another flow, or of other arguments.
            FlowCodeChanged: the run has not ended, and the flow's code has changed.
            TypeError: it is no flow, or the arguments cannot be pickled.
            JournalError: the start could not be recorded.
        """
        if not isinstance(cast("Any", flow), Flow):
            raise TypeError(f"start needs a flow, not {flow!r}: decorate the function with @flow")
        if execution() is not None:
            raise FlowError(
                f"a run was started in the code of a flow, which runs again after a crash: call {flow.name}(...) as a "
                f"function, so that its steps become steps of this run"
            )
        try:
            bound = inspect.signature(flow._function).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{flow.name} cannot be called with these arguments: {error}") from None
        # As one call, however it was written.
        args, kwargs = bound.args, bound.kwargs
        try:
            key = key_of((args, kwargs))
        except Exception as error:
            raise TypeError(
                f"the arguments of {flow.name} have no key: {error}. Pass what they are made from, for instance a path "
                f"instead of an open file"
            ) from error
        return start(
            self._engine, flow, self._new_id(flow) if id is None else _checked_id(id), key, (args, kwargs)
        )

    def get(self, id: str) -> Run[Any]:
        """Returns the run of an id.

        Raises:
            FlowUnknown: there is none.
        """
        return self._engine.run(id)

    def runs(self) -> list[Run[Any]]:
        """Returns all runs, in the order of their starts."""
        return list(self._engine.runs.values())

    def send(self, name: str, value: Any = True, *, run: str | None = None) -> None:
        """Sends an event to all runs that wait for it, or will. When this returns, it is on the disk.

        ``run`` is the id of the run which alone receives it.

        Raises:
            TypeError: the value cannot be pickled.
            FlowUnknown: there is no run of the id.
            FlowError: the run has succeeded.
            JournalError: it could not be recorded.
        """
        _refuse_in_flow("Flows.send", "ropewalk.flows.send(path, name) in a step")
        if run is not None:
            _checked_id(run)
        send_here(self._engine, _checked_event(name), _pickled_event(name, value), run)

    def fork(self, id: str, from_step: str, new_id: str | None = None) -> Run[Any]:
        """Starts a new run that takes the finished steps of an old one over, up to a step, and goes on from there.

        ``from_step`` is the name of the step, the first of that name, or the beginning of its key. The effects of the
        steps that are taken over are those of the old run, and are not delivered again.

        Raises:
            FlowUnknown: there is no such run, or no such step.
            FlowExists: there is a run of the new id.
        """
        _refuse_in_flow("Flows.fork", "it in the program")
        return fork(self._engine, id, from_step, None if new_id is None else _checked_id(new_id))

    def forget(self, *ids: str, older_than: float | timedelta | None = None) -> list[str]:
        """Removes runs that have ended from the journal, with the files of their results; returns their ids.

        ``ids`` names them; or ``older_than`` takes all that have ended so many seconds ago, and the events that came
        before that too. Runs with effects that are not delivered stay. The ids may then be used anew.

        It compacts the journal: the records that stay are in memory meanwhile, without large results. While the new
        file is written, starts, events and ends of runs wait, and steps with effects or large results; other steps of
        the runs that are running go on, and are recorded.

        Raises:
            FlowUnknown: there is no run of an id.
            FlowError: it has not ended, or its effects are not delivered.
            JournalError: the journal could not be compacted; everything is there.
        """
        _refuse_in_flow("Flows.forget", "it in the program")
        if isinstance(older_than, timedelta):
            older_than = older_than.total_seconds()
        checked_limit("older_than", older_than)
        for id in ids:
            history = self.get(id)._history
            if history.state == "running" or history.effects:
                what = "has not ended" if history.state == "running" else "has effects that are not delivered"
                raise FlowError(f"the run {id!r} {what}")
        chosen = list(ids)
        before = None if older_than is None else time.time() - older_than
        if before is not None:
            for run in self.runs():
                history = run._history
                if history.ended is not None and history.ended <= before and not history.effects:
                    chosen.append(run.id)
        chosen = list(dict.fromkeys(chosen))
        if chosen or before is not None:
            forget(self._engine, chosen, before)
        return chosen

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until every run has ended, or sleeps, or waits for an event, and its effects are delivered.

        Returns whether that is so; an effect that is tried again later does not count.
        """
        _refuse_in_flow("Flows.wait", "it in the program")
        return self._engine.wait(timeout)

    def close(self, *, finish: bool = True) -> None:
        """Closes the journal; runs that have not ended go on when it is opened again.

        With ``finish`` it waits as `wait` does. Without, no further step begins; the steps that are running are
        finished and recorded. Runs that sleep or wait for an event stay as they are: the logger ``ropewalk.flows``
        says at level INFO how many there are, and until when. They go on when the journal is opened again, also those
        whose time has come meanwhile.
        """
        _refuse_in_flow("Flows.close", "it in the program")
        try:
            self._engine.close("finish" if finish else "stop")
        except KeyboardInterrupt:
            self._engine.close("abort")
            raise
        finally:
            _OPEN.discard(self)

    @property
    def path(self) -> str:
        """The absolute path of the journal, without symbolic links."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._engine.journal.closed

    def _new_id(self, flow: Flow[..., Any]) -> str:
        return f"{flow.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_SERIAL)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._engine.close("abort")
            _OPEN.discard(self)
        else:
            self.close(finish=kind is None)

    def __repr__(self) -> str:
        if self.closed:
            return f"<Flows {self._path!r}, closed>"
        return f"<Flows {self._path!r}, {len(self._engine.runs)} runs>"


def send(path: str | os.PathLike[str], name: str, value: Any = True, *, run: str | None = None) -> None:
    """Sends an event to the runs of a journal, whichever process has it open, or none.

    When this returns, the event is on the disk. The process that has the runs sees it within a tenth of a second; if
    there is none, the next one does. ``run`` is the id of the run which alone receives it.

    Raises:
        JournalError: there is no such journal, or the request could not be written.
        FlowUnknown: there is no run of the id.
        TypeError: the value cannot be pickled.
    """
    found = realpath(path)
    # Not into the void: the file must be a journal of flows.
    for _ in islice(entries(found), 1):
        pass
    if run is not None and _checked_id(run) not in history_of(found, lean=True).runs:
        raise FlowUnknown(f"{found} has no run {run!r}")
    post(found, event(_checked_event(name), _pickled_event(name, value), run))


def _refuse_in_flow(call: str, instead: str) -> None:
    """Refuses what would happen again each time when the code of a flow runs again."""
    if execution() is not None:
        raise FlowError(
            f"{call}() was called in the code of a flow, which runs again after a crash; call {instead}"
        )


def _checked_id(id: object) -> str:
    if not isinstance(id, str):
        raise TypeError(f"id must be text, not {id!r}")
    if not id or _NO_ID.search(id) or len(id) > 500:
        raise ValueError(f"id must be 1 to 500 characters without control characters, not {id!r}")
    return id


def _pickled_event(name: str, value: object) -> bytes:
    try:
        return pickled(value)
    except Exception as error:
        raise TypeError(f"the value of the event {name!r} cannot be pickled: {error}") from error


def _checked_event(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of an event must be text, not {name!r}")
    return name


def _at_exit() -> None:
    """Waits for the runs that are running, as the standard library does for its futures."""
    for flows in list(_OPEN):
        if was_interrupted():
            flows._engine.close("abort")
        else:
            flows.close()


def _forked() -> None:
    _OPEN.clear()


os.register_at_fork(after_in_child=_forked)
#: The modules that wait at the end of the program for the executors which steps need.
_WAITING = ("concurrent.futures.thread", "concurrent.futures.process", "ropewalk.pool.parent._exit")
_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
#: Those of them that were loaded when `_at_exit` was registered last.
_waiting: set[str] = set()


def _end_before_executors() -> None:
    """Registers the end of the flows again if an executor was loaded since: what was registered last is called first.

    Else the executor would finish what is queued after Ctrl-C, and take no step of a run that is still running.
    """
    loaded = {name for name in _WAITING if name in sys.modules}
    if not loaded <= _waiting:
        _register(_at_exit)
        _waiting.update(loaded)
