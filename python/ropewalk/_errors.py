"""Every exception that Ropewalk raises, each with a stable `code` and a `remedy`; messaging's are in `ropewalk.zmq`.

The table is `crates/base/src/table.rs`: `make generate` writes the head of each class from it (its bases, its
docstring, `code`, `remedy` and `_numbers`), and a test checks that they agree. The rest of a class is written here.

An exception that a task raises in a worker arrives as itself, with a `RemoteTraceback` as its cause. The classes here
are for errors of the runtime itself.
"""

from __future__ import annotations

import copyreg
import errno as _errno
import pickle
import queue
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from ropewalk._imported import when_imported

if TYPE_CHECKING:
    from concurrent.futures.process import BrokenProcessPool
else:

    class BrokenProcessPool(RuntimeError):
        """Stands in until the program imports the module that has it: see `_be_broken_process_pools`."""


#: The statuses that a tool may give to a call, by the names of gRPC.
ToolStatus: TypeAlias = Literal[
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
TOOL_STATUSES: tuple[ToolStatus, ...] = get_args(ToolStatus)

_Kind = TypeVar("_Kind", bound="RopewalkError")

#: The flag of classes that are not built in.
_HEAP = 1 << 9


class RopewalkError(Exception):
    """The root of all errors of this package.

    `code` is stable across versions: match on it or on the class, never on the text. `remedy` says what to try.
    """

    code: ClassVar[str] = "RW-ERROR"
    remedy: ClassVar[str] = "Read the error's own class and message."

    def __init__(self, *args: object) -> None:
        super().__init__(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            (base, name): value
            for base, names in _FIELDS.items()
            if isinstance(self, base)
            for name in names
            if (value := vars(base)[name].__get__(self)) is not None
        }
        slots: list[str] = cast("Any", copyreg)._slotnames(type(self))
        attributes: dict[str, Any] = {name: getattr(self, name) for name in slots if hasattr(self, name)}
        return _restored, (type(self), self.args, fields), {**self.__dict__, **attributes} or None

    def __setstate__(self, state: Any, /) -> None:
        attributes: dict[str, Any] = state or {}
        # The class may refuse assignments.
        for name, value in attributes.items():
            Exception.__setattr__(self, name, value)


#: What built-in classes keep outside of `__dict__`.
_FIELDS: dict[type[BaseException], tuple[str, ...]] = {
    BaseException: ("args",),
    OSError: ("errno", "strerror", "filename", "filename2"),
    ImportError: ("msg", "name", "path"),
}


def _restored(
    kind: type[_Kind], args: tuple[Any, ...], fields: dict[tuple[type[BaseException], str], Any]
) -> _Kind:
    """Makes an unpickled or copied exception without calling its class, whose parameters may differ from `args`."""
    # The built-in class that gives the exception its layout; only that class's `__new__` accepts it.
    maker: Any = kind
    while maker.__flags__ & _HEAP:
        maker = maker.__base__
    made: _Kind = maker.__new__(kind, *args)
    for (base, name), value in fields.items():
        vars(base)[name].__set__(made, value)
    return made


class InternalError(RopewalkError, RuntimeError):
    """Compiled code of Ropewalk reached a state that should be impossible.

    This is a defect of Ropewalk. The rest of the program is not affected.
    """

    code = "RW-INTERNAL"
    remedy = "Report it with the error's text. The object whose call failed may be in any state."


class UnwrapError(RopewalkError):
    """An `Err` was unwrapped as a value, or an `Ok` as an error.

    `unwrap()` raises it for an `Err` whose error is not an exception; else it raises that exception. `expect()` of
    an `Err` and `unwrap_err()` of an `Ok` always raise it.
    """

    code = "RW-UNWRAP"
    remedy = "Ask `is_ok()` first, use `unwrap_or`, or `match` on `Ok` and `Err`."

    def __init__(self, message: str, error: object = None) -> None:
        super().__init__(message)
        #: What the result held.
        self.error = error


class ConfigError(RopewalkError, ValueError):
    """The configuration of a runtime is wrong.

    The message names the file, the key, its value, and what is allowed there; so do the attributes `place`, `key`,
    `value` and `allowed`.
    """

    code = "RW-CONFIG"
    remedy = (
        "Correct the key that the message names; `ropewalk check FILE.toml` tries a file and starts nothing."
    )

    def __init__(
        self,
        message: str = "",
        place: str = "",
        key: str = "",
        value: object = None,
        allowed: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        #: The file; for a configuration from code, what read it.
        self.place = place
        #: The key, with its tables: ``"pools.api.capacity"``.
        self.key = key
        #: The value that is refused.
        self.value = value
        #: What is allowed instead, if that is a list.
        self.allowed = allowed


class PoolError(RopewalkError, RuntimeError):
    """A call on a pool failed, in a forked child for instance."""

    code = "RW-POOL"
    remedy = "Make a new pool. A forked child needs a pool of its own."


class ZygoteFailed(PoolError):
    """The zygote, the process that forks workers, could not be started or has ended."""

    code = "RW-ZYGOTE"
    remedy = "Make a new pool. If it fails again, read what the zygote wrote to standard error."


class ClusterUnreachable(PoolError):
    """A Ray cluster could not be reached, or a local one could not be started."""

    code = "RW-CLUSTER"
    remedy = "Check that the cluster runs and that this machine reaches it: `ray status --address=HOST:PORT`."


class ExtraMissing(RopewalkError, ImportError):
    """A library that was asked for is not installed; an extra of Ropewalk installs it."""

    code = "RW-EXTRA"
    remedy = "Install the extra that the message names, in the environment of this program."


class PoolClosed(PoolError):
    """The pool was shut down and accepts no more tasks."""

    code = "RW-POOL-CLOSED"
    remedy = "Make a new pool."


class QueueFull(PoolError, queue.Full):
    """The pool's queue is full and the pool was made with `overflow="error"`, or `submit_nowait` was called."""

    code = "RW-POOL-FULL"
    remedy = (
        'Try again later, raise `capacity`, or wait: with `overflow="block"`, `submit` and `submit_async` do.'
    )

    #: Tasks that waited.
    depth: int = 0
    #: How many tasks may wait.
    capacity: int = 0


class TaskDropped(PoolError):
    """A full queue dropped this task, which waited, to take a newer one.

    The pool was made with `overflow="drop_oldest"`. `depth` says how many tasks waited.
    """

    code = "RW-TASK-DROPPED"
    remedy = "Submit less at once, raise `capacity`, or give what must not be lost a higher `priority`."

    #: Tasks that waited when it was dropped.
    depth: int = 0
    #: How many tasks may wait.
    capacity: int = 0


class WorkerDeath(NamedTuple):
    """The death of a worker process for which a task is blamed."""

    #: The worker's process id.
    pid: int
    #: The number of the signal that killed the worker, or `None`.
    signal: int | None
    #: The worker's exit status, if it left by itself.
    exit_code: int | None
    #: Whether the pool ended the worker, because the task hung.
    hung: bool


class CircuitOpen(RopewalkError):
    """A circuit breaker refused a call, because what it guards keeps failing.

    `retry_after` says in how many seconds the breaker lets a call through again.
    """

    code = "RW-CIRCUIT-OPEN"
    remedy = "Wait until then, do without the callee, or close the breaker by hand with `reset()`."

    #: The name of the breaker.
    breaker: str = ""
    #: Seconds after which it lets a call through again.
    retry_after: float = 0.0


class PoolBroken(PoolError, BrokenProcessPool):
    """The pool can run no task any more; the message names the cause."""

    code = "RW-POOL-BROKEN"
    remedy = "Make a new pool."


class WorkerCrashed(PoolBroken):
    """A worker process died while it ran this task.

    Only this task fails. The pool replaces the worker and goes on, unless it was made with `on_crash="break"`.
    """

    code = "RW-WORKER-CRASHED"
    remedy = "If the task may be run twice, give it `retries`. If the worker was killed for memory, run fewer workers."

    #: The number of the signal that killed the worker, or `None`.
    signal: int | None = None
    #: The worker's exit status, if it left by itself.
    exit_code: int | None = None
    #: The worker's process id.
    pid: int = 0
    #: The task's number in its pool, as `TaskRecord.id`.
    task: int | None = None
    #: Which attempt at the task this was, from 1.
    attempt: int = 0
    #: The function and its arguments, shortened, where they are small enough to be kept for this.
    call: str | None = None
    #: The worker's last Python stack, as `faulthandler` printed it after a segmentation fault and its like.
    stack: str | None = None


class PoisonTask(WorkerCrashed):
    """A task has cost so many workers their life that the pool runs it no more, whatever its `retries`.

    `Pool(poison_after=)` is the number. The pool goes on; `Pool.quarantine` has the last of these tasks.
    """

    code = "RW-POISON-TASK"
    remedy = "Look at `crashes` and at the task's function: memory, native code, or arguments that it cannot handle."

    #: The name of the task's function.
    function: str | None = None
    #: How the workers have died, in order.
    crashes: tuple[WorkerDeath, ...] = ()


class PoolUnhealthy(PoolBroken):
    """More workers of the pool have died within a time than its `max_restarts` allows.

    The cause (`__cause__`) is the last crash.
    """

    code = "RW-POOL-UNHEALTHY"
    remedy = "Read the cause. If such crashes are to be expected, raise `max_restarts`; then make a new pool."

    #: So many workers may die within `seconds`.
    limit: int = 0
    #: The time within which the deaths are counted.
    seconds: float = 0.0


class PoolNested(PoolError):
    """Workers of a pool start pools whose workers start pools, without end."""

    code = "RW-POOL-NESTED"
    remedy = 'Move the use of the pool under `if __name__ == "__main__":`, or into a function.'


class PoolTerminated(PoolBroken):
    """The pool was terminated while this task ran, by `Pool.terminate` or by a signal to its workers."""

    code = "RW-POOL-TERMINATED"
    remedy = "If the task may be run twice, submit it to a new pool."


class InitializerFailed(PoolBroken):
    """The pool's `initializer` raised an exception in a worker.

    That exception is the cause (`__cause__`).
    """

    code = "RW-INITIALIZER"
    remedy = "Correct what the cause reports of the initializer, and make a new pool."


class SessionBusy(PoolError):
    """The worker of a session with `mode="fail"` is busy."""

    code = "RW-SESSION-BUSY"
    remedy = 'Try again later, or make the session with `mode="queue"` or `mode="prefer"`.'


class SessionClosed(PoolError):
    """The session or the actor was closed and accepts no more tasks."""

    code = "RW-SESSION-CLOSED"
    remedy = "Ask the pool for the session again, or make a new actor."


class SessionMissing(PoolError, LookupError):
    """The pool has no session of the key that was asked for without `init`.

    No session was made by that key, or it was closed. The pool also forgets a session of which the program holds no
    view once its state is gone.
    """

    code = "RW-SESSION-MISSING"
    remedy = "Give `init=`, which makes the state; `init=None` makes a session whose state is `None`."


class ActorDied(PoolError):
    """The object of an actor is gone: its worker died, or its class raised.

    The cause (`__cause__`) is the death, or the exception of the class.
    """

    code = "RW-ACTOR-DIED"
    remedy = "Make a new actor. With `max_restarts`, an actor whose worker died is made again."


class TaskTimeout(RopewalkError, TimeoutError):
    """A task exceeded its `task_timeout`, which limits the run alone, or its `deadline`, counted from submission."""

    code = "RW-TIMEOUT"
    remedy = "Raise the limit or split the task. `phase` says whether the task had started."

    #: The limit that the task exceeded: ``"task_timeout"`` or ``"deadline"``.
    limit: str = "task_timeout"
    #: That limit in seconds.
    seconds: float | None = None
    #: ``"queued"`` if the task was never started, else ``"running"``.
    phase: str = "running"


class TaskCancelled(RopewalkError):
    """A task was asked to stop, by `Future.request_cancel`, or because the reader of its stream has gone.

    `CurrentTask.check` raises it inside the task. If the task lets it pass, its future is cancelled.
    """

    code = "RW-TASK-CANCELLED"
    remedy = "Release what the task holds, and let the exception pass."


class TaskHung(TaskTimeout):
    """A task gave no sign of life for as long as its `hang_timeout`.

    `stack` says where it was. In a worker process it was ended; in a thread the call goes on.
    """

    code = "RW-TASK-HUNG"
    remedy = "Read `stack`. A task that may work so long can call `ropewalk.current_task().heartbeat()`."

    #: The stacks of the worker's threads, as `faulthandler` printed them; of a thread of this process, its own. `None`
    #: if there are none: the message says why.
    stack: str | None = None
    #: The id of the process that ran the task.
    pid: int = 0
    #: The task's number in its pool, as `TaskRecord.id`.
    task: int | None = None
    #: Which attempt at the task this was, from 1.
    attempt: int = 0
    #: The function and its arguments, shortened, where they are small enough to be kept for this.
    call: str | None = None


class StreamUnfinished(RopewalkError, RuntimeError):
    """The value of a stream was asked for that was not read to its end, or whose task has failed."""

    code = "RW-STREAM-UNFINISHED"
    remedy = (
        "Read all items first, as `for item in stream` does. `stream.future` has the outcome of the task."
    )


class NotExposed(PoolError, LookupError):
    """A task called a function that the program has not exposed to the tasks of its pool."""

    code = "RW-NOT-EXPOSED"
    remedy = "Name the function in `Pool(calls={...})`, or call `pool.expose(name, function)` before the task runs."


class EncodeError(RopewalkError, pickle.PicklingError):
    """A function or an argument cannot be pickled, so it cannot be sent to a worker process."""

    code = "RW-ENCODE"
    remedy = "Send something that can be pickled: open files, locks and sockets belong to their process."


class ResultEncodeError(EncodeError):
    """A result cannot be pickled, so the worker process cannot send it back."""

    code = "RW-ENCODE-RESULT"
    remedy = "Return something that can be pickled."


class DecodeError(RopewalkError, BrokenProcessPool):
    """Data from another process could not be unpickled.

    Only the task that it belongs to fails. The class is a `BrokenProcessPool` because that is what the standard
    library's pool raises here.
    """

    code = "RW-DECODE"
    remedy = "Read the cause (`__cause__`): the object must unpickle in the receiving process, too."


class FunctionLoadError(RopewalkError, ImportError):
    """A worker could not load the task's function, for instance because its module does not import there."""

    code = "RW-FUNCTION"
    remedy = "Put the module where workers can import it: on `sys.path` before the pool is made."


class SystemCallFailed(RopewalkError, OSError):
    """The operating system refused a call; `errno` is its number for the reason."""

    code = "RW-OS"
    remedy = "Check the limits of this process: `ropewalk doctor` prints them."
    #: The system's numbers for the limit, the usual one first.
    _numbers: ClassVar[tuple[int, ...]] = ()

    def __init__(self, message: str = "", errno: int | None = None) -> None:
        super().__init__(message)
        #: The operating system's number for what went wrong; `None` if it gave none.
        self.errno = next(iter(self._numbers), None) if errno is None else errno


class Unsupported(SystemCallFailed):
    """The kernel, a sandbox, this version of Python, or the kind of a pool does not provide what a call needs."""

    code = "RW-UNSUPPORTED"
    remedy = 'Use Linux 5.3 or newer, outside of a sandbox that hides its calls, or `kind="thread"`.'
    _numbers = (_errno.ENOSYS,)


class LimitReached(SystemCallFailed):
    """The root of the limits: a limit of the process, the user or the machine is reached.

    It is never raised itself. The subclass names the limit.
    """

    code = "RW-LIMIT"
    remedy = "Raise the limit that the class names, or use less of it."


class OutOfDescriptors(LimitReached):
    """The process or the machine has reached its limit of open files."""

    code = "RW-FILES"
    remedy = (
        "Raise the limit of open files (`ulimit -n`), keep fewer large results at once, or run fewer workers."
    )
    _numbers = (_errno.EMFILE, _errno.ENFILE)


class OutOfProcesses(LimitReached):
    """The user or the control group has reached its limit of processes and threads."""

    code = "RW-PROCESSES"
    remedy = "Raise the limit of processes (`ulimit -u`, or `pids.max` of the control group), or run fewer workers."
    _numbers = (_errno.EAGAIN,)


class SharedMemoryError(RopewalkError, OSError):
    """Shared memory could not be made, mapped or read."""

    code = "RW-SHM"
    remedy = "Read the subclass, which names the reason."


class SharedMemoryCorrupt(SharedMemoryError):
    """Shared memory holds impossible values: the process that wrote them is faulty or hostile."""

    code = "RW-SHM-CORRUPT"
    remedy = (
        "Look for native code in a task that writes outside of its own memory. The pool replaces the worker."
    )


class TooLarge(SharedMemoryError):
    """A record is larger than the room that it should go into."""

    code = "RW-TOO-LARGE"
    remedy = "Send it in parts, or put it into shared memory (`ropewalk.share`) and send that."


class FileSizeExceeded(LimitReached, SharedMemoryError):
    """Shared memory would exceed the process's limit of file sizes; to the kernel, shared memory is a file."""

    code = "RW-FILE-SIZE"
    remedy = "Raise the limit of file sizes (`ulimit -f`), which holds for shared memory too, or send less at once."
    _numbers = (_errno.EFBIG,)


class StaleHandle(SharedMemoryError):
    """A handle names shared memory that was freed, and perhaps reused."""

    code = "RW-SHM-STALE"
    remedy = "Keep the shared object alive for as long as its handle is used."


class OutOfMemory(LimitReached, SharedMemoryError, MemoryError):
    """The machine, or the control group, has no room for a buffer in shared memory."""

    code = "RW-NOMEM"
    remedy = "Free memory, send less at once, or raise the memory limit."
    _numbers = (_errno.ENOMEM, _errno.ENOSPC)


class JournalError(RopewalkError, OSError):
    """A journal could not be opened, read, written or compacted."""

    code = "RW-JOURNAL"
    remedy = "Check the path, and make its folder first if it is missing; else change what the message names."


class JournalLocked(JournalError, BlockingIOError):
    """A journal is open already, in another process or in this one: one writes at a time."""

    code = "RW-JOURNAL-LOCKED"
    remedy = (
        "Close it where it is open. The end of a process closes it too, and nothing has to be cleaned up."
    )


class NotAJournal(JournalError, ValueError):
    """A file that was to be a journal is another file, or the journal of a newer version."""

    code = "RW-JOURNAL-FOREIGN"
    remedy = "Check the path. Nothing was written to the file."


class JournalCorrupt(JournalError):
    """Committed records of a journal are damaged; the message names the offset.

    What a crash leaves behind the last committed record is no such damage, and is dropped when the journal is
    opened.
    """

    code = "RW-JOURNAL-CORRUPT"
    remedy = "Restore the file from a copy, and check the disk. Nothing was written to the file."


class JournalUnsafe(JournalError, PermissionError):
    """Other users may write the file of a journal, and what it holds would be run as this user."""

    code = "RW-JOURNAL-UNSAFE"
    remedy = "Take the file over and take away the others' right to write it: `chmod go-w`, `chown`."


class JournalFailed(JournalError):
    """The disk of a journal has reported an error, and the last records may be there or not."""

    code = "RW-JOURNAL-FAILED"
    remedy = "Check the disk, and open the journal again: it then says which records it has."


class JournalClosed(JournalError, ValueError):
    """The journal was closed, or belongs to the process that this one was forked from."""

    code = "RW-JOURNAL-CLOSED"
    remedy = "Open it again."


class JournalFull(LimitReached, JournalError):
    """A record would make the journal larger than its `max_bytes`. It was not written; smaller ones may be."""

    code = "RW-JOURNAL-FULL"
    remedy = "Compact the journal, or raise `max_bytes`."
    _numbers = (_errno.ENOSPC,)


class OutOfDisk(LimitReached, JournalError):
    """The disk, or the user's share of it, has no room for a record. It was not written; later ones may be."""

    code = "RW-DISK"
    remedy = "Free room on the disk or raise the quota (`df`, `quota`, `ulimit -f`); the journal goes on by itself."
    _numbers = (_errno.ENOSPC,)


class FlowError(RopewalkError, RuntimeError):
    """A call on flows failed, or `step` was called where no flow runs."""

    code = "RW-FLOW"
    remedy = "Read the message; `ropewalk flows ls FILE` shows the runs of a journal."


class FlowUnknown(FlowError, LookupError):
    """A journal has no run of that id, a run no such step, or the program no flow of that name."""

    code = "RW-FLOW-UNKNOWN"
    remedy = "Check the name; `ropewalk flows ls FILE` and `ropewalk flows show FILE ID` list what is there."


class FlowExists(FlowError, ValueError):
    """The id of a run stands for another flow, or for other arguments."""

    code = "RW-FLOW-EXISTS"
    remedy = (
        "Use another id for other arguments; put into the id what tells the runs apart, a date for instance."
    )


class FlowCodeChanged(FlowError):
    """The code of a flow has changed since its run began, and the flow refuses to go on then."""

    code = "RW-FLOW-CODE"
    remedy = (
        'Go back to the old code until the run has ended, or say `@flow(code="resume")` or `code="restart"`.'
    )


class ServingError(RopewalkError, RuntimeError):
    """A server of tools cannot start, or a function cannot be a tool."""

    code = "RW-SERVE"
    remedy = "Correct what the message names: the tool, the address or the setting."


class ToolError(RopewalkError):
    """A tool refuses a call, for a reason that its caller shall read.

    A tool raises it; the caller receives its `status`, its message and its `violations`. Any other exception of a
    tool is an `UNKNOWN` to the caller.
    """

    code = "RW-TOOL"
    remedy = "Read the message, which is the tool's own."

    def __init__(
        self,
        message: str = "",
        status: ToolStatus = "FAILED_PRECONDITION",
        violations: tuple[tuple[str, str], ...] = (),
    ) -> None:
        if status not in TOOL_STATUSES:
            raise ValueError(f"status must be one of {', '.join(TOOL_STATUSES)}, not {status!r}")
        super().__init__(message)
        #: The status of the call, by the names of gRPC.
        self.status: ToolStatus = status
        #: What is wrong with the arguments: the field, such as ``"items[2].name"``, and why.
        self.violations = tuple(violations)


class CallFailed(RopewalkError):
    """A server of tools answered a call with a failure, or its answer cannot be read.

    `status` is the status by the names of gRPC, `violations` are pairs of a field and what is wrong with it, and
    `retry_after` is the number of seconds after which the server asks to try again, or `None`.
    """

    code = "RW-CALL"
    remedy = "Read the status and the message, which are the server's own."

    def __init__(
        self,
        message: str = "",
        status: str = "UNKNOWN",
        violations: tuple[tuple[str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        #: The status of the call, by the names of gRPC.
        self.status = status
        #: What is wrong with the arguments: the field, such as ``"items[2].name"``, and why.
        self.violations = violations
        #: Seconds after which the server asks to try again; `None` if it does not.
        self.retry_after = retry_after


class CallInvalid(CallFailed, ValueError):
    """A tool does not accept the arguments of a call; `violations` names the fields."""

    code = "RW-CALL-ARGUMENTS"
    remedy = "Correct the fields that the message names; `Client.tools()` has the schema of each tool."


class CallTimeout(CallFailed, TimeoutError):
    """A call was not answered within its `timeout`, or within the limits of its tool."""

    code = "RW-CALL-TIMEOUT"
    remedy = "Give the call more time, or ask for less. The server has stopped the work."


class CallUnavailable(CallFailed, ConnectionError):
    """A server cannot be reached, is leaving, or lost the worker of a call."""

    code = "RW-CALL-UNAVAILABLE"
    remedy = "Try again with `retries` once the server runs; with `idempotent` if running twice does no harm."


class CallRefused(CallFailed):
    """A server is full, or a call is larger than it accepts."""

    code = "RW-CALL-FULL"
    remedy = "Try again after `retry_after` seconds, by `retries` for instance; without it, send less."


class FlowCancelled(FlowError):
    """A run of a flow was cancelled."""

    code = "RW-FLOW-CANCELLED"
    remedy = "`Run.retry()` or `ropewalk flows retry` lets it go on behind its finished steps."


class FlowsClosed(FlowError):
    """Flows were closed before a run had ended. Its finished steps are in the journal."""

    code = "RW-FLOWS-CLOSED"
    remedy = "Open the journal again with `Flows(path)`: the run then goes on."


class StateError(RopewalkError):
    """What was given cannot be the state of a store, or a part of it."""

    code = "RW-STATE"
    remedy = "Change what the message names."


class NotFrozen(StateError, TypeError):
    """A class or a field of the state can be changed in place."""

    code = "RW-NOT-FROZEN"
    remedy = "Freeze the class, or use the type that the message names."


class WrongType(StateError, TypeError):
    """A value is none of those that the annotation of its place allows.

    `path` is the place in the state.
    """

    code = "RW-WRONG-TYPE"
    remedy = "Store a value of the declared type, or correct the annotation."

    path: str = ""


class ContractViolation(StateError):
    """A task touches what its contract does not declare, or a contract declares what cannot be.

    `task` is the name of the task, `path` the place in the state, and `access` is `"read"` or `"write"`.
    """

    code = "RW-CONTRACT"
    remedy = "Declare the place in `reads` or `writes`; `ropewalk check FILE.py` compares contracts and code."

    task: str | None = None
    path: str = ""
    access: str = ""


class NoSuchPath(StateError, AttributeError):
    """The state has no such place: a class no such field, or a map no keys of that type."""

    code = "RW-NO-SUCH-PATH"
    remedy = "Check the name against the fields that the message lists."


class Conflict(StateError, RuntimeError):
    """What a transaction has read was changed by another one before it could commit.

    `path` is the place, `version` the version that the transaction began with.
    """

    code = "RW-CONFLICT"
    remedy = "Run the transaction again; `Store.run` does that by itself."

    path: str = ""
    version: int = 0
    #: The thread has a claim, and has waited long enough for the claim of another, which may wait for it.
    _is_entangled: bool = False


class InvariantBroken(StateError, ValueError):
    """A transaction would have made a state that an invariant forbids."""

    code = "RW-INVARIANT"
    remedy = "Change the task so that the new state fulfils the invariant that the message names."


class TransactionEnded(StateError, RuntimeError):
    """A draft was used after its transaction had ended, or by another thread."""

    code = "RW-TRANSACTION-ENDED"
    remedy = "Take values out of drafts before the transaction ends, and read a snapshot afterwards."


class HistoryGone(StateError, LookupError):
    """A store no longer has a version, or never had it."""

    code = "RW-HISTORY-GONE"
    remedy = "Keep more versions with `Store(history=...)`."


class StoreClosed(StateError, ValueError):
    """A store was closed."""

    code = "RW-STORE-CLOSED"
    remedy = "Open the store again."


class NotJson(StateError, TypeError):
    """A value has no form in JSON."""

    code = "RW-NOT-JSON"
    remedy = "Give `dumps` a `default`, or change the value at the place that the message names."


class BadJson(StateError, ValueError):
    """A text is not JSON, or does not fit the type that was asked for.

    `path` is the place in the text: `$` is all of it, and `$.accounts.ann` a part.
    """

    code = "RW-BAD-JSON"
    remedy = "Correct the text at the place that the message names, or ask for another type."

    path: str = ""


class OutOfPorts(LimitReached):
    """Every port of a bus between processes is taken."""

    code = "RW-PORTS"
    remedy = "Close the bus in workers that no longer need it, or use another bus."
    _numbers = (_errno.ENOSPC,)


class RemoteError(RopewalkError):
    """Stands in for a worker's exception that could not be pickled there or unpickled here.

    Its text has the type and the message of the original.
    """

    code = "RW-REMOTE"
    remedy = "Give the original's class a working `__reduce__`."


def failed(kind: type[_Kind], what: str) -> _Kind:
    """Makes an exception whose text says what failed and ends with the remedy of its class."""
    return kind(f"{what}. {kind.remedy}")


def of_system(what: str, error: OSError) -> SystemCallFailed:
    """Makes the exception for a system call that failed in Python: the same class as if it had failed in Rust."""
    kind = _BY_NUMBER.get(error.errno or 0, SystemCallFailed)
    return kind(f"{what}: {error.strerror or error}. {kind.remedy}", error.errno)


def is_of_shutdown(error: RuntimeError) -> bool:
    """Whether a thread did not start because the interpreter is ending, and not because of a limit.

    From Python 3.12 on the interpreter starts no thread once it joins the remaining ones, and `sys.is_finalizing`
    becomes true only after that.
    """
    return sys.is_finalizing() or "interpreter shutdown" in str(error)


def of_thread(name: str, error: RuntimeError) -> OutOfProcesses:
    """Makes the exception for a thread that did not start; Python's own does not name the reason."""
    return failed(OutOfProcesses, f"could not start the thread {name}: {error}")


class RemoteTraceback(Exception):
    """The traceback of a worker's exception, as text: the cause of the exception that the future raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: The formatted traceback, under the standard library's name for it.
        self.tb = text

    def __str__(self) -> str:
        return self.tb


class BusError(RopewalkError, RuntimeError):
    """A call on a bus failed, in a forked child for instance."""

    code = "RW-BUS"
    remedy = "Read the message. A forked child needs a bus of its own."


class BusClosed(BusError):
    """The bus is closed, or the subscription is closed and every message in it was received."""

    code = "RW-BUS-CLOSED"
    remedy = "Make a new bus, or subscribe again."


class BusFull(BusError, queue.Full):
    """A subscription has no room, and its publisher does not wait, or its timeout has passed."""

    code = "RW-BUS-FULL"
    remedy = "Receive faster, raise `capacity`, or choose an `overflow` that drops messages."


class BusEmpty(BusError, queue.Empty, TimeoutError):
    """A subscription has no message, or none arrived within the timeout."""

    code = "RW-BUS-EMPTY"
    remedy = "Wait longer, or try again later."


class Lagged(BusError):
    """Messages were dropped before the next one, because the receiver was slower than its publishers.

    It is raised once for each gap, at the place of the gap. The next call receives the message after it.
    """

    code = "RW-BUS-LAGGED"
    remedy = "Go on receiving. To lose none, receive faster or raise `capacity`."

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} message{'s were' if count != 1 else ' was'} dropped here: the receiver is too slow"
        )
        #: How many messages were dropped.
        self.count = count


class PublishTooDeep(BusError, RecursionError):
    """Handlers publish to handlers deeper than the bus allows."""

    code = "RW-BUS-DEPTH"
    remedy = "Break the circle of handlers, publish from a subscription's receiver, or raise `max_depth`."


class InvalidTopic(RopewalkError, ValueError):
    """A topic or a pattern is malformed; the message names the byte."""

    code = "RW-TOPIC"
    remedy = "Write segments between dots. In patterns, `*` stands for one segment and `**` for any number of segments."


#: Classes by the system's error numbers. Where two classes have a number, the first in the table keeps it.
_BY_NUMBER: dict[int, type[SystemCallFailed]] = {
    number: each
    for each in reversed(list(globals().values()))
    if isinstance(each, type) and issubclass(each, SystemCallFailed)
    for number in each._numbers
}


def _be_broken_process_pools(module: Any) -> None:
    """Makes `BrokenProcessPool` a base of `PoolBroken` and `DecodeError`, so that handlers of it catch them.

    It runs when the program imports the standard library's module, which imports multiprocessing: that takes longer
    than starting a worker, and no handler can name `BrokenProcessPool` before. The same holds for its base class
    `BrokenExecutor`, whose module imports logging, and which stands in meanwhile.
    """
    base = getattr(module, "BrokenProcessPool", None) or module.BrokenExecutor
    for kind in (PoolBroken, DecodeError):
        if not issubclass(kind, base):
            kind.__bases__ = (kind.__bases__[0], base)


when_imported("concurrent.futures._base", _be_broken_process_pools)
when_imported("concurrent.futures.process", _be_broken_process_pools)
