"""How a pool's zygote is started, and what each worker reads first."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

from windlass import _core, _serialize

if TYPE_CHECKING:
    from windlass._pool import Pool


def spawn_settings(
    preload: tuple[str, ...],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    threads: int,
    blas: int,
    name: str,
) -> tuple[str, list[str], list[tuple[str, str | None]], bytes, _core.Lent]:
    """How to start the zygote, what each worker reads first, and the shared memory that this refers to."""
    start: dict[str, Any] = {}

    def encode_start() -> None:
        if initializer is not None:
            start["function"] = _serialize.encode_function(initializer)[0]
            start["arguments"] = _serialize.encode_object(initargs, None)

    _, lent = _core.lend_during(encode_start)
    spec = pickle.dumps(
        {
            "sys_path": sys.path,
            "cwd": _cwd(),
            "env": dict(os.environ),
            "authkey": _authkey(),
            "initializer": start.get("function"),
            "initargs": start.get("arguments"),
            "threads": threads,
            "blas_threads": blas,
            "preload": bool(preload),
            "name": name,
        },
        protocol=5,
    )
    argument = json.dumps(
        {"path": sys.path, "preload": list(preload), "parent": os.getpid(), "cloudpickle": True}
    )
    code = "from windlass._zygote import main; main()"
    return (
        sys.executable,
        [*_args_from_interpreter_flags(), "-c", code, argument],
        [("PYTHONPATH", _package_path())],
        spec,
        lent,
    )


def _authkey() -> bytes | None:
    multiprocessing = sys.modules.get("multiprocessing.process")
    return None if multiprocessing is None else bytes(multiprocessing.current_process().authkey)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _package_path() -> str:
    """A PYTHONPATH with which the zygote finds this very package."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    before = os.environ.get("PYTHONPATH")
    return f"{home}{os.pathsep}{before}" if before else home


def preload_complaints(pool: Pool) -> list[str]:
    """What the zygote of a process pool said about its preloads, each as ``module: text``; known once a task ran."""
    return pool._engine.complaints() if pool.kind == "process" else []
