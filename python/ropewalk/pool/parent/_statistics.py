"""The counters of a pool and of its workers."""

from dataclasses import dataclass

from ropewalk.pool.parent._records import Histogram


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A snapshot of one worker process."""

    #: Process id; 0 while it is being forked.
    pid: int
    #: ``"starting"``, ``"idle"``, ``"busy"``, ``"leaving"``, or ``"standby"``: ready to replace a worker that is due.
    state: str
    #: Tasks that it has finished. A batch of `map` counts as one.
    completed: int
    #: Seconds inside tasks, by the worker's own clock.
    busy_seconds: float
    #: The worker's private memory in bytes, as it was within the last 0.1 s; 0 if it is unknown.
    private_bytes: int
    #: The worker's number in its pool, from 1 on; no later worker gets it. `Pool.recycle` takes it.
    id: int
    #: Seconds since the worker was ready; `None` before that.
    age_seconds: float | None
    #: The worker's resident memory in bytes, what it shares with others included; 0 if it is unknown.
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """A named client of a pool that has tasks waiting."""

    #: Its name, as `Pool.options` was given it.
    name: str
    #: Its tasks that wait.
    queued: int


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot of a pool's counters; totals run from the pool's start."""

    #: The kind that really runs: ``"process"`` or ``"thread"``.
    kind: str
    #: Workers that the pool is meant to have now.
    workers: int
    #: Threads that run tasks, in each worker.
    threads: int
    #: Tasks that wait.
    queued: int
    #: Tasks that run.
    running: int
    #: Tasks that have failed, and wait for their next run by a `Retry`.
    delayed: int
    #: Tasks accepted. A batch of `map` counts as one.
    submitted: int
    #: Tasks that returned.
    completed: int
    #: Tasks that raised, crashed or timed out.
    failed: int
    #: Tasks cancelled.
    cancelled: int
    #: Workers that died without the pool ending them.
    crashed: int
    #: Tasks that timed out; `failed` counts them too.
    timed_out: int
    #: Tasks that a full queue dropped; `failed` counts them too.
    dropped: int
    #: Runs of tasks beyond their first.
    retried: int
    #: Workers started in place of others.
    restarted: int
    #: Workers in service that are ready; for threads as many as the pool is meant to have.
    ready: int
    #: Workers that the pool has replaced or sent away, and that are gone, by cause: see `PoolEvent.reason`.
    recycled: dict[str, int]
    #: Sessions and actors that are open.
    sessions: int
    #: Runs of tasks that gave no sign of life for their `hang_timeout`.
    hung: int
    #: Tasks that have cost too many workers their life; `failed` counts them too.
    poisoned: int
    #: Seconds inside tasks, by the workers' own clocks.
    busy_seconds: float
    #: The worker processes alive now; empty for threads.
    worker_pids: tuple[int, ...]
    #: One record for each worker process.
    workers_detail: tuple[WorkerStatistics, ...]
    #: Seconds for which the task has waited that has waited longest; `None` if none waits.
    oldest_seconds: float | None
    #: The clients that have tasks waiting, by name.
    clients: tuple[ClientStatistics, ...]
    #: From when a task was submitted, or was queued to be run once more, until its call began.
    queueing_times: Histogram
    #: The calls of tasks that returned or raised, by the workers' own clocks.
    run_times: Histogram
    #: From submission to the end, of all tasks that have ended.
    total_times: Histogram
    #: Shared memory of this process in bytes, for large arguments and results; it is that of all pools.
    shared_bytes: int
