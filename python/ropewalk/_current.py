"""`current_task`: the task that the calling thread runs, for the task's own code."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Never

from ropewalk._errors import TaskCancelled
from ropewalk._load import worker

if TYPE_CHECKING:
    from ropewalk._worker import RunningTask
    from ropewalk.pool.worker import _actor_task


class Here(threading.local):
    """What a thread has for the tasks that it runs, besides what the compiled part knows."""

    #: Set in a thread of a thread pool.
    call: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
    #: What the caller of a server's tool has sent beside the arguments: a JSON object of texts, or nothing.
    metadata: bytes = b""
    #: The same for each call of a batch that it runs.
    batch: tuple[bytes, ...] | None = None
    #: The task that a thread of an actor of a Ray cluster runs.
    task: _actor_task.RunningTask | None = None


#: Set by the thread itself, which then calls functions of the program directly.
HERE = Here()


def _finite(name: str, value: Any) -> float:
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return number


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {value!r}")
    return value


def _read(metadata: bytes) -> Mapping[str, str]:
    if not metadata:
        return MappingProxyType({})
    import json

    return MappingProxyType(json.loads(metadata))


class CurrentTask:
    """A task while it runs, as its own code sees it; `current_task` makes it.

    It may be used by any thread that the task starts. It stays usable after the task has ended; then its `cancelled` is
    true, and reports go nowhere.
    """

    __slots__ = ("_batch", "_metadata", "_task")

    def __init__(
        self,
        task: RunningTask | _actor_task.RunningTask,
        metadata: bytes = b"",
        batch: tuple[bytes, ...] | None = None,
        /,
    ) -> None:
        """For `current_task` alone."""
        self._task = task
        self._metadata = metadata
        self._batch = batch

    @property
    def id(self) -> int:
        """The task's number in its pool, as `TaskRecord.id`."""
        return self._task.id()

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1, and more if the task has been run before and has `retries`."""
        return self._task.attempt()

    @property
    def deadline(self) -> float | None:
        """Seconds that are left to this run by `deadline` and `task_timeout`; `None` without a limit."""
        return self._task.left()

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the caller of a server's tool has sent beside the arguments; empty for other tasks.

        It is what the caller says, and nothing has checked it.
        """
        return _read(self._metadata)

    @property
    def batch(self) -> tuple[Mapping[str, str], ...] | None:
        """The `metadata` of each call of the batch that a server's tool is given, in their order; else `None`.

        Its length is the number of calls. Calls whose arguments do not fit are not among them.
        """
        return None if self._batch is None else tuple(_read(each) for each in self._batch)

    @property
    def cancelled(self) -> bool:
        """Whether the task should stop: it was asked to, or it has ended already."""
        return self._task.asked_to_stop() or self._task.ended()

    def check(self) -> None:
        """Raises `TaskCancelled` if the task should stop; call it wherever the task may be left.

        Raises:
            TaskCancelled: `cancelled` is true.
        """
        if self.cancelled:
            raise TaskCancelled(f"task {self.id} was asked to stop. {TaskCancelled.remedy}")

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Reports how far the task is; `Future.progress` has the last report.

        It writes a few words of memory and wakes no thread, so it may be called often. It counts as a `heartbeat`. From
        another machine (``kind="ray"``) it is sent, at most 20 times a second.

        Args:
            done: what is done, in any unit.
            total: of how much.
            note: a remark; what is longer than 160 bytes is cut.

        Raises:
            TypeError, ValueError: `done` or `total` is not a finite number, or `note` is not a text.
        """
        given = math.nan if total is None else _finite("total", total)
        self._task.report(_finite("done", done), given, _text("note", note))

    def heartbeat(self) -> None:
        """Reports that the task is alive, for the pool's detection of tasks that hang."""
        self._task.beat()

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of the program, and returns what it returns; what it raises is raised here.

        The program names the functions that its tasks may call: ``Pool(calls={"name": function})`` or `Pool.expose`.
        The arguments and the result are pickled, as a task's are. The task waits meanwhile, and so does its worker.

        Raises:
            NotExposed: the program has no such function for the tasks of this pool.
            EncodeError: the arguments cannot be pickled.
            PoolError: the task has ended, or this is another thread than the one that runs it.
        """
        here: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] | None = getattr(HERE, "call", None)
        if here is not None and self._task.local_here():
            return here(name, args, kwargs)
        return self._task.call((name, args, kwargs))

    def __reduce__(self) -> Never:
        raise TypeError("a CurrentTask cannot be pickled: it belongs to the task that runs. Send its id")

    def __repr__(self) -> str:
        return f"<ropewalk.CurrentTask {self.id}, attempt {self.attempt}>"


def current_task() -> CurrentTask | None:
    """Returns the task that this thread runs, or `None` outside of one.

    A thread that a task starts runs no task itself: the task passes the object on. A task that forks has none in the
    child.

    Examples:
        >>> import ropewalk
        >>> def count(n):
        ...     task = ropewalk.current_task()
        ...     for done in range(n):
        ...         task.check()
        ...         task.progress(done + 1, n)
        ...     return n
        >>> with ropewalk.Pool(1, kind="thread") as pool:
        ...     future = pool.submit(count, 3)
        ...     print(future.result(), future.progress.fraction)
        3 1.0
    """
    task = worker.running_task()
    if task is not None:
        return CurrentTask(task, HERE.metadata, HERE.batch)
    of_actor = HERE.task
    return None if of_actor is None or of_actor.forked() else CurrentTask(of_actor)
