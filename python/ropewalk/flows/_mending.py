"""Mending: after Ctrl-C in the middle of a change, memory takes over what the journal says.

The main thread may be interrupted between any two lines, so also between the record of a change and what follows from
it. All changes of runs and events are recorded under the engine's lock, but for starts, whose ids `Engine.starting`
has, so under the lock the journal is right. It is not asked about what threads record without the lock: the steps of
runs that are executing, and deliveries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.flows._flow import known
from ropewalk.flows._history import History, history_of
from ropewalk.flows._run import Run

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine


def mend(engine: Engine) -> None:
    """Takes over what the journal says, and what follows from it, if a change was interrupted.

    Raises:
        JournalError: the journal cannot be read; the next call tries again.
    """
    if not engine.is_torn or engine.is_closing:
        return
    with engine.lock:
        _agree(engine, history_of(engine.path, lean=True))
        for history in list(engine.history.runs.values()):
            run = engine.runs.get(history.id)
            if run is None or run._history is not history:
                run = engine.runs[history.id] = Run[Any](engine, history)
                if history.state == "running":
                    engine.resume(run, known(run.flow))
            elif history.state == "cancelled" and run._phase != "ended":
                engine.end_cancelled(run)
            elif history.state == "running" and run._phase == "ended":
                run._renew(anew=True)
                engine.resume(run, known(run.flow))
            elif run._phase == "resting" and run._problem is None and run._code_flow is not None:
                # It was to be queued.
                engine.resume(run, run._code_flow)
        engine.look_again()
        engine.is_torn = False


def _agree(engine: Engine, found: History) -> None:
    """Makes the history of an engine agree with one that was read."""
    history = engine.history
    history.events, history.served, history.refused = found.events, found.served, found.refused
    history._early = found._early
    history.next_number = max(history.next_number, found.next_number)
    gone = [run.id for run in history.runs.values() if found.numbered(run.number) is None]
    history.forget(gone)
    for id in gone:
        engine.runs.pop(id, None)
    for run in found.runs.values():
        mine = history.numbered(run.number)
        if mine is None:
            if run.id not in engine.starting:
                history.add(run)
            continue
        mine.state, mine.outcome, mine.error, mine.ended = run.state, run.outcome, run.error, run.ended
        there = engine.runs.get(run.id)
        if there is None or there._carried is None:
            mine.code, mine.nonce = run.code, run.nonce
            mine.steps, mine.dropped_steps = run.steps, run.dropped_steps
