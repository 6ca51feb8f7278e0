"""Table: killed workers, and the tasks of others."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import pools, workloads
from harness.measure import Options, Outcome, Sample, percentile
from harness.pools import EXECUTOR, OURS, PLAYERS
from harness.rendezvous import Rendezvous
from harness.table import Contest, Figure, Line, Row, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 5.0
"""Seconds after which something that has not ended is called a hang."""
FOREVER = 60.0


def kills(peer: str, kills: int) -> dict[str, float]:
    """Kill the only worker at its task, again and again: when did its future know, and a replacement run?

    An executor that breaks is closed and made anew, as its user would have to.
    """
    contestant_type = pools.ALL[peer]
    contestant, meeting = contestant_type(1, ("harness.workloads",)), Rendezvous()
    contestant.call(workloads.nothing)
    told, replaced, hangs = list[float](), list[float](), 0
    for _ in range(kills):
        victim = contestant.submit(workloads.sleep_after_announcing, meeting.arrivals, FOREVER)
        (pid,) = meeting.await_pids(1)
        began = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        try:
            error = victim.exception(PATIENCE)
            told.append(time.perf_counter() - began)
            if error is None:
                raise RuntimeError("a killed task has a result")
            if peer == EXECUTOR:
                contestant.close()
                contestant = contestant_type(1, ("harness.workloads",))
            contestant.submit(workloads.nothing).result(PATIENCE)
            replaced.append(time.perf_counter() - began)
        except TimeoutError:
            hangs += 1
            contestant = contestant_type(1, ("harness.workloads",))
            contestant.call(workloads.nothing)
    contestant.close()
    meeting.close()
    return {
        "told p50": percentile(told, 0.5),
        "told p99": percentile(told, 0.99),
        "told greatest": max(told),
        "replaced p50": percentile(replaced, 0.5),
        "replaced p99": percentile(replaced, 0.99),
        "replaced greatest": max(replaced),
        "hangs": hangs,
        "kills": kills,
    }


def bystanders(peer: str, kills: int) -> dict[str, float]:
    """Kill one of two workers while other tasks run and wait: how many of those suffered, how many hung."""
    contestant_type = pools.ALL[peer]
    contestant, meeting = contestant_type(2, ("harness.workloads",)), Rendezvous()
    contestant.call(workloads.nothing)
    harmed = hangs = 0
    for turn in range(kills):
        victim = contestant.submit(workloads.sleep_after_announcing, meeting.arrivals, FOREVER)
        (pid,) = meeting.await_pids(1)
        others = [contestant.submit(workloads.increment, number) for number in range(32)]
        if turn % 2:
            others[0].result(PATIENCE)
        os.kill(pid, signal.SIGKILL)
        try:
            victim.exception(PATIENCE)
        except TimeoutError:
            hangs += 1
        for number, other in enumerate(others):
            try:
                harmed += other.result(PATIENCE) != number + 1
            except TimeoutError:
                hangs += 1
            except Exception:  # whatever it is called: the task was not the one killed
                harmed += 1
        if peer == EXECUTOR:
            contestant.close()
            contestant = contestant_type(2, ("harness.workloads",))
    contestant.close()
    meeting.close()
    return {"harmed each": harmed / kills, "hangs": hangs, "kills": kills}


@dataclass(frozen=True)
class Kills:
    """The kills of one round: those that were asked for, spread over the rounds and over both contests."""

    most: int

    def of(self, options: Options) -> int:
        """The share of a round; a peer, whose kills cost more time, has few."""
        return min(self.most, max(1, options.kills // (2 * options.rounds)))


def _contest(function: Callable[..., dict[str, float]], most: int) -> Contest:
    return Contest(function, function.__name__, PLAYERS, timeout=2100.0, kills=Kills(most))


#: Ropewalk is killed as often as asked for.
KILLS, BYSTANDERS = _contest(kills, 1_000_000), _contest(bystanders, 1_000_000)
OF_PEERS = dict.fromkeys((_contest(kills, 10).by("pebble"), _contest(kills, 10).by(EXECUTOR)))
HARMED = dict.fromkeys((_contest(bystanders, 10).by("pebble"), _contest(bystanders, 10).by(EXECUTOR)))


def _line(what: str, metric: str, bound: float | None = None) -> Line:
    goal, peers = (at_most(bound), OF_PEERS) if bound else (None, {})
    return Line(what, "ms", KILLS, metric, goal, peers, scale=1e3)


def _hangs(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    both = [outcomes[contest.by(OURS).label] for contest in (KILLS, BYSTANDERS)]
    count = sum(sum(outcome.values.get("kills", ())) for outcome in both)
    hangs = [sum(outcome.values["hangs"]) for outcome in both if "hangs" in outcome.values]
    yield Figure(
        f"hangs in {count:,.0f} kills",
        "hangs",
        Sample((sum(hangs),)) if len(hangs) == len(both) else None,
        goal=at_most(0),
        trouble="; ".join(outcome.failure for outcome in both if outcome.failure),
    )


ROW = Row(
    "kill",
    "a worker killed by -9",
    "From os.kill. Kills: a pool of one worker, so that whoever runs the next task is the replacement; a"
    " ProcessPoolExecutor is closed and made anew. Bystanders: two workers, 32 other tasks running and "
    "waiting. A hang is whatever takes over five seconds; medians over rounds of each round's p50 and "
    "p99.",
    (
        _line("its future knows, p50", "told p50", 5),
        _line("its future knows, p99", "told p99", 5),
        _line("a replacement has run a task, p50", "replaced p50", 10),
        _line("a replacement has run a task, p99", "replaced p99", 10),
        _line("its future knows, greatest", "told greatest"),
        _line("a replacement has run a task, greatest", "replaced greatest"),
        Line(
            "other tasks harmed, of 32 for each kill",
            "tasks",
            BYSTANDERS,
            "harmed each",
            at_most(0),
            HARMED,
        ),
    ),
    also=_hangs,
)
