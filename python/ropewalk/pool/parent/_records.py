"""What a pool tells of its tasks: their records, the histograms of their times, their progress, and those that kill."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ropewalk._errors import WorkerDeath

#: Number, process and worker, attempt, function; when it was queued, and from then on the beginning and the end; time
#: in the call, on the wall's and on the thread's clock; bytes there and back; outcome, cause and session.
#: Times are in nanoseconds.
RecordFields: TypeAlias = tuple[
    int,
    tuple[int, int],
    int,
    str | None,
    tuple[int, int | None, int],
    tuple[int, int | None],
    tuple[int, int],
    tuple[str, str | None, tuple[str, int] | None],
]
#: Count, sum, least and most, and the buckets that are not empty, each with its bounds; in nanoseconds.
HistogramFields: TypeAlias = tuple[int, int, int, int, list[tuple[int, int, int]]]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The record of a task that has ended. Its run is the last one, if it was run more than once."""

    #: The task's number in its pool.
    id: int
    #: ``"process"`` or ``"thread"``.
    kind: str
    #: The id of the process that ran the task; 0 if none did.
    worker_pid: int
    #: How often the task was given to a worker.
    attempt: int
    #: Seconds from submission to the end, less `busy_seconds`: the time in the queue and in transfer.
    queued_seconds: float
    #: Seconds inside the function, by the worker's clock.
    busy_seconds: float
    #: The worker's number in its pool, as `WorkerStatistics.id`; `None` if it has none, as a thread.
    worker_id: int | None
    #: The function's name; `None` if it is unknown, as that of a call which no thread of a thread pool has begun.
    function: str | None
    #: When it was submitted, as `time.time` counts.
    queued_at: float
    #: When its call began; `None` if none did, or its worker died before it could say so.
    started_at: float | None
    #: When it ended, and its result was there.
    finished_at: float
    #: Seconds for which the thread of the call was on a processor; `None` if that was not measured. Other threads that
    #: the function uses do not count.
    cpu_seconds: float | None
    #: Bytes of the encoded call; 0 in a thread pool. An object in shared memory that has been there before is not sent.
    bytes_sent: int
    #: Bytes of the encoded result, or of the exception.
    bytes_received: int
    #: ``"returned"``, ``"raised"``, ``"cancelled"``, ``"timed out"``, ``"crashed"``, or another word for its end.
    outcome: str
    #: Why it has no result, for a task that neither returned nor raised: how its worker died, for instance.
    cause: str | None
    #: The key of the task's session as text, or its actor's name; `None` if it has neither.
    session: str | None
    #: The number of the session's state that the task was given; 0 without a session.
    session_generation: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task has last reported that it is."""

    #: What is done, in the task's own unit.
    done: float
    #: Of how much, if the task said that.
    total: float | None
    #: The task's remark, if it made one.
    note: str | None

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; `None` without a total."""
        if self.total is None or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.done / self.total))


@dataclass(frozen=True, slots=True)
class QuarantinedTask:
    """A task that failed with `PoisonTask`."""

    #: The task's number in its pool, as `TaskRecord.id`.
    task: int
    #: How often it was started.
    attempt: int
    #: The name of its function.
    function: str | None
    #: The function and its arguments, shortened, where they are small enough to be kept for this.
    call: str | None
    #: How the workers have died, in order.
    crashes: tuple[WorkerDeath, ...]


def record_of(kind: str, fields: RecordFields) -> TaskRecord:
    (
        id_,
        (pid, worker),
        attempt,
        function,
        (queued, begun, total),
        (busy, cpu),
        (sent, received),
        (outcome, cause, session),
    ) = fields
    return TaskRecord(
        id=id_,
        kind=kind,
        worker_pid=pid,
        worker_id=worker or None,
        attempt=attempt,
        queued_seconds=max(0, total - busy) / 1e9,
        busy_seconds=busy / 1e9,
        function=function,
        queued_at=queued / 1e9,
        started_at=None if begun is None else (queued + begun) / 1e9,
        finished_at=(queued + total) / 1e9,
        cpu_seconds=None if cpu is None else cpu / 1e9,
        bytes_sent=sent,
        bytes_received=received,
        outcome=outcome,
        cause=cause,
        session=None if session is None else session[0],
        session_generation=0 if session is None else session[1],
    )


#: The bounds of `Histogram.buckets`: powers of two of a nanosecond, from a microsecond to 18 minutes. They are bounds
#: of the compiled buckets too, so no count is split.
_BOUNDS = tuple(1 << power for power in range(10, 41))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many times of which length there were, in seconds.

    A time is known by the bucket that it lies in, and a bucket is at most a sixteenth of its lower bound wide. So a
    quantile is at most 3.2 % off (or half a nanosecond).
    """

    #: How many times.
    count: int
    #: Their sum.
    sum: float
    #: The shortest; `None` if there is none.
    min: float | None
    #: The longest; `None` if there is none.
    max: float | None
    #: The buckets that are not empty: lower bound, upper bound (which belongs to it) and count, in nanoseconds.
    _buckets: tuple[tuple[int, int, int], ...] = field(repr=False)

    def quantile(self, q: float) -> float | None:
        """Returns the time that the part `q` of all does not exceed, 0 to 1; `None` if there is none.

        Raises:
            ValueError: `q` is not between 0 and 1.

        Examples:
            >>> import ropewalk
            >>> with ropewalk.Pool(1, kind="thread") as pool:
            ...     _ = [future.result() for future in [pool.submit(sum, [1, 2]) for _ in range(10)]]
            ...     times = pool.statistics().total_times
            >>> times.count, times.quantile(0) == times.min, times.quantile(0.5) <= times.quantile(0.99) <= times.max
            (10, True, True)
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q must be a number from 0 to 1, not {q!r}")
        if self.min is None or self.max is None:
            return None
        rank = max(1, math.ceil(q * self.count))
        if rank == 1:
            return self.min
        for above, upto, count in self._buckets:
            rank -= count
            if rank <= 0:
                return min(max((above + upto) / 2e9, self.min), self.max)
        return self.max

    def buckets(self) -> tuple[tuple[float, int], ...]:
        """Returns how many times are at most so long, for each of 31 bounds and for infinity.

        The bounds are the same for all histograms, and each is the double of the one before, from 1.024 µs to 18
        minutes: the form of a histogram in Prometheus, whose other two values are `count` and `sum`.
        """
        cumulative: list[tuple[float, int]] = []
        buckets = iter(self._buckets)
        bucket = next(buckets, None)
        total = 0
        for bound in _BOUNDS:
            while bucket is not None and bucket[1] <= bound:
                total += bucket[2]
                bucket = next(buckets, None)
            cumulative.append((bound / 1e9, total))
        return (*cumulative, (math.inf, self.count))


def histogram_of(fields: HistogramFields) -> Histogram:
    count, total, least, most, buckets = fields
    if count == 0:
        return Histogram(0, 0.0, None, None, ())
    return Histogram(count, total / 1e9, least / 1e9, most / 1e9, tuple(buckets))
