"""What the pools of this process tell of their lives, on a bus.

The core hands its events to one thread here, which publishes them; a handler that blocks delays events, and no pool.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass

from ropewalk import _core
from ropewalk._errors import BusClosed
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


def _event(told: _core._Told) -> PoolEvent:
    topic, pool, pid, task, status, queued, reason = told
    code = None if status is None else os.waitstatus_to_exitcode(status)
    signal = -code if code is not None and code < 0 else None
    exit_code = code if code is not None and code >= 0 else None
    return PoolEvent(topic, pool, pid, task, signal, exit_code, queued, reason)


class _Feeder:
    """The thread between the core and the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.start()

    def start(self) -> None:
        self._feed = _core.EventFeed()
        self._thread = threading.Thread(
            target=self._run, args=(self._feed,), name="ropewalk-events", daemon=True
        )
        self._thread.start()

    def _run(self, feed: _core.EventFeed) -> None:
        while (told := feed.next()) is not None:
            if self._bus.closed:
                return
            event = _event(told)
            try:
                self._bus.publish(event.topic, event)
            except BusClosed:
                return

    def stop(self) -> None:
        """Delivers what has happened, and ends: before the interpreter takes itself apart."""
        if self._thread.is_alive():
            self._feed.close()
            self._thread.join(1.0)
            # A subscription that is full, and that nobody will take from any more, is not waited for.
            self._bus.close()


#: The bus. It is made, and the pools begin to tell, when it is first used.
events = Bus()
_feeder = _Feeder(events)
atexit.register(_feeder.stop)
os.register_at_fork(after_in_child=_feeder.start)
