"""The counters of a pool and of its workers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A snapshot of one worker process."""

    #: Process id; 0 while it is being forked.
    pid: int
    #: ``"starting"``, ``"idle"``, ``"busy"`` or ``"leaving"``.
    state: str
    #: Tasks that it has finished. A batch of `map` counts as one.
    completed: int
    #: Seconds inside tasks, by the worker's own clock.
    busy_seconds: float
    #: The worker's private memory in bytes; 0 if it is unknown.
    private_bytes: int


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot of a pool's counters; totals run from the pool's start."""

    #: The kind that really runs: ``"process"`` or ``"thread"``.
    kind: str
    #: Workers that the pool is meant to have.
    workers: int
    #: Threads that run tasks, in each worker.
    threads: int
    #: Tasks that wait.
    queued: int
    #: Tasks that run.
    running: int
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
    #: Runs of tasks beyond their first.
    retried: int
    #: Workers started in place of others.
    restarted: int
    #: Seconds inside tasks, by the workers' own clocks.
    busy_seconds: float
    #: The worker processes alive now; empty for threads.
    worker_pids: tuple[int, ...]
    #: One record for each worker process.
    workers_detail: tuple[WorkerStatistics, ...]
