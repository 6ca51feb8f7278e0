"""Progress of a run: a bar on a terminal, else plain lines at intervals."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ropewalk import Pool
    from ropewalk.cli._report import Tally

_BAR_EVERY = 0.1
_MEMORY_EVERY = 1.0


class Progress(Protocol):
    """A display of a run's progress."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *exception: object) -> None: ...

    def show(self, tally: Tally, in_flight: int, pool: Pool) -> None:
        """Shows the progress; it may be called at any rate, and draws at a rate of its own."""
        ...


def make_progress(total: int | None, *, enabled: bool, every: float, bar: bool = True) -> Progress:
    """Make the display that suits standard error; plain lines come `every` seconds, and `bar` permits a bar."""
    if not enabled:
        return _Silent()
    if bar and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _Bar(total)
    return _Lines(total, every)


def _megabytes(pool: Pool) -> float:
    return sum(worker.private_bytes for worker in pool.statistics().workers_detail) / 1e6


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, tally: Tally, in_flight: int, pool: Pool) -> None:
        pass


class _Pace:
    """The time of the next drawing, and the workers' memory, which is read at intervals."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._last = time.monotonic()
        self._looked = 0.0
        self.megabytes = 0.0

    def due(self, pool: Pool) -> bool:
        now = time.monotonic()
        if now - self._last < self._every:
            return False
        self._last = now
        if now - self._looked >= _MEMORY_EVERY:
            self._looked = now
            self.megabytes = _megabytes(pool)
        return True


class _Lines:
    """Plain lines."""

    def __init__(self, total: int | None, every: float) -> None:
        self._total = total
        self._pace = _Pace(every)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, tally: Tally, in_flight: int, pool: Pool) -> None:
        if not self._pace.due(pool):
            return
        ended = tally.done + tally.failed + tally.skipped
        rate = tally.rate
        parts = [f"{ended:,}" if self._total is None else f"{ended:,} of {self._total:,}"]
        if self._total:
            parts[0] += f" ({100 * ended / self._total:.0f}%)"
        parts.append(f"{rate:,.1f} a second")
        if self._total is not None and rate > 0:
            parts.append(f"{_clock((self._total - ended) / rate)} left")
        parts.append(f"{tally.failed:,} failed")
        if self._pace.megabytes:
            parts.append(f"workers {self._pace.megabytes:,.0f} MB")
        sys.stderr.write(f"ropewalk: {', '.join(parts)}\n")
        sys.stderr.flush()


class _Bar:
    """A bar drawn by rich; it has no colours if NO_COLOR is set, and its text says all that colours do."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as RichProgress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._pace = _Pace(_BAR_EVERY)
        columns: list[Any] = [
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TextColumn("{task.fields[memory]}"),
        ]
        self._bar = RichProgress(*columns, console=Console(stderr=True), expand=True)
        self._task = self._bar.add_task("map", total=total, rate="", failed="0", memory="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, tally: Tally, in_flight: int, pool: Pool) -> None:
        ended = tally.done + tally.failed + tally.skipped
        if not self._pace.due(pool) and ended != self._bar.tasks[0].total:
            return
        memory = f"workers {self._pace.megabytes:,.0f} MB" if self._pace.megabytes else ""
        self._bar.update(
            self._task,
            completed=ended,
            rate=f"{tally.rate:,.1f}/s",
            failed=f"{tally.failed:,}",
            memory=memory,
        )
