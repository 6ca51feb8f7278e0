"""The compiled core, as the parent sees it."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, final

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

_Told: TypeAlias = tuple[str, str, int, int | None, int | None, int, str | None]

@final
class EventFeed:
    """What the pools of this process tell of their lives, for one thread to take."""

    def __new__(cls) -> EventFeed: ...
    def next(self) -> _Told | None:
        """The next event, waited for; `None` once the feed is closed."""
    def close(self) -> None:
        """Ends it: whoever waits for the next event gets what is left, then `None`."""
    @property
    def lost(self) -> int:
        """Events that were dropped because nobody took them in time."""

class PoolBase:
    """Submission: the part of a pool that is on the way of every task."""

    def __new__(cls, settings: dict[str, Any], /) -> PoolBase: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Submits a call; see `windlass.Pool.submit`."""
    def _submit(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: float | None,
        retries: int,
        priority: int,
    ) -> Any: ...
    def _handle(self) -> PoolHandle: ...

@final
class PoolHandle:
    """A pool's engine without the pool."""

    def serve(self) -> None: ...
    def collect(self) -> None: ...
    def close(self, cancel: bool) -> None: ...
    def break_down(self, reason: str) -> None: ...
    def join(self, timeout: float | None = None) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    def statistics(self) -> tuple[dict[str, int], list[tuple[int, str, int, int]]]: ...
    def complaints(self) -> list[str]: ...
    def failure(self) -> BaseException | None: ...

@final
class MapIterator:
    """`map` and `map_unordered`: lazy, bounded in flight."""

    def __new__(
        cls, pool: PoolBase, callable: Callable[..., Any], source: Iterator[Any], settings: dict[str, Any]
    ) -> MapIterator: ...
    def __iter__(self) -> MapIterator: ...
    def __next__(self) -> Any: ...
    def close(self) -> None:
        """Cancels what has not started and ends the iteration, as a generator's `close` does."""
    def _submit_all(self) -> None: ...
