"""A clock that pyzmq has deprecated and that programs still import."""

from __future__ import annotations

import warnings
from time import monotonic


class Stopwatch:
    """Measures microseconds between `start` and `stop`. Use `time.monotonic`."""

    def __init__(self) -> None:
        warnings.warn(
            "zmq.Stopwatch is deprecated. Use stdlib time.monotonic and friends instead",
            DeprecationWarning,
            stacklevel=2,
        )
        self._start = 0.0

    def start(self) -> None:
        """Start measuring."""
        self._start = monotonic()

    def stop(self) -> int:
        """Return the microseconds since `start`."""
        return int(1e6 * (monotonic() - self._start))


__all__ = ["Stopwatch"]
