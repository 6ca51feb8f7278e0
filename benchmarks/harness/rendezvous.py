"""Proof that each of a contestant's workers runs: all of them meet, without polling."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import tempfile
import time


class Rendezvous:
    """A FIFO on which tasks announce themselves and a locked file at which they wait."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ropewalk-bench-")
        self.arrivals = f"{self._folder}/arrivals"
        self.gate = f"{self._folder}/gate"
        os.mkfifo(self.arrivals)
        # Open for both ways, so that announcing tasks never find the FIFO without a reader.
        self._arrivals = os.open(self.arrivals, os.O_RDWR)
        self._gate = os.open(self.gate, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._gate, fcntl.LOCK_EX)

    def await_pids(self, count: int, timeout: float = 60.0) -> list[int]:
        """The process numbers of the next so many announcements.

        Raises:
            TimeoutError: Fewer came in time.
        """
        text, deadline = b"", time.monotonic() + timeout
        while len(text) < 8 * count:
            ready, _, _ = select.select([self._arrivals], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"{len(text) // 8} of {count} tasks were running after {timeout:.0f} s")
            text += os.read(self._arrivals, 8 * count - len(text))
        return [int(text[at : at + 8]) for at in range(0, len(text), 8)]

    def open_gate(self) -> None:
        """Let everybody through, now and from now on."""
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close_gate(self) -> None:
        """Make the next comers wait again."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)

    def close(self) -> None:
        """Take the files away."""
        os.close(self._arrivals)
        os.close(self._gate)
        shutil.rmtree(self._folder)
