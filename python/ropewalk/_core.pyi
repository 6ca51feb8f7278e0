"""The extension module that only the parent loads: pools, futures and maps."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from ropewalk.pool.parent._future import Future

_P = ParamSpec("_P")
_T = TypeVar("_T")

__version__: str

def usable_cores() -> int:
    """Returns the number of cores that this process may use, by affinity and control group."""

def private_bytes(pid: int) -> int:
    """Returns the private memory of a process in bytes; 0 if it is unknown."""

class FutureBase:
    """The compiled base of `Future`: the methods that every task uses."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> FutureBase: ...
    def result(self, timeout: float | None = None) -> Any:
        """Returns the call's value, or raises its exception; waits for it at most `timeout` seconds."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns the exception that the call raised, or `None`; waits for the call at most `timeout` seconds."""
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
    """Keeps the shared memory alive to which an encoded object refers."""

def lend_during(call: Callable[[], _T], /) -> tuple[_T, Lent]:
    """Calls a function that encodes objects; returns its result, and the shared memory to which they refer."""

def join_apart(streams: list[bytes], counts: list[int], /) -> bytes:
    """Joins pickles into the pickle of a list of their objects; `counts` are their numbers of buffers."""

def raise_later(error: BaseException, /) -> None:
    """Makes the main thread raise an error that a signal handler raised in a finalizer; reports any other error."""

@final
class Finalizer:
    """A method `__del__`, or a weak reference's callback, in which no Ctrl-C is lost.

    If the function raises `KeyboardInterrupt` or `SystemExit`, it is called again, so it must be one that may be called
    twice. The main thread raises the error afterwards.
    """

    def __new__(cls, function: Callable[..., object], /) -> Self: ...
    def __call__(self, *args: object) -> None: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., None]: ...

@final
class Mailbox:
    """Delivers calls of other threads to an event loop, with one wake-up for a burst of them."""

    def post(self, waiter: Any, tell: Callable[[Any, Any], object] | None, subject: object, /) -> None:
        """Makes the loop call `tell(waiter, subject)`, or resolve the future `waiter` if `tell` is None."""
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def __bool__(self) -> bool: ...
    def __len__(self) -> int: ...

def mailbox_of(event_loop: AbstractEventLoop, /) -> Mailbox:
    """Returns the mailbox of an event loop."""

class PoolBase:
    """The compiled base of `Pool`: submission."""

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

        If an exception leaves the block, or is raised during the wait (by Ctrl-C for instance), the pool cancels the
        tasks that have not started, and ends those that still run after its ``grace``.
        """
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Submits a call, and returns the future of its result at once.

        The function and its arguments are pickled during this call, so later changes to them do not reach the task. If
        they cannot be pickled, the future fails with `EncodeError`. If the pool was made with a ``capacity`` and the
        queue is full, the call waits for room or raises `QueueFull`, depending on ``overflow``. `submit_nowait` never
        waits, and `submit_async` is awaited.

        Args:
            fn: the callable to call; a lambda or a closure too.
            args: its positional arguments.
            kwargs: its keyword arguments.

        Raises:
            PoolClosed: the pool was shut down.
            PoolBroken: the pool can run no task any more.
            QueueFull: the queue is full and the pool was made with ``overflow="error"``.

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
    """The objects on which a function's pickle depends, as `pool.wire._watch` lists them; checks them for changes."""

    def __new__(cls, functions: list[Any], classes: list[Any]) -> Self: ...
    def hold(self) -> bool: ...

@final
class Snapshot:
    """The content of a list, a dict or another container, for comparison by identity."""

    @staticmethod
    def of(container: object) -> Snapshot | None: ...
    def holds(self, container: object) -> bool: ...
    def __len__(self) -> int: ...

@final
class PoolHandle:
    """A pool's engine, which may outlive the pool object."""

    def serve(self) -> None: ...
    def collect(self) -> None: ...
    def close(self, cancel: bool) -> None: ...
    def end(self, grace: float) -> None:
        """Accepts no more tasks, cancels those that have not started, and ends those that run after `grace` seconds."""
    def terminate(self) -> None:
        """Ends the pool now: cancels tasks that wait, and fails those that run with `PoolTerminated`."""
    def signal_workers(self, signum: int) -> None:
        """Accepts no more tasks, cancels those that have not started, and sends every worker process a signal."""
    def break_down(self, reason: str) -> None: ...
    def join(self, timeout: float | None = None) -> bool: ...
    @property
    def isolates(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    def statistics(self) -> tuple[dict[str, int], list[tuple[int, str, int, int]]]: ...
    def complaints(self) -> list[str]: ...
    def shortage(self) -> str | None: ...
    def failure(self) -> BaseException | None: ...

class MapIterator:
    """The compiled iterator of `map` and `map_unordered`: lazy, with a bounded number of tasks in flight."""

    def __new__(
        cls, pool: PoolBase, callable: Callable[..., Any], source: Iterator[Any], settings: dict[str, Any]
    ) -> Self: ...
    def __iter__(self) -> MapIterator: ...
    def __next__(self) -> Any: ...
    def close(self) -> None:
        """Cancels the tasks that have not started, and ends the iteration, as a generator's `close` does.

        It also ends the running tasks while Ctrl-C or a cancellation is being handled, and if a coroutine's wait for a
        result was cancelled and no result has been asked for since.
        """
    def _desert(self) -> None: ...
    def _left(self) -> int | None: ...
    def _pending(self) -> tuple[list[Future[Any]], float | None] | None: ...
    def _submit_all(self) -> int | None: ...
    def _run_out(self) -> None: ...
