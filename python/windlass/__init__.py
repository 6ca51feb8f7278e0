"""Windlass: a parallel runtime for Python.

Everything public is named here and imported when it is first used, so that a worker process never loads what only its
parent needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass import shared as shared
    from windlass._errors import (
        DecodeError as DecodeError,
        EncodeError as EncodeError,
        FunctionLoadError as FunctionLoadError,
        InitializerFailed as InitializerFailed,
        OutOfMemory as OutOfMemory,
        PoolBroken as PoolBroken,
        PoolClosed as PoolClosed,
        PoolError as PoolError,
        QueueFull as QueueFull,
        RemoteError as RemoteError,
        RemoteTraceback as RemoteTraceback,
        ResultEncodeError as ResultEncodeError,
        SharedMemoryError as SharedMemoryError,
        StaleHandle as StaleHandle,
        TaskTimeout as TaskTimeout,
        WindlassError as WindlassError,
        WorkerCrashed as WorkerCrashed,
    )
    from windlass._future import Future as Future, TaskRecord as TaskRecord
    from windlass._pool import Pool as Pool, PoolOptions as PoolOptions
    from windlass._statistics import PoolStatistics as PoolStatistics, WorkerStatistics as WorkerStatistics
    from windlass.shared import share as share

__version__ = "0.1.0"

_HOMES = {
    "Pool": "_pool",
    "PoolOptions": "_pool",
    "PoolStatistics": "_statistics",
    "WorkerStatistics": "_statistics",
    "Future": "_future",
    "TaskRecord": "_future",
    "share": "shared",
} | dict.fromkeys(
    (
        "DecodeError",
        "EncodeError",
        "FunctionLoadError",
        "InitializerFailed",
        "OutOfMemory",
        "PoolBroken",
        "PoolClosed",
        "PoolError",
        "QueueFull",
        "RemoteError",
        "RemoteTraceback",
        "ResultEncodeError",
        "SharedMemoryError",
        "StaleHandle",
        "TaskTimeout",
        "WindlassError",
        "WorkerCrashed",
    ),
    "_errors",
)

__all__ = ["__version__", "shared", *_HOMES]  # noqa: PLE0604 -- one table says what is public and where it lives


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "shared":
        return import_module("windlass.shared")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    value = getattr(import_module(f"windlass.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
