"""Which thread goes on first where all cores are busy: the worker, or the one that has woken it with a call.

A worker that the gateway wakes takes the core at once under the usual policy, runs one call and sleeps again: two
changes of threads for each call. While calls come faster than they are run, the worker lets the gateway go on, which
then brings it more of them: `SCHED_BATCH` of sched(7). While calls come one by one, the usual policy is better: other
programs would go on first, too, for a tick of the kernel's clock.
"""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress

#: Calls of a thread between two looks at its policy.
WINDOW = 32
#: The most sleeps among them with which a thread lets others go first, and with which it goes on to.
FEW, STILL_FEW = WINDOW // 2, WINDOW * 3 // 4


_USUAL, _BATCH = os.SCHED_OTHER, os.SCHED_BATCH


class _Counted(threading.local):
    """What a thread has done since the last look."""

    def __init__(self) -> None:
        self.calls = 0
        self.sleeps = _sleeps()
        self.gives_way = False


def _sleeps() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


_THREAD = _Counted()


def count_call() -> None:
    """Counts a call of this thread, and chooses the thread's policy now and then."""
    thread = _THREAD
    thread.calls += 1
    if thread.calls >= WINDOW:
        _choose(thread)


def _choose(thread: _Counted) -> None:
    sleeps = _sleeps()
    slept = sleeps - thread.sleeps
    thread.calls, thread.sleeps = 0, sleeps
    gives_way = slept <= (STILL_FEW if thread.gives_way else FEW)
    if gives_way == thread.gives_way:
        return
    before, wanted = (_BATCH, _USUAL) if thread.gives_way else (_USUAL, _BATCH)
    thread.gives_way = gives_way
    # A sandbox may forbid it. Another policy stays: the program was started with it, or has chosen it.
    with suppress(OSError):
        if os.sched_getscheduler(0) == before:
            os.sched_setscheduler(0, wanted, os.sched_param(0))
