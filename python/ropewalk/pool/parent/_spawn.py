"""The settings with which a pool starts its zygote, and those that each worker reads first."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

import ropewalk
from ropewalk import _core
from ropewalk.pool.parent._exit import DRAINING
from ropewalk.pool.wire import _functions, _handed, _logs, _serialize, _surroundings

if TYPE_CHECKING:
    from ropewalk.pool.parent._pool import Pool


def depth() -> int:
    """Returns how many workers deep this process is nested; 0 in the program itself."""
    return _surroundings.depth


def spawn_settings(
    preload: tuple[str, ...],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    threads: int,
    blas: int,
    name: str,
    log: bool,
    handing: _handed.Handing,
    checks: dict[str, Callable[[], object]],
) -> tuple[str, list[str], list[tuple[str, str | None]], bytes, _core.Lent, list[int]]:
    """Returns how to start the zygote, what each worker reads first, and the memory and descriptors that this needs.

    The caller must close the descriptors in `handing` when the pool has its own.

    Raises:
        EncodeError: the initializer or its arguments cannot be sent.
    """
    start: dict[str, Any] = {}

    def encode_start() -> None:
        if initializer is not None:
            with handing:
                start["function"] = _functions.encode_whole(initializer)
                start["arguments"] = _serialize.encode_object(initargs, None)
        with handing:
            start["checks"] = [(what, _functions.encode_whole(call)) for what, call in checks.items()]

    try:
        _, lent = _core.lend_during(encode_start)
    except Exception as error:
        raised = handing.refusal(initargs, error, lambda value: _serialize.encode_object(value, None))
        if raised is error:
            raise
        raise raised from None
    tracker = handing.tracker()
    handing.check(threads)
    spec = pickle.dumps(
        {
            "sys_path": sys.path,
            "cwd": _cwd(),
            "env": dict(os.environ),
            "authkey": _authkey(),
            "tracker": tracker,
            "initializer": start.get("function"),
            "initargs": start.get("arguments"),
            "checks": start["checks"],
            "threads": threads,
            "blas_threads": blas,
            "preload": bool(preload),
            "name": name,
            "surroundings": _surroundings.gather(DRAINING),
            "log": _logs.levels() if log else None,
            "depth": depth() + 1,
        },
        protocol=5,
    )
    argument = json.dumps(
        {
            "path": sys.path,
            "preload": list(preload),
            "parent": os.getpid(),
            "cloudpickle": True,
            # Pools with equal values here share a zygote: the values decide which code it imports and how its
            # interpreter is started.
            "code": stamps(preload),
            "started": {name: value for name, value in os.environ.items() if name.startswith("PYTHON")},
            "generation": _generation,
        }
    )
    logs = _logs.collector().fd
    code = "from ropewalk.pool.zygote._life import main; main()"
    return (
        sys.executable,
        [*_args_from_interpreter_flags(), "-c", code, argument],
        [("PYTHONPATH", _package_path())],
        spec,
        lent,
        [logs, *handing.descriptors],
    )


#: How often the program has called `restart_preloads`.
_generation = 0


def restart_preloads() -> None:
    """Makes process pools that are created later import their `preload` modules anew.

    A pool checks the files of the modules that `preload` names, and uses no zygote that imported an older version. It
    cannot check what those modules have imported, read or computed; call this function when that has changed. Existing
    pools are not affected.
    """
    global _generation
    _generation += 1


def stamps(preload: tuple[str, ...]) -> dict[str, tuple[str, int, int]]:
    """Returns path, modification time and size of the file of each module that has one; it imports nothing."""
    found: dict[str, tuple[str, int, int]] = {}
    for name in preload:
        path = _file_of(name)
        if path is not None:
            try:
                status = os.stat(path)
            except OSError:
                continue
            found[name] = (path, status.st_mtime_ns, status.st_size)
    return found


def _file_of(name: str) -> str | None:
    places: Sequence[str] | None = None
    whole = ""
    spec = None
    try:
        for part in name.split("."):
            whole = f"{whole}.{part}" if whole else part
            spec = PathFinder.find_spec(whole, places)
            if spec is None:
                return None
            places = spec.submodule_search_locations or ()
    except (ImportError, ValueError, AttributeError, OSError):
        return None
    return spec.origin if spec is not None and spec.has_location else None


def _authkey() -> bytes | None:
    multiprocessing = sys.modules.get("multiprocessing.process")
    return None if multiprocessing is None else bytes(multiprocessing.current_process().authkey)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _package_path() -> str:
    """Returns a PYTHONPATH with which the zygote finds this installation of the package."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(str(ropewalk.__file__))))
    before = os.environ.get("PYTHONPATH")
    return f"{home}{os.pathsep}{before}" if before else home


def preload_complaints(pool: Pool) -> list[str]:
    """Returns the complaints of the zygote about `preload`, each as ``module: text``; known once a task has run."""
    return pool._engine.complaints()
