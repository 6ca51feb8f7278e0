"""Ropewalk: a parallel runtime for Python.

This module names everything public, and imports each name when it is first used, so that a worker process never loads
modules that only its parent needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk import loop, result, shared, zmq
    from ropewalk._errors import (
        BusClosed,
        BusEmpty,
        BusError,
        BusFull,
        DecodeError,
        EncodeError,
        FileSizeExceeded,
        FunctionLoadError,
        InitializerFailed,
        InternalError,
        InvalidTopic,
        Lagged,
        LimitReached,
        OutOfDescriptors,
        OutOfMemory,
        OutOfPorts,
        OutOfProcesses,
        PoolBroken,
        PoolClosed,
        PoolError,
        PoolNested,
        PoolTerminated,
        PublishTooDeep,
        QueueFull,
        RemoteError,
        RemoteTraceback,
        ResultEncodeError,
        RopewalkError,
        SharedMemoryCorrupt,
        SharedMemoryError,
        StaleHandle,
        SystemCallFailed,
        TaskTimeout,
        TooLarge,
        Unsupported,
        UnwrapError,
        WorkerCrashed,
        ZygoteFailed,
    )
    from ropewalk.bus._bus import Bus, Subscription
    from ropewalk.bus._statistics import BusStatistics, SubscriptionStatistics
    from ropewalk.loop import EventLoopPolicy, Loop, install, new_event_loop, run
    from ropewalk.pool.parent._events import LoopEvent, PoolEvent, events
    from ropewalk.pool.parent._future import Future, TaskRecord
    from ropewalk.pool.parent._map import MapIterator
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._spawn import restart_preloads
    from ropewalk.pool.parent._statistics import PoolStatistics, WorkerStatistics
    from ropewalk.pool.parent._tasks import PoolOptions
    from ropewalk.result import Err, Ok, Result
    from ropewalk.shared import share

__version__ = "0.1.0"

__all__ = [
    "Bus",
    "BusClosed",
    "BusEmpty",
    "BusError",
    "BusFull",
    "BusStatistics",
    "DecodeError",
    "EncodeError",
    "Err",
    "EventLoopPolicy",
    "FileSizeExceeded",
    "FunctionLoadError",
    "Future",
    "InitializerFailed",
    "InternalError",
    "InvalidTopic",
    "Lagged",
    "LimitReached",
    "Loop",
    "LoopEvent",
    "MapIterator",
    "Ok",
    "OutOfDescriptors",
    "OutOfMemory",
    "OutOfPorts",
    "OutOfProcesses",
    "Pool",
    "PoolBroken",
    "PoolClosed",
    "PoolError",
    "PoolEvent",
    "PoolNested",
    "PoolOptions",
    "PoolStatistics",
    "PoolTerminated",
    "PublishTooDeep",
    "QueueFull",
    "RemoteError",
    "RemoteTraceback",
    "Result",
    "ResultEncodeError",
    "RopewalkError",
    "SharedMemoryCorrupt",
    "SharedMemoryError",
    "StaleHandle",
    "Subscription",
    "SubscriptionStatistics",
    "SystemCallFailed",
    "TaskRecord",
    "TaskTimeout",
    "TooLarge",
    "Unsupported",
    "UnwrapError",
    "WorkerCrashed",
    "WorkerStatistics",
    "ZygoteFailed",
    "__version__",
    "events",
    "install",
    "loop",
    "new_event_loop",
    "restart_preloads",
    "result",
    "run",
    "share",
    "shared",
    "zmq",
]

#: The modules of the public names; names that are not here are errors, in `_errors`.
_HOMES = {
    "Pool": "pool.parent._pool",
    "PoolOptions": "pool.parent._tasks",
    "MapIterator": "pool.parent._map",
    "restart_preloads": "pool.parent._spawn",
    "PoolStatistics": "pool.parent._statistics",
    "WorkerStatistics": "pool.parent._statistics",
    "LoopEvent": "pool.parent._events",
    "PoolEvent": "pool.parent._events",
    "events": "pool.parent._events",
    "Future": "pool.parent._future",
    "TaskRecord": "pool.parent._future",
    "Ok": "result",
    "Err": "result",
    "Result": "result",
    "Bus": "bus._bus",
    "Subscription": "bus._bus",
    "BusStatistics": "bus._statistics",
    "SubscriptionStatistics": "bus._statistics",
    "share": "shared",
    "EventLoopPolicy": "loop",
    "Loop": "loop",
    "install": "loop",
    "new_event_loop": "loop",
    "run": "loop",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("loop", "result", "shared", "zmq"):
        return import_module(f"ropewalk.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    value = getattr(import_module(f"ropewalk.{_HOMES.get(name, '_errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
