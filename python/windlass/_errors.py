"""Every exception that Windlass raises, each with a stable ``code``.

An error that comes from a worker is raised as itself, with a `RemoteTraceback` as its cause. The classes here are for
what the runtime itself has to say.
"""

from __future__ import annotations

import pickle
import queue
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from concurrent.futures.process import BrokenProcessPool
else:
    try:
        from concurrent.futures.process import BrokenProcessPool
    except RuntimeError:  # Its module cannot be loaded any more once the interpreter is leaving.
        from concurrent.futures import BrokenExecutor as BrokenProcessPool


class WindlassError(Exception):
    """The root of all errors of this package.

    ``code`` is stable across versions: match on it or on the class, never on the text.
    """

    code: ClassVar[str] = "WL-ERROR"


class UnwrapError(WindlassError):
    """A result was unwrapped, and it was the other kind.

    Raised for an `Err` whose error is no exception (one that is gets raised itself), by ``expect``, and by
    ``unwrap_err`` of an `Ok`.
    """

    code = "WL-UNWRAP"

    def __init__(self, message: str, error: object = None) -> None:
        super().__init__(message)
        #: What the result held.
        self.error = error


class PoolError(WindlassError, RuntimeError):
    """A pool could not do what it was asked to."""

    code = "WL-POOL"


class PoolClosed(PoolError):
    """The pool was shut down, and takes no more tasks."""

    code = "WL-POOL-CLOSED"


class QueueFull(PoolError, queue.Full):
    """The pool's queue is full and ``on_full="reject"``."""

    code = "WL-POOL-FULL"


class PoolBroken(PoolError, BrokenProcessPool):
    """The pool can run nothing any more."""

    code = "WL-POOL-BROKEN"


class WorkerCrashed(PoolBroken):
    """A worker process died while it ran this task.

    Only this task fails; the pool goes on with a new worker, unless it was made with ``on_crash="break"``.
    """

    code = "WL-WORKER-CRASHED"

    def __init__(
        self,
        message: str,
        *,
        signal: int | None = None,
        exit_code: int | None = None,
        pid: int = 0,
        task: int | None = None,
        attempt: int = 0,
    ) -> None:
        super().__init__(message)
        #: The number of the signal that killed the worker, or `None`.
        self.signal = signal
        #: The worker's exit status, if it left by itself.
        self.exit_code = exit_code
        #: The worker's process id.
        self.pid = pid
        #: The task's number in its pool, as `TaskRecord.id`.
        self.task = task
        #: Which attempt at the task this was, from 1.
        self.attempt = attempt


class PoolTerminated(PoolBroken):
    """The pool was terminated while this task ran: by `Pool.terminate`, or by a signal to its workers."""

    code = "WL-POOL-TERMINATED"


class InitializerFailed(PoolBroken):
    """The initializer raised in a worker; what it raised is the cause."""

    code = "WL-INITIALIZER"


class TaskTimeout(WindlassError, TimeoutError):
    """A task overran its budget, waiting and running taken together."""

    code = "WL-TIMEOUT"

    def __init__(self, message: str, *, seconds: float | None = None, phase: str = "running") -> None:
        super().__init__(message)
        #: The budget in seconds.
        self.seconds = seconds
        #: ``"queued"`` if the task was never started, else ``"running"``.
        self.phase = phase


class EncodeError(WindlassError, pickle.PicklingError):
    """A function or an argument cannot be sent to a worker process."""

    code = "WL-ENCODE"


class ResultEncodeError(EncodeError):
    """A result cannot be sent back from a worker process."""

    code = "WL-ENCODE-RESULT"


class DecodeError(WindlassError, BrokenProcessPool):
    """Something arrived and could not be unpickled.

    Only its task fails. It is a `BrokenProcessPool` because that is what the standard library's pool raises here.
    """

    code = "WL-DECODE"


class FunctionLoadError(WindlassError, ImportError):
    """A worker could not load the function: its module does not import there, say."""

    code = "WL-FUNCTION"


class SharedMemoryError(WindlassError, OSError):
    """Shared memory could not be made, mapped or read."""

    code = "WL-SHM"


class StaleHandle(SharedMemoryError):
    """A handle names shared memory that has been given back, and perhaps used again."""

    code = "WL-SHM-STALE"


class OutOfMemory(SharedMemoryError, MemoryError):
    """The machine has no room for a buffer in shared memory."""

    code = "WL-NOMEM"


class RemoteError(WindlassError):
    """Stands in for a worker's exception that could not be pickled; its text tells the original's type and message."""

    code = "WL-REMOTE"


class RemoteTraceback(Exception):
    """The traceback of a worker's exception, as text: the cause of what the future raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: The formatted traceback, under the standard library's name for it.
        self.tb = text

    def __str__(self) -> str:
        return self.tb


class BusError(WindlassError, RuntimeError):
    """A bus could not do what it was asked to."""

    code = "WL-BUS"


class BusClosed(BusError):
    """The bus, or the subscription, was closed, and everything in it was received."""

    code = "WL-BUS-CLOSED"


class BusFull(BusError, queue.Full):
    """A subscription has no room, and its publisher is not to wait, or not any longer."""

    code = "WL-BUS-FULL"


class BusEmpty(BusError, queue.Empty, TimeoutError):
    """There is no message, or there was none in time."""

    code = "WL-BUS-EMPTY"


class Lagged(BusError):
    """Messages were dropped before the next one, because the receiver was slower than its publishers.

    It is raised once for each gap, at the place of the gap; the next call receives what comes after it.
    """

    code = "WL-BUS-LAGGED"

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} message{'s were' if count != 1 else ' was'} dropped here: the receiver is too slow"
        )
        #: How many messages were dropped.
        self.count = count

    def __reduce__(self) -> tuple[type[Lagged], tuple[int]]:
        return type(self), (self.count,)


class PublishTooDeep(BusError, RecursionError):
    """Handlers publish to handlers without end."""

    code = "WL-BUS-DEPTH"


class InvalidTopic(WindlassError, ValueError):
    """A topic or a pattern is malformed; the message says where."""

    code = "WL-TOPIC"
