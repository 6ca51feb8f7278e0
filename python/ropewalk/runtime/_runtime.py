"""`Runtime`: several pools by name, as one executor."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Never, ParamSpec, Self, TypeVar, Unpack, overload

from ropewalk._checked import checked_limit
from ropewalk._errors import ConfigError, PoolClosed, PoolError, failed
from ropewalk.pool.parent._exit import in_a_thread, makes_pools
from ropewalk.pool.parent._future import Future
from ropewalk.pool.parent._map import MapIterator
from ropewalk.pool.parent._pool import Pool
from ropewalk.pool.parent._statistics import PoolStatistics
from ropewalk.pool.parent._tasks import MapSettings
from ropewalk.result import Err, Ok
from ropewalk.runtime import _config
from ropewalk.runtime._config import RuntimeSettings
from ropewalk.runtime._routes import by_row, marked

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RuntimeStatistics:
    """A snapshot of a runtime's pools."""

    #: The counters of each pool that has been made, by the pool's name.
    pools: Mapping[str, PoolStatistics]
    #: The names of the pools that no task has needed yet.
    unused: tuple[str, ...]


class Runtime(concurrent.futures.Executor):
    """Several pools by name: a `concurrent.futures.Executor` that routes each function to one of them.

    A function's pool is the first of these: its own row in `routes`, the name that `ropewalk.route` gave to it, the row
    of its module or of the nearest package around that, the default. ``runtime["api"]`` is the pool itself, for its
    other methods and for calls that name their pool.

    A pool is made when it is first needed. All pools end together, with the ``with`` block, `shutdown` or `terminate`.

    Args:
        pools: the settings of each pool, by its name: the arguments of `Pool`. ``like`` names a pool whose settings are
            the defaults of this one. Durations may be texts such as ``"30 s"``, sizes such as ``"2 GiB"``, and
            functions such as ``"package.module:function"``. A pool's `name` is its name here unless it is given.
        default: the pool of functions without a route; it may be omitted if there is one pool.
        routes: names of pools by ``"module"``, which includes the modules below a package, or ``"module:function"``.
        eager: make all pools at once.

    Raises:
        ConfigError: a setting is wrong; the error names the key, the value and what is allowed.

    Examples:
        >>> import ropewalk
        >>> pools = {"api": {"kind": "thread", "workers": 2}, "jobs": {"workers": 1}}
        >>> with ropewalk.Runtime(pools, default="jobs") as runtime:
        ...     print(runtime.submit(pow, 2, 5).result(), runtime["api"].submit(len, "abc").result())
        32 3
    """

    def __init__(
        self,
        pools: Mapping[str, Mapping[str, Any]],
        *,
        default: str | None = None,
        routes: Mapping[str, str] | None = None,
        eager: bool = False,
    ) -> None:
        """Checks the configuration, and makes the pools if `eager` says so."""
        self._begin(_config.checked("Runtime()", pools, default, {} if routes is None else routes, eager))

    @classmethod
    def from_toml(cls, source: str | os.PathLike[str]) -> Self:
        """Makes a runtime of a TOML file, or of the text of one: a text has a line break, a path has none.

        The file has a table ``[pools.NAME]`` for each pool, and may have ``[routes]``, ``default`` and ``eager``; they
        are the arguments of `Runtime`. A table ``[serve]`` is left to a server of tools.

        Raises:
            ConfigError: the file is not TOML, or a setting is wrong; the error names the file, the key, the value and
                what is allowed.
            OSError: the file cannot be read.
        """
        made = cls.__new__(cls)
        made._begin(_config.from_toml(source))
        return made

    @staticmethod
    def check(source: str | os.PathLike[str]) -> RuntimeSettings:
        """Checks a TOML file, or the text of one, as `from_toml` does, and makes nothing.

        It imports the functions that the file names. Other than `from_toml` it looks for the modules and functions of
        the routes, too: a row that names none would never be used. Rows of the module ``__main__`` are believed.

        Raises:
            ConfigError: the file is not TOML, a setting is wrong, or a route is that of no function.
            OSError: the file cannot be read.
        """
        return _config.from_toml(source, finds_routes=True)

    def _begin(self, config: RuntimeSettings) -> None:
        self._config = config
        self._pools: dict[str, Pool] = {}
        #: Held while a pool is made. It is reentrant because a signal handler of the same thread may need that pool.
        self._making = threading.RLock()
        self._is_closed = False
        self._owner = os.getpid()
        makes_pools(self)
        if config.eager:
            try:
                for name in config.pools:
                    self._made(name)
            except BaseException:
                self.terminate()
                raise

    # --- the pools --------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> RuntimeSettings:
        """The checked configuration: the arguments of each pool, the default and the routes."""
        return self._config

    def __getitem__(self, name: str) -> Pool:
        """Returns a pool, and makes it if that has not been done.

        Raises:
            KeyError: there is no such pool.
            PoolClosed: the runtime was shut down, and the pool was never made.
        """
        return self._made(self._known(name))

    def __contains__(self, name: object) -> bool:
        """Whether there is a pool of this name."""
        return name in self._config.pools

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the pools."""
        return iter(self._config.pools)

    def __len__(self) -> int:
        """The number of pools."""
        return len(self._config.pools)

    def route_of(self, function: Callable[..., Any]) -> str:
        """Returns the name of the pool that runs a function.

        Raises:
            ConfigError: `ropewalk.route` named a pool that this runtime does not have.
        """
        own, around = by_row(self._config.routes, function)
        if own is not None:
            return own
        mark = marked(function)
        if mark is None:
            return around or self._config.default
        if mark not in self._config.pools:
            allowed = tuple(self._config.pools)
            name = getattr(function, "__qualname__", repr(function))
            raise ConfigError(
                f"@route({mark!r}) of {name}: this runtime has no such pool. Allowed: {', '.join(allowed)}.",
                name,
                "route",
                mark,
                allowed,
            )
        return mark

    def pool_of(self, function: Callable[..., Any]) -> Pool:
        """Returns the pool that runs a function, for `Pool.options` and its other methods.

        Raises:
            ConfigError: `ropewalk.route` named a pool that this runtime does not have.
            PoolClosed: the runtime was shut down, and the pool was never made.
        """
        return self._made(self.route_of(function))

    def _known(self, name: str) -> str:
        if name not in self._config.pools:
            raise KeyError(f"there is no pool {name!r}; there are {', '.join(self._config.pools)}")
        return name

    def _made(self, name: str) -> Pool:
        pool = self._pools.get(name)
        if pool is not None:
            return pool
        if os.getpid() != self._owner:
            # Another thread of the parent may have had the lock at the fork.
            raise failed(PoolError, "this process is a forked child of the one that made the runtime")
        with self._making:
            pool = self._pools.get(name)
            if pool is not None:
                return pool
            self._check_open()
            made = Pool(**self._config.pools[name])
            # A signal handler may have made it meanwhile, in this thread.
            pool = self._pools.setdefault(name, made)
            if pool is not made:
                made.shutdown(wait=False)
            try:
                # Such a handler, or code that ran while the pool's arguments were pickled, may have closed it.
                self._check_open()
            except PoolClosed:
                pool.terminate(wait=False)
                raise
            return pool

    def _check_open(self) -> None:
        if self._is_closed:
            # The remedy of the class is about a pool.
            raise PoolClosed("cannot schedule new futures after shutdown of the runtime. Make a new runtime.")

    def _open_pool(self, function: Callable[..., Any]) -> Pool:
        """Returns the pool of a function that is to be submitted: its own error would not name the runtime."""
        name = self.route_of(function)
        self._check_open()
        return self._made(name)

    async def _pool_async(self, function: Callable[..., Any]) -> Pool:
        """Returns the pool of a function; making it does not block the event loop."""
        name = self.route_of(function)
        self._check_open()
        if name not in self._pools:
            await in_a_thread(f"ropewalk-making-{name}", lambda: self._made(name))
        return self._made(name)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call to the function's pool, as `Pool.submit` does."""
        return self._open_pool(fn).submit(fn, *args, **kwargs)

    def submit_nowait(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call to the function's pool, as `Pool.submit_nowait` does.

        It never waits for room in the queue. The first call for a pool makes the pool.
        """
        return self._open_pool(fn).submit_nowait(fn, *args, **kwargs)

    async def submit_async(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call to the function's pool, as `Pool.submit_async` does.

        Cancel safety: a wait that is cancelled has submitted nothing.
        """
        pool = await self._pool_async(fn)
        return await pool.submit_async(fn, *args, **kwargs)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one task in the function's pool and awaits its result, as `Pool.run` does.

        Cancel safety: cancelling the await cancels the task, and ends it if it runs in a worker process.
        """
        pool = await self._pool_async(fn)
        return await pool.run(fn, *args, **kwargs)

    @overload
    def map(
        self, fn: Callable[[A], T], inputs: Iterable[A], /, **settings: Unpack[MapSettings]
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        results: Literal[True],
        **settings: Unpack[MapSettings],
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], **settings: Unpack[MapSettings]
    ) -> MapIterator[T]: ...
    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **settings: Any) -> MapIterator[Any]:
        """Runs `fn` on each input in its pool, as `Pool.map` does: an iterator over the results in order."""
        return self._open_pool(fn).map(fn, *iterables, **settings)

    @overload
    def map_unordered(
        self, fn: Callable[[A], T], inputs: Iterable[A], /, **settings: Unpack[MapSettings]
    ) -> MapIterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        results: Literal[True],
        **settings: Unpack[MapSettings],
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map_unordered(
        self, fn: Callable[..., T], *iterables: Iterable[Any], **settings: Unpack[MapSettings]
    ) -> MapIterator[T]: ...
    def map_unordered(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], **settings: Any
    ) -> MapIterator[Any]:
        """Runs `fn` on each input in its pool, as `Pool.map_unordered` does: results in order of completion."""
        return self._open_pool(fn).map_unordered(fn, *iterables, **settings)

    # --- the runtime itself -----------------------------------------------------------------------------------------

    def statistics(self) -> RuntimeStatistics:
        """Returns a snapshot of the counters of each pool."""
        made = dict(self._pools)
        counters = {name: made[name].statistics() for name in self if name in made}
        return RuntimeStatistics(MappingProxyType(counters), tuple(name for name in self if name not in made))

    def explain(self) -> str:
        """Returns sentences about each pool, as `Pool.explain` does."""
        made = dict(self._pools)
        return "\n".join(
            made[name].explain()
            if name in made
            else f"{name} was never made, and the runtime is closed."
            if self._is_closed
            else f"{name} is made when a task needs it."
            for name in self
        )

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """Accepts no more tasks, and ends all pools when the accepted tasks are done, as `Pool.shutdown` does.

        Args:
            wait: return when the workers are gone.
            cancel_futures: cancel the tasks that have not started.
            timeout: seconds after which what is left is ended, as by `terminate`.
        """
        limit = checked_limit("timeout", timeout)
        end = None if limit is None else time.monotonic() + limit
        pools = self._close()
        # First all of them, so that they end together.
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=cancel_futures, timeout=limit)
        if wait:
            for pool in pools:
                pool.shutdown(wait=True, timeout=None if end is None else max(0.0, end - time.monotonic()))

    def terminate(self, wait: bool = True) -> None:
        """Ends all pools now, as `Pool.terminate` does.

        Args:
            wait: return when the worker processes are gone.
        """
        pools = self._close()
        for pool in pools:
            pool.terminate(wait=False)
        if wait:
            for pool in pools:
                pool.terminate(wait=True)

    def _close(self) -> list[Pool]:
        if os.getpid() != self._owner:
            return []
        with self._making:
            self._is_closed = True
        return list(self._pools.values())

    def _make_no_more(self) -> None:
        """Makes no pool from now on, after the signal of `drain_on`; a pool that is being made is ended then."""
        # Without the lock: to make a pool may take long.
        self._is_closed = True

    def _end(self) -> None:
        """Ends all pools as an exception in a pool's block does: the grace of each begins now."""
        pools = self._close()
        begin = time.monotonic()
        for pool in pools:
            pool._engine.end(pool._grace)
        try:
            for pool in pools:
                pool._end(begin)
        except BaseException:
            self.terminate(wait=False)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Shuts the pools down; after an exception it ends them, as the ``with`` block of a pool does."""
        if kind is not None:
            self._end()
            return False
        try:
            self.shutdown(wait=True)
        except BaseException:
            self._end()
            raise
        return False

    async def __aenter__(self) -> Self:
        """Returns the runtime itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the runtime as a plain ``with`` does, without blocking the event loop.

        Cancel safety: a cancellation ends the pools as an exception in the block does; the wait then goes on.
        """
        import asyncio

        left = in_a_thread("ropewalk-runtime-leaving", lambda: self.__exit__(kind, value, traceback))
        try:
            await asyncio.shield(left)
        except asyncio.CancelledError:
            await asyncio.shield(in_a_thread("ropewalk-runtime-ending", self._end))
            raise

    def __reduce__(self) -> Never:
        """Raises `TypeError`: a runtime belongs to its process."""
        raise TypeError("a Runtime cannot be pickled: it belongs to its process")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<ropewalk.Runtime {', '.join(self)} default={self._config.default} {state}>"
