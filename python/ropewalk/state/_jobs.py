"""`Store.run_all`: which jobs may run side by side, and how they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import JournalError
from ropewalk.state._job_parts import Elsewhere, Job, Outcome, Outcomes, SideBySide, run_job
from ropewalk.state._remote import runs_elsewhere
from ropewalk.state._slots import Slots, commuting_slots, slots as slots_of
from ropewalk.state._task import Task

if TYPE_CHECKING:
    from ropewalk.state._store import Store


def run_all(store: Store[Any], jobs: Iterable[Any]) -> list[Any]:
    """Runs jobs as `Store.run_all` says."""
    taken = [_job(job) for job in jobs]
    if not taken:
        return []
    claim = store._held.claim
    if claim:
        store._check_free()
    tasks = {id(task): task for task, _ in taken}
    # A job that cannot be run at all is found before the first one runs.
    prepared = {number: store._ready(task) for number, task in tasks.items()}
    # Only tasks whose contract is enforced: others may touch everything.
    is_known = len(tasks) > 1 and all(map(_is_declared, tasks.values()))
    parts = _parts(store, tasks, taken) if is_known else []
    outcomes = Outcomes(len(taken))
    try:
        try:
            failure = _run(store, prepared, taken, parts, outcomes, claim)
        finally:
            _settle(store, outcomes)
        if failure is None:
            return [result for result, _ in cast("list[Outcome]", outcomes.all())]
        outcomes.at = failure[0]
        try:
            raise failure[1]
        finally:
            # The exception refers to this frame.
            del failure
    except BaseException as error:
        if not outcomes.is_noted:
            error.add_note(_note(error, outcomes))
        raise


def _run(
    store: Store[Any],
    prepared: dict[int, Any],
    taken: list[Job],
    parts: list[list[int]],
    outcomes: Outcomes,
    claim: int,
) -> tuple[int, BaseException] | None:
    """Runs jobs; returns the one that has failed and its exception, unless it raises that."""
    if not parts:
        # One after the other in this thread.
        ended = outcomes.part(range(len(taken)))
        for outcomes.at, (task, args) in enumerate(taken):
            run_job(store, prepared[id(task)], args, claim, ended)
        return None
    executor = store._pool
    # A worker's commit would wait for the claim of this thread, which waits for the worker.
    if executor is not None and not claim and runs_elsewhere(executor):
        return Elsewhere(store, executor, taken, outcomes).run(parts)
    return SideBySide(store, prepared, taken, outcomes, claim).run(parts)


def _job(job: Any) -> Job:
    if not isinstance(job, tuple):
        return job, ()
    parts: tuple[Any, ...] = cast("Any", job)
    if not parts:
        raise TypeError("a job is a task, or a tuple of a task and its arguments, and not ()")
    return parts[0], parts[1:]


def _is_declared(task: Any) -> bool:
    return isinstance(task, Task) and task.contract is not None and task.strict is True


def _parts(store: Store[Any], tasks: dict[int, Any], taken: list[Job]) -> list[list[int]]:
    """The numbers of jobs in parts that do not meet, each in the order of the jobs; nothing if all are one part.

    Tasks are the nodes of a graph whose edges are conflicts; a part is all jobs of a connected component. Whether a
    task conflicts with one of a component is seen from what the component touches in all.
    """
    commuting = commuting_slots(store._shape)
    components: list[tuple[int, int, list[int]]] = []
    for number, task in tasks.items():
        slots = store._task_slots.get(task)
        if slots is None:
            slots = store._task_slots[task] = slots_of(task.contract, store._shape)
        reads, writes = slots
        members, apart = [number], list[tuple[int, int, list[int]]]()
        for one in components:
            if _meet(slots, Slots(*one[:2]), commuting):
                reads, writes = reads | one[0], writes | one[1]
                members += one[2]
            else:
                apart.append(one)
        components = [*apart, (reads, writes, members)]
    if len(components) == 1:
        return []
    part_of = {number: place for place, (_, _, members) in enumerate(components) for number in members}
    parts: list[list[int]] = [[] for _ in components]
    for number, (task, _) in enumerate(taken):
        parts[part_of[id(task)]].append(number)
    # A part with more to do begins first.
    return sorted(parts, key=len, reverse=True)


def _meet(one: Slots, other: Slots, commuting: int) -> bool:
    return bool(
        one.writes & other.reads or one.reads & other.writes or one.writes & other.writes & ~commuting
    )


def _settle(store: Store[Any], outcomes: Outcomes) -> None:
    """Waits for the disk, once for each epoch: a disk that fails takes back the commits before, and no later ones."""
    newest: dict[int, tuple[int, int]] = {}
    every = outcomes.all()
    for outcome in every:
        if outcome is None or (done := outcome[1]) is None:
            continue
        version, epoch = done
        if epoch not in newest or newest[epoch][0] < version:
            newest[epoch] = done
    failures: list[JournalError] = []
    for done in newest.values():
        try:
            store._settle(done)
        except JournalError as error:
            failures.append(error)
    if failures:
        kept = [number for number, outcome in enumerate(every) if _is_durable(store, outcome)]
        try:
            failures[0].add_note(f"run_all: on the disk are {_jobs(kept)} of {len(every)}")
            outcomes.is_noted = True
            raise failures[0]
        finally:
            # The exception refers to this frame.
            failures.clear()


def _is_durable(store: Store[Any], outcome: Outcome | None) -> bool:
    if outcome is None or outcome[1] is None:
        return False
    try:
        store._wait(*outcome[1])
    except JournalError:
        return False
    return True


def _note(error: BaseException, outcomes: Outcomes) -> str:
    """Returns what is to be said of the jobs when an exception ends them."""
    if not outcomes.have_begun:
        return "run_all: no job has begun"
    every, at = outcomes.all(), outcomes.at
    ended = _jobs([number for number, outcome in enumerate(every) if outcome is not None])
    # An interrupt may have come between two jobs.
    if at is None or every[at] is not None or isinstance(error, KeyboardInterrupt):
        return f"run_all: ended are {ended} of {len(every)}, counted from 0"
    return f"run_all: job {at} of {len(every)} has raised this; ended are {ended}, counted from 0"


def _jobs(numbers: list[int]) -> str:
    return f"jobs {_ranges(numbers)}" if numbers else "no jobs"


def _ranges(numbers: list[int]) -> str:
    """Numbers in order as text: ``0-3, 5``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
