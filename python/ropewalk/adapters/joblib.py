# joblib has no types, so type checkers know nothing about its objects.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportMissingTypeArgument=false
# pyright: reportIncompatibleMethodOverride=false
"""joblib over Ropewalk: importing this module makes ``backend="ropewalk"`` known to joblib.

Examples:
    >>> import joblib, ropewalk.adapters.joblib
    >>> with joblib.parallel_config(backend="ropewalk", n_jobs=2):
    ...     joblib.Parallel()(joblib.delayed(abs)(n) for n in (-1, 2, -3))
    [1, 2, 3]
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    register_parallel_backend,
)

from ropewalk import Future, Pool
from ropewalk.pool.parent._cores import usable_cores

#: Settings that joblib passes to every backend and that have no use here: those of its memory-mapped files, and those
#: that joblib applies itself.
_OF_JOBLIB = frozenset(("max_nbytes", "temp_folder", "mmap_mode", "prefer", "require", "verbose", "context"))
#: Seconds for which an unused pool stays warm.
IDLE_TIMEOUT = 300.0


@dataclass(eq=False)
class _Warm:
    """A pool that outlives the `joblib.Parallel` for which it was made."""

    pool: Pool
    #: The settings with which it was made; another `Parallel` reuses it only if they are equal.
    settings: tuple[int, Any]
    #: Seconds for which it stays warm, and the timer that ends it then.
    patience: float
    timer: threading.Timer | None = None


#: The warm pools that are not in use, the most recently used last. Guarded by `_LOCK`, which is never held while a pool
#: is made or ended.
_RESTING: list[_Warm] = []
_LOCK = threading.Lock()
#: How many unused pools may stay warm at a time; beyond that the least recently used is ended.
_MOST_RESTING = 2


def _borrow(count: int, settings: dict[str, Any], patience: float) -> _Warm:
    """Returns a pool with these settings for the caller alone: a warm one if there is one, else a new one."""
    key = (count, {**settings, "around": _around()})
    with _LOCK:
        found = next((warm for warm in reversed(_RESTING) if _equal(warm.settings, key)), None)
        if found is not None:
            _RESTING.remove(found)
            if found.timer is not None:
                found.timer.cancel()
                found.timer = None
    if found is not None:
        if not found.pool._engine.closed:
            found.patience = patience
            return found
        found.pool.shutdown(wait=False)
    return _Warm(Pool(count, **settings), key, patience)


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # For instance arrays in `initargs`.
        return False


def _give_back(warm: _Warm) -> None:
    """Keeps a pool warm for the next `Parallel`, until its time is over."""
    ended: list[_Warm] = []
    if warm.pool._engine.closed:
        ended.append(warm)
    else:
        warm.timer = threading.Timer(warm.patience, _end_unused, (warm,))
        warm.timer.daemon = True
        with _LOCK:
            _RESTING.append(warm)
            while len(_RESTING) > _MOST_RESTING:
                ended.append(_RESTING.pop(0))
        warm.timer.start()
    for old in ended:
        if old.timer is not None:
            old.timer.cancel()
        old.pool.shutdown(wait=False)


def _end_unused(warm: _Warm) -> None:
    with _LOCK:
        if warm not in _RESTING:
            return
        _RESTING.remove(warm)
    warm.pool.shutdown(wait=False)


def _around() -> tuple[Any, ...]:
    """Returns the surroundings that workers take over at their start; a pool made before a change is not reused."""
    try:
        folder = os.getcwd()
    except OSError:
        folder = None
    return folder, tuple(sys.path), dict(os.environ)


def shutdown() -> None:
    """Ends the warm pools; those that a `joblib.Parallel` uses end when it is done."""
    with _LOCK:
        ended = list(_RESTING)
        _RESTING.clear()
    for warm in ended:
        if warm.timer is not None:
            warm.timer.cancel()
        warm.pool.shutdown(wait=True)


def _forked() -> None:
    # The workers and the timers' threads belong to the parent.
    globals()["_LOCK"] = threading.Lock()
    _RESTING.clear()


os.register_at_fork(after_in_child=_forked)


class RopewalkBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs joblib's batches in a `ropewalk.Pool`.

    The pool stays warm for the next `joblib.Parallel` with the same settings, for `idle_worker_timeout` seconds (300);
    `ropewalk.adapters.joblib.shutdown` ends it earlier. Other arguments of `parallel_config` or `Parallel` go to the
    pool: ``preload``, ``kind``, ``initializer`` and so on; ``pool=`` names an existing pool, which is left open.

    A `Parallel` inside a task runs on threads, and one inside that in sequence, as with joblib's own backends.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    default_n_jobs = -1

    def __init__(
        self, *, pool: Pool | None = None, idle_worker_timeout: float | None = None, **settings: Any
    ) -> None:
        """Keeps the settings; `configure` takes the pool."""
        nesting = settings.pop("nesting_level", None)
        inner = settings.pop("inner_max_num_threads", None)
        super().__init__(nesting_level=nesting, inner_max_num_threads=inner)
        self._given = pool
        self._settings = settings
        self._patience = idle_worker_timeout
        #: Arguments of the `Parallel` that uses this backend, beside those with which the backend was made.
        self._called_with: dict[str, Any] = {}
        self._pool: Pool | None = None
        self._warm: _Warm | None = None
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Returns how many calls run at once; a negative `n_jobs` counts down from the usable cores, as in joblib."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        given = self._called_with.get("pool", self._given)
        if given is not None:
            statistics = given.statistics()
            return int(statistics.workers * statistics.threads)
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        return max(usable_cores() + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **called_with: Any) -> int:
        """Takes a pool, and returns how many calls it runs at once.

        Raises:
            FallbackToBackend: one job needs no worker; it runs in this thread, as with joblib's own backends.
            TypeError: `Parallel` got an argument that neither joblib nor a pool has.
        """
        self._called_with = {name: value for name, value in called_with.items() if name not in _OF_JOBLIB}
        settings = {**self._settings, **self._called_with}
        given: Pool | None = settings.pop("pool", self._given)
        patience: float | None = settings.pop("idle_worker_timeout", self._patience)
        count = self.effective_n_jobs(n_jobs)
        self.parallel = parallel
        if given is not None:
            self._pool = given
            return count
        if count == 1 and not settings:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self._warm = _borrow(
            count,
            {"blas_threads": self.inner_max_num_threads, **settings},
            IDLE_TIMEOUT if patience is None else float(patience),
        )
        self._pool = self._warm.pool
        return count

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None) -> Future[Any]:
        """Submits a batch of calls."""
        assert self._pool is not None
        future: Future[Any] = self._pool.submit(func)
        self._futures.add(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Returns the results of a batch."""
        return out.result()

    def terminate(self) -> None:
        """Releases the pool, which stays warm if the backend made it."""
        self._pool = None
        warm, self._warm = self._warm, None
        if warm is not None:
            _give_back(warm)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancels the calls that wait and ends those that run, after one has failed."""
        for future in list(self._futures):
            future.cancel(running=True)
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self._called_with)


register_parallel_backend("ropewalk", RopewalkBackend)
