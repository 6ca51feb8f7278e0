"""Ropewalk: a parallel runtime for Python.

This module names everything public, and imports each name when it is first used, so that a worker process never loads
modules that only its parent needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk import flows, journal, loop, result, serving, shared, state as state, zmq
    from ropewalk._breaker import BreakerEvent, BreakerStatistics, CircuitBreaker
    from ropewalk._current import CurrentTask, current_task
    from ropewalk._errors import (
        ActorDied,
        BusClosed,
        BusEmpty,
        BusError,
        BusFull,
        CircuitOpen,
        ClusterUnreachable,
        ConfigError,
        Conflict,
        ContractViolation,
        DecodeError,
        EncodeError,
        ExtraMissing,
        FileSizeExceeded,
        FlowCancelled,
        FlowCodeChanged,
        FlowError,
        FlowExists,
        FlowsClosed,
        FlowUnknown,
        FunctionLoadError,
        HistoryGone,
        InitializerFailed,
        InternalError,
        InvalidTopic,
        InvariantBroken,
        JournalClosed,
        JournalCorrupt,
        JournalError,
        JournalFailed,
        JournalFull,
        JournalLocked,
        JournalUnsafe,
        Lagged,
        LimitReached,
        NoSuchPath,
        NotAJournal,
        NotExposed,
        NotFrozen,
        OutOfDescriptors,
        OutOfDisk,
        OutOfMemory,
        OutOfPorts,
        OutOfProcesses,
        PoisonTask,
        PoolBroken,
        PoolClosed,
        PoolError,
        PoolNested,
        PoolTerminated,
        PoolUnhealthy,
        PublishTooDeep,
        QueueFull,
        RemoteError,
        RemoteTraceback,
        ResultEncodeError,
        RopewalkError,
        ServingError,
        SessionBusy,
        SessionClosed,
        SessionMissing,
        SharedMemoryCorrupt,
        SharedMemoryError,
        StaleHandle,
        StateError,
        StoreClosed,
        StreamUnfinished,
        SystemCallFailed,
        TaskCancelled,
        TaskDropped,
        TaskHung,
        TaskTimeout,
        TooLarge,
        ToolError,
        TransactionEnded,
        Unsupported,
        UnwrapError,
        WorkerCrashed,
        WorkerDeath,
        WrongType,
        ZygoteFailed,
    )
    from ropewalk._retry import Retry
    from ropewalk.bus._bus import Bus, Subscription
    from ropewalk.bus._statistics import BusStatistics, SubscriptionStatistics
    from ropewalk.journal import Journal
    from ropewalk.loop import EventLoopPolicy, Loop, install, new_event_loop, run
    from ropewalk.pool.parent._actors import Actor
    from ropewalk.pool.parent._drain import drain_on
    from ropewalk.pool.parent._events import LoopEvent, PoolEvent, events
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._map import MapIterator
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._records import Histogram, Progress, QuarantinedTask, TaskRecord
    from ropewalk.pool.parent._sessions import Session
    from ropewalk.pool.parent._spawn import restart_preloads
    from ropewalk.pool.parent._statistics import ClientStatistics, PoolStatistics, WorkerStatistics
    from ropewalk.pool.parent._stream import Stream
    from ropewalk.pool.parent._tasks import PoolOptions
    from ropewalk.pool.wire._sessions import CurrentSession, current_session
    from ropewalk.result import Err, Ok, Result
    from ropewalk.runtime._config import RuntimeSettings
    from ropewalk.runtime._routes import route
    from ropewalk.runtime._runtime import Runtime, RuntimeStatistics
    from ropewalk.shared import share

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "ActorDied",
    "BreakerEvent",
    "BreakerStatistics",
    "Bus",
    "BusClosed",
    "BusEmpty",
    "BusError",
    "BusFull",
    "BusStatistics",
    "CircuitBreaker",
    "CircuitOpen",
    "ClientStatistics",
    "ClusterUnreachable",
    "ConfigError",
    "Conflict",
    "ContractViolation",
    "CurrentSession",
    "CurrentTask",
    "DecodeError",
    "EncodeError",
    "Err",
    "EventLoopPolicy",
    "ExtraMissing",
    "FileSizeExceeded",
    "FlowCancelled",
    "FlowCodeChanged",
    "FlowError",
    "FlowExists",
    "FlowUnknown",
    "FlowsClosed",
    "FunctionLoadError",
    "Future",
    "Histogram",
    "HistoryGone",
    "InitializerFailed",
    "InternalError",
    "InvalidTopic",
    "InvariantBroken",
    "Journal",
    "JournalClosed",
    "JournalCorrupt",
    "JournalError",
    "JournalFailed",
    "JournalFull",
    "JournalLocked",
    "JournalUnsafe",
    "Lagged",
    "LimitReached",
    "Loop",
    "LoopEvent",
    "MapIterator",
    "NoSuchPath",
    "NotAJournal",
    "NotExposed",
    "NotFrozen",
    "Ok",
    "OutOfDescriptors",
    "OutOfDisk",
    "OutOfMemory",
    "OutOfPorts",
    "OutOfProcesses",
    "PoisonTask",
    "Pool",
    "PoolBroken",
    "PoolClosed",
    "PoolError",
    "PoolEvent",
    "PoolNested",
    "PoolOptions",
    "PoolStatistics",
    "PoolTerminated",
    "PoolUnhealthy",
    "Progress",
    "PublishTooDeep",
    "QuarantinedTask",
    "QueueFull",
    "RemoteError",
    "RemoteTraceback",
    "Result",
    "ResultEncodeError",
    "Retry",
    "RopewalkError",
    "Runtime",
    "RuntimeSettings",
    "RuntimeStatistics",
    "ServingError",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionMissing",
    "SharedMemoryCorrupt",
    "SharedMemoryError",
    "StaleHandle",
    "StateError",
    "StoreClosed",
    "Stream",
    "StreamUnfinished",
    "Subscription",
    "SubscriptionStatistics",
    "SystemCallFailed",
    "TaskCancelled",
    "TaskDropped",
    "TaskHung",
    "TaskRecord",
    "TaskTimeout",
    "TooLarge",
    "ToolError",
    "TransactionEnded",
    "Unsupported",
    "UnwrapError",
    "WorkerCrashed",
    "WorkerDeath",
    "WorkerStatistics",
    "WrongType",
    "ZygoteFailed",
    "__version__",
    "current_session",
    "current_task",
    "drain_on",
    "events",
    "flows",
    "install",
    "journal",
    "loop",
    "new_event_loop",
    "restart_preloads",
    "result",
    "route",
    "run",
    "serving",
    "share",
    "shared",
    "zmq",
]

#: The modules of the public names; names that are not here are errors, in `_errors`.
_HOMES = {
    "current_task": "_current",
    "CurrentTask": "_current",
    "Progress": "pool.parent._records",
    "BreakerEvent": "_breaker",
    "BreakerStatistics": "_breaker",
    "CircuitBreaker": "_breaker",
    "Retry": "_retry",
    "Pool": "pool.parent._pool",
    "PoolOptions": "pool.parent._tasks",
    "Actor": "pool.parent._actors",
    "Session": "pool.parent._sessions",
    "CurrentSession": "pool.wire._sessions",
    "current_session": "pool.wire._sessions",
    "MapIterator": "pool.parent._map",
    "QuarantinedTask": "pool.parent._records",
    "drain_on": "pool.parent._drain",
    "restart_preloads": "pool.parent._spawn",
    "ClientStatistics": "pool.parent._statistics",
    "Stream": "pool.parent._stream",
    "PoolStatistics": "pool.parent._statistics",
    "WorkerStatistics": "pool.parent._statistics",
    "LoopEvent": "pool.parent._events",
    "PoolEvent": "pool.parent._events",
    "events": "pool.parent._events",
    "Future": "pool.parent._future",
    "Histogram": "pool.parent._records",
    "TaskRecord": "pool.parent._records",
    "Ok": "result",
    "Err": "result",
    "Result": "result",
    "Bus": "bus._bus",
    "Subscription": "bus._bus",
    "BusStatistics": "bus._statistics",
    "SubscriptionStatistics": "bus._statistics",
    "Runtime": "runtime._runtime",
    "RuntimeSettings": "runtime._config",
    "RuntimeStatistics": "runtime._runtime",
    "route": "runtime._routes",
    "share": "shared",
    "Journal": "journal",
    "EventLoopPolicy": "loop",
    "Loop": "loop",
    "install": "loop",
    "new_event_loop": "loop",
    "run": "loop",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("flows", "journal", "loop", "result", "serving", "shared", "state", "zmq"):
        return import_module(f"ropewalk.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    value = getattr(import_module(f"ropewalk.{_HOMES.get(name, '_errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
