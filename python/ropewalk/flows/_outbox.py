"""The outbox: delivers the effects of steps that are on the disk."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ropewalk._errors import JournalError
from ropewalk._keys import key_of
from ropewalk._retry import Retry, Tries
from ropewalk._step import deliver
from ropewalk.flows._execution import is_interruption
from ropewalk.flows._failures import text_of
from ropewalk.flows._records import Kind, made

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine
    from ropewalk.flows._history import Effects, RunHistory

_log = logging.getLogger("ropewalk.flows")

#: Effects of so many runs are delivered at once.
_THREADS = 4


class Outbox:
    """Delivers the effects of each run in their order, and of several runs at once."""

    def __init__(self, engine: Engine, policy: Retry) -> None:
        self._engine = engine
        self._policy = policy
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: Runs whose next effect can be delivered.
        self._ready: deque[RunHistory] = deque()
        #: Runs whose next effect is tried again, by the time of that.
        self._later: list[tuple[float, int, RunHistory]] = []
        self._numbers = itertools.count()
        #: Runs that are in one of these, or in a thread's hands, with the tries of their next effect.
        self._tries: dict[int, Tries] = {}
        self._busy = 0
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def add(self, run: RunHistory) -> None:
        """Delivers what the run has, if that is not under way."""
        problem: RuntimeError | None = None
        with self._lock:
            if self._is_closed or run.number in self._tries or not run.effects:
                return
            self._tries[run.number] = Tries(self._policy)
            self._ready.append(run)
            if len(self._threads) < _THREADS and len(self._ready) + self._busy > len(self._threads):
                thread = threading.Thread(target=self._work, name="ropewalk-outbox", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    problem = error
                else:
                    self._threads.append(thread)
                if not self._threads:
                    self._ready.remove(run)
                    del self._tries[run.number]
            self._changed.notify()
        if problem is not None:
            _log.warning("effects wait for a thread: %s", problem)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing can be delivered now; returns whether that is so. What is tried again later is left."""
        with self._lock:
            own = threading.current_thread() in self._threads
            return self._changed.wait_for(lambda: not self._ready and self._busy <= own, timeout)

    def close(self, *, wait: bool) -> None:
        """Begins no more deliveries, and waits for those that are under way."""
        with self._lock:
            self._is_closed = True
            self._ready.clear()
            self._later.clear()
            self._changed.notify_all()
        if wait:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                run = self._next()
                if run is None:
                    return
                self._busy += 1
            delay: float | None = None
            try:
                delay = self._deliver_next(run)
            finally:
                # In one piece: between two, `wait` would see neither a delivery nor the run that has more.
                with self._lock:
                    self._busy -= 1
                    self._put_back(run, delay)
                    self._changed.notify_all()

    def _put_back(self, run: RunHistory, delay: float | None) -> None:
        """Lets the next effect of a run be delivered, after some seconds; `None` for no more."""
        if delay is None or not run.effects or self._is_closed:
            del self._tries[run.number]
        elif delay == 0.0:
            self._tries[run.number] = Tries(self._policy)
            self._ready.append(run)
        else:
            heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), run))

    def _next(self) -> RunHistory | None:
        while not self._is_closed:
            while self._later and self._later[0][0] <= time.monotonic():
                self._ready.append(heapq.heappop(self._later)[2])
            if self._ready:
                return self._ready.popleft()
            self._changed.wait(max(0.0, self._later[0][0] - time.monotonic()) if self._later else None)
        return None

    def _deliver_next(self, run: RunHistory) -> float | None:
        """Delivers an effect; returns the seconds until the next delivery of the run, `None` for no more."""
        effects = run.effects[0]
        index = effects.delivered
        try:
            self._deliver(run, effects, index)
        except BaseException as error:
            # Also `SystemExit`: the thread delivers the effects of other runs too.
            if self._engine.pool is not None and is_interruption(error):
                return None  # The pool is gone; the next program delivers it.
            return self._failed(run, effects, error)
        try:
            self._engine.record([made(Kind.DELIVERED, run.number, key=effects.step)])
        except JournalError:
            return None
        return 0.0

    def _deliver(self, run: RunHistory, effects: Effects, index: int) -> None:
        kept: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]
        kept = self._engine.packer.unpack(effects.packed[4:])
        function, args, kwargs = kept[index]
        key = key_of((effects.nonce, effects.step, index)).hex()
        if self._engine.pool is None:
            deliver(function, args, kwargs, key)
        else:
            self._engine.pool.submit(deliver, function, args, kwargs, key).result()

    def _failed(self, run: RunHistory, effects: Effects, error: BaseException) -> float | None:
        text = text_of(error)
        with self._lock:
            tries = self._tries[run.number]
        # Not under the lock: a policy may have a predicate of the program's.
        delay = tries.delay_after(error if isinstance(error, Exception) else RuntimeError(text))
        if text == effects.error:
            # The journal and the log have it.
            effects.failures += 1
            return delay if delay is None else max(delay, 0.001)
        step = run.steps.get(effects.step)
        _log.warning(
            "an effect of the step %s of run %r was not delivered: %s; %s",
            step.name if step is not None else effects.step.hex()[:8],
            run.id,
            text,
            "it is tried again when the flows are opened"
            if delay is None
            else f"it is tried again in {delay:.1f} s",
        )
        try:
            self._engine.record_soon(made(Kind.UNDELIVERED, run.number, text.encode(), key=effects.step))
        except JournalError:
            return None
        return delay if delay is None else max(delay, 0.001)
