"""Rows: killed workers, cancelled tasks, time limits."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import _peers
import _workloads
from _measure import Case, Options, Outcome, Sample, percentile
from _rendezvous import Rendezvous
from _report import Figure, at_most, figure
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXECUTOR = "ProcessPoolExecutor fork"
PATIENCE = 5.0
"""Seconds after which something that has not ended is called a hang."""
LIMIT = 0.2
"""The time limit of the tasks that overrun theirs."""
FOREVER = 60.0


def kills(peer: str, kills: int) -> dict[str, float]:
    """Kill the only worker at its task, again and again: when did its future know, and a replacement run?

    An executor that breaks is closed and made anew, as its user would have to.
    """
    contestant_type = _peers.ALL[peer]
    contestant, meeting = contestant_type(1, ("_workloads",)), Rendezvous()
    contestant.call(_workloads.nothing)
    told, replaced, hangs = list[float](), list[float](), 0
    for _ in range(kills):
        victim = contestant.submit(_workloads.sleep_after_announcing, meeting.bell, FOREVER)
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
                contestant = contestant_type(1, ("_workloads",))
            contestant.submit(_workloads.nothing).result(PATIENCE)
            replaced.append(time.perf_counter() - began)
        except TimeoutError:
            hangs += 1
            contestant = contestant_type(1, ("_workloads",))
            contestant.call(_workloads.nothing)
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
    contestant_type = _peers.ALL[peer]
    contestant, meeting = contestant_type(2, ("_workloads",)), Rendezvous()
    contestant.call(_workloads.nothing)
    harmed = hangs = 0
    for turn in range(kills):
        victim = contestant.submit(_workloads.sleep_after_announcing, meeting.bell, FOREVER)
        (pid,) = meeting.await_pids(1)
        others = [contestant.submit(_workloads.increment, number) for number in range(32)]
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
            contestant = contestant_type(2, ("_workloads",))
    contestant.close()
    meeting.close()
    return {"harmed each": harmed / kills, "hangs": hangs, "kills": kills}


def cancelling(peer: str, repeats: int) -> dict[str, float]:
    """Cancel the running task of the only worker: milliseconds until the next task has run in its place."""
    contestant: Any = _peers.ALL[peer](1, ("_workloads",))
    meeting = Rendezvous()
    contestant.call(_workloads.nothing)
    times: dict[str, list[float]] = {"spinning": [], "sleeping": []}
    for kind, function in (
        ("spinning", _workloads.spin_after_announcing),
        ("sleeping", _workloads.sleep_after_announcing),
    ):
        for _ in range(repeats):
            running = contestant.submit(function, meeting.bell, FOREVER)
            meeting.await_pids(1)
            began = time.perf_counter()
            stopped = running.cancel(running=True) if peer == "ropewalk" else running.cancel()
            contestant.submit(_workloads.nothing).result(PATIENCE)
            times[kind].append(time.perf_counter() - began)
            try:
                running.result(PATIENCE)
                stopped = False
            except CancelledError:
                pass
            if not stopped:
                raise RuntimeError("a running task was not cancelled")
    contestant.close()
    meeting.close()
    return {kind: percentile(values, 0.5) for kind, values in times.items()} | {
        f"{kind} greatest": max(values) for kind, values in times.items()
    }


def limits(peer: str, repeats: int) -> dict[str, float]:
    """Tasks that overrun their limit: how late they were said to have."""
    contestant: Any = _peers.ALL[peer](1, ("_workloads",))
    contestant.call(_workloads.nothing)
    times: dict[str, list[float]] = {"spinning": [], "sleeping": []}
    pool = contestant.pool.options(timeout=LIMIT) if peer == "ropewalk" else contestant.pool
    for kind, function in (("spinning", _workloads.spin), ("sleeping", _workloads.sleep)):
        for _ in range(repeats):
            began = time.perf_counter()
            if peer == "ropewalk":
                late = pool.submit(function, FOREVER)
            else:
                late = pool.schedule(function, args=(FOREVER,), timeout=LIMIT)
            error = late.exception(PATIENCE)
            times[kind].append(time.perf_counter() - began - LIMIT)
            if not isinstance(error, TimeoutError):
                raise RuntimeError(f"an overrun task ended with {error!r}")
            contestant.call(_workloads.nothing)
    contestant.close()
    return {kind: percentile(values, 0.5) for kind, values in times.items()} | {
        f"{kind} greatest": max(values) for kind, values in times.items()
    }


KILL_PEERS = ("ropewalk", "pebble", EXECUTOR)


def _kill_cases(options: Options) -> Sequence[Case]:
    cases = []
    for contest in ("kills", "bystanders"):
        for peer in KILL_PEERS:
            # Ropewalk's kills are spread over the rounds and over both contests; the peers' cost more time.
            count = max(1, options.kills // (2 * options.rounds))
            cases.append(
                Case(
                    f"{peer}, {contest}",
                    f"_rows_faults:{contest}",
                    {"peer": peer, "kills": count if peer == "ropewalk" else min(count, 10)},
                    _peers.needs(peer),
                    timeout=60 + 2.0 * count,
                )
            )
    return cases


def _kill_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    for what, metric, bound in (
        ("its future knows, p50", "told p50", 5),
        ("its future knows, p99", "told p99", 5),
        ("a replacement has run a task, p50", "replaced p50", 10),
        ("a replacement has run a task, p99", "replaced p99", 10),
    ):
        ours = ("ropewalk, kills", metric)
        yield figure(outcomes, what, "ms", ours, scale=1e3, goal=at_most(bound))
        for peer in KILL_PEERS[1:]:
            yield figure(outcomes, what, "ms", ours, (f"{peer}, kills", metric), scale=1e3)
    for metric in ("told greatest", "replaced greatest"):
        yield figure(outcomes, metric, "ms", ("ropewalk, kills", metric), scale=1e3)
    contests = [outcomes[f"ropewalk, {contest}"] for contest in ("kills", "bystanders")]
    count = sum(sum(outcome.values.get("kills", ())) for outcome in contests)
    hangs = [sum(outcome.values["hangs"]) for outcome in contests if "hangs" in outcome.values]
    yield Figure(
        f"hangs in {count:,.0f} kills",
        "hangs",
        Sample((sum(hangs),)) if len(hangs) == len(contests) else None,
        goal=at_most(0),
        trouble="; ".join(outcome.failure for outcome in contests if outcome.failure),
    )
    what, ours = "other tasks harmed, of 32 for each kill", ("ropewalk, bystanders", "harmed each")
    yield figure(outcomes, what, "tasks", ours, goal=at_most(0))
    for peer in KILL_PEERS[1:]:
        yield figure(outcomes, what, "tasks", ours, (f"{peer}, bystanders", "harmed each"))


def _cancel_cases(options: Options) -> Sequence[Case]:
    return [
        Case(
            f"{peer}, {contest}",
            f"_rows_faults:{contest}",
            {"peer": peer, "repeats": options.size(repeats, 1)},
            _peers.needs(peer),
        )
        for contest, repeats in (("cancelling", 10), ("limits", 4))
        for peer in ("ropewalk", "pebble")
    ]


def _cancel_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    for contest, what, bound in (
        ("cancelling", "cancel, the next task has run", 5),
        ("limits", f"a limit of {LIMIT} s, told late by", 10),
    ):
        for kind in ("spinning", "sleeping"):
            ours, theirs = (f"ropewalk, {contest}", kind), (f"pebble, {contest}", kind)
            named = f"{what} ({kind} task)"
            yield figure(outcomes, named, "ms", ours, scale=1e3, goal=at_most(bound))
            yield figure(outcomes, named, "ms", ours, theirs, scale=1e3)
            yield figure(
                outcomes, f"{named}, greatest of a round", "ms", (ours[0], f"{kind} greatest"), scale=1e3
            )


KILL = Row(
    "kill",
    "a worker killed by -9",
    "From os.kill. Kills: a pool of one worker, so that whoever runs the next task is the replacement; a"
    " ProcessPoolExecutor is closed and made anew. Bystanders: two workers, 32 other tasks running and "
    "waiting. A hang is whatever takes over five seconds; medians over rounds of each round's p50 and "
    "p99.",
    _kill_cases,
    _kill_figures,
)
CANCEL = Row(
    "cancel",
    "ending a running task, 1 worker",
    "Cancel: from the call until another task has run in the freed slot. Limit: from submit until the "
    "future says TimeoutError, less the limit; no other task waits.",
    _cancel_cases,
    _cancel_figures,
)
