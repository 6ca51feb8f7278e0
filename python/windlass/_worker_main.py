"""The life of a worker process, from its fork to its end."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import Any

from windlass import _serialize
from windlass._load import worker


def run(lanes: int, spec: bytes) -> None:
    """Sets the process up, serves its lanes, and leaves. Does not return."""
    worker.die_with_parent(os.getppid())
    status = 1
    try:
        status = _serve(lanes, pickle.loads(spec))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _leave(status)


def _serve(lanes: int, settings: dict[str, Any]) -> int:
    _set_up(settings)
    try:
        _initialize(settings)
    except BaseException as error:
        worker.init_failed(_serialize.encode_error(error))
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
    from windlass._blas import VARIABLES

    if settings["blas_threads"] > 1 or "numpy" in sys.modules:
        from windlass._blas import limit_threads

        limit_threads(settings["blas_threads"])
    else:
        for name in VARIABLES:
            os.environ[name] = str(settings["blas_threads"])
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A worker may be killed at any time: what it has printed is out.
            reconfigure(line_buffering=True)


def _initialize(settings: dict[str, Any]) -> None:
    function = settings["initializer"]
    if function is None:
        return
    arguments = pickle.loads(settings["initargs"])
    pickle.loads(function)(*arguments)


def _leave(status: int) -> None:
    """Runs what was registered to run at exit, and goes without the rest: the heap is the zygote's."""
    import atexit

    try:
        atexit._run_exitfuncs()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing._exit_function()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(status)
