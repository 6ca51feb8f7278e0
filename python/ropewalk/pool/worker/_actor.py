"""`Actor`: a worker of a pool on a Ray cluster. It runs one task at a time, and imports nothing of Ray.

The parent's `_ray` makes an actor of this class in a process of Ray's. A call and its answer are lists of bytes and
buffers: a pickle, and the buffers beside it. Ray carries the large ones in its object store, so that an array is a view
of that memory.

Ray gives the methods that `_ray_lane` calls in the group `CONTROL` threads of their own, beside the one that runs
tasks.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from ropewalk._current import HERE
from ropewalk._retried import is_retried
from ropewalk.pool.wire import _blas, _exceptions, _fitness, _serialize, _sessions, _surroundings, _taken
from ropewalk.pool.worker._actor_stream import Items, Pulled
from ropewalk.pool.worker._actor_task import Line, Progress, Run, RunningTask, Said
from ropewalk.pool.worker._life import BLAS_VARIABLES

#: Shorter parts travel as bytes; longer ones as buffers of their own, without a copy in the receiver. In bytes.
_LONG = 4096
#: Types whose values nothing can change, so that a batch's results need no pickles of their own.
_CONSTANT = (int, float, bool, str, bytes, type(None), complex)

#: The outcome of one input of a batch: whether it returned, and how many of the answer's parts belong to it.
Item = tuple[bool, int]
#: The session of a call: its number, and what makes its state, if that is to be made: the number of the state, that of
#: the function, the pickle of the arguments, and whether the state is an actor's object.
Opening = tuple[int, int | None, Sequence[Any], bool]
Sent = tuple[int, Opening | None]
#: What a call says in short: the function's number; numbers of functions that will not be called any more; whether the
#: task may write to its arguments; the session whose state it finds; and the run.
Order = tuple[int, Sequence[int], bool, Sent | None, Run]


def parted(stream: bytes, buffers: Sequence[Any]) -> list[Any]:
    """Returns a pickle and its buffers as the parts that are sent."""
    whole = (memoryview(stream), *map(_flat, buffers))
    return [bytes(part) if part.nbytes < _LONG else pickle.PickleBuffer(part) for part in whole]


def _flat(buffer: Any) -> memoryview:
    return pickle.PickleBuffer(buffer).raw()


class Actor:
    """See the module."""

    def __init__(self) -> None:
        """Makes a worker that has not begun."""
        self._functions: dict[int, tuple[Callable[..., Any], _taken.State | None] | BaseException] = {}
        #: The stream that it runs.
        self._stream: Items | None = None
        #: The states of sessions by their numbers, and what makes those that are not made yet.
        self._states: dict[int, _sessions.CurrentSession[Any]] = {}
        self._openings: dict[int, Opening] = {}
        self._line = Line()

    def begin(self, settings: bytes) -> tuple[int, bytes | None]:
        """Applies the pool's settings and calls its initializer.

        Returns:
            This process's id, and the exception that the initializer has raised, encoded, or `None`.

        Raises:
            PoolError: the worker is not fit for tasks, by its warmup or its probe.
        """
        try:
            given: dict[str, Any] = pickle.loads(settings)
            _surroundings.depth = given["depth"]
            sys.path.extend(path for path in given["sys_path"] if path not in sys.path)
            os.environ.update(dict.fromkeys(BLAS_VARIABLES, str(given["blas_threads"])))
            _blas.limit_threads(given["blas_threads"])
            for module in given["preload"]:
                importlib.import_module(module)
            if given["initializer"] is not None:
                call = pickle.loads(given["initializer"])
                call(*pickle.loads(given["initargs"]))
        except BaseException as error:
            return os.getpid(), _serialize.encode_error(error)
        for what, check in given["checks"].items():
            unfit = _fitness.reason(what, pickle.loads(check))
            if unfit is not None:
                raise _serialize.errors().PoolError(unfit)
        return os.getpid(), None

    def run(
        self,
        order: Order,
        function: Sequence[Any] | None,
        arguments: Sequence[Any] | None,
        init: Sequence[Any] | None,
        batch: bool,
        star: bool,
    ) -> tuple[bool, bool, bool, int, list[Item] | None, list[Any], bool, Progress | None]:
        """Runs a call.

        Args:
            order: see `Order`.
            function: the function's pickle, the first time.
            arguments: the pickle of the arguments; `None` for a call without any.
            init: the pickle of the function that makes the state of the session, the first time.
            batch: the arguments are a list of inputs, on each of which the function is called.
            star: each input is a tuple of arguments.

        Returns:
            Whether it returned, and if not, whether it may be run again, and whether it stopped because it was asked
            to; the nanoseconds inside the function; the outcomes of a batch, or `None`; the parts of the value's
            pickle, or of the exception's; whether that is an exception with which the object of an actor could not be
            made; and how far the task has said that it is.
        """
        number, forgotten, writable, session, run = order
        for old in forgotten:
            self._functions.pop(old, None)
        busy = [0]
        on: Any = None
        task = HERE.task = self._line.begin(run)
        task.enter()
        try:
            call = self._function(number, function)
            given: Any = ((), {}) if arguments is None else _opened(arguments, writable)
            if batch:
                if session is not None:
                    _sessions.LOCAL.session = self._enter(session, init)
                items, parts = _run_batch(call, cast("list[Any]", given), star, busy)
                return True, False, False, busy[0], items, parts, False, task.end()
            positional, keywords, *rest = cast("tuple[Any, ...]", given)
            # After which exceptions it is run again, if the program has said so.
            on = rest[0] if rest else None
            del given
            state = None if session is None else self._enter(session, init)
            _sessions.LOCAL.session = state
            start = time.perf_counter_ns()
            try:
                if state is not None and call is _sessions.call_method:
                    # The same without its frame, which a traceback would show.
                    value = getattr(state.state, positional[0])(*positional[1:], **keywords)
                    if type(value) is types.CoroutineType:
                        value = _sessions.run_method(state, value)
                else:
                    value = call(*positional, **keywords)
            finally:
                busy[0] = time.perf_counter_ns() - start
            return True, False, False, busy[0], None, _encoded(value), False, task.end()
        except _Unmade as unmade:
            parts = parted(_serialize.encode_error(unmade.cause), ())
            return False, False, False, 0, None, parts, True, None
        except BaseException as error:
            if not writable:
                _serialize.note_read_only(error)
            again = on is None or is_retried(on, error)
            stopped = _has_stopped(task, error)
            parts = parted(_serialize.encode_error(error), ())
            return False, again, stopped, busy[0], None, parts, False, task.end()
        finally:
            task.end()
            _sessions.LOCAL.session = HERE.task = None

    def open_stream(
        self,
        order: Order,
        function: Sequence[Any] | None,
        arguments: Sequence[Any] | None,
        init: Sequence[Any] | None,
    ) -> bool:
        """Begins a stream, whose items `pull` takes; the arguments are those of `run`.

        Returns:
            Whether the stream fails because the object of its actor could not be made.
        """
        number, forgotten, writable, session, run = order
        for old in forgotten:
            self._functions.pop(old, None)
        if function is not None:
            self._load(number, function)
        on: list[Any] = []
        task = self._line.begin(run)
        state: _sessions.CurrentSession[Any] | None = None
        unmade: BaseException | None = None
        is_actor = False
        if session is not None:
            # Here and not in the stream's thread: a state is made where other calls find it.
            try:
                state = self._enter(session, init)
            except _Unmade as error:
                unmade, is_actor = error.cause, True
            except BaseException as error:
                unmade = error

        def call() -> Any:
            if unmade is not None:
                raise unmade
            # The thread has no other call.
            _sessions.LOCAL.session = state
            HERE.task = task
            task.enter()
            called = self._function(number, None)
            given: Any = ((), {}) if arguments is None else _opened(arguments, writable)
            positional, keywords, *rest = cast("tuple[Any, ...]", given)
            on.extend(rest[:1])
            return called(*positional, **keywords)

        def failed(error: BaseException) -> tuple[bool, bool, list[Any]]:
            if not writable:
                _serialize.note_read_only(error)
            again = not on or on[0] is None or is_retried(on[0], error)
            return again, _has_stopped(task, error), parted(_serialize.encode_error(error), ())

        self._stream = Items(call, lambda value: _copied(_encoded(value)), failed, task.end)
        return is_actor

    def pull(self, items: int, size: int, stop: bool) -> Pulled:
        """Takes what the stream has made: see `Items.pull`.

        Raises:
            RuntimeError: there is no stream.
        """
        if self._stream is None:
            raise RuntimeError("an actor that runs no stream was asked for items")
        pulled = self._stream.pull(items, size, stop)
        if pulled[0] is not None:
            self._stream = None
        return pulled

    def listen(self) -> Said | None:
        """Waits beside the task until that has something to say: see `Line`."""
        return self._line.listen()

    def stop(self, task: int) -> None:
        """Asks a task to stop."""
        self._line.stop(task)

    def answer(self, task: int, number: int, returned: bool, parts: list[Any]) -> None:
        """Answers a call of the task."""
        self._line.answer(task, number, returned, parts)

    def hang_up(self) -> None:
        """Lets `listen` return for good, because the actor is about to leave."""
        self._line.close()

    def drop(self, sessions: Sequence[int] | None) -> None:
        """Drops the states of sessions, `None` for all; an exception of a state's end is reported and costs nothing."""
        for number in list(self._states) if sessions is None else sessions:
            self._openings.pop(number, None)
            state = self._states.pop(number, None)
            if state is None:
                continue
            try:
                _sessions.close(state)
            except BaseException as error:
                unraisable = types.SimpleNamespace(
                    exc_type=type(error),
                    exc_value=error,
                    exc_traceback=error.__traceback__,
                    err_msg="Exception ignored at the end of a state",
                    object=state,
                )
                sys.unraisablehook(cast("sys.UnraisableHookArgs", unraisable))

    def _enter(self, sent: Sent, function: Sequence[Any] | None) -> _sessions.CurrentSession[Any]:
        """Returns a session with its state, which it makes if that has not been done.

        Raises:
            _Unmade: the object of an actor could not be made. Its constructor may have had effects, so it is not called
                again.
        """
        number, opening = sent
        if opening is not None:
            self._openings[number] = opening
            if opening[1] is not None and function is not None:
                self._load(opening[1], function)
        known = self._states.get(number)
        if known is not None:
            return known
        generation, init, arguments, is_actor = self._openings[number]
        try:
            # Its views are its own to write to: no other state has them.
            made = _sessions.make(
                None if init is None else self._function(init, None), _opened(arguments, True), generation
            )
        except BaseException as error:
            if is_actor:
                raise _Unmade(error) from error
            raise
        self._states[number] = made
        del self._openings[number]
        return made

    def _load(self, number: int, sent: Sequence[Any]) -> None:
        from ropewalk.pool.wire import _functions

        try:
            self._functions[number] = _taken.load(lambda: pickle.loads(sent[0], buffers=sent[1:]))
        except BaseException as error:
            try:
                _functions.raise_unloadable(error)
            except BaseException as failed:
                self._functions[number] = failed

    def _function(self, number: int, sent: Sequence[Any] | None) -> Callable[..., Any]:
        from ropewalk.pool.wire import _functions

        if sent is not None:
            self._load(number, sent)
        known = self._functions.get(number)
        if not isinstance(known, tuple):
            _functions.raise_load_error(known)
        call, state = known
        if state is not None:
            state.restore()
        return call


def _has_stopped(task: RunningTask, error: BaseException) -> bool:
    """Whether a task has ended by this error because it was asked to stop."""
    return task.asked_to_stop() and isinstance(error, _serialize.errors().TaskCancelled)


class _Unmade(Exception):
    """The object of an actor could not be made."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _opened(parts: Sequence[Any], writable: bool) -> Any:
    """Unpickles the arguments of a call.

    Raises:
        DecodeError: they could not be unpickled.
    """
    stream, *buffers = parts
    if writable:
        buffers = [bytearray(_flat(buffer)) for buffer in buffers]
    try:
        return _exceptions.loads(stream, buffers)
    except MemoryError:
        raise
    except BaseException as error:
        raise _serialize.undecodable_arguments(error) from error


def _encoded(value: object) -> list[Any]:
    buffers: list[pickle.PickleBuffer] = []
    return parted(_serialize.encode_result(value, buffers), buffers)


def _run_batch(
    call: Callable[..., Any], inputs: list[Any], star: bool, busy: list[int]
) -> tuple[list[Item], list[Any]]:
    """Runs a batch; each result is pickled before the next call, which may change it.

    If all results are constants the outcomes are an empty list, and the parts are those of the list of results.
    """
    constants: list[Any] = []
    items: list[Item] = []
    parts: list[Any] = []

    def add(ok: bool, made: list[Any]) -> None:
        for constant in constants:
            made_before = _encoded(constant)
            items.append((True, len(made_before)))
            parts.extend(made_before)
        constants.clear()
        items.append((ok, len(made)))
        parts.extend(made)

    start = time.perf_counter_ns()
    for given in inputs:
        try:
            value = call(*given) if star else call(given)
            if not items and type(value) in _CONSTANT:
                constants.append(value)
                continue
            add(True, _copied(_encoded(value)))
        except BaseException as error:
            _serialize.note_read_only(error)
            add(False, parted(_serialize.encode_error(error), ()))
    busy[0] = time.perf_counter_ns() - start
    return (items, parts) if items else ([], _encoded(constants))


def _copied(parts: list[Any]) -> list[Any]:
    """Copies buffers that are still the program's: a later call may write to them."""
    return [part if isinstance(part, bytes) else pickle.PickleBuffer(bytes(part)) for part in parts]
