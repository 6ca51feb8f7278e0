"""What the pools of this process report of their lives, on a bus.

The pools put their reports straight into the subscriptions, and whoever receives makes the `PoolEvent`s. Handlers,
filters and event loops need Python to run for a message: one thread serves them all, which the first of them starts. A
handler that blocks delays events, and no pool.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass

from ropewalk.bus._bus import Bus


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """Something happened in a pool. Fields that a topic has no use for are `None`, or 0."""

    __module__ = "ropewalk"

    #: ``"pool.worker.started"``, ``"pool.worker.recycled"``, ``"pool.worker.crashed"``, ``"pool.saturated"``,
    #: ``"pool.task.failed"``, ``"pool.broken"`` or ``"pool.ended"``.
    topic: str
    #: The pool's name.
    pool: str
    #: The worker's process id; for a failed task that of the process that ran it.
    pid: int
    #: The task's number, as `TaskRecord.id`.
    task: int | None
    #: The signal that killed a worker.
    signal: int | None
    #: The status that a worker left with.
    exit_code: int | None
    #: Tasks in the queue, when it was found full.
    queued: int
    #: Why, where there is something to say: how a task failed is ``"raised"``, ``"timed out"``, ``"crashed"`` or
    #: ``"broken"``.
    reason: str | None


def _event(
    topic: str,
    pool: str,
    pid: int,
    task: int | None,
    status: int | None,
    queued: int,
    reason: str | None,
) -> PoolEvent:
    code = None if status is None else os.waitstatus_to_exitcode(status)
    signal = -code if code is not None and code < 0 else None
    exit_code = code if code is not None and code >= 0 else None
    return PoolEvent(topic, pool, pid, task, signal, exit_code, queued, reason)


_thread: threading.Thread | None = None


def _start() -> None:
    """Starts the thread that serves what needs Python for each event."""
    global _thread
    _thread = threading.Thread(target=events._serve, name="ropewalk-events", daemon=True)
    _thread.start()


def _finish() -> None:
    """Delivers what has happened, before the interpreter takes itself apart."""
    events._stop()
    if _thread is not None:
        _thread.join(1.0)
    # A subscription that is full, and that nobody will take from any more, is not waited for.
    events.close()


#: The bus. It is made when it is first used, and nothing is started; the pools report while somebody listens.
events = Bus()
events._carry(_event, _start)
atexit.register(_finish)
os.register_at_fork(after_in_child=events._restart)
