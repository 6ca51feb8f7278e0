"""What a pool tells about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """One worker process."""

    __module__ = "ropewalk"

    #: Process id; 0 while it is being forked.
    pid: int
    #: ``"starting"``, ``"idle"``, ``"busy"`` or ``"leaving"``.
    state: str
    #: Tasks that it has answered. A batch of `map` counts as one.
    completed: int
    #: Seconds inside tasks, by the worker's own clock.
    busy_seconds: float
    #: Memory that is the worker's alone, in bytes; 0 if it cannot be told.
    private_bytes: int


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot of a pool's counters; totals run from the pool's start."""

    __module__ = "ropewalk"

    #: ``"process"`` or ``"thread"``: what really runs.
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
    #: Tasks that raised, crashed, or ran out of time.
    failed: int
    #: Tasks cancelled.
    cancelled: int
    #: Workers that died without being asked to.
    crashed: int
    #: Of the failed tasks, those out of time.
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
