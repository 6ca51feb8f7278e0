"""One execution of a run: the thread that calls the flow's function, and what the function's steps do in it."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ropewalk._errors import JournalClosed, JournalError, PoolClosed, WorkerCrashed
from ropewalk._keys import key_of, key_of_function, main_name
from ropewalk._retry import Retry, Tries
from ropewalk._step import Effect, call, hide_frames, raise_of_step
from ropewalk.flows._calls import BATCH, Call, arrived, named_call, next_call
from ropewalk.flows._failures import as_recorded, packed_error, text_of, unpacked_error, unrecordable
from ropewalk.flows._flow import Flow
from ropewalk.flows._history import Form, RunHistory, Step
from ropewalk.flows._packed import has_buffers
from ropewalk.flows._records import Entry, Kind, made, tried
from ropewalk.flows._steps import Asked, Execution, carried_on_by

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine

#: Seconds that a run waits in its thread before it gives the thread back.
_PATIENCE = 1.0
#: A function that has held its end back so often does so for good.
HELD_BACK = 100
#: The executors of the standard library, which are slow to import.
_STANDARD = ("concurrent.futures.thread", "concurrent.futures.process")
#: So many steps of a map are submitted at most whose results have not arrived.
_FLYING = 4096

_log = logging.getLogger("ropewalk.flows")

#: The keyword arguments of the steps of a map.
_NONE: dict[str, Any] = {}

Why = Literal["suspended", "cancelled", "closed", "broken", "interrupted"]


class Unwound(BaseException):
    """Ends the function of a flow whose run does not go on here; not an `Exception`, so that flows do not catch it."""

    def __init__(self, why: Why, cause: BaseException | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.cause = cause


def is_interruption(error: BaseException) -> bool:
    """Whether an error says that the executor has ended, which is no failure of the step."""
    if isinstance(error, (CancelledError, PoolClosed)):
        return True
    # A worker that died has failed at this task, and the pool goes on.
    return isinstance(error, BrokenExecutor) and not isinstance(error, WorkerCrashed)


class Waiting(NamedTuple):
    """What a suspended run waits for."""

    #: In seconds since 1970; `None` for an event without a time limit.
    until: float | None
    event: str | None
    #: Whether it has come.
    is_over: Callable[[], bool]


class Carried(Execution):
    """A run that a thread carries on."""

    def __init__(self, engine: Engine, history: RunHistory) -> None:
        self._engine = engine
        self.history = history
        self._counts: dict[bytes, itertools.count[int]] = {}
        self._futures: set[Future[Any]] = set()
        self._unwound: Unwound | None = None
        #: How often the function went on behind it.
        self._held_back = 0
        #: Set when something has come for which the thread may wait.
        self.woken = threading.Event()
        #: Why the run does not go on here, once it was said.
        self.stopped: Why | None = None
        self.waiting: Waiting | None = None
        #: The keys of the steps that the function has asked for.
        self._asked: set[bytes] = set()
        #: The position behind the last event that was received, by names.
        self._positions: dict[str, int] = {}
        #: The begins of steps that have neither ended nor lasted long enough to be recorded.
        self.begun: dict[bytes, Call] = {}
        #: The names and digests of functions of modules.
        self._identities: dict[FunctionType, tuple[str, bytes]] = {}

    # --- what other threads call ------------------------------------------------------------------------------------

    def stop(self, why: Why, *, running: bool) -> None:
        """Lets the run end at its next step; cancels the tasks of its steps, also those that run if it says so."""
        if self.stopped is None or why == "cancelled":
            self.stopped = why
        self.woken.set()
        for future in list(self._futures):
            if running and hasattr(future, "_progress"):  # A future of Ropewalk's.
                future.cancel(running=True)  # type: ignore[call-arg]
            else:
                future.cancel()

    # --- the flow's code --------------------------------------------------------------------------------------------

    def go(self, flow: Flow[..., Any]) -> Any:
        """Calls the function of the flow; returns its result.

        Raises:
            Unwound: the run does not go on here, or not now.
            Exception: what the function raised.
        """
        try:
            args, kwargs = self._engine.packer.unpack(self.history.arguments)
        except JournalError as error:
            raise self._broken(error) from error
        except Exception as error:
            error.add_note(
                f"The journal has the arguments of the run {self.history.id!r}, and this program cannot unpickle them."
            )
            raise self._unwinding("broken", error) from error
        with carried_on_by(self):
            try:
                result = flow._function(*args, **kwargs)
            except Unwound:
                raise
            except BaseException as error:
                if self._unwound is not None:  # The function has put another exception into its place.
                    raise self._unwound from error
                raise
            if self._unwound is not None:
                raise self._unwound
            return result

    def unasked(self) -> int:
        """Returns how many steps an earlier execution has finished for which this one did not ask."""
        return sum(
            step.state != "running" and key not in self._asked for key, step in self.history.steps.items()
        )

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(self, asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, known_as = self._identity(asked.function, asked.name)
        key = self._key("call", name, known_as, (args, kwargs))
        made_call = Call("call", name, key, asked.function, args, kwargs)
        found = self.history.steps.get(made_call.key)
        if found is not None and found.state != "running":
            return self._recorded(found)
        self._run(made_call, self._executor(asked), Tries(asked.retry))
        return made_call.taken()

    def map(self, asked: Asked, inputs: list[tuple[Any, ...]]) -> list[Any]:
        name, known_as = self._identity(asked.function, asked.name)
        executor = self._executor(asked)
        calls = [
            Call("map", name, self._key("map", name, known_as, (args, _NONE)), asked.function, args, _NONE)
            for args in inputs
        ]
        left = [one for one in calls if not self._is_known(one)]
        if left:
            self._check()
        if executor is None:
            for one in left:
                self._run(one, None, Tries(asked.retry))
        elif left:
            self._run_all(left, executor, asked.retry)
        for index, one in enumerate(calls):
            if one.error is not None:
                one.error.add_note(f"It is input {index} of step.map({name}).")
        return [one.taken() for one in calls]

    def _is_known(self, one: Call) -> bool:
        found = self.history.steps.get(one.key)
        if found is None or found.state == "running":
            return False
        try:
            one.value = self._recorded(found)
        except Exception as error:
            one.error = error
        return True

    def _run(self, one: Call, executor: Executor | None, tries: Tries) -> None:
        """Runs a step in this thread, or on an executor, until it has an outcome, and records that."""
        self._begin(one)
        while not self._settle(one, partial(self._attempt, one, executor), tries):
            self._pause(one.delay)
        assert one.entry is not None
        self._commit([one.entry])

    def _run_all(self, left: list[Call], executor: Executor, retry: Retry) -> None:
        """Runs steps on an executor, all at once, and records their outcomes as they come."""
        arrivals: queue.SimpleQueue[tuple[Call, Future[Any]]] = queue.SimpleQueue()
        #: Those that are tried again, by the time of that.
        later: list[tuple[float, int, Call]] = []
        number = itertools.count()
        tries = {one: Tries(retry) for one in left}
        flying = 0
        unwound: Unwound | None = None

        def submit(one: Call) -> None:
            self._submit(one, executor).add_done_callback(lambda done: arrivals.put((one, done)))

        for one in left:
            self._begin(one)
        waiting = iter(left)
        while True:
            while unwound is None and flying < _FLYING and (ready := next_call(later, waiting)) is not None:
                try:
                    submit(ready)
                except Exception as error:  # A closed pool, or a full one: the outcome of the attempt.
                    refused: Future[Any] = Future()
                    refused.set_exception(error)
                    arrivals.put((ready, refused))
                flying += 1
            if not flying and (unwound is not None or not later):
                break
            entries: list[Entry] = []
            for one, future in arrived(arrivals, later[0][0] if later else None, flying > 0):
                flying -= 1
                self._futures.discard(future)
                one.is_interruptible = future.cancelled() or not isinstance(
                    future.exception(), CancelledError
                )
                try:
                    if self._settle(one, future.result, tries[one]):
                        assert one.entry is not None
                        entries.append(one.entry)
                    else:
                        heapq.heappush(later, (time.monotonic() + one.delay, next(number), one))
                except Unwound as found:
                    unwound = unwound or found
            if entries:
                self._commit(entries)
            if self.stopped is not None and unwound is None:
                # The tasks that have not started are cancelled; the others arrive, and are recorded.
                unwound = self._unwinding(self.stopped)
        if unwound is not None:
            raise unwound

    def _settle(self, one: Call, outcome: Callable[[], tuple[Any, list[Effect]]], tries: Tries) -> bool:
        """Takes the outcome of an attempt; returns whether there is no further one."""
        try:
            one.value, effects = outcome()
        except Exception as error:
            unwound = self._interruption(error) if one.is_interruptible else None
            if unwound is not None:
                raise unwound from error
            delay = tries.delay_after(error)
            if delay is not None:
                one.delay = delay
                _log.warning(
                    "the step %s of run %r has failed, and is tried again in %.1f s: %s",
                    one.name,
                    self.history.id,
                    delay,
                    text_of(error),
                )
                return False
            # Of a worker process nothing but ours is left; the cause has its text.
            hide_frames(error, wholly=True)
            one.error = error
        else:
            try:
                one.entry = self._success(one, effects)
            except Exception as error:  # It cannot be pickled.
                one.error = error
        if one.error is not None:
            one.entry = self._failure(one, one.error)
            one.error = as_recorded(one.error, one.entry.fields[3])
        return True

    def _attempt(self, one: Call, executor: Executor | None) -> tuple[Any, list[Effect]]:
        if executor is None:
            one.attempts += 1
            with carried_on_by(None):
                return call(one.described(self.history), one.function, one.args, one.kwargs)
        one.is_interruptible = True
        future = self._submit(one, executor)
        try:
            return future.result()
        except CancelledError:
            # One that the function has raised is a failure of the step.
            one.is_interruptible = future.cancelled()
            raise
        finally:
            self._futures.discard(future)

    def _submit(self, one: Call, executor: Executor) -> Future[tuple[Any, list[Effect]]]:
        one.attempts += 1
        try:
            made_by = named_call(one.function) if hasattr(executor, "options") else call
            future = executor.submit(made_by, one.described(self.history), one.function, one.args, one.kwargs)
        except RuntimeError as error:
            if any(base.__module__ in _STANDARD for base in type(executor).__mro__):
                # The executors of the standard library have no other error for a pool that was shut down.
                raise PoolClosed(f"the pool takes no steps: {error}") from error
            raise
        self._futures.add(future)
        if self.stopped is not None:
            future.cancel()
        return future

    def _executor(self, asked: Asked) -> Executor | None:
        executor = asked.pool if asked.has_pool else self._engine.pool
        if asked.timeout is None:
            return executor
        options: Any = getattr(executor, "options", None)
        if options is None:
            raise ValueError("timeout= needs a pool of Ropewalk's: a call in this thread cannot be ended")
        limited: Executor = options(task_timeout=asked.timeout)
        return limited

    # --- waits ------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        key = self._key("sleep", "sleep", b"sleep", seconds)
        self._sleep(key, f"sleep {seconds:g} s", lambda: time.time() + seconds)

    def sleep_until(self, when: float) -> None:
        self._sleep(self._key("sleep", "sleep_until", b"until", when), "sleep_until", lambda: when)

    def _sleep(self, key: bytes, name: str, until: Callable[[], float]) -> None:
        found = self.history.steps.get(key)
        if found is not None and found.state != "running":
            return
        self._check()
        if found is None or found.until is None:
            found = self._wait_begins(key, name, "sleep", until())
        until_then = found.until
        assert until_then is not None
        self._wait(until_then, None, lambda: time.time() >= until_then)
        self._commit([made(Kind.FINISHED, self.history.number, *_plain(name, "sleep"), key=key)])

    def wait_event(self, name: str, timeout: float | None, default: Any) -> Any:
        key = self._key("event", name, b"event", name)
        found = self.history.steps.get(key)
        if found is not None and found.state != "running":
            if not found.outcome:
                return default
            self._positions[name] = found.position + 1
            return self._engine.packer.unpack(found.outcome)
        self._check()
        # The first that this run has not received.
        position = self._positions.get(name, 0)
        event = self._event_after(name, position)
        if event is None:
            if found is None:
                until = None if timeout is None else time.time() + timeout
                found = self._wait_begins(key, name, "event", until)
            until = found.until
            self._wait(
                until,
                name,
                lambda: (
                    self._event_after(name, position) is not None
                    or (until is not None and time.time() >= until)
                ),
            )
            event = self._event_after(name, position)
        at, packed = event or (0, b"")
        fields = (
            name.encode(),
            b"event",
            packed,
            at.to_bytes(8, "little") if event else b"",
            tried(1, time.time()),
        )
        self._commit([made(Kind.FINISHED, self.history.number, *fields, key=key)])
        if event is None:
            return default
        self._positions[name] = at + 1
        return self._engine.packer.unpack(packed)

    def _event_after(self, name: str, position: int) -> tuple[int, bytes] | None:
        return self._engine.event_after(name, position, self.history.number)

    def _wait_begins(self, key: bytes, name: str, form: Form, until: float | None) -> Step:
        """Records until when a step waits, before it waits: the end of the process shall not begin the time anew."""
        at = b"" if until is None else repr(until).encode()
        self._commit([made(Kind.BEGAN, self.history.number, name.encode(), form.encode(), at, key=key)])
        return self.history.steps[key]

    def _wait(self, until: float | None, event: str | None, is_over: Callable[[], bool]) -> None:
        """Waits a moment; then gives the thread back until the time or the event has come."""
        self.waiting = Waiting(until, event, is_over)
        patience = time.monotonic() + _PATIENCE
        if event is not None:
            self._engine.await_event(event, self)
        try:
            while not is_over():
                self._check()
                left = patience - time.monotonic()
                if left <= 0:
                    raise self._unwinding("suspended")
                self.woken.wait(left if until is None else max(0.0, min(left, until - time.time())))
                self.woken.clear()
        finally:
            if event is not None:
                self._engine.await_no_event(event, self)
        self._check()
        self.waiting = None

    def _pause(self, seconds: float) -> None:
        """Waits between two attempts."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check()
            self.woken.wait(left)
            self.woken.clear()
        self._check()

    # --- effects ----------------------------------------------------------------------------------------------------

    def effect(self, effect: Effect) -> None:
        function, args, kwargs = effect
        name, known_as = self._identity(function, None)
        key = self._key("effect", name, known_as, (args, kwargs))
        if key not in self.history.steps:
            self._check()
            made_call = Call("effect", name, key, function, args, kwargs)
            made_call.began = time.time()
            self._commit([self._success(made_call, [effect])])

    # --- records ----------------------------------------------------------------------------------------------------

    def _identity(self, function: Callable[..., Any], name: str | None) -> tuple[str, bytes]:
        """Returns the name of a step, and the digest that stands for its function."""
        if isinstance(function, Flow):
            raise TypeError(
                f"{function.name} is a flow: call it as a function, and its steps become steps of this run"
            )
        if name is not None:
            return name, name.encode()
        shown: str = getattr(function, "__qualname__", "") or type(function).__qualname__
        if type(function) is not FunctionType or "<" in shown:
            return shown, key_of_function(function)
        known = self._identities.get(function)
        if known is None:
            # The same one whether its file is run or imported.
            module = main_name() if function.__module__ == "__main__" else function.__module__
            known = self._identities[function] = shown, key_of((module, shown))
        return known

    def _key(self, form: Form, name: str, known_as: bytes, arguments: object) -> bytes:
        """Returns the key of a step: of equal ones in this run each has its own."""
        try:
            digest = key_of((form, known_as, arguments))
        except Exception as error:
            raise TypeError(
                f"the {form} {name} has no key: {error}. A key needs arguments that can be pickled; pass what they are "
                f"made from, for instance a path instead of an open file"
            ) from error
        number = next(self._counts.setdefault(digest, itertools.count()))
        key = digest if number == 0 else key_of((digest, number))
        self._asked.add(key)
        return key

    def _recorded(self, step: Step) -> Any:
        if step.state == "failed":
            error = unpacked_error(step.outcome, step.error)
            error.add_note(
                f"The step {step.name} has failed so in an earlier execution of the run {self.history.id!r}."
            )
            raise_of_step(error)
        try:
            return self._engine.packer.unpack(step.outcome)
        except JournalError as error:
            raise self._unwinding("broken", error) from error
        except Exception as error:
            # No failure of the step, which has its result; and the next program may have the class.
            error.add_note(
                f"The journal has the result of the step {step.name}, and this program cannot unpickle it, because it "
                f"lacks the class or has another one. The run stops; `retry` lets it go on where the class is."
            )
            raise self._unwinding("broken", error) from error

    def _begin(self, one: Call) -> None:
        self._check()
        one.began = time.time()
        # Written if it lasts: most steps have ended by then.
        self.begun[one.key] = one

    def _success(self, one: Call, effects: list[Effect]) -> Entry:
        pack = self._engine.packer.pack
        try:
            packed = pack(one.value)
            if has_buffers(packed):
                # As when the run goes on: a read-only view of the file.
                one.value = self._engine.packer.unpack(packed)
            kept = len(effects).to_bytes(4, "little") + pack(effects) if effects else b""
        except JournalError as error:
            raise self._broken(error) from error
        except Exception as error:
            raise unrecordable("step", one.name, error) from error
        return self._ended(Kind.FINISHED, one, packed, kept)

    def _failure(self, one: Call, error: Exception) -> Entry:
        return self._ended(Kind.FAILED, one, text_of(error).encode(), packed_error(error))

    def _ended(self, kind: Kind, one: Call, *outcome: bytes) -> Entry:
        fields = (one.name.encode(), one.form.encode(), *outcome, tried(max(one.attempts, 1), one.began))
        return made(kind, self.history.number, *fields, key=one.key)

    def _commit(self, entries: list[Entry]) -> None:
        """Puts records on the disk, and hands their effects on."""
        if self.stopped == "cancelled":
            raise self._unwinding("cancelled")
        try:
            for start in range(0, len(entries), BATCH):
                self._engine.record(entries[start : start + BATCH])
        except JournalError as error:
            raise self._broken(error) from error
        for entry in entries:
            self.begun.pop(entry.key, None)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Ends the function if the run does not go on here."""
        if self._unwound is not None:
            self._held_back += 1
            if self._held_back >= HELD_BACK:
                self._engine.abandon(self, self._unwound)
            raise self._unwound
        if self.stopped is not None:
            raise self._unwinding(self.stopped)

    def _interruption(self, error: Exception) -> Unwound | None:
        """Returns what ends the function if the step was ended from outside, which is no failure of the step."""
        if not is_interruption(error):
            return None
        return self._unwinding(self.stopped or "interrupted", error)

    def _broken(self, error: JournalError) -> Unwound:
        return self._unwinding("closed" if isinstance(error, JournalClosed) else "broken", error)

    def _unwinding(self, why: Why, cause: BaseException | None = None) -> Unwound:
        if self._unwound is None:
            self._unwound = Unwound(why, cause)
        return self._unwound


def _plain(name: str, form: Form) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    return name.encode(), form.encode(), b"", b"", tried(1, time.time())
