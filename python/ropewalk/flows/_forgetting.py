"""Forgetting: a compaction of the journal that leaves out runs that have ended, and old events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk._errors import FlowError
from ropewalk.flows._changes import whole
from ropewalk.flows._history import entries, files_of
from ropewalk.flows._records import FILE, TITLE, Entry, Kind, encoded, made

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine


@whole
def forget(engine: Engine, chosen: list[str], events_before: float | None) -> None:
    """Removes runs that have ended from the journal, the files of their results, and events from before a time."""
    with engine.forgetting:
        engine.check_owner()
        with engine.lock:
            engine.check_open()
            kept = _Kept(engine, set(chosen), events_before)
            # What others append from here on stays behind the compacted records, and is not to be among them too.
            upto = engine.journal.last
        with engine.packer.fresh() as files:
            # Also what nobody has waited for yet: the file has it then.
            engine.journal.sync()
            for entry in entries(engine.path, upto):
                if kept.takes(entry):
                    files.update(files_of(entry))
            with engine.lock:
                kept.compact(upto)
            for entry in entries(engine.path):
                files.update(files_of(entry))
            engine.packer.remove_all_but(files)


class _Kept:
    """What stays of a journal. The engine's lock is held while it is made, and while it compacts."""

    def __init__(self, engine: Engine, gone: set[str], events_before: float | None) -> None:
        self._engine = engine
        self._gone = gone
        self._events_before = events_before
        history = engine.history
        self._numbers = {engine.runs[name]._history.number for name in gone}
        self._served = dict(history.served)
        #: How many events of a name are forgotten, since the first.
        self._forgotten = {name: events.first for name, events in history.events.items()}
        #: Names of which a later event is kept: what comes behind that is kept too, whatever its time.
        self._later: set[str] = set()
        #: How many events of a name this call forgets.
        self._counts: dict[str, int] = {}
        self._records: list[bytes] = []

    def takes(self, entry: Entry) -> bool:
        """Takes a record, unless it is to be forgotten; returns whether it was taken."""
        if entry.kind in (Kind.SERVED, Kind.REFUSED, Kind.FORGOTTEN):
            return False
        if entry.kind is not Kind.EVENT:
            if entry.run in self._numbers:
                return False
        else:
            name = entry.text(0)
            before = self._events_before
            if before is not None and entry.time < before and name not in self._later:
                self._forgotten[name] += 1
                self._counts[name] = self._counts.get(name, 0) + 1
                return False
            self._later.add(name)
            if entry.run in self._numbers:
                # Without its value, which nobody receives; its place counts for the runs that go on.
                entry = entry._replace(fields=(entry.fields[0], b""))
        self._records.append(encoded(entry))
        return True

    def compact(self, upto: int) -> None:
        """Puts what was taken into the place of all records up to a number, and forgets the rest in memory too."""
        engine = self._engine
        history = engine.history
        # Of names whose events are all forgotten only runs that go on have to know how many there were.
        received = {
            step.name
            for run in history.runs.values()
            if run.number not in self._numbers
            for step in run.steps.values()
            if step.form == "event"
        }
        forgotten = {
            name: first
            for name, first in self._forgotten.items()
            if first and (name in self._later or name in received)
        }
        for name in self._gone:
            if engine.runs[name]._history.state == "running":
                raise FlowError(f"the run {name!r} goes on again")
        head = [made(Kind.SERVED, request=file * FILE + number) for file, number in self._served.items()]
        head += [
            made(Kind.FORGOTTEN, 0, name.encode(), str(first).encode()) for name, first in forgotten.items()
        ]
        engine.journal.compact([TITLE, *map(encoded, head), *self._records], upto)
        for name in self._gone:
            del engine.runs[name]
        history.forget(self._gone)
        for name, events in list(history.events.items()):
            events.forget(self._counts.get(name, 0), self._numbers)
            if not events.values and name not in forgotten:
                del history.events[name]
