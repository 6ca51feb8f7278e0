"""Workers that are interpreters of this process: the thread that starts them, and a thread for each."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import marshal
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

import ropewalk
from ropewalk import _core
from ropewalk.pool.parent._exit import LAST, start, was_interrupted
from ropewalk.pool.wire import _functions, _logs, _serialize
from ropewalk.pool.worker import _interpreter


def refuse(threads: int, blas_threads: int | None, max_rss: int | None) -> None:
    """Refuses settings that a pool of interpreters cannot have.

    Raises:
        ValueError: a setting is invalid for interpreters.
    """
    if threads != 1:
        raise ValueError(
            f'threads must be 1 with kind="interpreter", not {threads}: each interpreter runs one task at a time'
        )
    if blas_threads is not None:
        raise ValueError(
            'blas_threads is for kind="process" and kind="thread": the libraries that it limits do not load in an '
            "interpreter"
        )

    if max_rss is not None:
        raise ValueError(
            'max_rss needs worker processes: interpreters share the memory of this process. Give kind="process", or '
            "max_tasks"
        )


def settings_of(
    preload: tuple[str, ...],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    name: str,
    log: bool,
    checks: dict[str, Callable[[], object]],
) -> tuple[bytes, _core.Lent]:
    """Returns what each interpreter reads first, and the shared memory that this refers to.

    Raises:
        EncodeError: the initializer or its arguments cannot be sent.
    """
    encoded: dict[str, Any] = {"initializer": None, "initargs": None, "checks": []}

    def encode() -> None:
        if initializer is not None:
            encoded["initializer"] = _functions.encode_whole(initializer)
            encoded["initargs"] = _serialize.encode_object(initargs, None)
        encoded["checks"] = [(what, _functions.encode_whole(call)) for what, call in checks.items()]

    _, lent = _core.lend_during(encode)
    home = os.path.dirname(os.path.dirname(os.path.abspath(str(ropewalk.__file__))))
    spec = marshal.dumps(
        {
            "sys_path": [*sys.path, *([] if home in sys.path else [home])],
            "argv": list(sys.argv),
            "recursion": sys.getrecursionlimit(),
            "digits": sys.get_int_max_str_digits(),
            "preload": preload,
            "name": name,
            "log": {**_logs.levels(), "fd": _logs.collector().fd} if log else None,
            **encoded,
        }
    )
    return spec, lent


#: The threads that have an interpreter, and those of them that serve their pool no more and destroy it.
_LIVING: set[threading.Thread] = set()
_LEAVING: set[threading.Thread] = set()
#: Seconds for which the end of the process waits for interpreters that were asked to leave: one that runs a task, and
#: one that is being destroyed, which ends by itself unless threads of its tasks do not.
_PATIENCE = 2.0
_LONG_PATIENCE = 60.0


def _leave_without_them() -> None:
    """Ends the process if an interpreter still runs a task that was given up.

    CPython cannot finalize such an interpreter: it crashes, or waits for ever. The handlers of `atexit` run before.
    """
    begun = time.monotonic()
    for thread in list(_LIVING):
        while thread.is_alive():
            patience = _LONG_PATIENCE if thread in _LEAVING else _PATIENCE
            if time.monotonic() - begun > patience:
                break
            # In slices: it may begin to leave meanwhile.
            thread.join(0.05)
    if not any(thread.is_alive() for thread in list(_LIVING)):
        return
    # The error that has ended the wait for the pools; Python would report it when this has returned.
    error = sys.exception()
    if error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # Closed, or replaced by None.
            stream.flush()
    if was_interrupted() or isinstance(error, KeyboardInterrupt):
        # As Python itself ends after Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(1)


LAST.append(_leave_without_them)


class Crew:
    """Starts a thread for each seat that the engine offers, and an interpreter in it."""

    def __init__(self, engine: _core.PoolHandle, name: str, threads: list[threading.Thread]) -> None:
        """Prepares to start; `threads` gets the threads, of which those that have ended are dropped again."""
        self._engine = engine
        self._name = name
        self._threads = threads
        self._number = 0

    def start(self) -> None:
        """Starts the thread that starts the others."""
        usher = threading.Thread(target=self._run, name=f"{self._name}-interpreters", daemon=True)
        start(usher)
        self._threads.append(usher)

    def _run(self) -> None:
        while True:
            seat = self._engine.take_seat()
            if seat is None:
                return
            self._threads[:] = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(
                target=_live,
                args=(self._engine, seat),
                name=f"{self._name}-interpreter-{self._number}",
                daemon=True,
            )
            self._number += 1
            try:
                start(thread)
            except Exception as error:
                self._engine.give_up_seat(seat, f"no thread could be started for an interpreter: {error}")
                continue
            self._threads.append(thread)


@functools.cache
def _code() -> bytes:
    """Returns the code of the module that a new interpreter runs: to find and read it there would take longer."""
    name, path = _interpreter.__name__, str(_interpreter.__file__)
    return marshal.dumps(SourceFileLoader(name, path).get_code(name))


def _bootstrap(seat: int) -> str:
    """Returns the code that a new interpreter runs; it leaves no name in that interpreter's `__main__`."""
    name, path = _interpreter.__name__, _interpreter.__file__
    return (
        "def start():\n"
        "    globals().pop('start')\n"
        "    from marshal import loads\n"
        f"    space = {{'__name__': {name!r}, '__file__': {path!r}}}\n"
        "    exec(loads(globals().pop('CODE')), space)\n"
        f"    space['main']({seat}, {_core.__file__!r})\n"
        "start()\n"
    )


def _live(engine: _core.PoolHandle, seat: int) -> None:
    """Makes an interpreter, which takes the seat and runs tasks; destroys it, and gives the seat up."""
    # The public module of Python 3.14 is not there in 3.13, and adds nothing that is used here.
    interpreters: Any = importlib.import_module("_interpreters")
    _LIVING.add(threading.current_thread())
    failed: str | None = None
    interpreter: Any = None
    try:
        interpreter = interpreters.create()
        raised = interpreters.exec(interpreter, _bootstrap(seat), {"CODE": _code()})
        if raised is not None:
            failed = f"an interpreter could not start: {raised.formatted}"
    except BaseException as error:
        failed = f"an interpreter could not start: {type(error).__name__}: {error}"
    finally:
        _LEAVING.add(threading.current_thread())
        if interpreter is not None:
            with contextlib.suppress(Exception):
                interpreters.destroy(interpreter)
        _LIVING.discard(threading.current_thread())
        _LEAVING.discard(threading.current_thread())
        engine.give_up_seat(seat, failed)
