"""What a journal says of its runs: every record, applied in its order.

`Flows` keeps one, and applies each record that it writes; the command line makes one from a file that it only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, cast

from ropewalk._errors import NotAJournal
from ropewalk.flows._packed import file_of, is_large
from ropewalk.flows._records import NO_KEY, TITLE, Entry, Kind, decoded
from ropewalk.journal import read

#: What a step is: a call, a part of a `step.map`, a sleep, a wait for an event, an effect of the flow itself.
Form = Literal["call", "map", "sleep", "event", "effect"]
StepState = Literal["running", "finished", "failed"]
#: What the journal knows; a run that has not ended is `"running"` there.
State = Literal["running", "succeeded", "failed", "cancelled"]


@dataclass(slots=True)
class Step:
    """A step of a run."""

    key: bytes
    name: str
    form: Form
    state: StepState
    began: float
    ended: float | None = None
    attempts: int = 0
    #: Until when it sleeps, or waits for its event.
    until: float | None = None
    #: The packed result, or the packed error.
    outcome: bytes = b""
    #: The packed effects; empty if there are none.
    effects: bytes = b""
    error: str = ""


@dataclass(slots=True)
class Effects:
    """The effects of a step that are not all delivered."""

    step: bytes
    #: How many there are, in four bytes, and then the packed list of them.
    packed: bytes
    delivered: int = 0
    #: The last failed delivery.
    error: str = ""
    failures: int = 0

    @property
    def count(self) -> int:
        """How many effects the step has."""
        return int.from_bytes(self.packed[:4], "little")


@dataclass(slots=True)
class RunHistory:
    """A run, as far as the journal knows it."""

    number: int
    id: str
    flow: str
    code: bytes
    arguments_key: bytes
    arguments: bytes
    began: float
    forked_from: str = ""
    state: State = "running"
    ended: float | None = None
    #: The packed result, or the packed error.
    outcome: bytes = b""
    error: str = ""
    #: By their keys, in the order in which they began.
    steps: dict[bytes, Step] = field(default_factory=dict[bytes, Step])
    #: By the keys of their steps, in the order of their commits.
    effects: dict[bytes, Effects] = field(default_factory=dict[bytes, Effects])
    finished_steps: int = 0
    delivered: int = 0


class History:
    """All runs and events of a journal.

    With ``lean`` the steps of runs that have succeeded are dropped, since nothing asks for them again but a fork.
    """

    def __init__(self, *, lean: bool = False) -> None:
        self._lean = lean
        self.runs: dict[str, RunHistory] = {}
        self._numbered: dict[int, RunHistory] = {}
        #: The packed values of events by their names, in the order in which they came.
        self.events: dict[str, list[bytes]] = {}
        #: Requests up to this number were served.
        self.served = 0
        self.refused: list[tuple[float, str, str]] = []
        self.next_number = 1
        #: Steps of a fork, which stand before its start.
        self._early: dict[int, list[Entry]] = {}

    def apply(self, entry: Entry) -> None:
        """Applies a record."""
        self.served = max(self.served, entry.request)
        self.next_number = max(self.next_number, entry.run + 1)
        kind = entry.kind
        if kind is Kind.STARTED:
            self._start(entry)
        elif kind is Kind.EVENT:
            self.events.setdefault(entry.text(0), []).append(entry.fields[1])
        elif kind is Kind.REFUSED:
            self.refused.append((entry.time, entry.text(0), entry.text(1)))
        elif kind is not Kind.SERVED:
            run = self._numbered.get(entry.run)
            if run is None:
                self._early.setdefault(entry.run, []).append(entry)
            else:
                _APPLY[kind](run, entry)
                if self._lean and run.state == "succeeded":
                    run.steps.clear()

    def numbered(self, number: int) -> RunHistory | None:
        """Returns the run of a number."""
        return self._numbered.get(number)

    def add(self, run: RunHistory) -> None:
        """Adds a run."""
        self.runs[run.id] = self._numbered[run.number] = run

    def forget(self, ids: Iterable[str]) -> None:
        """Forgets runs."""
        for name in ids:
            run = self.runs.pop(name)
            del self._numbered[run.number]

    def _start(self, entry: Entry) -> None:
        self.add(started(entry))
        for early in self._early.pop(entry.run, ()):
            self.apply(early)


def started(entry: Entry) -> RunHistory:
    """Returns the run that a record has started."""
    _, _, code, arguments_key, arguments, _ = entry.fields
    return RunHistory(
        entry.run,
        entry.text(0),
        entry.text(1),
        code,
        arguments_key,
        arguments,
        entry.time,
        entry.text(5),
    )


def _began(run: RunHistory, entry: Entry) -> None:
    until = float(entry.fields[2]) if entry.fields[2] else None
    run.steps[entry.key] = Step(
        entry.key, entry.text(0), cast("Form", entry.text(1)), "running", entry.time, until=until
    )


def _ended_step(run: RunHistory, entry: Entry) -> Step:
    step = run.steps.get(entry.key)
    if step is None:
        step = Step(entry.key, entry.text(0), cast("Form", entry.text(1)), "running", entry.time)
        run.steps[entry.key] = step
    step.ended = entry.time
    step.attempts = int(entry.fields[4] or b"1")
    return step


def _finished(run: RunHistory, entry: Entry) -> None:
    step = _ended_step(run, entry)
    step.state, step.outcome, step.effects = "finished", entry.fields[2], entry.fields[3]
    run.finished_steps += 1
    if step.effects:
        run.effects[step.key] = Effects(step.key, step.effects)


def _failed(run: RunHistory, entry: Entry) -> None:
    step = _ended_step(run, entry)
    step.state, step.error, step.outcome = "failed", entry.text(2), entry.fields[3]


def _delivered(run: RunHistory, entry: Entry) -> None:
    effects = run.effects.get(entry.key)
    if effects is None:
        return
    run.delivered += 1
    effects.delivered += 1
    effects.error, effects.failures = "", 0
    if effects.delivered >= effects.count:
        del run.effects[entry.key]


def _undelivered(run: RunHistory, entry: Entry) -> None:
    effects = run.effects.get(entry.key)
    if effects is not None:
        effects.error = entry.text(0)
        effects.failures += 1


def _ended(run: RunHistory, entry: Entry) -> None:
    run.state = cast("State", entry.text(0))
    run.outcome, run.error, run.ended = entry.fields[1], entry.text(2), entry.time


def _retried(run: RunHistory, _: Entry) -> None:
    run.state, run.outcome, run.error, run.ended = "running", b"", "", None
    for key in [key for key, step in run.steps.items() if step.state == "failed"]:
        del run.steps[key]


def _restarted(run: RunHistory, entry: Entry) -> None:
    _retried(run, entry)
    run.steps.clear()
    run.finished_steps = 0
    run.code = entry.fields[0]


def _recoded(run: RunHistory, entry: Entry) -> None:
    run.code = entry.fields[0]


_APPLY = {
    Kind.BEGAN: _began,
    Kind.FINISHED: _finished,
    Kind.FAILED: _failed,
    Kind.DELIVERED: _delivered,
    Kind.UNDELIVERED: _undelivered,
    Kind.ENDED: _ended,
    Kind.RETRIED: _retried,
    Kind.RESTARTED: _restarted,
    Kind.RECODED: _recoded,
}


def entries(path: str, upto: int | None = None) -> Iterator[Entry]:
    """Yields the records of a journal of flows, those up to a number if there is one.

    Raises:
        NotAJournal: the file is another journal.
        JournalError: it cannot be read.
    """
    records = read(path)
    for record in islice(records, 1):
        if record.payload != TITLE:
            raise NotAJournal(f"{path} is a journal, but not of flows")
    for record in records:
        if upto is not None and record.sequence > upto:
            return
        try:
            yield decoded(record.payload)
        except ValueError as error:
            raise NotAJournal(
                f"record {record.sequence} of {path} is none of this version of ropewalk.flows: {error}"
            ) from error


def first_step(run: RunHistory, given: str) -> Step | None:
    """Returns the first step of a name, or the one whose key begins so; a name may look like the beginning of a key."""
    steps = run.steps.values()
    named = next((step for step in steps if step.name == given), None)
    if named is None and given:
        return next((step for step in steps if step.key.hex().startswith(given)), None)
    return named


def files_of(entry: Entry) -> Iterator[str]:
    """Yields the names of the files in which a record's values are."""
    fields: tuple[bytes, ...] = ()
    if entry.kind is Kind.STARTED:
        fields = entry.fields[4:5]
    elif entry.kind is Kind.FINISHED:
        # The effects stand behind their number.
        fields = entry.fields[2], entry.fields[3][4:]
    elif entry.kind is Kind.ENDED:
        fields = entry.fields[1:2]
    yield from (file_of(field) for field in fields if is_large(field))


def history_of(path: str, *, lean: bool = False) -> History:
    """Returns what the journal at a path says.

    Raises:
        NotAJournal: the file is another journal.
        JournalError: it cannot be read.
    """
    history = History(lean=lean)
    for entry in entries(path):
        try:
            history.apply(entry)
        except ValueError as error:
            raise NotAJournal(
                f"{path} has a record of {entry.kind.name} that is none of this version: {error}"
            ) from error
    return history


__all__ = [
    "NO_KEY",
    "Effects",
    "Form",
    "History",
    "RunHistory",
    "State",
    "Step",
    "StepState",
    "entries",
    "files_of",
    "first_step",
    "history_of",
    "started",
]
