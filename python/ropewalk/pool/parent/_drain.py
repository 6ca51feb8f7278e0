"""`drain_on`: a signal on which the pools finish what they have accepted, within a time, and the program ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from ropewalk import _core
from ropewalk._checked import checked_count, checked_limit
from ropewalk.pool.parent import _exit


class _Drain:
    """What has happened so far; there is one for each process."""

    def __init__(self) -> None:
        #: Seconds for the pools, and for the program after that, by signal.
        self.times: dict[int, tuple[float | None, float | None]] = {}
        self.has_begun = False

    def begin(self, number: int, _frame: FrameType | None) -> None:
        """Handles the signal, in the main thread; the second one, which the end of the draining sends too, ends it."""
        if self.has_begun:
            # From now on the signal ends the program as it usually does, whatever still hangs.
            signal.signal(number, signal.SIG_DFL)
            for engine in _engines():
                engine.terminate()
            raise SystemExit(128 + number)
        self.has_begun = True
        threading.Thread(target=self._run, args=(number,), name="ropewalk-drain", daemon=True).start()

    def _run(self, number: int) -> None:
        timeout, linger = self.times[number]
        end = None if timeout is None else time.monotonic() + timeout
        try:
            # Before the pools are listed, because a runtime may be about to make one.
            for maker in _exit.makers():
                maker._make_no_more()
            for pool in _exit.open_pools():
                pool.shutdown(wait=False, timeout=timeout)
            for engine in _engines():
                if timeout is not None:
                    # A pool that its `with` block is about to leave is being shut down already, without a limit.
                    engine.close_within(False, timeout)
                # Processes are gone soon after the time is up. A call in a thread cannot be ended.
                wait = None if end is None or engine.isolates else max(0.0, end - time.monotonic())
                if not engine.join(wait):
                    engine.terminate()
        finally:
            if linger is not None:
                time.sleep(linger)
                os.kill(os.getpid(), number)


def _engines() -> list[_core.PoolHandle]:
    return [*(pool._engine for pool in _exit.open_pools()), *_exit.ending_engines()]


_drain = _Drain()


def drain_on(
    signum: int = signal.SIGTERM, *, timeout: float | None = 25.0, linger: float | None = 1.0
) -> Any:
    """Makes a signal end the program gracefully: its pools accept no more tasks, and finish the accepted ones first.

    When the signal comes, every pool of the program is shut down as by ``shutdown(timeout=timeout)``, while the main
    thread goes on, with the results for instance. A `Runtime` makes none of its other pools any more. A pool that the
    program itself makes later is not drained: the end of the program finishes its tasks, as it does without a signal.
    `linger` seconds after all pools have ended, `SystemExit` is raised in the main thread, with the status ``128 +
    signum``: `finally` blocks and exit handlers run. Tasks that are not done within `timeout` seconds are cancelled, or
    fail with `PoolTerminated`. A second signal ends the pools and the program at once.

    Worker processes of pools that are made after this ignore the signal, because service managers such as systemd send
    it to every process of a service. Call it before you make a pool.

    Args:
        signum: the signal.
        timeout: seconds for the pools, in all; `None` for no limit.
        linger: seconds that the program has after that, to use the last results; `None` for a program that ends by
            itself when its pools accept no more tasks.

    Returns:
        The signal's handler until now, as `signal.signal` does, which also undoes this.

    Raises:
        TypeError, ValueError: an argument is invalid, or another thread than the main thread calls it.
    """
    times = (checked_limit("timeout", timeout), checked_limit("linger", linger))
    if isinstance(signum, bool):
        raise TypeError(f"signum must be a signal, not {signum!r}")
    signum = checked_count("signum", signum, 1, signal.NSIG - 1)
    if signum in (signal.SIGKILL, signal.SIGSTOP) or signum not in signal.valid_signals():
        raise ValueError(f"signum must be a signal that a program can handle, not {signum!r}")
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            "drain_on must be called by the main thread, in which Python runs handlers of signals"
        )
    _drain.times[signum] = times
    before = signal.signal(signum, _drain.begin)
    _exit.DRAINING.add(signum)
    return before


def _forget() -> None:
    _drain.has_begun = False


os.register_at_fork(after_in_child=_forget)
