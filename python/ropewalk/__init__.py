"""Ropewalk: a parallel runtime for Python.

Everything public is named here and imported when it is first used, so that a worker process never loads what only its
parent needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk import loop as loop
    from ropewalk import result as result
    from ropewalk import shared as shared
    from ropewalk import zmq as zmq
    from ropewalk._bus import Bus as Bus
    from ropewalk._errors import (
        BusClosed as BusClosed,
    )
    from ropewalk._errors import (
        BusEmpty as BusEmpty,
    )
    from ropewalk._errors import (
        BusError as BusError,
    )
    from ropewalk._errors import (
        BusFull as BusFull,
    )
    from ropewalk._errors import (
        DecodeError as DecodeError,
    )
    from ropewalk._errors import (
        EncodeError as EncodeError,
    )
    from ropewalk._errors import (
        FileSizeExceeded as FileSizeExceeded,
    )
    from ropewalk._errors import (
        FunctionLoadError as FunctionLoadError,
    )
    from ropewalk._errors import (
        InitializerFailed as InitializerFailed,
    )
    from ropewalk._errors import (
        InternalError as InternalError,
    )
    from ropewalk._errors import (
        InvalidTopic as InvalidTopic,
    )
    from ropewalk._errors import (
        Lagged as Lagged,
    )
    from ropewalk._errors import (
        LimitReached as LimitReached,
    )
    from ropewalk._errors import (
        OutOfDescriptors as OutOfDescriptors,
    )
    from ropewalk._errors import (
        OutOfMemory as OutOfMemory,
    )
    from ropewalk._errors import (
        OutOfPorts as OutOfPorts,
    )
    from ropewalk._errors import (
        OutOfProcesses as OutOfProcesses,
    )
    from ropewalk._errors import (
        PoolBroken as PoolBroken,
    )
    from ropewalk._errors import (
        PoolClosed as PoolClosed,
    )
    from ropewalk._errors import (
        PoolError as PoolError,
    )
    from ropewalk._errors import (
        PoolNested as PoolNested,
    )
    from ropewalk._errors import (
        PoolTerminated as PoolTerminated,
    )
    from ropewalk._errors import (
        PublishTooDeep as PublishTooDeep,
    )
    from ropewalk._errors import (
        QueueFull as QueueFull,
    )
    from ropewalk._errors import (
        RemoteError as RemoteError,
    )
    from ropewalk._errors import (
        RemoteTraceback as RemoteTraceback,
    )
    from ropewalk._errors import (
        ResultEncodeError as ResultEncodeError,
    )
    from ropewalk._errors import (
        RopewalkError as RopewalkError,
    )
    from ropewalk._errors import (
        SharedMemoryCorrupt as SharedMemoryCorrupt,
    )
    from ropewalk._errors import (
        SharedMemoryError as SharedMemoryError,
    )
    from ropewalk._errors import (
        StaleHandle as StaleHandle,
    )
    from ropewalk._errors import (
        SystemCallFailed as SystemCallFailed,
    )
    from ropewalk._errors import (
        TaskTimeout as TaskTimeout,
    )
    from ropewalk._errors import (
        TooLarge as TooLarge,
    )
    from ropewalk._errors import (
        Unsupported as Unsupported,
    )
    from ropewalk._errors import (
        UnwrapError as UnwrapError,
    )
    from ropewalk._errors import (
        WorkerCrashed as WorkerCrashed,
    )
    from ropewalk._errors import (
        ZygoteFailed as ZygoteFailed,
    )
    from ropewalk._events import PoolEvent as PoolEvent
    from ropewalk._events import events as events
    from ropewalk._foundation import Subscription as Subscription
    from ropewalk._future import Future as Future
    from ropewalk._future import TaskRecord as TaskRecord
    from ropewalk._map import MapIterator as MapIterator
    from ropewalk._pool import Pool as Pool
    from ropewalk._results import Err as Err
    from ropewalk._results import Ok as Ok
    from ropewalk._results import Result as Result
    from ropewalk._spawn import restart_preloads as restart_preloads
    from ropewalk._statistics import BusStatistics as BusStatistics
    from ropewalk._statistics import PoolStatistics as PoolStatistics
    from ropewalk._statistics import SubscriptionStatistics as SubscriptionStatistics
    from ropewalk._statistics import WorkerStatistics as WorkerStatistics
    from ropewalk._view import PoolOptions as PoolOptions
    from ropewalk.loop import EventLoopPolicy as EventLoopPolicy
    from ropewalk.loop import Loop as Loop
    from ropewalk.loop import install as install
    from ropewalk.loop import new_event_loop as new_event_loop
    from ropewalk.loop import run as run
    from ropewalk.shared import share as share

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
        return import_module(f"ropewalk.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    value = getattr(import_module(f"ropewalk.{_HOMES.get(name, '_errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
