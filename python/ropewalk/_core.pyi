"""The extension module that only the parent loads: pools, futures and maps."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Container, Iterator
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeAlias, TypeVar, final

from ropewalk._errors import WorkerDeath
from ropewalk._retry import Retry
from ropewalk.pool.parent._future import Future
from ropewalk.pool.parent._records import RecordFields

_P = ParamSpec("_P")
_T = TypeVar("_T")

__version__: str

def usable_cores() -> int:
    """Returns the number of cores that this process may use, by affinity and control group."""

def private_bytes(pid: int) -> int:
    """Returns the private memory of a process in bytes; 0 if it is unknown."""

def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process in bytes, what it shares included; 0 if it is unknown."""

def shared_bytes() -> int:
    """Returns the shared memory of this process in bytes, whichever process has made it."""

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
    def _ask_to_stop(self) -> bool: ...
    def _progress(self) -> tuple[float, float | None, str | None] | None: ...
    def _wait(self, timeout: float | None = None) -> bool: ...
    def _watch(self) -> bool: ...
    def _record(self) -> RecordFields | None: ...
    @property
    def _id(self) -> int: ...
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
        settings: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
    ) -> Future[_T]: ...
    def _try_submit(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
    ) -> Future[_T] | None: ...
    def _submit_in_room(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
    ) -> Future[_T] | None: ...
    def _submit_nowait(
        self,
        fn: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        settings: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
    ) -> Future[_T]: ...
    @property
    def _waits_for_room(self) -> bool: ...
    def _room(self) -> Future[None] | None: ...
    def _forget_room(self, room: Future[None]) -> None: ...
    def _open_session(
        self,
        settings: tuple[str, str, float | None, int | None],
        init: Callable[..., object] | None,
        given: tuple[tuple[Any, ...], dict[str, Any], str | int],
        tasks: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
    ) -> SessionBase: ...
    def _handle(self) -> PoolHandle: ...

@final
class SessionBase:
    """A session of a pool's engine; when the last reference to it is gone the session is closed."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]: ...
    @property
    def number(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def made_here(self) -> int: ...
    @property
    def is_cold(self) -> bool: ...
    def lost(self) -> BaseException | None: ...
    def close(self) -> None: ...

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

#: How far a task is: what is done, of how much, and a note.
_Said: TypeAlias = tuple[float, float | None, str | None]

@final
class PoolHandle:
    """A pool's engine, which may outlive the pool object."""

    def serve(self) -> None: ...
    def take_seat(self) -> int | None: ...
    def give_up_seat(self, number: int, failed: str | None = None) -> None: ...
    def serve_calls(self) -> bool: ...
    def next_call(self) -> TaskCall | None: ...
    def collect(self) -> None: ...
    def close(self, cancel: bool) -> None: ...
    def close_within(self, cancel: bool, seconds: float) -> None:
        """Closes, and ends what is left after so many seconds, as `terminate` does."""
    def end(self, grace: float) -> None:
        """Accepts no more tasks, cancels those that have not started, and ends those that run after `grace` seconds."""
    def terminate(self) -> None:
        """Ends the pool now: cancels tasks that wait, and fails those that run with `PoolTerminated`."""
    def signal_workers(self, signum: int) -> None:
        """Accepts no more tasks, cancels those that have not started, and sends every worker process a signal."""
    def break_down(self, reason: str) -> None: ...
    def join(self, timeout: float | None = None) -> bool: ...
    def initializer_failed(self, error: bytes) -> None: ...
    def next(
        self,
        lane: int,
        /,
        known: Container[int],
        pid: int | None = None,
        answer: tuple[Any, bool, bool, bool, int, _Said | None] | bytes | None = None,
    ) -> (
        tuple[
            int,
            Any,
            Any,
            bool,
            bool,
            bool,
            StreamFeed | None,
            tuple[int, tuple[int, tuple[int, Any] | None, Any, bool] | None] | None,
            tuple[int, int, float | None, bool],
        ]
        | list[int]
        | Literal[False]
        | None
    ):
        """Reports that a lane's worker is ready, or its answer, and waits for its next task.

        The answer is the encoded exception if the object of the task's actor could not be made. Gives `None` when there
        are no more tasks, `False` when the worker is to be ended, and a list of sessions whose states it is to drop.
        """
    def gone(self, lane: int, why: str) -> bool: ...
    def missing(self, lane: int, why: str) -> bool: ...
    def said(self, lane: int, attempt: tuple[int, int], progress: _Said) -> None: ...
    def called(self, lane: int, attempt: tuple[int, int], number: int, frame: bytes) -> None: ...
    def orders(
        self,
    ) -> (
        list[tuple[int, int, tuple[bool] | int | tuple[int, int, bool, tuple[bytes, bool, object]] | None]]
        | None
    ): ...
    def left(self, lane: int) -> None: ...
    def take_dropped(self) -> list[int]: ...
    @property
    def is_remote(self) -> bool: ...
    @property
    def isolates(self) -> bool: ...
    @property
    def finds_hung(self) -> bool: ...
    @property
    def encodes(self) -> bool: ...
    @property
    def keeps_states(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    def statistics(self) -> tuple[dict[str, Any], list[tuple[int, str, int, int, int, float | None]]]: ...
    def recycle(self, number: int | None, pid: int | None) -> int: ...
    def resize(self, workers: int) -> int: ...
    def records(self) -> list[RecordFields]: ...
    def complaints(self) -> list[str]: ...
    def quarantine(self) -> list[tuple[int, int, str | None, str | None, tuple[WorkerDeath, ...]]]: ...
    def watch_hung(self, stack: Callable[[int], str | None], timeout: float) -> bool:
        """Waits for hung runs in threads, and fails each with the stack that `stack` gives for its thread."""
    def given_up(self) -> list[int]:
        """The identifiers of the threads whose calls go on though their tasks have ended."""
    def shortage(self) -> str | None: ...
    def advice(self) -> str | None: ...
    def failure(self) -> BaseException | None: ...

@final
class TaskCall:
    """A call that a task has made."""

    def open(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]: ...
    def answer(self, value: object) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...

@final
class StreamFeed:
    """The items of a stream, for the thread that serves its worker."""

    def credit(self) -> tuple[int, int, bool]: ...
    def add(self, item: object, cost: int) -> bool: ...

class StreamBase:
    """The items of a generator task; `ropewalk.Stream` derives from it."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _start(
        self,
        pool: PoolBase,
        fn: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: tuple[
            float | None, int | Retry, int, bool, float | None, str | None, int, int, int | None, float | None
        ],
        wait: bool,
    ) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any:
        """Waits for the next item."""
    def _next_nowait(self) -> tuple[Any] | None: ...
    def close(self) -> None:
        """Stops the task, and drops what has not been read."""
    def _signal(self) -> Future[None] | None: ...
    @property
    def value(self) -> Any:
        """What the generator returned, once the stream has been read to its end."""
    @property
    def _future(self) -> Future[Any]: ...

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
    def _under_way(self) -> float: ...
    def _pending(self) -> tuple[list[Future[Any]], float | None] | None: ...
    def _submit_all(self) -> int | None: ...
    def _run_out(self) -> None: ...
