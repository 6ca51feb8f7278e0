"""What runs after a commit: in the order of versions, once if nothing fails, at least once after a crash."""

from __future__ import annotations

import hashlib
import heapq
import inspect
import itertools
import logging
import pickletools
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk._errors import StateError
from ropewalk.state._codec import dumps, loads
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
    #: If the program cannot read the effect, an object that tries it again when it is called.
    function: Callable[..., Any]
    args: tuple[Any, ...]


class Unread:
    """Stands for the function of an effect in the journal whose function, or a class of an argument, is gone."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        self.__qualname__ = _function_in(packed)

    def __call__(self, *, key: str) -> Any:
        """Calls the function, if it is there again.

        Raises:
            StateError: it is not.
        """
        function, *args = loads(self.packed)
        return _call(function, args, key)

    def __repr__(self) -> str:
        return f"<{self.__qualname__}, which cannot be read>"


def unpacked(version: int, place: int, packed: bytes) -> Effect:
    """Returns an effect that the journal has."""
    try:
        function, *args = loads(packed)
    except StateError as error:
        unread = Unread(packed)
        _log.warning(
            "the effect %s of version %d cannot be delivered: %s. It stays in the journal and is tried again; "
            "Store.drop_effects gives it up",
            unread.__qualname__,
            version,
            error,
        )
        return Effect(version, place, unread, ())
    return Effect(version, place, function, tuple(args))


def packed(effect: Effect) -> bytes:
    """Returns an effect as the journal has it."""
    if isinstance(effect.function, Unread):
        return effect.function.packed
    return dumps((effect.function, *effect.args))


def _function_in(packed: bytes) -> str:
    """Returns the name of the first function or class that a pickle names, without loading anything."""
    texts: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(packed):
            if opcode.name == "STACK_GLOBAL":
                return ".".join(texts[-2:])
            if isinstance(argument, str):
                texts.append(argument)
    except ValueError:
        pass
    return "without a name"


class _Turn:
    """A thread's turn to deliver."""

    __slots__ = ("__weakref__",)


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
        #: Refers to an object of the thread that delivers, while there is one.
        self._turn: weakref.ref[_Turn] | None = None
        #: The effect that was called last; it is still the first one if an interrupt has ended its call.
        self._called: Effect | None = None
        #: The newest version whose effects are in the queue or have been.
        self._known = 0
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
        # An interrupt may come between any two lines. So the turn is an object: with this frame it ends, whatever has
        # happened; and an effect leaves the queue once it was called, and not before.
        turn = None
        try:
            with self._lock:
                if self._is_closed or (self._turn is not None and self._turn() is not None):
                    return
                turn = _Turn()
                self._turn = weakref.ref(turn)
            while (effect := self._next()) is not None:
                self._call(effect, _PAUSE)
                self._leave(effect)
        finally:
            turn = None

    def _next(self) -> Effect | None:
        with self._lock:
            self._take()
            if self._is_closed or not self._queue:
                # In the same step as the look: a commit behind it finds no thread that delivers.
                self._turn = None
                return None
            effect = self._queue[0]
        if effect is self._called and self._journaled is None:
            # An interrupt has ended its call.
            self._leave(effect)
            return self._next()
        return effect

    def _leave(self, effect: Effect) -> None:
        with self._lock:
            if self._queue and self._queue[0] is effect:
                self._queue.popleft()
            self._called = None

    def deliver_behind(self, done: tuple[int, int]) -> None:
        """Delivers in a thread of its own what is due when a commit is on the disk."""
        store = self._store

        def work() -> None:
            try:
                store._wait(*done)
                store._watchers.wake()
                self.deliver()
            except BaseException:
                # The disk has failed, and the commit with it; or an effect has ended its thread.
                _log.warning("effects behind version %d were not delivered", done[0], exc_info=True)

        try:
            threading.Thread(target=work, name="ropewalk-behind", daemon=True).start()
        except RuntimeError:
            # The interpreter ends. With a journal the next program delivers them.
            _log.warning("effects behind version %d have no thread to be delivered", done[0])

    def drop(self, effects: Iterable[Effect]) -> None:
        """Records effects as delivered that were not."""
        for effect in effects:
            with self._lock:
                self._take()
                key = effect.version, effect.place
                dropped = self._open.pop(key, None)
                if dropped is None:
                    continue
                self._queue = deque(one for one in self._queue if one is not dropped)
                self._later = [one for one in self._later if one[2] is not dropped]
                heapq.heapify(self._later)
                self._changed.notify_all()
            if self._journaled is not None:
                self._journaled.delivered(*key)

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
        # The store gives the effects in the order of versions, and only those of commits that are on the disk. It keeps
        # them until it is asked for what is behind them.
        known = self._known
        if self._queue:
            known = max(known, self._queue[-1].version)
        while (taken := self._store._next_effects(known)) is not None:
            known, calls = taken
            effects = [Effect(known, index, call[0], tuple(call[1:])) for index, call in enumerate(calls)]
            if self._journaled is not None:
                self._open.update({(effect.version, effect.place): effect for effect in effects})
            self._queue.extend(effects)
            self._known = known

    def _call(self, effect: Effect, pause: float) -> None:
        try:
            named = {"key": self._key(effect)} if _takes_key(effect.function) else {}
            self._called = effect
            later = dropped(effect.function(*effect.args, **named))
            if later:
                raise TypeError(f"the effect has returned a {later}, which nothing awaits, so it did not run")
        except Exception:
            name = getattr(effect.function, "__qualname__", repr(effect.function))
            if self._journaled is None:
                _log.exception("the effect %s of version %d has failed", name, effect.version)
                return
            _log.warning("the effect %s of version %d is tried again", name, effect.version, exc_info=True)
            with self._lock:
                is_open = (effect.version, effect.place) in self._open
            if is_open:
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
                while not self._is_closed and self._later and self._later[0][0] > time.monotonic():
                    self._changed.wait(self._later[0][0] - time.monotonic())
                if self._is_closed:
                    return
                if not self._later:
                    # What was there was given up.
                    self._thread = None
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


def _call(function: Callable[..., Any], args: Iterable[Any], key: str) -> Any:
    return function(*args, key=key) if _takes_key(function) else function(*args)


def _takes_key(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter for the key by which a receiver knows an effect again."""
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        code = function.__code__
        return "key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
