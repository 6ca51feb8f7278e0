"""Windlass: a parallel runtime for Python.

Everything public is named here and imported when it is first used, so that a worker process never loads what only its
parent needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass import loop as loop
    from windlass import result as result
    from windlass import shared as shared
    from windlass import zmq as zmq
    from windlass._bus import Bus as Bus
    from windlass._errors import (
        BusClosed as BusClosed,
    )
    from windlass._errors import (
        BusEmpty as BusEmpty,
    )
    from windlass._errors import (
        BusError as BusError,
    )
    from windlass._errors import (
        BusFull as BusFull,
    )
    from windlass._errors import (
        DecodeError as DecodeError,
    )
    from windlass._errors import (
        EncodeError as EncodeError,
    )
    from windlass._errors import (
        FileSizeExceeded as FileSizeExceeded,
    )
    from windlass._errors import (
        FunctionLoadError as FunctionLoadError,
    )
    from windlass._errors import (
        InitializerFailed as InitializerFailed,
    )
    from windlass._errors import (
        InternalError as InternalError,
    )
    from windlass._errors import (
        InvalidTopic as InvalidTopic,
    )
    from windlass._errors import (
        Lagged as Lagged,
    )
    from windlass._errors import (
        LimitReached as LimitReached,
    )
    from windlass._errors import (
        OutOfDescriptors as OutOfDescriptors,
    )
    from windlass._errors import (
        OutOfMemory as OutOfMemory,
    )
    from windlass._errors import (
        OutOfPorts as OutOfPorts,
    )
    from windlass._errors import (
        OutOfProcesses as OutOfProcesses,
    )
    from windlass._errors import (
        PoolBroken as PoolBroken,
    )
    from windlass._errors import (
        PoolClosed as PoolClosed,
    )
    from windlass._errors import (
        PoolError as PoolError,
    )
    from windlass._errors import (
        PoolNested as PoolNested,
    )
    from windlass._errors import (
        PoolTerminated as PoolTerminated,
    )
    from windlass._errors import (
        PublishTooDeep as PublishTooDeep,
    )
    from windlass._errors import (
        QueueFull as QueueFull,
    )
    from windlass._errors import (
        RemoteError as RemoteError,
    )
    from windlass._errors import (
        RemoteTraceback as RemoteTraceback,
    )
    from windlass._errors import (
        ResultEncodeError as ResultEncodeError,
    )
    from windlass._errors import (
        SharedMemoryCorrupt as SharedMemoryCorrupt,
    )
    from windlass._errors import (
        SharedMemoryError as SharedMemoryError,
    )
    from windlass._errors import (
        StaleHandle as StaleHandle,
    )
    from windlass._errors import (
        SystemCallFailed as SystemCallFailed,
    )
    from windlass._errors import (
        TaskTimeout as TaskTimeout,
    )
    from windlass._errors import (
        TooLarge as TooLarge,
    )
    from windlass._errors import (
        Unsupported as Unsupported,
    )
    from windlass._errors import (
        UnwrapError as UnwrapError,
    )
    from windlass._errors import (
        WindlassError as WindlassError,
    )
    from windlass._errors import (
        WorkerCrashed as WorkerCrashed,
    )
    from windlass._errors import (
        ZygoteFailed as ZygoteFailed,
    )
    from windlass._events import PoolEvent as PoolEvent
    from windlass._events import events as events
    from windlass._foundation import Subscription as Subscription
    from windlass._future import Future as Future
    from windlass._future import TaskRecord as TaskRecord
    from windlass._map import MapIterator as MapIterator
    from windlass._pool import Pool as Pool
    from windlass._results import Err as Err
    from windlass._results import Ok as Ok
    from windlass._results import Result as Result
    from windlass._spawn import restart_preloads as restart_preloads
    from windlass._statistics import BusStatistics as BusStatistics
    from windlass._statistics import PoolStatistics as PoolStatistics
    from windlass._statistics import SubscriptionStatistics as SubscriptionStatistics
    from windlass._statistics import WorkerStatistics as WorkerStatistics
    from windlass._view import PoolOptions as PoolOptions
    from windlass.loop import EventLoopPolicy as EventLoopPolicy
    from windlass.loop import Loop as Loop
    from windlass.loop import install as install
    from windlass.loop import new_event_loop as new_event_loop
    from windlass.loop import run as run
    from windlass.shared import share as share

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
    "WindlassError",
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

#: Where the names live that are not errors; those are all in `_errors`.
_HOMES = {
    "Pool": "_pool",
    "PoolOptions": "_view",
    "MapIterator": "_map",
    "restart_preloads": "_spawn",
    "PoolStatistics": "_statistics",
    "WorkerStatistics": "_statistics",
    "Ok": "_results",
    "Err": "_results",
    "Result": "_results",
    "PoolEvent": "_events",
    "events": "_events",
    "Bus": "_bus",
    "Subscription": "_bus",
    "BusStatistics": "_statistics",
    "SubscriptionStatistics": "_statistics",
    "Future": "_future",
    "TaskRecord": "_future",
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
        return import_module(f"windlass.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    value = getattr(import_module(f"windlass.{_HOMES.get(name, '_errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
