"""`PoolOptions`: a pool with other settings for its tasks."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from ropewalk.pool.parent._options import UNSET, TaskSettings, Unset
from ropewalk.pool.parent._tasks import TaskMethods

if TYPE_CHECKING:
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._statistics import PoolStatistics

P = ParamSpec("P")
T = TypeVar("T")


class PoolOptions(TaskMethods):
    """A view of a pool with other settings for its tasks; made by `Pool.options`.

    It is an executor like the pool itself, so it goes wherever a pool goes, ``loop.run_in_executor`` for instance.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool:
        ...     patient = pool.options(timeout=60, retries=2)
        ...     print(list(patient.map(abs, [-1, 2])))
        [1, 2]
    """

    def __init__(self, pool: Pool, settings: TaskSettings) -> None:
        """Not to be called: `Pool.options` does, with settings that it has checked."""
        self._pool = pool
        self._settings = settings

    @property
    def pool(self) -> Pool:
        """The pool that runs the tasks."""
        return self._pool

    def options(
        self,
        *,
        timeout: float | Unset | None = UNSET,
        retries: int | Unset = UNSET,
        priority: int | Unset = UNSET,
        writable: bool | Unset = UNSET,
        deadline: float | Unset | None = UNSET,
    ) -> PoolOptions:
        """A view with some of these settings changed again; see `Pool.options`."""
        return PoolOptions(self._pool, self._settings.changed(timeout, retries, priority, writable, deadline))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call with these settings; else as `Pool.submit`."""
        return self._pool._submit(fn, args, kwargs, self._settings)

    def _view(self) -> tuple[Pool, TaskSettings]:
        return self._pool, self._settings

    @property
    def kind(self) -> Literal["process", "thread"]:
        """As `Pool.kind`."""
        return self._pool.kind

    def explain(self) -> str:
        """As `Pool.explain`."""
        return self._pool.explain()

    def statistics(self) -> PoolStatistics:
        """As `Pool.statistics`: the counters of the whole pool."""
        return self._pool.statistics()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts the pool down, as `Pool.shutdown`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __enter__(self) -> PoolOptions:
        """The view itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool, as ``with`` over the pool itself does."""
        self._pool.__exit__(kind, value, traceback)

    async def __aenter__(self) -> PoolOptions:
        """The view itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool, as ``async with`` over the pool itself does."""
        await self._pool.__aexit__(kind, value, traceback)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings._asdict().items())
        return f"<ropewalk.PoolOptions of {self._pool._name}: {settings}>"
