"""A worker process from its fork to its end: setting it up, running its threads, leaving."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import io
import logging
import os
import pickle
import signal
import sys
import threading
from functools import partial
from typing import Any

from ropewalk import _errors as _errors
from ropewalk._imported import when_imported
from ropewalk._load import worker

# The modules that a usual task needs are imported here, so that workers share the zygote's copy. A module that each
# worker imported would cost each time and memory, and Python can import nothing once descriptors run out.
from ropewalk.pool.wire import (
    _fitness,
    _functions as _functions,
    _handed,
    _logs,
    _serialize,
    _sessions as _sessions,
    _surroundings,
    _taken as _taken,
)
from ropewalk.pool.worker import _at_fork, _random

#: Variables that BLAS and OpenMP libraries read when they are loaded.
BLAS_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


#: The longest reason of a worker that is not fit, in bytes.
_LONGEST_REASON = 1000
#: The largest record of a failed initializer, in bytes.
_LARGEST_ERROR = 32 * 1024


class Prepared:
    """The settings and the surroundings of a pool's parent, applied to this process: a zygote, or a worker."""

    def __init__(self, spec: bytes) -> None:
        """Applies `spec`, the pickled settings of a pool."""
        self.spec = spec
        self.settings: dict[str, Any] = pickle.loads(spec)
        #: Resource limits that only the worker sets.
        self.limits = _set_up(self.settings)


#: The settings that this process has applied last. A worker inherits them if its zygote could apply them.
_prepared: Prepared | None = None
_following = _logs.Following()


def prepare(spec: bytes) -> None:
    """Zygote: applies a spec before the fork, so that all workers with this spec share the memory that it takes.

    It must not end the zygote. If it fails, each worker tries again, fails, and reports the error to its pool.
    """
    global _prepared
    _prepared = None
    try:
        _prepared = Prepared(spec)
    except Exception:
        return
    finally:
        gc.freeze()


def run(
    lanes: int,
    spec: bytes,
    slot: int,
    number: int,
    descriptors: tuple[int, ...],
    zygote: int,
    generators: list[Any],
    complaints: list[str],
) -> None:
    """Runs a worker: sets the process up, runs tasks in its threads, and leaves. It does not return.

    Args:
        lanes: the number of threads that run tasks.
        spec: the pickled settings.
        slot: the worker's place among those that the pool has at a time.
        number: the worker's number in its pool, which no other worker of the pool gets.
        descriptors: the file for crash reports, the sending end of the parent's log, and the descriptors to which the
            initializer's arguments refer.
        zygote: the zygote's process id.
        generators: random number generators that the zygote has made.
        complaints: the zygote's errors and warnings about `preload`.
    """
    worker.die_with_parent(zygote)
    status = 1
    try:
        _at_fork.restore()
        if generators:
            _random.reseed(generators)
        status = _serve(lanes, spec, slot, number, descriptors, complaints)
    except SystemExit as leaving:
        # A signal handler raised it between two tasks.
        status = _status(leaving)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _leave(status)


def _serve(
    lanes: int, spec: bytes, slot: int, number: int, descriptors: tuple[int, ...], complaints: list[str]
) -> int:
    try:
        prepared = _prepared
        if prepared is None or prepared.spec is not spec:
            prepared = Prepared(spec)
        settings = prepared.settings
        _set_title(settings["name"], number)
        _surroundings.depth = settings["depth"]
        if prepared.limits:
            _surroundings.set_limits(prepared.limits)
        if _sets_threads(settings):
            # The zygote loaded the libraries with one thread each.
            from ropewalk.pool.wire import _blas

            _blas.limit_threads(settings["blas_threads"])
        _handed.take(descriptors[2:], settings["tracker"])
        _open_reports(slot, descriptors, complaints, settings)
        _initialize(settings)
    except BaseException as error:
        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        worker.init_failed(_serialize.encode_error(error, most=_LARGEST_ERROR))
        return 1
    unfit = _unfit(settings)
    if unfit is not None:
        worker.unfit(unfit.encode(errors="replace")[:_LONGEST_REASON])
        return 1
    if lanes == 1:
        _lane(0)
        return 0
    threads = [
        threading.Thread(target=_lane, args=(lane,), name=f"ropewalk-lane-{lane}", daemon=True)
        for lane in range(1, lanes)
    ]
    for thread in threads:
        thread.start()
    _lane(0)
    for thread in threads:
        thread.join()
    return 0


def _set_title(pool: str, number: int) -> None:
    """Names the process in `ps` and `top`: 15 bytes for its name, which end with its number, and the command line."""
    end = f" w{number}".encode()
    worker.set_title(
        f"ropewalk: {pool} worker {number}".encode(errors="replace"),
        pool.encode(errors="replace")[: 15 - len(end)].decode(errors="ignore").encode() + end,
    )


def _unfit(settings: dict[str, Any]) -> str | None:
    """Calls the pool's `warmup` and `probe`; returns why the worker is not fit for tasks, or None if it is."""
    for what, function in settings["checks"]:
        unfit = _fitness.reason(what, partial(_call, function))
        if unfit is not None:
            return unfit
    return None


def _call(function: bytes) -> object:
    return pickle.loads(function)()


def _lane(lane: int) -> None:
    worker.ready(lane)
    worker.serve(lane)


def _sets_threads(settings: dict[str, Any]) -> bool:
    return bool(settings["blas_threads"] > 1 and settings["preload"])


def _set_up(settings: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Applies the parent's surroundings where they differ, and returns the limits that only the worker sets."""
    # The terminal's Ctrl-C does not reach workers, because the zygote has a process group of its own. A SIGINT that
    # another process sends to a worker raises KeyboardInterrupt, as in any Python.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.path != settings["sys_path"]:
        sys.path[:] = settings["sys_path"]
    cwd = settings["cwd"]
    if cwd is not None and cwd != os.getcwd():
        os.chdir(cwd)
    environment: dict[str, str] = settings["env"] | dict.fromkeys(
        BLAS_VARIABLES, str(settings["blas_threads"])
    )
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    limits = _surroundings.apply(settings["surroundings"])
    if settings["authkey"] is not None:
        _take_authkey(settings["authkey"])
    _handed.expect(settings["tracker"])
    if _sets_threads(settings):
        from ropewalk.pool.wire import (
            _blas as _blas,  # Imported for the workers, and only here because it imports ctypes.
        )
    if settings["log"] is None:
        _following.stop()
    else:
        _following.follow(settings["log"])
    return limits


#: The longest line, in bytes, that is written by one system call.
_LONGEST_LINE = 64 * 1024


def write_whole_lines(name: str) -> None:
    """Makes a standard stream write each line when it ends, by one system call, whatever `PYTHONUNBUFFERED` says.

    So a worker that is killed has written its lines, and lines of several workers do not mix, as far as the kernel
    writes atomically: 4 KiB to a pipe, any length to a file in append mode.
    """
    stream = getattr(sys, name)
    if type(stream) is not io.TextIOWrapper or stream is not getattr(sys, f"__{name}__"):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
        return
    try:
        stream.flush()
        raw = io.FileIO(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):  # Closed.
        return
    made = io.TextIOWrapper(
        io.BufferedWriter(raw, _LONGEST_LINE), stream.encoding, stream.errors, line_buffering=True
    )
    made.mode = stream.mode  # type: ignore[misc]
    setattr(sys, name, made)
    setattr(sys, f"__{name}__", made)


#: Bytes for each slot in the file of crash reports.
_NOTES = 64 * 1024
#: The signal on which a worker writes its stacks there.
_STACK_SIGNAL: int = worker.stack_signal()


def _open_reports(
    slot: int, descriptors: tuple[int, ...], complaints: list[str], settings: dict[str, Any]
) -> None:
    """Enables crash reports, and forwards log records and the zygote's complaints to the parent."""
    notes, log, *_ = descriptors
    try:
        _open_notes(notes, slot)
    except OSError:
        pass  # Without /proc a crash reports no stack; nothing else is lost.
    finally:
        os.close(notes)
    forwarder = _following.forwarder if settings["log"] is not None else None
    if forwarder is not None:
        forwarder.attach(log, f"{settings['name']}-worker-{slot}")
        if complaints:
            forwarder.complain(complaints)
        return
    if complaints:
        single = _logs.Forwarder()
        single.attach(log, settings["name"])
        single.complain(complaints)
    os.close(log)


def _open_notes(notes: int, slot: int) -> int:
    # A new file description, because the position belongs to the description and each worker needs its own.
    mine = os.open(f"/proc/self/fd/{notes}", os.O_WRONLY | os.O_CLOEXEC)
    os.lseek(mine, slot * _NOTES, os.SEEK_SET)
    faulthandler.enable(mine, all_threads=False)
    # The parent sends it to a worker whose task hangs. The handler is C code, and runs while a task has the GIL.
    faulthandler.register(_STACK_SIGNAL, mine, all_threads=True, chain=False)
    return mine


#: Calls after which every supported Python has specialised a function's bytecode.
_WARM_UP_CALLS = 10


def warm_up() -> None:
    """Zygote: runs the code that each worker will run, on dummy data.

    This fills the interpreter's caches, specialises its bytecode and binds its libraries before the fork. Otherwise
    each worker would do so in private pages.
    """
    generators = _random.standard()
    for _ in range(_WARM_UP_CALLS):
        pickle.loads(pickle.dumps(((1, "one"), {}), 5))
        _random.reseed(generators)
        if not faulthandler.is_enabled():
            null = os.open(os.devnull, os.O_RDWR)
            try:
                os.close(_open_notes(null, 0))
            except OSError:
                continue
            finally:
                faulthandler.unregister(_STACK_SIGNAL)
                faulthandler.disable()
                os.close(null)


def _take_authkey(key: bytes) -> None:
    """Sets the parent's authentication key, so that proxies of its multiprocessing managers work here."""

    def set_key(module: Any) -> None:
        module.current_process().authkey = key

    when_imported("multiprocessing.process", set_key)


def _initialize(settings: dict[str, Any]) -> None:
    function = settings["initializer"]
    if function is None:
        return
    arguments = pickle.loads(settings["initargs"])
    call = pickle.loads(function)
    _handed.close_rest()
    call(*arguments)


def leave_fork(error: BaseException | None) -> None:
    """Ends a child process that a task has forked and that returned from the task; only the worker may go on."""
    status = 0
    try:
        if isinstance(error, SystemExit):
            status = _status(error)
        elif error is not None:
            status = 1
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _flush()
        os._exit(status)


def _status(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1


def _leave(status: int) -> None:
    """Runs the exit handlers and exits without finalizing the interpreter, whose heap is shared with the zygote."""
    try:
        # Handlers of executors, this package's and loky's: they end the executors' workers.
        for call in reversed(getattr(threading, "_threading_atexits", ())):
            call()
        atexit._run_exitfuncs()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing._exit_function()
    finally:
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # Closed, without a reader, or replaced by None.
            continue
