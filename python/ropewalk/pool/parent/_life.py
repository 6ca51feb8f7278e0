"""How long a pool's workers live and how many there are: the settings, and the methods of `Pool` for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk._checked import checked_count, checked_limit, checked_seconds

if TYPE_CHECKING:
    from ropewalk import _core
    from ropewalk.pool.parent._future import Future

#: The part of a limit by which a worker's own may be less.
_JITTER = 0.1
#: Seconds without a task after which a pool between `min_workers` and `max_workers` does without a worker.
_IDLE = 10.0


class Life(NamedTuple):
    """The checked limits of workers, and the bounds of their number."""

    max_tasks: int | None
    max_age: float | None
    max_rss: int | None
    jitter: float
    min_workers: int | None
    idle_timeout: float | None

    @classmethod
    def checked(
        cls,
        max_tasks: object = None,
        max_tasks_per_child: object = None,
        max_age: object = None,
        max_rss: object = None,
        recycle_jitter: object = None,
        min_workers: object = None,
        idle_timeout: object = None,
    ) -> Life:
        """Returns the settings after checking them.

        Raises:
            TypeError, ValueError: a setting is invalid.
        """
        if max_tasks is not None and max_tasks_per_child is not None:
            raise TypeError("give max_tasks or max_tasks_per_child, which are the same, not both")
        tasks = None
        if max_tasks is not None:
            tasks = checked_count("max_tasks", max_tasks, 1)
        elif max_tasks_per_child is not None:
            tasks = checked_count("max_tasks_per_child", max_tasks_per_child, 1)
        age = checked_limit("max_age", max_age)
        if age == 0:
            raise ValueError("max_age must be more than 0 seconds")
        if recycle_jitter is None:
            # The standard library's limit is exact.
            jitter = 0.0 if max_tasks_per_child is not None else _JITTER
        else:
            jitter = checked_seconds("recycle_jitter", recycle_jitter) if _is_part(recycle_jitter) else -1.0
            if jitter < 0:
                raise ValueError(f"recycle_jitter must be a number from 0 to 1, not {recycle_jitter!r}")
        if idle_timeout is not None and min_workers is None:
            raise TypeError("idle_timeout needs min_workers: a pool of a fixed size keeps its workers")
        return cls(
            tasks,
            age,
            None if max_rss is None else checked_count("max_rss", max_rss, 1),
            jitter,
            None if min_workers is None else checked_count("min_workers", min_workers, 1),
            _IDLE if idle_timeout is None else checked_seconds("idle_timeout", idle_timeout),
        )

    def refuse_threads(self, reason: str, **others: object) -> None:
        """Raises if a setting needs worker processes; `reason` says why the pool has none.

        Args:
            reason: what the pool runs, and why.
            others: further settings that need processes; those that are false are not given.

        Raises:
            ValueError: a setting is given that a thread pool cannot have.
        """
        limits = {name: getattr(self, name) for name in ("max_tasks", "max_age", "max_rss", "min_workers")}
        for name, given in (limits | others).items():
            if given:
                raise ValueError(
                    f'{name} needs worker processes, and this pool runs {reason}: give kind="process"'
                )

    def refuse_remote(self) -> None:
        """Raises if a setting needs workers on this machine.

        Raises:
            ValueError: a setting is given that a pool on a Ray cluster cannot have.
        """
        if self.max_rss is not None:
            raise ValueError(
                'max_rss is not there with kind="ray": the memory of a worker on another machine is not known here. '
                "Use max_tasks or max_age"
            )
        if self.min_workers is not None:
            raise ValueError(
                'min_workers is not there with kind="ray": a new worker there takes a second. Call resize() instead'
            )

    def bounds(self, workers: int) -> str:
        return f"{workers}" if self.min_workers is None else f"{self.min_workers} to {workers}"


def _is_part(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def checked_size(workers: object, max_workers: object, min_workers: int | None, cores: int) -> int:
    """Returns the number of workers, or the largest if it follows the load.

    Raises:
        TypeError, ValueError: the numbers are invalid, or contradict each other.
    """
    if max_workers is not None:
        if workers is not None:
            raise TypeError("give workers or max_workers, which are the same, not both")
        if isinstance(max_workers, (int, float)) and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        count = checked_count("max_workers", max_workers, 1)
    elif workers is not None:
        if min_workers is not None:
            raise TypeError("give max_workers with min_workers, not workers, which is a fixed number")
        return checked_count("workers", workers, 1)
    else:
        count = max(cores, min_workers or 1)
    if min_workers is not None and min_workers > count:
        raise ValueError(f"min_workers must be max_workers or less, which is {count}, not {min_workers}")
    return count


class LifeMethods:
    """The methods of `Pool` that replace workers, and change their number."""

    _engine: _core.PoolHandle
    _isolates: bool
    _life: Life
    _name: str
    _reason: str
    _workers: int
    _threads: int
    _lanes: int
    _submit_plainly: Callable[..., Future[Any]]

    def _is_forked(self) -> bool:
        raise NotImplementedError

    def _add_threads(self, count: int) -> None:
        raise NotImplementedError

    def recycle(self, worker: int | None = None, *, pid: int | None = None) -> int:
        """Replaces workers, without a dip: a worker works on until the one that replaces it is ready.

        It returns at once. The workers are replaced one after the other. Each finishes the tasks that it runs; those
        that it has not started go to others.

        Args:
            worker: the number of one worker, `WorkerStatistics.id`; by default all workers that are ready.
            pid: the process id of one worker.

        Returns:
            How many workers will be replaced; those that start or leave at the moment are not.

        Raises:
            ValueError: the pool runs threads, which cannot be replaced while they run a task; or it has no such worker.
        """
        if worker is not None and pid is not None:
            raise TypeError("give worker or pid, not both")
        number = None if worker is None else checked_count("worker", worker, 1)
        process = None if pid is None else checked_count("pid", pid, 1, 2**31 - 1)
        if not self._engine.encodes:
            raise ValueError(f"{self._name} has no worker processes to recycle: it runs {self._reason}")
        marked = self._engine.recycle(number, process)
        if not marked and (number is not None or process is not None):
            what = f"number {number}" if number is not None else f"process id {process}"
            raise ValueError(f"{self._name} has no worker with the {what}, or that worker leaves already")
        return marked

    def resize(self, workers: int) -> None:
        """Sets the number of workers, or of the threads of a thread pool.

        New ones start in the background. If there are too many, those that rest leave first; the others finish the
        tasks that they run before they leave. The number of BLAS threads of a worker stays the same.

        Raises:
            ValueError: the number follows the load, because the pool was made with ``min_workers``.
            PoolClosed: the pool was shut down.
        """
        count = checked_count("workers", workers, 1)
        if self._life.min_workers is not None:
            raise ValueError(
                f"{self._name} was made with min_workers={self._life.min_workers}, so its number of workers follows "
                "the load"
            )
        if self._is_forked():
            return
        if self._engine.closed:
            # It raises the error of a submission.
            self._submit_plainly(object)
        missing = self._engine.resize(count)
        self._workers = count
        self._lanes = count * (self._threads if self._isolates else 1)
        if missing:
            self._add_threads(missing)
