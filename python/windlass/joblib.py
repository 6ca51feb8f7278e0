# joblib has no types; what comes from it is unknown to a checker.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportMissingTypeArgument=false
# pyright: reportIncompatibleMethodOverride=false
"""joblib over Windlass: importing this module makes ``backend="windlass"`` known to joblib.

Examples:
    >>> import joblib, windlass.joblib
    >>> with joblib.parallel_config(backend="windlass", n_jobs=2):
    ...     joblib.Parallel()(joblib.delayed(abs)(n) for n in (-1, 2, -3))
    [1, 2, 3]
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from windlass._future import Future
from windlass._pool import Pool


class WindlassBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs joblib's batches in a `windlass.Pool`.

    Every `joblib.Parallel` makes a pool and ends it, which a warm zygote makes cheap; a ``with joblib.Parallel(...)``
    block keeps one for all its calls. What else `parallel_config` is given goes to the pool: ``preload``, ``kind``,
    ``initializer`` and so on; ``pool=`` names a pool that is used as it is and left open.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    default_n_jobs = -1

    def __init__(self, *, pool: Pool | None = None, **settings: Any) -> None:
        """Keeps the settings; the pool is made by `configure`."""
        nesting = settings.pop("nesting_level", None)
        inner = settings.pop("inner_max_num_threads", None)
        super().__init__(nesting_level=nesting, inner_max_num_threads=inner)
        self._given = pool
        self._settings = settings
        self._pool: Pool | None = None
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls run at once: joblib counts from the usable cores downward if it is negative."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if self._given is not None:
            statistics = self._given.statistics()
            return statistics.workers * statistics.threads
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        return max(len(os.sched_getaffinity(0)) + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Makes the pool, and says how many calls it runs at once.

        joblib's own settings (``max_nbytes``, ``temp_folder`` and so on) are about the files from which it maps arrays,
        of which there are none here.
        """
        count = self.effective_n_jobs(n_jobs)
        self.parallel = parallel
        if self._given is not None:
            self._pool = self._given
        else:
            settings: dict[str, Any] = {"blas_threads": self.inner_max_num_threads, **self._settings}
            self._pool = Pool(count, **settings)
        return count

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None) -> Future[Any]:
        """Takes a batch of calls."""
        assert self._pool is not None
        future: Future[Any] = self._pool.submit(func)
        self._futures.add(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch."""
        return out.result()

    def terminate(self) -> None:
        """Ends the pool, if it is this backend's own."""
        pool, self._pool = self._pool, None
        if pool is not None and pool is not self._given:
            pool.shutdown(wait=True, cancel_futures=True)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the calls that wait or run, after one has failed."""
        for future in list(self._futures):
            future.cancel(running=True)
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


register_parallel_backend("windlass", WindlassBackend)
