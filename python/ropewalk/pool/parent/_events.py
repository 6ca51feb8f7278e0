"""The bus on which the pools and event loops of this process publish events.

Pools and loops write their events straight into the subscriptions, and the receiver makes the objects. Handlers,
filters and event loops need Python for each event: one thread serves them all, and the first of them starts it. A
handler that blocks delays other events, but no pool and no loop.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass
from typing import Any

from ropewalk.bus._bus import Bus


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """An event of a pool. Fields that do not apply to a topic are `None` or 0."""

    #: What happened, ``"pool.worker.started"`` for instance; docs/telemetry.md has a table of the topics and their
    #: fields.
    topic: str
    #: The pool's name.
    pool: str
    #: The worker's process id; for a failed task, the id of the process that ran it.
    pid: int
    #: The task's number, as `TaskRecord.id`.
    task: int | None
    #: The signal that killed a worker.
    signal: int | None
    #: The exit status of a worker.
    exit_code: int | None
    #: Tasks in the queue, when it was found full.
    queued: int
    #: The reason, where there is one. For a failed task: ``"raised"``, ``"timed out"``, ``"crashed"``, ``"hung"``,
    #: ``"poisoned"`` or ``"broken"``. For a poisoned one, the function's name.
    #: For a recycled worker: ``"max_tasks"``, ``"max_age"``, ``"max_rss"``, ``"asked"``, ``"shrunk"``, or ``"task"`` if
    #: one of its tasks was cancelled, timed out or hung.
    reason: str | None
    #: The worker's number in its pool, as `WorkerStatistics.id`.
    worker: int | None = None
    #: The private memory of a recycled worker in bytes when it was sent away, if that is known; for ``pool.limit.low``,
    #: that of the last worker which was too large after one task.
    private_bytes: int | None = None
    #: Tasks that the recycled worker had finished.
    tasks: int | None = None
    #: The number of workers that the pool is meant to have from now on.
    workers: int | None = None
    #: The session's key as text, or the actor's name. If it has lost its state, the reason is ``"made again"`` or
    #: ``"gone for good"``.
    session: str | None = None
    #: The number of the session's state.
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class LoopEvent:
    """An event of an event loop in debug mode."""

    #: ``"loop.callback.slow"``: a callback took at least the loop's `slow_callback_duration`.
    topic: str
    #: The callback, as asyncio's log describes it: a handle, a task, or a transport with its protocol.
    callback: str
    #: The name of the thread that runs the loop.
    thread: str
    #: How long the callback took.
    seconds: float


def _event(topic: str, *fields: Any) -> PoolEvent | LoopEvent:
    return _loop_event(topic, *fields) if topic.startswith("loop.") else _pool_event(topic, *fields)


def _loop_event(topic: str, callback: str, thread: str, microseconds: int) -> LoopEvent:
    return LoopEvent(topic, callback, thread, microseconds / 1e6)


def _pool_event(
    topic: str,
    pool: str,
    pid: int,
    task: int | None,
    status: int | None,
    queued: int,
    reason: str | None,
    worker: int | None,
    private_bytes: int | None,
    tasks: int | None,
    workers: int | None,
    session: str | None,
    generation: int | None,
) -> PoolEvent:
    code = None if status is None else os.waitstatus_to_exitcode(status)
    signal = -code if code is not None and code < 0 else None
    exit_code = code if code is not None and code >= 0 else None
    return PoolEvent(
        topic=topic,
        pool=pool,
        pid=pid,
        task=task,
        signal=signal,
        exit_code=exit_code,
        queued=queued,
        reason=reason,
        worker=worker,
        private_bytes=private_bytes,
        tasks=tasks,
        workers=workers,
        session=session,
        generation=generation,
    )


_thread: threading.Thread | None = None


def _start() -> None:
    """Starts the thread that serves handlers, filters and event loops."""
    global _thread
    _thread = threading.Thread(target=events._serve, name="ropewalk-events", daemon=True)
    _thread.start()


def _finish() -> None:
    """Delivers the remaining events, before the interpreter finalizes."""
    events._stop()
    if _thread is not None:
        _thread.join(1.0)
    # It does not wait for a full subscription, because its receiver may have ended.
    events.close()


#: The bus. Its first use makes it and starts no thread; events are published only while it has listeners.
events = Bus()
events._carry(_event, _start)
atexit.register(_finish)
os.register_at_fork(after_in_child=events._restart)
