"""The life of a worker process, from its fork to its end."""

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
from typing import Any

from ropewalk import _errors as _errors
from ropewalk._imported import when_imported
from ropewalk._load import worker

# What a usual task needs is loaded now, for the zygote to share: a module that each worker imported for itself would
# cost each its time and its memory, and once descriptors run out, none can be read any more.
from ropewalk.pool.wire import (
    _functions as _functions,
    _handed,
    _logs,
    _serialize,
    _surroundings,
    _taken as _taken,
)
from ropewalk.pool.worker import _at_fork, _random

#: Read by BLAS and OpenMP libraries when they are loaded.
BLAS_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


#: Bytes that the record of a failed initializer may have.
_LARGEST_ERROR = 32 * 1024


class Prepared:
    """What a process has taken over from the program that made a pool: a zygote for the workers that it will fork."""

    def __init__(self, spec: bytes) -> None:
        """Takes over what `spec` says, which is the pickled settings of a pool."""
        self.spec = spec
        self.settings: dict[str, Any] = pickle.loads(spec)
        #: Limits of resources that are for the worker to set.
        self.limits = _set_up(self.settings)


#: What this process has taken over. In a worker that the zygote was able to prepare, this is the worker's own.
_prepared: Prepared | None = None
_following = _logs.Following()


def prepare(spec: bytes) -> None:
    """Zygote: does, before it forks, what all workers with this spec have in common, so that they share its memory.

    It may not end the zygote: what fails here is tried again, and fails, in the worker, whose pool is told of it.
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
    descriptors: tuple[int, ...],
    zygote: int,
    generators: list[Any],
    complaints: list[str],
) -> None:
    """A worker's life: sets the process up, serves its lanes, and leaves. Does not return.

    Args:
        lanes: Threads that run tasks.
        spec: The pickled settings.
        slot: Its number among the workers that the pool has at a time.
        descriptors: Where it leaves word of how it died; the sending end of the parent's log; those that the
            initializer's arguments refer to.
        zygote: The zygote's process id.
        generators: Generators of random numbers, made by the zygote.
        complaints: What the zygote says of its preloads.
    """
    worker.die_with_parent(zygote)
    status = 1
    try:
        _at_fork.restore()
        if generators:
            _random.reseed(generators)
        status = _serve(lanes, spec, slot, descriptors, complaints)
    except SystemExit as leaving:
        # A signal's handler asked for it between two tasks.
        status = _status(leaving)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _leave(status)


def _serve(lanes: int, spec: bytes, slot: int, descriptors: tuple[int, ...], complaints: list[str]) -> int:
    try:
        prepared = _prepared
        if prepared is None or prepared.spec is not spec:
            prepared = Prepared(spec)
        settings = prepared.settings
        _surroundings.depth = settings["depth"]
        if prepared.limits:
            _surroundings.set_limits(prepared.limits)
        if _sets_threads(settings):
            # The zygote has loaded its libraries with one thread each.
            from ropewalk.pool.wire import _blas

            _blas.limit_threads(settings["blas_threads"])
        _handed.take(descriptors[2:], settings["tracker"])
        _speak_up(slot, descriptors, complaints, settings)
        _initialize(settings)
    except BaseException as error:
        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        worker.init_failed(_serialize.encode_error(error, most=_LARGEST_ERROR))
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


def _lane(lane: int) -> None:
    worker.ready(lane)
    worker.serve(lane)


def _sets_threads(settings: dict[str, Any]) -> bool:
    return bool(settings["blas_threads"] > 1 and settings["preload"])


def _set_up(settings: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Takes over what the program has, where it differs; gives the limits that are for the worker to set."""
    # The terminal's Ctrl-C does not come here, the zygote being a process group of its own; one that is sent on purpose
    # is the user's.
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
    if _sets_threads(settings):
        from ropewalk.pool.wire import (
            _blas as _blas,  # For the workers; it brings ctypes, which others do without.
        )
    if settings["log"] is None:
        _following.stop()
    else:
        _following.follow(settings["log"])
    return limits


#: What a line may have to be written by one system call.
_LONGEST_LINE = 64 * 1024


def write_whole_lines(name: str) -> None:
    """Makes a standard stream write each line at once: at its end, and by one call, whatever `PYTHONUNBUFFERED` says.

    A worker may be killed at any time, so what it has printed is out; and what several of them print is not mixed
    within a line, as far as the kernel writes at once (4 KiB to a pipe, any length to a file that is appended to).
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


#: Bytes of the notes that belong to each slot.
_NOTES = 64 * 1024


def _speak_up(
    slot: int, descriptors: tuple[int, ...], complaints: list[str], settings: dict[str, Any]
) -> None:
    """Lets the parent hear of log records, and of where the code was if the process is ended by a fault."""
    notes, log, *_ = descriptors
    try:
        _open_notes(notes, slot)
    except OSError:
        pass  # Without /proc there is no stack to be told, and nothing else is lost.
    finally:
        os.close(notes)
    forwarder = _following.forwarder if settings["log"] is not None else None
    if forwarder is not None:
        forwarder.attach(log, f"{settings['name']}-worker-{slot}")
        if complaints:
            forwarder.complain(complaints)
        return
    if complaints:
        stranger = _logs.Forwarder()
        stranger.attach(log, settings["name"])
        stranger.complain(complaints)
    os.close(log)


def _open_notes(notes: int, slot: int) -> int:
    # A file description of its own: the position is this worker's.
    mine = os.open(f"/proc/self/fd/{notes}", os.O_WRONLY | os.O_CLOEXEC)
    os.lseek(mine, slot * _NOTES, os.SEEK_SET)
    faulthandler.enable(mine, all_threads=False)
    return mine


#: Calls after which every supported Python has replaced a function's bytecode by that for the types it has met.
_REHEARSALS = 10


def rehearse() -> None:
    """Zygote: does what each worker will do, on nothing.

    So the interpreter's caches are filled, its bytecode is specialised and its libraries are bound by the time it
    forks. Each worker would else do that in pages of its own.
    """
    generators = _random.standard()
    for _ in range(_REHEARSALS):
        pickle.loads(pickle.dumps(((1, "one"), {}), 5))
        _random.reseed(generators)
        if not faulthandler.is_enabled():
            nothing = os.open(os.devnull, os.O_RDWR)
            try:
                os.close(_open_notes(nothing, 0))
            except OSError:
                continue
            finally:
                faulthandler.disable()
                os.close(nothing)


def _take_authkey(key: bytes) -> None:
    """Lets proxies of a multiprocessing manager of the parent's prove themselves here."""

    def bear(module: Any) -> None:
        module.current_process().authkey = key

    when_imported("multiprocessing.process", bear)


def _initialize(settings: dict[str, Any]) -> None:
    function = settings["initializer"]
    if function is None:
        return
    arguments = pickle.loads(settings["initargs"])
    call = pickle.loads(function)
    _handed.close_rest()
    call(*arguments)


def leave_fork(error: BaseException | None) -> None:
    """Ends the child of a task that forked and let its child come back: there is nothing for it to come back to."""
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
    """Runs what was registered to run at exit, and goes without the rest: the heap is the zygote's."""
    try:
        # What executors registered, those of this package and loky's too: their workers end, or would be waited for.
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
        except (OSError, ValueError, AttributeError):  # Closed, its reader gone, or taken away altogether.
            continue
