"""What a pool tells of itself: the methods of `Pool` that return snapshots and texts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ropewalk._core import private_bytes, resident_bytes, shared_bytes
from ropewalk.pool.parent._cores import usable_cores
from ropewalk.pool.parent._spawn import stamps

if TYPE_CHECKING:
    from ropewalk import _core
    from ropewalk.pool.parent._fallback import Fallback
    from ropewalk.pool.parent._life import Life
    from ropewalk.pool.parent._options import RealKind
    from ropewalk.pool.parent._records import QuarantinedTask, TaskRecord
    from ropewalk.pool.parent._statistics import PoolStatistics


#: For so many seconds a worker's memory counts as known. The kernel walks all of its pages to find it, and meanwhile
#: the worker can map none.
_MEMORY_LASTS = 0.1


class ReportMethods:
    """The methods of `Pool` that tell how it is and what it has done."""

    _kind: RealKind
    _reason: str
    _name: str
    _engine: _core.PoolHandle
    _isolates: bool
    _workers: int
    _threads: int
    _blas_threads: int
    _preload: tuple[str, ...]
    _stamps: dict[str, tuple[str, int, int]]
    _life: Life
    _fallback: Fallback | None
    #: By a worker's number: its private memory, and until when that counts as known.
    _memory: dict[int, tuple[int, float]]

    def explain(self) -> str:
        """Returns sentences that say what kind of pool this is and why, its size, and what went wrong with preloads."""
        cores = usable_cores()
        unit, plural = ("worker process", "es") if self._isolates else (self._kind, "s")
        lines = [
            f"{self._name} runs {self._reason}.",
            f"{self._life.bounds(self._workers)} {unit}{'' if self._workers == 1 else plural} on "
            f"{cores} usable core{'' if cores == 1 else 's'}.",
        ]
        if self._isolates:
            lines.append(
                f"Each runs {self._threads} task{'' if self._threads == 1 else 's'} at a time, with "
                f"{self._blas_threads} BLAS thread{'' if self._blas_threads == 1 else 's'}."
            )
            if self._preload:
                lines.append(f"Preloaded: {', '.join(self._preload)}.")
            lines.extend(f"A preload failed: {complaint}" for complaint in self._engine.complaints())
            shortage = self._engine.shortage()
            if shortage is not None:
                lines.append(f"Short of workers: {shortage}.")
            advice = self._engine.advice()
            if advice is not None:
                lines.append(advice)
            now = stamps(self._preload)
            lines.extend(
                f"{module} has been edited since this pool was made, and its workers have the old code. A new pool "
                f"imports it anew; call ropewalk.restart_preloads() first if only what it imports was edited."
                for module, stamp in self._stamps.items()
                if now.get(module) != stamp
            )
        if self._fallback is not None:
            lines.extend(self._fallback.explain())
        return "\n".join(lines)

    def statistics(self) -> PoolStatistics:
        """Returns a snapshot of the pool's counters."""
        # A forked child gets its error before any import, whose lock a thread may hold that is not there.
        totals, workers = self._engine.statistics()
        # Records have modules of their own, which a pool that is not asked for them does without.
        from ropewalk.pool.parent._records import histogram_of
        from ropewalk.pool.parent._statistics import ClientStatistics, PoolStatistics, WorkerStatistics

        clients = tuple(ClientStatistics(name, queued) for name, queued in totals.pop("clients"))
        oldest = totals.pop("oldest")
        busy = totals.pop("busy_ns") / 1e9
        are_processes = self._isolates and not self._engine.is_remote
        for name in ("queueing_times", "run_times", "total_times"):
            totals[name] = histogram_of(totals[name])
        memory = self._memory_of({number: pid for pid, *_, number, _ in workers} if are_processes else {})
        details = tuple(
            WorkerStatistics(
                pid=pid,
                state=state,
                completed=completed,
                busy_seconds=spent / 1e9,
                private_bytes=memory.get(number, (0,))[0],
                id=number,
                age_seconds=age,
                resident_bytes=resident_bytes(pid) if are_processes and pid > 0 else 0,
            )
            for pid, state, completed, spent, number, age in workers
        )
        return PoolStatistics(
            kind=self._kind,
            threads=self._threads,
            busy_seconds=busy,
            worker_pids=tuple(worker.pid for worker in details if worker.pid) if self._isolates else (),
            workers_detail=details,
            oldest_seconds=oldest,
            clients=clients,
            shared_bytes=shared_bytes(),
            **totals,
        )

    def _memory_of(self, pids: dict[int, int]) -> dict[int, tuple[int, float]]:
        now, known = time.monotonic(), self._memory
        found: dict[int, tuple[int, float]] = {}
        for number, pid in pids.items():
            size, until = known.get(number, (0, now))
            if size == 0 or now >= until:
                size, until = private_bytes(pid), now + _MEMORY_LASTS
            found[number] = size, until
        self._memory = found
        return found

    def quarantine(self) -> tuple[QuarantinedTask, ...]:
        """Returns the last tasks that failed with `PoisonTask`, oldest first: 64 at most."""
        listed = self._engine.quarantine()
        from ropewalk.pool.parent._records import QuarantinedTask

        return tuple(QuarantinedTask(*one) for one in listed)

    def records(self) -> tuple[TaskRecord, ...]:
        """Returns records of the tasks that ended last, the newest at the end; as many as ``records`` of `Pool` says.

        A batch of `map` is one task there. Long texts take the place of other records: names of functions and causes
        have 256 bytes for each record together.
        """
        listed = self._engine.records()
        from ropewalk.pool.parent._records import record_of

        return tuple(record_of(self._kind, fields) for fields in listed)
