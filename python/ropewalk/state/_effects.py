"""What runs after a commit: in the order of versions, once if nothing fails, at least once after a crash."""

from __future__ import annotations

import hashlib
import heapq
import inspect
import itertools
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.state._later import dropped

if TYPE_CHECKING:
    from ropewalk.state._log import Log
    from ropewalk.state._store import Store

_log = logging.getLogger("ropewalk.state")

#: Seconds before a failed effect is tried again; they double.
_PAUSE = 1.0
_LONGEST = 300.0


class Effect(NamedTuple):
    """A call that a commit asks for."""

    version: int
    #: Its place among the effects of the version.
    place: int
    function: Callable[..., Any]
    args: tuple[Any, ...]


class Effects:
    """The effects of a store that were not delivered yet.

    The thread that commits delivers, one effect after the other; a thread whose commit comes meanwhile leaves its own
    to that one. Without a journal an effect that raises is logged and gone. With a journal it is tried again, also
    after the program has ended, until it succeeds.
    """

    def __init__(self, store: Store[Any], log: Log | None) -> None:
        self._store = store
        self._journaled = log
        # A finalizer may come in between, and commit.
        self._lock = threading.RLock()
        self._queue: deque[Effect] = deque()
        self._is_delivering = False
        #: With a journal: what was not recorded as delivered.
        self._open: dict[tuple[int, int], Effect] = {}
        self._later: list[tuple[float, int, Effect, float]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._home = uuid.uuid4().hex if log is None else log.name
        if log is not None and log.pending:
            for effect in log.pending:
                self._open[effect.version, effect.place] = effect
                self._queue.append(effect)
            self.deliver()

    def deliver(self) -> None:
        """Delivers what is due, unless another thread does, or an effect has led here."""
        with self._lock:
            if self._is_delivering or self._is_closed:
                return
            self._take()
            if not self._queue:
                return
            self._is_delivering = True
        effect = None
        try:
            while True:
                with self._lock:
                    effect = None
                    self._take()
                    if not self._queue or self._is_closed:
                        self._is_delivering = False
                        return
                    effect = self._queue.popleft()
                self._call(effect, _PAUSE)
        except BaseException:
            # Ctrl-C, for instance: the next commit goes on.
            with self._lock:
                self._is_delivering = False
                if effect is not None and (effect.version, effect.place) in self._open:
                    self._queue.appendleft(effect)
            raise

    def pending(self) -> list[Effect]:
        """The effects that are recorded and not yet delivered, in their order."""
        with self._lock:
            self._take()
            return [self._open[key] for key in sorted(self._open)]

    def close(self) -> None:
        """Ends the deliveries; with a journal they go on when it is opened again."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _take(self) -> None:
        # The store gives the effects in the order of versions, and only those of commits that are on the disk.
        while (taken := self._store._take_effects()) is not None:
            version, calls = taken
            for index, (function, *args) in enumerate(calls):
                effect = Effect(version, index, function, tuple(args))
                if self._journaled is not None:
                    self._open[version, index] = effect
                self._queue.append(effect)

    def _call(self, effect: Effect, pause: float) -> None:
        try:
            named = {"key": self._key(effect)} if _takes_key(effect.function) else {}
            later = dropped(effect.function(*effect.args, **named))
            if later:
                raise TypeError(f"the effect has returned a {later}, which nothing awaits, so it did not run")
        except Exception:
            name = getattr(effect.function, "__qualname__", repr(effect.function))
            if self._journaled is None:
                _log.exception("the effect %s of version %d has failed", name, effect.version)
                return
            _log.warning("the effect %s of version %d is tried again", name, effect.version, exc_info=True)
            self._try_again(effect, pause)
            return
        if self._journaled is not None:
            # In this order: a compaction in between leaves it out, and must not write it down as open again.
            with self._lock:
                self._open.pop((effect.version, effect.place), None)
            self._journaled.delivered(effect.version, effect.place)

    def _key(self, effect: Effect) -> str:
        text = f"{self._home}:{effect.version}:{effect.place}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _try_again(self, effect: Effect, pause: float) -> None:
        with self._lock:
            if self._is_closed:
                return
            due = time.monotonic() + pause
            heapq.heappush(self._later, (due, next(self._numbers), effect, min(2 * pause, _LONGEST)))
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="ropewalk-effects", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._is_closed and (not self._later or self._later[0][0] > time.monotonic()):
                    self._changed.wait(self._later[0][0] - time.monotonic() if self._later else None)
                if self._is_closed:
                    return
                _, _, effect, pause = heapq.heappop(self._later)
            try:
                self._call(effect, pause)
            except BaseException:
                _log.warning("an effect of version %d has ended its thread", effect.version, exc_info=True)
                self._try_again(effect, pause)
            with self._lock:
                if not self._later:
                    # The store would live as long as the thread.
                    self._thread = None
                    return


def _takes_key(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter for the key by which a receiver knows an effect again."""
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        code = function.__code__
        return "key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
