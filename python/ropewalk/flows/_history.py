"""What a journal says of its runs: every record, applied in its order.

`Flows` keeps one, and applies each record that it writes; the command line makes one from a file that it only reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, cast

from ropewalk._errors import NotAJournal
from ropewalk._keys import key_of
from ropewalk.flows._packed import file_of, is_large
from ropewalk.flows._records import FILE, NO_KEY, TITLE, Entry, Kind, decoded, tries_of
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
    #: Which event of its name it has received.
    position: int = 0


@dataclass(slots=True)
class Effects:
    """The effects of a step that are not all delivered."""

    step: bytes
    #: How many there are, in four bytes, and then the packed list of them.
    packed: bytes
    #: That of the run when the step was recorded.
    nonce: bytes
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
    #: What sets the run apart from all others, also from an earlier one of the same id, and from itself before it was
    #: begun anew: the keys that services get are made of it.
    nonce: bytes = b""
    #: By their keys, in the order in which they began.
    steps: dict[bytes, Step] = field(default_factory=dict[bytes, Step])
    #: In the order of their commits.
    effects: list[Effects] = field(default_factory=list["Effects"])
    #: How many finished steps were dropped from memory.
    dropped_steps: int = 0
    delivered: int = 0

    @property
    def finished_steps(self) -> int:
        """How many steps have finished."""
        return self.dropped_steps + sum(step.state == "finished" for step in list(self.steps.values()))


@dataclass(slots=True)
class Events:
    """The events of a name."""

    #: How many were forgotten, which is the position of the first that is there.
    first: int = 0
    #: In the order in which they came: the number of the run that an event is for, 0 for all, and its packed value.
    values: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    #: The positions of the events for a run, or for all: of one name there may be an event for each of many runs.
    _places: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def append(self, run: int, packed: bytes) -> None:
        """Adds an event for a run, or for all."""
        self._places.setdefault(run, []).append(self.first + len(self.values))
        self.values.append((run, packed))

    def after(self, position: int, run: int) -> tuple[int, bytes] | None:
        """Returns the first event for a run from a position on: its position, and its packed value."""
        found: list[int] = []
        for places in (self._places.get(0, ()), self._places.get(run, ())):
            index = bisect_left(places, position)
            found += places[index : index + 1]
        return (min(found), self.values[min(found) - self.first][1]) if found else None

    def forget(self, count: int, runs: Container[int]) -> None:
        """Forgets so many events, from the first on, and the values of those for some runs."""
        self.first += count
        kept = self.values[count:]
        self.values, self._places = [], {}
        for run, packed in kept:
            self.append(run, b"" if run in runs else packed)


#: So many refused requests are kept in memory; the journal has all until it is compacted.
_REFUSED = 100


class History:
    """All runs and events of a journal.

    With ``lean`` the steps of runs that have succeeded are dropped, since nothing asks for them again but a fork.
    """

    def __init__(self, *, lean: bool = False) -> None:
        self._lean = lean
        self.runs: dict[str, RunHistory] = {}
        self._numbered: dict[int, RunHistory] = {}
        #: By their names.
        self.events: dict[str, Events] = {}
        #: The numbers of the last requests that were served, by the files in which they stood.
        self.served: dict[int, int] = {}
        #: The last requests that were refused: when, what, and why.
        self.refused: deque[tuple[float, str, str]] = deque(maxlen=_REFUSED)
        self.next_number = 1
        #: Steps of a fork, which stand before its start.
        self._early: dict[int, list[Entry]] = {}

    def apply(self, entry: Entry) -> None:
        """Applies a record."""
        # Without a lock the threads of runs apply the ends of their steps, which change neither number.
        if entry.request:
            file, number = divmod(entry.request, FILE)
            self.served[file] = max(number, self.served.get(file, 0))
        if entry.run >= self.next_number:
            self.next_number = entry.run + 1
        kind = entry.kind
        if kind is Kind.STARTED:
            self._start(entry)
        elif kind is Kind.EVENT:
            self.events.setdefault(entry.text(0), Events()).append(entry.run, entry.fields[1])
        elif kind is Kind.FORGOTTEN:
            self.events.setdefault(entry.text(0), Events()).first = int(entry.fields[1])
        elif kind is Kind.REFUSED:
            self.refused.append((entry.time, entry.text(0), entry.text(1)))
        elif kind is not Kind.SERVED:
            run = self._numbered.get(entry.run)
            if run is None:
                self._early.setdefault(entry.run, []).append(entry)
            else:
                _APPLY[kind](run, entry)
                if self._lean and run.state == "succeeded" and run.steps:
                    run.dropped_steps = run.finished_steps
                    run.steps.clear()

    def numbered(self, number: int) -> RunHistory | None:
        """Returns the run of a number."""
        return self._numbered.get(number)

    def add(self, run: RunHistory) -> None:
        """Adds a run, in the place of one that has its id or its number: no journal of ours has either twice."""
        other = self.runs.pop(run.id, None)
        if other is not None:
            self._numbered.pop(other.number, None)
        other = self._numbered.pop(run.number, None)
        if other is not None:
            self.runs.pop(other.id, None)
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
        nonce=key_of(("run", entry.text(0), entry.run, entry.time)),
    )


def begun_step(entry: Entry) -> Step:
    """Returns the step whose begin a record says."""
    until = float(entry.fields[2]) if entry.fields[2] else None
    return Step(entry.key, entry.text(0), cast("Form", entry.text(1)), "running", entry.time, until=until)


def _began(run: RunHistory, entry: Entry) -> None:
    known = run.steps.get(entry.key)
    if known is not None and known.state != "running":
        return  # It had ended when its begin was written.
    run.steps[entry.key] = begun_step(entry)


def _ended_step(run: RunHistory, entry: Entry) -> Step:
    attempts, began = tries_of(entry.fields[4])
    step = run.steps.get(entry.key)
    if step is None:
        step = Step(entry.key, entry.text(0), cast("Form", entry.text(1)), "running", began)
        run.steps[entry.key] = step
    step.ended = entry.time
    step.attempts = attempts
    return step


def _finished(run: RunHistory, entry: Entry) -> None:
    step = _ended_step(run, entry)
    step.state, step.outcome, step.effects = "finished", entry.fields[2], entry.fields[3]
    if step.form == "event":
        step.position, step.effects = int.from_bytes(step.effects, "little"), b""
    elif step.effects:
        run.effects.append(Effects(step.key, step.effects, run.nonce))


def _failed(run: RunHistory, entry: Entry) -> None:
    step = _ended_step(run, entry)
    step.state, step.error, step.outcome = "failed", entry.text(2), entry.fields[3]


def _pending(run: RunHistory, step: bytes) -> Effects | None:
    """Returns the first effects of a step that are not delivered: those of a run that was begun anew come first."""
    return next((effects for effects in run.effects if effects.step == step), None)


def _delivered(run: RunHistory, entry: Entry) -> None:
    effects = _pending(run, entry.key)
    if effects is None:
        return
    run.delivered += 1
    effects.delivered += 1
    effects.error, effects.failures = "", 0
    if effects.delivered >= effects.count:
        run.effects.remove(effects)


def _undelivered(run: RunHistory, entry: Entry) -> None:
    effects = _pending(run, entry.key)
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
    run.dropped_steps = 0
    run.code = entry.fields[0]
    run.nonce = key_of(("again", run.nonce, entry.time))


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
