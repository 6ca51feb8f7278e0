"""The zygote: imports what workers need, then forks them on request.

It runs as ``python -c "from ropewalk.pool.zygote._life import main; main()" SETTINGS`` with the parent's socket as
its standard input. It has one thread, because forking is safe only then.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from importlib import import_module
from typing import Any

from ropewalk._load import worker


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def _preload(names: list[str]) -> list[str]:
    """Imports modules, and returns complaints about those that failed or started threads."""
    complaints: list[str] = []
    for name in names:
        before = _threads()
        try:
            import_module(name)
        except BaseException as error:  # A script may call sys.exit() when it is imported.
            complaints.append(f"{name}: {type(error).__name__}: {error}")
        if _threads() > before:
            complaints.append(
                f"{name}: importing it starts threads, which do not live on in the workers. Leave it out of preload if "
                f"its functions hang there."
            )
    return complaints


def _close_inherited() -> None:
    """Closes the inheritable descriptors that the program left open.

    Otherwise the zygote would hold the end of a pipe open for as long as it lives. joblib's loky leaves a pipe of
    multiprocessing's resource tracker inheritable, and Python waits at exit for the end of that tracker. Descriptors
    that the zygote itself opened are not inheritable (PEP 446).
    """
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # The listing's own descriptor is closed by now.
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))


def _leave_lost_folder() -> int | None:
    """Leaves a working directory that has been removed, and returns a descriptor of it, or None.

    Python 3.13.0 fails to import there.
    """
    try:
        os.getcwd()
    except OSError:
        here = os.open(".", os.O_PATH | os.O_CLOEXEC)
        os.chdir("/")
        return here
    return None


def main() -> None:
    """Runs the zygote until the parent is gone. A forked worker returns into this function too, and runs from here."""
    import json
    import signal

    # The thread of the parent that starts a zygote blocks all signals, and children inherit the mask.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    settings = json.loads(sys.argv[1])
    worker.die_with_parent(settings["parent"])
    worker.set_title(b"ropewalk: zygote", b"ropewalk-zygote")
    os.setpgid(0, 0)
    _close_inherited()
    socket = os.dup(0)
    os.set_inheritable(socket, False)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    sys.path[:] = settings["path"]
    sys.argv[:] = [""]
    folder = _leave_lost_folder()
    # Imports make almost no garbage.
    gc.disable()
    # The zygote imports every module that a worker needs.
    from ropewalk.pool.wire import _surroundings
    from ropewalk.pool.worker import _at_fork, _life, _random

    if settings.get("cloudpickle"):
        import_module("cloudpickle")
    # Moves all objects to the oldest generation without a collection.
    gc.freeze()
    gc.unfreeze()
    gc.enable()

    for name in _life.BLAS_VARIABLES:
        os.environ[name] = "1"  # A zygote must not start threads; each worker raises the number for itself.
    # A module of `preload` must not start a pool, which this depth refuses.
    _surroundings.depth = 2**16
    complaints = _preload(settings["preload"])
    if folder is not None:
        os.fchdir(folder)
        os.close(folder)
    generators: list[Any] = _random.standard()
    if settings["preload"]:
        gc.collect(1)
        # Before the freeze, because the collector does not list frozen objects.
        generators = _random.find()
    _at_fork.suspend(generators)
    # This flushes the streams too; otherwise each worker would print what a module printed.
    _life.write_whole_lines("stdout")
    _life.write_whole_lines("stderr")
    _life.warm_up()
    gc.freeze()
    me = os.getpid()
    try:
        worker.zygote_hello(socket, complaints)
        arguments = worker.zygote_serve(socket, _life.prepare)
    except OSError:  # The parent is gone.
        os._exit(0)
    if arguments is None:
        os._exit(0)
    _life.run(*arguments, me, generators, complaints)
