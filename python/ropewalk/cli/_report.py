"""The report at the end of a run: failures, the summary, and the latencies of the calls."""

from __future__ import annotations

import json
import math
import sys
import time
from array import array
from typing import Any

from ropewalk.cli._record import Failure

_KEPT = 1000  # failures that are kept for the report
_BAR = 40
_LONG_ENOUGH = 0.5  # seconds of a run after which the start of the workers does not dominate the speed-up
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


class Tally:
    """The counts and latencies of a run so far."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.skipped = 0
        self.busy = 0.0
        self.failures: list[tuple[Any, Failure]] = []
        self._seconds = array("d")
        self._start = 0.0
        self._end: float | None = None

    def start(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def stop(self) -> None:
        """Stop the clock."""
        self._end = time.perf_counter()

    @property
    def wall(self) -> float:
        """Seconds from the start until the stop, or until now."""
        return (self._end or time.perf_counter()) - self._start

    @property
    def rate(self) -> float:
        """Inputs a second."""
        wall = self.wall
        return (self.done + self.failed) / wall if wall > 0 else 0.0

    def add_done(self, seconds: float) -> None:
        """Count an input that is done, with its seconds inside the function."""
        self.done += 1
        self._seconds.append(seconds)
        self.busy += seconds

    def add_failed(self, value: Any, failure: Failure, seconds: float | None) -> None:
        """Count an input that failed."""
        self.failed += 1
        if seconds is not None:
            self._seconds.append(seconds)
            self.busy += seconds
        if len(self.failures) < _KEPT:
            self.failures.append((value, failure))

    def latencies(self) -> list[float]:
        """Return the seconds inside the function, in ascending order."""
        return sorted(self._seconds)


def duration(seconds: float) -> str:
    """Format seconds in a suitable unit."""
    for size, unit in _UNITS:
        if seconds >= size or unit == "ns":
            return f"{seconds / size:.3g} {unit}"
    return "0 s"


def percentile(ascending: list[float], part: float) -> float:
    """Return the percentile `part` (0 to 1) by the nearest-rank method."""
    return ascending[max(0, math.ceil(part * len(ascending)) - 1)]


def show_failures(tally: Tally, most: int) -> None:
    """Prints the first failures with their tracebacks, and counts the rest."""
    for value, failure in tally.failures[:most]:
        sys.stderr.write(f"\nfailed: {_short(value)}\n")
        text = failure.traceback or f"{failure.type}: {failure.message}"
        sys.stderr.write("".join(f"  {line}\n" for line in text.splitlines()))
    rest = tally.failed - min(most, len(tally.failures))
    if rest > 0 and most > 0:
        sys.stderr.write(f"\nand {rest} more failed\n")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def show_summary(tally: Tally, *, kind: str, lanes: int, left: int | None, enough: bool) -> None:
    """Prints the counts, the rate, and a histogram of the latencies."""
    parts = [f"{tally.done:,} done", f"{tally.failed:,} failed"]
    if tally.skipped:
        parts.append(f"{tally.skipped:,} skipped, done earlier")
    if left:
        parts.append(f"{left:,} not tried")
    out = [f"\n{', '.join(parts)} in {duration(tally.wall)}: {tally.rate:,.1f} a second"]
    if enough:
        out.append(f"stopped after {tally.failed:,} failed, because of --fail-fast or --max-failures")
    ascending = tally.latencies()
    if ascending:
        unit = "process" if kind == "process" else "thread"
        out.append(
            f"in the function: p50 {duration(percentile(ascending, 0.5))}, "
            f"p99 {duration(percentile(ascending, 0.99))}, longest {duration(ascending[-1])}"
        )
        if tally.wall >= _LONG_ENOUGH:
            out.append(
                f"speed-up over one worker, estimated from busy time: {tally.busy / tally.wall:.2f} with {lanes} "
                f"{unit} workers"
            )
        out.extend(_histogram(ascending))
    sys.stderr.write("\n".join(out) + "\n")
    sys.stderr.flush()


def _histogram(ascending: list[float]) -> list[str]:
    """Return the rows of a histogram over powers of two; none if all calls took about the same time."""
    buckets: dict[int, int] = {}
    for seconds in ascending:
        key = math.floor(math.log2(max(seconds, 1e-9)))
        buckets[key] = buckets.get(key, 0) + 1
    keys = range(min(buckets), max(buckets) + 1)
    if len(keys) < 2:
        return []
    most = max(buckets.values())
    rows: list[str] = []
    for key in keys:
        count = buckets.get(key, 0)
        bar = "#" * math.ceil(_BAR * count / most) if count else ""
        rows.append(
            f"  {duration(2.0**key):>8} to {duration(2.0 ** (key + 1)):>8}  {count:>9,}  {bar}".rstrip()
        )
    return rows
