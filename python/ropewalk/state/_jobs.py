"""`Store.run_all`: which jobs may run side by side, and how they do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ropewalk._errors import JournalError, QueueFull
from ropewalk.state._remote import runs_elsewhere
from ropewalk.state._slots import Slots, commuting_slots, slots as slots_of
from ropewalk.state._task import Task

if TYPE_CHECKING:
    from ropewalk.state._store import Store

#: A task and its arguments.
Job: TypeAlias = tuple[Any, tuple[Any, ...]]
#: What a job returned, and its commit, if it has one.
Outcome: TypeAlias = tuple[Any, tuple[int, int] | None]

_NO_NAMES: dict[str, Any] = {}


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
    if not parts:
        return _in_turn(store, prepared, taken, claim)
    outcomes: list[Outcome | None] = [None] * len(taken)
    executor = store._pool
    run: _Elsewhere | _SideBySide
    # A worker's commit would wait for the claim of this thread, which waits for the worker.
    if executor is not None and not claim and runs_elsewhere(executor):
        run = _Elsewhere(store, executor, taken, outcomes)
    else:
        run = _SideBySide(store, prepared, taken, outcomes, claim)
    try:
        failure = run.run(parts)
    finally:
        _settle(store, outcomes)
    if failure is not None:
        try:
            raise _with_note(failure[1], failure[0], outcomes)
        finally:
            # The exception refers to this frame.
            del failure
    return _results(outcomes)


def _in_turn(store: Store[Any], prepared: dict[int, Any], taken: list[Job], claim: int) -> list[Any]:
    """Runs jobs one after the other in this thread."""
    outcomes: list[Outcome | None] = []
    try:
        for task, args in taken:
            function, rule, meta, _ = one = prepared[id(task)]
            done = store._attempt(function, rule, meta, claim, args, _NO_NAMES)
            outcomes.append(store._again(one, args, _NO_NAMES) if done is None else done)
    except BaseException as error:
        _with_note(error, len(outcomes), [*outcomes, *[None] * (len(taken) - len(outcomes))])
        raise
    finally:
        _settle(store, outcomes)
    return _results(outcomes)


def _results(outcomes: list[Outcome | None]) -> list[Any]:
    return [result for result, _ in cast("list[Outcome]", outcomes)]


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


class _Failures:
    """What jobs have raised."""

    def __init__(self) -> None:
        self._found: list[tuple[int, BaseException]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, number: int, error: BaseException) -> None:
        self._found.append((number, error))

    def first(self) -> tuple[int, BaseException] | None:
        """The one to raise: that of the first job, but an interrupt goes before all errors; the others are dropped."""
        # The frames that the exceptions refer to have this object.
        found, self._found = self._found, []
        return min(found, key=lambda one: (isinstance(one[1], Exception), one[0]), default=None)


class _SideBySide:
    """Parts that run in the calling thread and in those that help it.

    Every thread takes the next part when it has done one. So the caller waits for no thread that has not begun: where
    the pool is full, the caller does everything.
    """

    def __init__(
        self,
        store: Store[Any],
        prepared: dict[int, Any],
        taken: list[Job],
        outcomes: list[Outcome | None],
        claim: int,
    ) -> None:
        self._store = store
        self._prepared = prepared
        self._taken = taken
        self._outcomes = outcomes
        self._claim = claim
        self._todo: deque[tuple[list[int], Context]] = deque()
        self._failures = _Failures()
        #: No further job begins.
        self._is_over = False
        #: Threads that help and have not ended.
        self._helping = 0
        self._changed = threading.Condition()

    def run(self, parts: list[list[int]]) -> tuple[int, BaseException] | None:
        """Runs all; returns the job that has failed and its exception."""
        # In a copy for each part, what a job sets is seen by the later jobs of its part, whichever thread runs them.
        self._todo.extend((part, copy_context()) for part in parts)
        try:
            self._call_for_help(len(parts) - 1)
            self._work()
            self._join()
        except BaseException:
            # Ctrl-C between two jobs, or in the wait. A second one does not wait.
            self._is_over = True
            self._join()
            raise
        return self._failures.first()

    def _call_for_help(self, times: int) -> None:
        executor = self._store._pool
        if executor is None or runs_elsewhere(executor):
            self._store._threads.call(self._help, times)
            return
        submit: Callable[[Callable[[], None]], object] = getattr(executor, "submit_nowait", executor.submit)
        for _ in range(times):
            try:
                submit(self._help)
            except QueueFull:
                return

    def _help(self) -> None:
        with self._changed:
            if self._is_over or not self._todo:
                return
            self._helping += 1
        held = self._store._held
        # The caller's claim is that of all its jobs; this thread may be in a transaction of its own.
        before, held.claim = held.claim, self._claim
        try:
            self._work()
        finally:
            held.claim = before
            with self._changed:
                self._helping -= 1
                self._changed.notify_all()

    def _join(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._helping)

    def _work(self) -> None:
        while not self._is_over:
            try:
                part, context = self._todo.popleft()
            except IndexError:
                return
            context.run(self._run_part, part)

    def _run_part(self, part: list[int]) -> None:
        store, prepared, claim = self._store, self._prepared, self._claim
        for number in part:
            if self._is_over:
                return
            task, args = self._taken[number]
            function, rule, meta, _ = one = prepared[id(task)]
            try:
                done = store._attempt(function, rule, meta, claim, args, _NO_NAMES)
                self._outcomes[number] = store._again(one, args, _NO_NAMES) if done is None else done
            except BaseException as error:
                self._is_over = True
                self._failures.add(number, error)
                return


class _Elsewhere:
    """Parts whose jobs go to worker processes, each once the one before it in its part has committed."""

    def __init__(
        self, store: Store[Any], executor: Executor, taken: list[Job], outcomes: list[Outcome | None]
    ) -> None:
        self._store = store
        self._executor = executor
        self._taken = taken
        self._outcomes = outcomes
        self._failures = _Failures()
        self._going: dict[Future[Any], tuple[int, Iterator[int]]] = {}

    def run(self, parts: list[list[int]]) -> tuple[int, BaseException] | None:
        """Runs all; returns the job that has failed and its exception."""
        try:
            for part in parts:
                self._begin(iter(part))
            while self._going:
                for future in wait(self._going, return_when=FIRST_COMPLETED).done:
                    number, rest = self._going.pop(future)
                    error = future.exception()
                    if error is not None:
                        self._failures.add(number, error)
                        continue
                    # Its commit is on the disk by now.
                    self._outcomes[number] = future.result(), None
                    self._begin(rest)
        except BaseException:
            # Ctrl-C: what a worker has is committed yet.
            wait(self._going)
            raise
        return self._failures.first()

    def _begin(self, rest: Iterator[int]) -> None:
        number = None if self._failures else next(rest, None)
        if number is None:
            return
        task, args = self._taken[number]
        try:
            future = self._store.submit(task, *args)
        except Exception as error:
            self._failures.add(number, error)
        else:
            self._going[future] = number, rest


def _settle(store: Store[Any], outcomes: list[Outcome | None]) -> None:
    """Waits for the disk, once for each epoch: a disk that fails takes back the commits before, and no later ones."""
    newest: dict[int, tuple[int, int]] = {}
    for outcome in outcomes:
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
        kept = [number for number, outcome in enumerate(outcomes) if _is_durable(store, outcome)]
        try:
            failures[0].add_note(f"run_all: on the disk are {_jobs(kept)} of {len(outcomes)}")
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


def _with_note(error: BaseException, number: int, outcomes: list[Outcome | None]) -> BaseException:
    ended = [number for number, outcome in enumerate(outcomes) if outcome is not None]
    error.add_note(
        f"run_all: job {number} of {len(outcomes)} has raised this; ended are {_jobs(ended)}, counted from 0"
    )
    return error


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
