"""The compiled core, as the parent sees it."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from ropewalk.pool.parent._future import Future

_P = ParamSpec("_P")
_T = TypeVar("_T")

__version__: str

def usable_cores() -> int:
    """Cores that this process may use, by affinity and control group."""

def private_bytes(pid: int) -> int:
    """Bytes that a process shares with nobody; 0 if it cannot be told."""

class FutureBase:
    """The part of a future that is on the way of every task."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> FutureBase: ...
    def result(self, timeout: float | None = None) -> Any:
        """The value that the call returned."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that the call raised, or `None`."""
    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Calls `fn(future)` when the future is done: in the collector's thread, or at once if it is done already."""
    def done(self) -> bool:
        """Whether the task has ended: returned, raised, failed or cancelled."""
    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
    def _is_done(self) -> bool: ...
    def _is_cancelled(self) -> bool: ...
    def _is_running(self) -> bool: ...
    def _cancel(self, running: bool) -> bool: ...
    def _wait(self, timeout: float | None = None) -> bool: ...
    def _watch(self) -> bool: ...
    def _record(self) -> tuple[int, int, int, int, int]: ...
    @property
    def _pool_kind(self) -> str: ...
    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]: ...

@final
class Lent:
    """The shared memory that something encoded refers to, kept for as long as this lives."""

def lend_during(call: Callable[[], _T], /) -> tuple[_T, Lent]:
    """Calls a function whose encodings may refer to shared memory; gives its result, and what it referred to."""

def join_apart(streams: list[bytes], counts: list[int], /) -> bytes:
    """Joins pickles into that of a list of what is in them; each has so many buffers."""

def raise_later(error: BaseException, /) -> None:
    """Has the main thread raise what a signal's handler raised in a finalizer; reports anything else."""

@final
class Mailbox:
    """What other threads have for an event loop: delivered there, for one wake-up a burst."""

    def post(self, waiter: Any, tell: Callable[[Any, Any], object] | None, subject: object, /) -> None:
        """Has the loop call `tell(waiter, subject)`, or resolve `waiter`, a future, if `tell` is None."""
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def __bool__(self) -> bool: ...
    def __len__(self) -> int: ...

def mailbox_of(event_loop: AbstractEventLoop, /) -> Mailbox:
    """The mailbox of an event loop, which takes what other threads have for it."""

class PoolBase:
    """Submission: the part of a pool that is on the way of every task."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def _start(self, settings: dict[str, Any]) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Shuts the pool down and waits until every task is done.

        If an exception leaves the block, or one is raised while this waits (by Ctrl-C, say), the tasks that have not
        started are cancelled, and those that still run after the pool's ``grace`` are ended.
        """
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Submits a call, and returns the future of its result at once.

        The function and its arguments are pickled now: what changes afterwards does not reach the task. What cannot be
        sent fails the future with `EncodeError`. If the pool was made with a ``capacity``, a full queue makes the call
        wait for room, or raise `QueueFull`, as ``overflow`` says. `submit_nowait` never waits, and `submit_async` is
        awaited.

        Args:
            fn: what to call; any callable, a lambda or a closure too.
            args: its arguments by position.
            kwargs: its arguments by name.

        Raises:
            PoolClosed: after `shutdown`.
            PoolBroken: if the pool can run nothing any more.
            QueueFull: if the queue is full and the pool was made with ``overflow="error"``.

        Examples:
            >>> import ropewalk
            >>> with ropewalk.Pool(2) as pool:
            ...     pool.submit(pow, 2, 10).result()
            1024
        """
    def _submit(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[float | None, int, int, bool, float | None],
    ) -> Future[_T]: ...
    def _try_submit(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[float | None, int, int, bool, float | None],
    ) -> Future[_T] | None: ...
    def _submit_nowait(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[float | None, int, int, bool, float | None],
    ) -> Future[_T]: ...
    @property
    def _waits_for_room(self) -> bool: ...
    def _room(self) -> Future[None] | None: ...
    def _forget_room(self, room: Future[None]) -> None: ...
    def _handle(self) -> PoolHandle: ...

@final
class Checks:
    """What the pickle of a function depends on, as `pool.wire._watch` lists it, and whether that is as it was."""

    def __new__(cls, functions: list[Any], classes: list[Any]) -> Self: ...
    def hold(self) -> bool: ...

@final
class Snapshot:
    """What a list, a dict or the like holds, for comparison by identity."""

    @staticmethod
    def of(container: object) -> Snapshot | None: ...
    def holds(self, container: object) -> bool: ...
    def __len__(self) -> int: ...

@final
class PoolHandle:
    """A pool's engine without the pool."""

    def serve(self) -> None: ...
    def collect(self) -> None: ...
    def close(self, cancel: bool) -> None: ...
    def end(self, grace: float) -> None:
        """Takes no more tasks, cancels those that have not started, and ends those that run after `grace` seconds."""
    def terminate(self) -> None:
        """Ends everything now: tasks that wait are cancelled, those that run fail with `PoolTerminated`."""
    def signal_workers(self, signum: int) -> None:
        """Takes no more tasks, cancels those that have not started, and sends every worker process a signal."""
    def break_down(self, reason: str) -> None: ...
    def join(self, timeout: float | None = None) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    def statistics(self) -> tuple[dict[str, int], list[tuple[int, str, int, int]]]: ...
    def complaints(self) -> list[str]: ...
    def shortage(self) -> str | None: ...
    def failure(self) -> BaseException | None: ...

class MapIterator:
    """`map` and `map_unordered`: lazy, bounded in flight."""

    def __new__(
        cls, pool: PoolBase, callable: Callable[..., Any], source: Iterator[Any], settings: dict[str, Any]
    ) -> Self: ...
    def __iter__(self) -> MapIterator: ...
    def __next__(self) -> Any: ...
    def close(self) -> None:
        """Cancels what has not started and ends the iteration, as a generator's `close` does.

        What runs is ended, too, while Ctrl-C or a cancellation is being handled, or if a coroutine has given up its
        wait for a result and nobody has asked since.
        """
    def _desert(self) -> None: ...
    def _left(self) -> int | None: ...
    def _pending(self) -> tuple[list[Future[Any]], float | None] | None: ...
    def _submit_all(self) -> int | None: ...
    def _run_out(self) -> None: ...
