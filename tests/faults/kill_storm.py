"""Kills worker processes at random while a pool works, and holds the pool to its promise.

Run by hand for long storms: ``python -m tests.faults.kill_storm --kills 10000``. It reports how many workers were
killed, how many tasks failed for it, and that nothing hung; its exit status is 0 if all of that is as promised.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from tests.polling import is_alive

import ropewalk

#: Nothing takes so long unless it hangs.
PATIENCE = 60.0


@dataclass(frozen=True)
class Report:
    """What came of a storm."""

    kills: int
    tasks: int
    failed: int
    wrong: int
    running: int
    crashed: int


def work(number: int) -> tuple[int, int]:
    """A task of about half a millisecond."""
    until = time.perf_counter() + 0.0005
    while time.perf_counter() < until:
        pass
    return number, os.getpid()


def storm(pool: ropewalk.Pool, kills: int, seed: int = 1, window: int = 64) -> Report:
    """Keeps `window` tasks in flight until `kills` workers have been killed; every future is looked at."""
    chance = random.Random(seed)
    futures: deque[tuple[int, ropewalk.Future[tuple[int, int]]]] = deque()
    killed: set[int] = set()
    blamed: list[int] = []
    submitted = failed = wrong = 0
    last = time.monotonic()

    def take() -> None:
        nonlocal failed, wrong
        number, future = futures.popleft()
        try:
            if future.result(PATIENCE)[0] != number:
                wrong += 1
        except ropewalk.WorkerCrashed as error:
            failed += 1
            blamed.append(error.pid)
            if error.signal != signal.SIGKILL or error.task != future.task.id:  # type: ignore[union-attr]
                wrong += 1

    while len(killed) < kills:
        while len(futures) < window:
            futures.append((submitted, pool.submit(work, submitted)))
            submitted += 1
        victims = [pid for pid in pool.statistics().worker_pids if pid not in killed]
        if victims:
            last = time.monotonic()
            victim = chance.choice(victims)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                killed.add(victim)
        elif time.monotonic() - last > PATIENCE:
            raise TimeoutError("no worker was replaced for long")
        for _ in range(chance.randrange(window // 4)):
            take()
    while futures:
        take()
    # A worker dies with one task at most, and no worker that nobody killed takes a task with it.
    wrong += len(blamed) - len(set(blamed)) + len(set(blamed) - killed)
    deadline = time.monotonic() + PATIENCE
    while pool.statistics().crashed < len(killed):
        if time.monotonic() > deadline:
            raise TimeoutError("deaths were not noticed")
        time.sleep(0.01)
    now = pool.statistics()
    wrong += sum(is_alive(pid) for pid in killed)
    return Report(len(killed), submitted, failed, wrong, now.running + now.queued, now.crashed)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ropewalk.Pool(options.workers, kind="process") as pool:
        began = time.monotonic()
        report = storm(pool, options.kills, options.seed)
        seconds = time.monotonic() - began
    print(
        f"{report.kills} workers killed in {seconds:.1f} s; {report.tasks} tasks, {report.failed} of them failed"
    )
    print(f"wrong: {report.wrong}; left over: {report.running}; deaths noticed: {report.crashed}")
    good = report.wrong == 0 and report.running == 0 and report.crashed == report.kills
    print("as promised" if good else "NOT as promised")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
