"""`Store.run_all`: which jobs may run side by side, and how they do."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import JournalError
from ropewalk.state._job_parts import Elsewhere, Outcome, Outcomes, SideBySide, Taken, run_job
from ropewalk.state._prepared import named
from ropewalk.state._remote import closed_error, runs_elsewhere
from ropewalk.state._slots import Slots, commuting_slots, slots as slots_of
from ropewalk.state._task import Task, bound

if TYPE_CHECKING:
    from ropewalk.state._store import Store


def run_all(store: Store[Any], jobs: Iterable[Any]) -> list[Any]:
    """Runs jobs as `Store.run_all` says."""
    taken = _taken(jobs)
    if not taken:
        return []
    if store.closed:
        # Its pool may be closed too, and is not the reason.
        raise closed_error()
    claim = store._held.claim
    if claim:
        store._check_free()
    tasks = {id(task): task for task, _, _ in taken}
    # A job that cannot be run at all is found before the first one runs.
    prepared = _prepared(store, taken)
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
    taken: list[Taken],
    parts: list[list[int]],
    outcomes: Outcomes,
    claim: int,
) -> tuple[int, BaseException] | None:
    """Runs jobs; returns the one that has failed and its exception, unless it raises that."""
    if not parts:
        # One after the other in this thread.
        ended = outcomes.part(range(len(taken)))
        for outcomes.at, job in enumerate(taken):
            run_job(store, prepared[id(job[0])], job, claim, ended)
        return None
    executor = store._pool
    # A worker's commit would wait for the claim of this thread, which waits for the worker.
    if executor is not None and not claim and runs_elsewhere(executor):
        return Elsewhere(store, executor, taken, outcomes).run(parts)
    return SideBySide(store, prepared, taken, outcomes, claim).run(parts)


def _taken(jobs: Any) -> list[Taken]:
    if isinstance(jobs, (Task, partial)):
        raise TypeError(f"run_all takes a list of jobs: write run_all([{jobs!r}])")
    every = list(jobs)
    # One job as it would stand in the list, such as run_all((pay, "ann")), is the likely meaning of such a tuple.
    is_one = (
        isinstance(jobs, tuple) and callable(every[0]) and not all(map(_is_job, every)) if every else False
    )
    return [_job(index, job, is_one) for index, job in enumerate(every)]


def _shown(job: object) -> str:
    return reprlib.repr(job)


def _is_job(job: Any) -> bool:
    return callable(job) or isinstance(job, tuple)


def _job(index: int, job: Any, is_one: bool) -> Taken:
    # Compared by class, so that type checkers do not narrow the type of `job`.
    kind = cast("Any", type(job))
    parts: tuple[Any, ...] = job if issubclass(kind, tuple) else (job,)
    if not parts or not callable(parts[0]):
        hint = ""
        if is_one:
            hint = ". The only job of a run is in a list too: [(task, argument)]"
        elif kind is list:
            hint = ". Write a tuple"
        raise TypeError(
            f"job {index} of run_all is {_shown(job)}. A job is a task, a functools.partial of one "
            f"that gives arguments by name, or a tuple of a task and its arguments{hint}"
        )
    try:
        task, names = bound(parts[0])
    except TypeError as error:
        error.add_note(_unfit(index, parts[0]))
        raise
    return task, parts[1:], names


def _prepared(store: Store[Any], taken: list[Taken]) -> dict[int, Any]:
    """Returns the tasks of jobs, ready for the store, by their identities."""
    found: dict[int, Any] = {}
    for index, (task, _, _) in enumerate(taken):
        if id(task) not in found:
            try:
                found[id(task)] = store._ready(task)
            except Exception as error:
                error.add_note(_unfit(index, task))
                raise
    return found


def _unfit(index: int, task: Any) -> str:
    return f"run_all: job {index}, of the task {named(task)}, cannot be run; no job has begun"


def _is_declared(task: Any) -> bool:
    return isinstance(task, Task) and task.contract is not None and task.strict is True


def _parts(store: Store[Any], tasks: dict[int, Any], taken: list[Taken]) -> list[list[int]]:
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
    for number, (task, _, _) in enumerate(taken):
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
