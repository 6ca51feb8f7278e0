"""The zygote: imports what workers need, then forks them on request.

It runs as ``python -c "from ropewalk.pool.zygote._life import main; main()" SETTINGS`` with the parent's socket as
its standard input. It has one thread, or forking would not be safe.
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
    """Imports modules; gives the complaints."""
    complaints: list[str] = []
    for name in names:
        before = _threads()
        try:
            import_module(name)
        except BaseException as error:  # A script may well call sys.exit() when it is imported.
            complaints.append(f"{name}: {type(error).__name__}: {error}")
        if _threads() > before:
            complaints.append(
                f"{name}: importing it starts threads, which do not live on in the workers. Leave it out of preload if "
                f"its functions hang there."
            )
    return complaints


def _close_inherited() -> None:
    """Closes what the program left open for any child.

    The end of a pipe would stay open for as long as the zygote lives. joblib's loky leaves one of multiprocessing's
    resource tracker so, for whose end Python waits as it leaves. What was opened here is not inheritable (PEP 446).
    """
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # The one of the listing is closed by now.
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))


def _leave_lost_folder() -> int | None:
    """Goes elsewhere from a folder that has been removed, where Python 3.13.0 fails to import; gives the way back."""
    try:
        os.getcwd()
    except OSError:
        here = os.open(".", os.O_PATH | os.O_CLOEXEC)
        os.chdir("/")
        return here
    return None


def main() -> None:
    """Serves until the parent is gone. Each worker runs from here as well, in its own process."""
    import json
    import signal

    # The thread of the parent that starts a zygote takes no signals, and hands that down.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    settings = json.loads(sys.argv[1])
    worker.die_with_parent(settings["parent"])
    os.setpgid(0, 0)
    _close_inherited()
    socket = os.dup(0)
    os.set_inheritable(socket, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path[:] = settings["path"]
    sys.argv[:] = [""]
    folder = _leave_lost_folder()
    # Next to nothing of what is being imported is garbage.
    gc.disable()
    # Everything that a worker needs is imported here, once.
    from ropewalk.pool.wire import _surroundings
    from ropewalk.pool.worker import _at_fork, _life, _random

    if settings.get("cloudpickle"):
        import_module("cloudpickle")
    # Without a look at it, all of that goes to where the collector seldom looks.
    gc.freeze()
    gc.unfreeze()
    gc.enable()

    for name in _life.BLAS_VARIABLES:
        os.environ[name] = "1"  # A zygote must not start threads; each worker raises it for itself.
    # What is imported here must start no workers.
    _surroundings.depth = 2**16
    complaints = _preload(settings["preload"])
    if folder is not None:
        os.fchdir(folder)
        os.close(folder)
    generators: list[Any] = _random.standard()
    if settings["preload"]:
        gc.collect(1)
        # Before the freeze, which takes them out of the collector's sight.
        generators = _random.find()
    _at_fork.waive(generators)
    # Flushed as well, or each worker would print again what a module has printed.
    _life.write_whole_lines("stdout")
    _life.write_whole_lines("stderr")
    _life.rehearse()
    gc.freeze()
    me = os.getpid()
    try:
        worker.zygote_hello(socket, complaints)
        born = worker.zygote_serve(socket, _life.prepare)
    except OSError:  # The parent is gone.
        os._exit(0)
    if born is None:
        os._exit(0)
    _life.run(*born, me, generators, complaints)
