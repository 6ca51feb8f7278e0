"""Chaos with accounts: a pool runs everything that it can run, while workers are killed, stopped and replaced.

Run by hand, or by ``make soak`` for ten minutes: ``python -m tests.faults.soak --seconds 600``. Every decision comes
from the seed, which a failure names. At the end of each round the pool has to be at rest and of its usual size; at the
end every task has had one outcome that its fate allows, none was begun more often than it may be, and memory,
descriptors and processes are what they were after the first round. The exit status is 0 if all of that is so.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import soak_tasks as work
from tests.polling import children, descendants, is_alive

import ropewalk

#: Nothing takes so long unless it hangs: a worker that was stopped is killed within a second.
PATIENCE = 90.0
WORKERS = 4
#: Outcomes that any task may have, for its worker may be killed.
STRUCK = frozenset({"WorkerCrashed", "PoisonTask"})


@dataclass
class Fate:
    """What may become of a task."""

    name: str
    outcomes: frozenset[str]
    #: How often it may be begun.
    most: int = 1


FATES = {
    fate.name: fate
    for fate in (
        Fate("plain", frozenset({"returned"}) | STRUCK),
        Fate("raises", frozenset({"ValueError"}) | STRUCK),
        Fate("leaves by os._exit", STRUCK),
        Fate("leaks", frozenset({"returned"}) | STRUCK),
        Fate("large", frozenset({"returned"}) | STRUCK),
        Fate("hangs", frozenset({"TaskHung"}) | STRUCK),
        Fate("past its deadline", frozenset({"TaskTimeout", "returned"}) | STRUCK),
        Fate("past its timeout", frozenset({"TaskTimeout", "returned"}) | STRUCK),
        # An attempt may be lost to a worker's death, and two to the exception that it raises on purpose.
        Fate("retried", frozenset({"returned", "ValueError"}) | STRUCK, most=4),
        Fate("cancelled", frozenset({"CancelledError", "returned"}) | STRUCK),
        Fate("cancelled while it runs", frozenset({"CancelledError", "returned"}) | STRUCK),
        Fate("of a client", frozenset({"returned"}) | STRUCK),
        Fate("input of a map", frozenset({"returned"}) | STRUCK),
        Fate("stream", frozenset({"returned", "left early"}) | STRUCK),
        Fate("of a session", frozenset({"returned"}) | STRUCK),
        Fate("call of an actor", frozenset({"returned", "ActorDied"}) | STRUCK),
    )
}


NAMES = list(FATES)
#: How a task has ended.
OPEN, RETURNED, ENDED = range(3)
#: The fates of tasks that are submitted one by one, and how often each is chosen.
SUBMITTED = {
    "plain": 400,
    "raises": 30,
    "large": 20,
    "of a client": 60,
    "retried": 40,
    "cancelled": 30,
    "cancelled while it runs": 4,
    "leaks": 10,
    "past its deadline": 6,
    "past its timeout": 6,
    "leaves by os._exit": 4,
    "hangs": 1,
}


@dataclass
class Sample:
    """What the program has at the end of a round."""

    seconds: float
    tasks: int
    private: int
    descriptors: int
    processes: int


@dataclass
class Report:
    """What came of it."""

    seed: int
    threads: int = 1
    seconds: float = 0.0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    chaos: Counter[str] = field(default_factory=Counter)
    recycled: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    #: The first things that went wrong.
    wrong: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> int:
        return sum(counter.total() for counter in self.outcomes.values())

    def lines(self) -> Iterator[str]:
        """Gives the report in Markdown."""
        places = f"{WORKERS} workers of {self.threads} thread{'s' * (self.threads > 1)}"
        yield f"{self.tasks:,} tasks in {self.seconds:.0f} s on {places}, seed {self.seed}."
        yield ""
        yield "| tasks | number | outcomes |"
        yield "|---|---|---|"
        for name, counter in self.outcomes.items():
            outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counter.items()))
            yield f"| {name} | {counter.total():,} | {outcomes} |"
        yield ""
        yield (
            "Meanwhile: " + ", ".join(f"{count:,} {what}" for what, count in sorted(self.chaos.items())) + "."
        )
        recycled = ", ".join(f"{count:,} by {cause}" for cause, count in self.recycled.items() if count)
        yield f"Workers replaced or sent away: {recycled or 'none'}."
        yield ""
        yield "| at rest after | tasks so far | private memory | descriptors | processes |"
        yield "|---|---|---|---|---|"
        for sample in self.samples:
            private = f"{sample.private / (1 << 20):.1f} MiB"
            row = (
                f"{sample.seconds:.0f} s",
                f"{sample.tasks:,}",
                private,
                sample.descriptors,
                sample.processes,
            )
            yield "| " + " | ".join(map(str, row)) + " |"
        yield ""
        yield "As promised." if not self.wrong else "NOT as promised: " + "; ".join(self.wrong)


class Soak:
    """See the module."""

    def __init__(self, seed: int, threads: int, marks: Path) -> None:
        self.report = Report(seed, threads, outcomes={name: Counter() for name in FATES})
        self.marks = marks
        self._segments = _descriptors()[1]
        self.pool = ropewalk.Pool(
            WORKERS,
            kind="process",
            threads=threads,
            name="soak",
            initializer=work.open_marks,
            initargs=(str(marks),),
            preload=["tests.faults.soak_tasks"],
            max_tasks=3000,
            max_age=20.0,
            max_rss=150 << 20,
            grace=0.1,
            poison_after=3,
            records=200,
        )
        self._lock = threading.Lock()
        #: By a task's number: its fate, by number, and how it has ended. In bytes, for memory is to be flat.
        self._fates = bytearray()
        self._ends = bytearray()
        self._stop = threading.Event()

    # --- accounts -----------------------------------------------------------------------------------------------------

    def enter(self, name: str) -> int:
        """Gives the number of a new task."""
        with self._lock:
            self._fates.append(NAMES.index(name))
            self._ends.append(OPEN)
            return len(self._fates) - 1

    def end(self, number: int, outcome: str) -> None:
        """Notes the outcome of a task."""
        with self._lock:
            name, known = NAMES[self._fates[number]], self._ends[number]
            self._ends[number] = RETURNED if outcome == "returned" else ENDED
            self.report.outcomes[name][outcome] += 1
            if known != OPEN:
                self._complain(f"task {number} ({name}) has ended twice")
            elif outcome not in FATES[name].outcomes:
                self._complain(f"task {number} ({name}) has ended with {outcome}")

    def complain(self, what: str) -> None:
        with self._lock:
            self._complain(what)

    def _complain(self, what: str) -> None:
        if len(self.report.wrong) < 20:
            self.report.wrong.append(what)

    def settle(self, number: int, future: ropewalk.Future[Any], value: object) -> None:
        """Waits for a future, and notes the outcome."""
        try:
            result = future.result(PATIENCE)
        except concurrent.futures.CancelledError:
            self.end(number, "CancelledError")
        except TimeoutError as error:
            if not isinstance(error, ropewalk.TaskTimeout):
                self.complain(f"task {number} has no outcome after {PATIENCE:.0f} s")
            self.end(number, type(error).__name__)
        except Exception as error:
            self.end(number, type(error).__name__)
        else:
            if result != value:
                self.complain(f"task {number} has the result of another one: {result!r:.100}")
            self.end(number, "returned")

    # --- what the pool runs -------------------------------------------------------------------------------------------

    def submit(self, chance: random.Random) -> tuple[int, ropewalk.Future[Any], object]:
        """Submits a task of a fate that chance chooses."""
        pool = self.pool
        name = chance.choices(list(SUBMITTED), list(SUBMITTED.values()))[0]
        number = self.enter(name)
        value: object = number
        match name:
            case "plain":
                future: ropewalk.Future[Any] = pool.submit(work.plain, number, chance.random() * 0.002)
            case "raises":
                future = pool.submit(work.raising, number)
            case "large":
                value = chance.randbytes(1000) * chance.randrange(1, 2000)
                future = pool.submit(work.echo, number, value)
            case "of a client":
                future = pool.options(client=f"client {number % 3}", priority=number % 2).submit(
                    work.plain, number
                )
            case "retried":
                future = pool.options(retries=3).submit(work.until_attempt, number, chance.randrange(1, 4))
            case "cancelled":
                future = pool.submit(work.plain, number)
                future.cancel()
            case "cancelled while it runs":
                future = pool.submit(work.asleep, number, 0.05)
                future.cancel(running=True)
            case "leaks":
                future = pool.submit(work.leaking, number)
            case "past its deadline":
                future = pool.options(deadline=0.05).submit(work.asleep, number, 0.2)
            case "past its timeout":
                future = pool.options(task_timeout=0.05).submit(work.asleep, number, 0.2)
            case "hangs":
                future = pool.options(hang_timeout=0.2).submit(work.asleep, number, 3600)
            case _:
                future = pool.submit(work.leaving, number)
        return number, future, value

    def drive_tasks(self, chance: random.Random) -> None:
        """Keeps a window of tasks in flight."""
        pending: deque[tuple[int, ropewalk.Future[Any], object]] = deque()
        while not self._stop.is_set():
            while len(pending) < 48:
                pending.append(self.submit(chance))
            for _ in range(chance.randrange(1, 32)):
                self.settle(*pending.popleft())
        while pending:
            self.settle(*pending.popleft())

    def drive_maps(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            numbers = [self.enter("input of a map") for _ in range(chance.randrange(1, 300))]
            results = self.pool.map(work.plain, numbers, results=True)
            for number, result in zip(numbers, results, strict=True):
                match result:
                    case ropewalk.Ok(value):
                        if value != number:
                            self.complain(f"input {number} of a map has the result of another one: {value!r}")
                        self.end(number, "returned")
                    case ropewalk.Err(error):
                        self.end(number, type(error).__name__)

    def drive_streams(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            number, count = self.enter("stream"), chance.randrange(1, 3000)
            leaves = chance.randrange(count) if chance.random() < 0.3 else count
            expected = 0
            try:
                with self.pool.options(buffersize=chance.randrange(1, 200)).stream(
                    work.items, number, count
                ) as stream:
                    for item in stream:
                        if item != (number, expected):
                            self.complain(f"item {expected} of stream {number} is {item!r}")
                        expected += 1
                        if expected > leaves:
                            break
            except Exception as error:
                self.end(number, type(error).__name__)
                continue
            if expected > leaves:
                self.end(number, "left early")
            else:
                if expected != count:
                    self.complain(f"stream {number} has {expected} of {count} items")
                self.end(number, "returned")

    def drive_sessions(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            mode = chance.choice(["prefer", "queue"])
            with self.pool.session(f"{mode} {chance.randrange(3)}", work.Counted, mode=mode) as session:
                for _ in range(chance.randrange(1, 20)):
                    calls = []
                    for _ in range(chance.randrange(1, 10)):
                        number = self.enter("of a session")
                        calls.append((number, session.submit(work.in_session, number), number))
                    for call in calls:
                        self.settle(*call)

    def drive_actors(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            with self.pool.actor(work.Counted, max_restarts=chance.randrange(3)) as actor:
                last = (0, 0)
                for _ in range(chance.randrange(1, 50)):
                    number = self.enter("call of an actor")
                    try:
                        ours, calls = actor.call("call", number).result(PATIENCE)
                    except Exception as error:
                        self.end(number, type(error).__name__)
                        continue
                    generation = actor.generation
                    if ours != number or (generation == last[0] and calls != last[1] + 1):
                        self.complain(f"call {number} of an actor is {ours}, its {calls}th after {last}")
                    last = generation, calls
                    self.end(number, "returned")

    # --- what happens to it -------------------------------------------------------------------------------------------

    def harm(self, chance: random.Random) -> None:
        """Kills, stops and replaces workers, kills zygotes, and changes the pool's size."""
        while not self._stop.wait(chance.uniform(0.02, 0.3)):
            pids = self.pool.statistics().worker_pids
            if not pids:
                continue
            victim = chance.choice(pids)
            what = chance.choices(
                ["killed", "stopped", "recycled", "resized", "zygotes killed"], [10, 3, 5, 2, 0.3]
            )[0]
            with suppress(ProcessLookupError, ValueError):
                match what:
                    case "killed":
                        os.kill(victim, signal.SIGKILL)
                    case "stopped":
                        os.kill(victim, signal.SIGSTOP)
                        self._stop.wait(chance.uniform(0.0, 0.5))
                        os.kill(victim, signal.SIGKILL)
                    case "recycled":
                        self.pool.recycle(pid=victim)
                    case "resized":
                        self.pool.resize(chance.randrange(1, 2 * WORKERS))
                    case _:
                        zygotes = [pid for pid in children(os.getpid()) if victim in children(pid)]
                        if not zygotes:
                            continue
                        os.kill(zygotes[0], signal.SIGKILL)
                self.report.chaos[what] += 1

    # --- rounds -------------------------------------------------------------------------------------------------------

    def round(self, seconds: float, number: int) -> None:
        """Runs everything for some seconds, and then waits until the pool is at rest."""
        self._stop.clear()
        drivers: list[Callable[[random.Random], None]] = [
            *(self.drive_tasks, self.drive_tasks, self.drive_maps, self.drive_streams),
            *(self.drive_sessions, self.drive_actors, self.harm),
        ]
        threads = []
        for place, drive in enumerate(drivers):
            chance = random.Random(f"{self.report.seed} {number} {place}")
            threads.append(threading.Thread(target=self._guarded, args=(drive, chance), daemon=True))
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        self._stop.set()
        for thread in threads:
            thread.join(2 * PATIENCE)
            if thread.is_alive():
                frame = sys._current_frames().get(thread.ident or 0)
                stack = "".join(traceback.format_stack(frame)[-4:]) if frame else ""
                raise TimeoutError(f"seed {self.report.seed}: a driver hangs:\n{stack}")
        self.pool.resize(WORKERS)
        self._until("the pool is at rest", self._is_at_rest)

    def _guarded(self, drive: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            drive(chance)
        except BaseException:
            self.complain(traceback.format_exc(limit=-4))
            self._stop.set()

    def _is_at_rest(self) -> bool:
        now = self.pool.statistics()
        ended = now.completed + now.failed + now.cancelled
        still = (now.queued, now.running, now.submitted - ended, now.sessions) == (0, 0, 0, 0)
        alive = [pid for pid in descendants(os.getpid()) if "soak" in _title(pid)]
        return still and now.ready == WORKERS == len(now.worker_pids) == len(alive)

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"seed {self.report.seed}: not so after {PATIENCE:.0f} s: {what}")
            time.sleep(0.01)

    def sample(self, began: float) -> None:
        status = Path("/proc/self/status").read_text()
        # Without shared segments, of which idle ones are kept for a while.
        private = int(status.split("RssAnon:")[1].split()[0]) << 10
        descriptors, _ = _descriptors()
        self.report.samples.append(
            Sample(
                time.monotonic() - began,
                self.report.tasks,
                private,
                descriptors,
                len(descendants(os.getpid())),
            )
        )

    # --- the books ----------------------------------------------------------------------------------------------------

    def read_the_books(self) -> None:
        """Compares what was submitted with what ended, and with what the tasks themselves have noted."""
        raw = self.marks.read_bytes()
        begun = Counter(number for (number,) in struct.iter_unpack("<q", raw[: len(raw) // 8 * 8]))
        now = self.pool.statistics()
        # Those that run in other threads of a worker that is ended for one of its tasks lose no attempt.
        evictions = now.recycled["task"] + now.hung if self.report.threads > 1 else 0
        for number, (fate, ended) in enumerate(zip(self._fates, self._ends, strict=True)):
            name = NAMES[fate]
            most = FATES[name].most
            if ended == OPEN:
                self.complain(f"task {number} ({name}) has no outcome")
            elif begun[number] > (most + evictions if most > 1 else most):
                self.complain(f"task {number} ({name}) was begun {begun[number]} times")
            elif ended == RETURNED and begun[number] == 0:
                self.complain(f"task {number} ({name}) has returned and was never begun")
        for number in begun:
            if not 0 <= number < len(self._fates):
                self.complain(f"a task was begun that nobody submitted: {number}")
        counted = now.completed + now.failed + now.cancelled
        if not now.submitted == counted == now.total_times.count:
            self.complain(
                f"{now.submitted} submitted, {counted} ended, {now.total_times.count} in the histogram"
            )
        records = self.pool.records()
        if len(records) != 200 or any(record.finished_at < record.queued_at for record in records):
            self.complain(f"the pool has {len(records)} records")
        self.report.recycled = dict(now.recycled)

    def compare_samples(self) -> None:
        """Memory, descriptors and processes are what they were after the first round."""
        first, last = self.report.samples[0], self.report.samples[-1]
        # Arenas of the allocator are kept for a while: what leaks does not stop at so little.
        if last.private > first.private * 1.3 + (48 << 20):
            self.complain(f"memory has grown from {first.private} to {last.private} bytes")
        if last.descriptors > first.descriptors + 4:
            self.complain(f"descriptors: {first.descriptors}, then {last.descriptors}")
        if last.processes != first.processes:
            self.complain(f"processes: {first.processes}, then {last.processes}")
        # What the program has kept from before the run is not the pool's.
        self._until("idle segments are given back", lambda: _descriptors()[1] <= self._segments)


def _descriptors() -> tuple[int, int]:
    """How many descriptors the program has, and how many of shared segments: up to 32 idle ones are kept for 5 s."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    segments = sum("ropewalk-segment" in name for name in names)
    return len(names) - segments, segments


def _title(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


class Storm(Soak):
    """Two kinds of failure at once: a worker is killed every 50 ms while others are recycled."""

    def harm(self, chance: random.Random) -> None:
        while not self._stop.wait(0.05):
            pids = self.pool.statistics().worker_pids
            if len(pids) < 2:
                continue
            victim, other = chance.sample(pids, 2)
            with suppress(ProcessLookupError, ValueError):
                os.kill(victim, signal.SIGKILL)
                self.report.chaos["killed"] += 1
                self.pool.recycle(pid=other)
                self.report.chaos["recycled"] += 1


def soak(seconds: float, seed: int, rounds: int, threads: int = 1, kind: type[Soak] = Soak) -> Report:
    """Runs so many rounds, and reads the books; raises `TimeoutError`, with the seed, if anything hangs."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-soak-") as folder:
        marks = Path(folder) / "marks"
        marks.touch()
        began = time.monotonic()
        run = kind(seed, threads, marks)
        try:
            for number in range(rounds):
                run.round(seconds / rounds, number)
                run.sample(began)
                if run.report.wrong:
                    break
            run.read_the_books()
            run.compare_samples()
            workers = run.pool.statistics().worker_pids
            run.pool.shutdown()
        except BaseException:
            run.pool.terminate(wait=False)
            raise
        run.report.seconds = time.monotonic() - began
        left = [pid for pid in workers if is_alive(pid)]
        if left:
            run.complain(f"{len(left)} workers are alive after the end of their pool")
        return run.report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--threads", type=int, default=1, help="tasks that each worker runs at once")
    parser.add_argument("--rounds", type=int, help="by default one for each minute, and three at least")
    options = parser.parse_args()
    rounds = options.rounds or max(3, int(options.seconds // 60))
    report = soak(options.seconds, options.seed, rounds, options.threads)
    print("\n".join(report.lines()))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
