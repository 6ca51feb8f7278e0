"""The changes that the program, and the requests of other processes, ask for: starts, events, cancellations, retries.

Each is a call of its own. It takes the engine's lock, writes a record, and changes the states of runs by it. Callbacks
of runs, and handlers of the log, are called behind that.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ropewalk._errors import FlowCodeChanged, FlowError, FlowExists, FlowUnknown, JournalError
from ropewalk.flows._flow import Flow, digest_of_code, known
from ropewalk.flows._history import RunHistory
from ropewalk.flows._mending import mend
from ropewalk.flows._records import Entry, Kind, encoded, made
from ropewalk.flows._run import Run

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("ropewalk.flows")


def whole(change: Callable[Concatenate[Engine, P], T]) -> Callable[Concatenate[Engine, P], T]:
    """Makes a function a change that is whole, also if Ctrl-C comes in its middle.

    Behind it comes what may be code of the program, without the lock.
    """

    @functools.wraps(change)
    def called(engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        mend(engine)
        try:
            return change(engine, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            # The keeper mends it, or the next change.
            engine.is_torn = True
            raise
        finally:
            engine.call_now()

    return called


@whole
def open_runs(engine: Engine, *, resume: bool) -> None:
    """Lets the runs go on that have not ended."""
    for history in engine.history.runs.values():
        engine.runs[history.id] = Run[Any](engine, history)
    # First: a run may have been cancelled while no process had it.
    engine.keeper.serve()
    with engine.lock:
        for run in list(engine.runs.values()):
            if resume and run._history.state == "running" and run._phase == "resting":
                engine.resume(run, known(run.flow))
    for run in list(engine.runs.values()):
        engine.outbox.add(run._history)
    engine.keeper.start()
    missing = sorted({run.flow for run in engine.runs.values() if run._is_unknown})
    if missing:
        _log.warning(
            "%s: runs of %s wait for their code; they go on once the program has defined these flows and starts "
            "one of their runs",
            engine.path,
            ", ".join(missing),
        )


@whole
def start(
    engine: Engine, flow: Flow[..., Any], id: str, arguments_key: bytes, arguments: tuple[Any, ...]
) -> Run[Any]:
    """Starts a run, or returns the one of this id. When it returns, the start is on the disk."""
    code = digest_of_code(flow)
    while True:
        engine.check_owner()
        with engine.lock:
            engine.check_open()
            found = engine.runs.get(id)
            if found is not None:
                return _found(engine, found, flow, arguments_key)
            other = engine.starting.get(id)
            if other is None:
                mine = engine.starting[id] = threading.Event()
                number = engine.history.next_number
                engine.history.next_number += 1
                break
        # Another thread writes the start of this id: what it has written is what this call returns.
        other.wait()
    try:
        try:
            packed = engine.packer.pack(arguments)
        except JournalError:
            raise
        except Exception as error:
            raise TypeError(
                f"the arguments of {flow.name} cannot be recorded: {error}. Pass what they are made from, for "
                f"instance a path instead of an open file"
            ) from error
        entry = made(Kind.STARTED, number, id.encode(), flow.name.encode(), code, arguments_key, packed, b"")
        engine.journal.append(encoded(entry))
        with engine.lock:
            engine.apply([entry])
            run = _new_run(engine, id, flow)
            engine.queue(run)
            for unknown in [one for one in engine.runs.values() if one._is_unknown and one.flow == flow.name]:
                engine.resume(unknown, flow)
        return run
    finally:
        with engine.lock:
            del engine.starting[id]
        mine.set()


def _new_run(engine: Engine, id: str, flow: Flow[..., Any] | None) -> Run[Any]:
    """Returns the run of a start that is recorded; in the engine it is not without its flow."""
    run = Run[Any](engine, engine.history.runs[id])
    run._code_flow = flow
    engine.runs[id] = run
    return run


def _found(engine: Engine, found: Run[Any], flow: Flow[..., Any], arguments_key: bytes) -> Run[Any]:
    """Returns a run that is there, and lets it go on if it rests."""
    _check_same(found._history, flow, arguments_key)
    if found._phase == "resting" and found._history.state == "running":
        engine.resume(found, flow)
        if isinstance(found._problem, FlowCodeChanged):
            raise found._problem
    return found


def _check_same(history: RunHistory, flow: Flow[..., Any], arguments_key: bytes) -> None:
    if history.flow != flow.name:
        raise FlowExists(f"the id {history.id!r} is that of a run of {history.flow}, not of {flow.name}")
    if history.arguments_key != arguments_key:
        raise FlowExists(
            f"the id {history.id!r} is that of a run of {history.flow} with other arguments; an id stands for one call"
        )


@whole
def send(engine: Engine, name: str, packed: bytes, id: str | None, request: int = 0) -> None:
    """Records an event for all runs, or for one."""
    # Under the lock: events of a name are numbered, so memory has them in the order of the journal.
    engine.check_owner()
    with engine.lock:
        engine.check_open()
        number = 0
        if id is not None:
            history = engine.run(id)._history
            if history.state == "succeeded":
                raise FlowError(f"the run {id!r} has succeeded, and receives no event any more")
            number = history.number
        engine.record([made(Kind.EVENT, number, name.encode(), packed, request=request)])


@whole
def start_fork(
    engine: Engine,
    id: str,
    new: str | None,
    flow: Flow[..., Any] | None,
    records: Callable[[int, str], list[Entry]],
) -> Run[Any]:
    """Starts a fork of a run, by the records that a function returns for a number and an id."""
    with engine.lock:
        engine.check_open()
        if new is None:
            new = next(f"{id}-fork-{n}" for n in itertools.count(1) if f"{id}-fork-{n}" not in engine.runs)
        if new in engine.runs or new in engine.starting:
            raise FlowExists(f"there is a run {new!r} already")
        engine.record(records(engine.history.next_number, new))
        run = _new_run(engine, new, flow)
        engine.resume(run, flow)
    return run


@whole
def cancel(engine: Engine, run: Run[Any], request: int = 0) -> bool:
    """Cancels a run; returns whether it is cancelled."""
    engine.check_owner()
    with engine.lock:
        engine.check_open()
        if run._history.state != "running":
            state = run._history.state
            why = "it is cancelled" if state == "cancelled" else f"it has {state}"
            engine.refuse_request(request, f"cancel {run.id}", why)
            return run._history.state == "cancelled"
        engine.record([made(Kind.ENDED, run._history.number, b"cancelled", b"", b"", request=request)])
        engine.end_cancelled(run)
    return True


@whole
def retry(engine: Engine, run: Run[Any], request: int = 0) -> None:
    """Lets a run go on that has failed, was cancelled or has stopped."""
    engine.check_owner()
    with engine.lock:
        engine.check_open()
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
        engine.record(made_entries)
        run._problem, run._is_unknown, run._code_flow = None, False, flow
        run._renew(anew=True)
        engine.queue(run)
