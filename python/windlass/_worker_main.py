"""The life of a worker process, from its fork to its end."""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# The errors are loaded now: once descriptors run out, no module can be read any more.
from windlass import _errors as _errors
from windlass import _random, _serialize, _surroundings
from windlass._load import worker

#: Read by BLAS and OpenMP libraries when they are loaded.
BLAS_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


#: In how many workers, one inside the other, this process runs: set by each worker, and by a zygote, which runs none.
depth = 0

#: Bytes that the record of a failed initializer may have.
_LARGEST_ERROR = 32 * 1024


@dataclass(frozen=True)
class Birth:
    """What a worker is born with."""

    #: Threads that run tasks.
    lanes: int
    #: The pickled settings.
    spec: bytes
    #: Its number among the workers that the pool has at a time.
    slot: int
    #: Where it leaves word of how it died; the sending end of the parent's log.
    descriptors: tuple[int, int]
    #: The process id of the zygote.
    zygote: int
    #: Generators of random numbers, made by the zygote.
    generators: list[Any]
    #: What the zygote says of its preloads.
    complaints: list[str]


def run(birth: Birth) -> None:
    """Sets the process up, serves its lanes, and leaves. Does not return."""
    worker.die_with_parent(birth.zygote)
    status = 1
    try:
        _random.reseed(birth.generators)
        status = _serve(birth, pickle.loads(birth.spec))
    except SystemExit as leaving:
        # A signal's handler asked for it between two tasks.
        status = _status(leaving)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _leave(status)


def _serve(birth: Birth, settings: dict[str, Any]) -> int:
    lanes = birth.lanes
    try:
        _set_up(settings)
        _speak_up(birth, settings)
        _initialize(settings)
    except BaseException as error:
        import logging

        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        worker.init_failed(_serialize.encode_error(error, most=_LARGEST_ERROR))
        return 1
    threads = [
        threading.Thread(target=_lane, args=(lane,), name=f"windlass-lane-{lane}", daemon=True)
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


def _set_up(settings: dict[str, Any]) -> None:
    global depth
    depth = settings["depth"]
    # The terminal's Ctrl-C does not come here, the zygote being a process group of its own; one that is sent on purpose
    # is the user's.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.path != settings["sys_path"]:
        sys.path[:] = settings["sys_path"]
    cwd = settings["cwd"]
    if cwd is not None and cwd != os.getcwd():
        os.chdir(cwd)
    environment: dict[str, str] = settings["env"]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    _surroundings.apply(settings["surroundings"])
    if settings["authkey"] is not None:
        _take_authkey(settings["authkey"])
    count = settings["blas_threads"]
    for name in BLAS_VARIABLES:
        os.environ[name] = str(count)
    if count > 1 and settings["preload"]:
        # The zygote has loaded its libraries with one thread each.
        from windlass._blas import limit_threads

        limit_threads(count)
    for name in ("stdout", "stderr"):
        _write_whole_lines(name)


#: What a line may have to be written by one system call.
_LONGEST_LINE = 64 * 1024


def _write_whole_lines(name: str) -> None:
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


def _speak_up(birth: Birth, settings: dict[str, Any]) -> None:
    """Lets the parent hear of log records, and of where the code was if the process is ended by a fault."""
    import atexit
    import faulthandler

    notes, log = birth.descriptors
    try:
        # A file description of its own: the position is this worker's.
        mine = os.open(f"/proc/self/fd/{notes}", os.O_WRONLY | os.O_CLOEXEC)
        os.lseek(mine, birth.slot * _NOTES, os.SEEK_SET)
        faulthandler.enable(mine, all_threads=False)
    except OSError:
        pass  # Without /proc there is no stack to be told, and nothing else is lost.
    finally:
        os.close(notes)
    from windlass import _logs

    wanted = settings["log"]
    if wanted is None:
        if birth.complaints:
            _logs.Forwarder(log, settings["name"]).complain(birth.complaints)
        else:
            os.close(log)
        return
    forwarder = _logs.forward(log, f"{settings['name']}-worker-{birth.slot}", wanted, birth.complaints)
    atexit.register(forwarder.last_word)


class _KeyBearer:
    """Gives multiprocessing the parent's key when it is imported, which costs too much to do for nothing."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "multiprocessing.process":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            module.current_process().authkey = self._key

        loader.exec_module = exec_module
        return spec


def _take_authkey(key: bytes) -> None:
    """Lets proxies of a multiprocessing manager of the parent's prove themselves here."""
    loaded = sys.modules.get("multiprocessing.process")
    if loaded is None:
        sys.meta_path.insert(0, _KeyBearer(key))
    else:
        loaded.current_process().authkey = key


def _initialize(settings: dict[str, Any]) -> None:
    function = settings["initializer"]
    if function is None:
        return
    arguments = pickle.loads(settings["initargs"])
    pickle.loads(function)(*arguments)


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
    import atexit

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
