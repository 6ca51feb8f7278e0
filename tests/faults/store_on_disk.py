"""The program of `test_store_on_disk.py`: stores on a disk that fails and loses power, against a model.

A life opens a store, commits in several ways, and ends. Its notes give what a kill or a loss of power may leave after
each step; stores that are opened on that are compared with what was promised by then. The next life goes on with one of
these. Everything comes from the seed, which a failure names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.disk import Disk, Note, Plan, Recorder

from ropewalk._errors import (
    JournalCorrupt,
    JournalError,
    JournalFailed,
    NotAJournal,
    OutOfDisk,
    StateError,
    StoreClosed,
)
from ropewalk.state import AppendOnly, Counter, PMap, PVector, Store, _log

#: The marks: a commit was acknowledged, or refused, or its effect was delivered.
ACKNOWLEDGED, REFUSED, DELIVERED = 1, 2, 3
#: Syncs cost nothing there.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
#: Of these commits the effect fails once.
_UNLUCKY = 5


@dataclass(frozen=True, slots=True)
class State:
    """What the commits leave; all follows from `log`."""

    log: AppendOnly[int]
    hits: Counter
    last: PMap[int, int]


NOTHING: PVector[Any] = PVector()
START = State(NOTHING, 0, PMap())


def key_of(number: int) -> int:
    return number % 4


def of_log(log: tuple[int, ...]) -> State:
    """The state that these commits lead to."""
    last: dict[int, int] = {}
    for number in log:
        last.pop(key_of(number), None)
        if number % 3:
            last[key_of(number)] = number
    return State(PVector(log), len(log), PMap(last))


def has_effect(number: int) -> bool:
    return number % 2 == 0


class Model:
    """What is known of the commits of all lives."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.next = 1
        #: The logs of all versions that there were in this life, and of the one that it began with.
        self.known: set[tuple[int, ...]] = {()}
        #: The same of all lives.
        self.ever: set[tuple[int, ...]] = {()}
        #: Commits of earlier lives that are on the disk for certain.
        self.settled: tuple[int, ...] = ()
        self.keys: dict[int, str] = {}
        self.failed: set[int] = set()
        #: What was delivered in the life or the opening at hand.
        self.delivered: list[int] = []
        self.is_opening = False

    def number(self) -> int:
        self.next += 1
        return self.next - 1

    def look(self, store: Store[State]) -> None:
        """Notes the versions that there are."""
        for version in store.history():
            assert version.number == len(version.state.log), "a version has as many commits"
            self.known.add(tuple(version.state.log))
        self.ever |= self.known


MODEL: Model


def note(number: int, key: str) -> None:
    """The effect of a commit."""
    assert MODEL.keys.setdefault(number, key) == key, f"the effect of {number} has one key"
    if number % _UNLUCKY == 0 and number not in MODEL.failed and not MODEL.is_opening:
        MODEL.failed.add(number)
        raise ValueError("not yet")
    MODEL.delivered.append(number)
    MODEL.recorder.mark(DELIVERED, number)


def add(b: Any, number: int) -> int:
    b.log.append(number)
    b.hits += 1
    if number % 3:
        b.last[key_of(number)] = number
    else:
        b.last.pop(key_of(number), None)
    if has_effect(number):
        b.on_commit(note, number)
    return number


class _Caller(threading.local):
    """What a thread says once its commit waits for the disk."""

    is_committed: threading.Event | None = None


CALLER = _Caller()


class SeenStore(Store[State]):
    """A store whose commits can be seen before they are on the disk."""

    def _settle(self, done: tuple[int, int]) -> None:
        if CALLER.is_committed is not None:
            CALLER.is_committed.set()
        super()._settle(done)


class Life:
    """One program that has the store open."""

    def __init__(self, model: Model, chance: random.Random, plan: Plan) -> None:
        self.model, self.chance, self.plan = model, chance, plan
        self.store: Store[State] | None = None
        self.beside: list[threading.Thread] = []

    def hook(self) -> None:
        """Called before each write and sync: what is under way can be seen, and others may commit on top of it."""
        # A store that was closed meanwhile still writes its last records.
        with contextlib.suppress(StoreClosed):
            self.between(4)

    def check(self, _: State) -> None:
        """Called between the making of a new state and its commit: another commit may come before it."""
        self.between(8)

    def between(self, rarely: int) -> None:
        store = self.store
        if store is None or store.closed:
            return
        self.model.look(store)
        if self.chance.randrange(rarely) == 0 and len(self.beside) < 3:
            number = self.model.number()
            is_committed = threading.Event()
            thread = threading.Thread(target=self.run, args=(number, is_committed))
            thread.start()
            self.beside.append(thread)
            assert is_committed.wait(60)
            self.model.look(store)

    def expect(self, error: JournalError) -> None:
        """An error has its cause in the plan."""
        if self.plan.fail_at:
            return
        assert self.plan.capacity, repr(error)
        assert isinstance(error, (OutOfDisk, JournalFailed)), repr(error)

    def run(self, number: int, is_committed: threading.Event | None = None) -> None:
        assert self.store is not None
        CALLER.is_committed = is_committed
        try:
            self.reported([number], lambda store: store.run(add, number))
        finally:
            if is_committed is not None:
                is_committed.set()

    def reported(self, numbers: list[int], act: Any) -> None:
        """Marks what is promised of these commits."""
        store = self.store
        assert store is not None
        try:
            act(store)
        except StoreClosed:
            # A compaction that went on behind the last step has led here.
            pass
        except JournalError as error:
            for number in numbers:
                self.model.recorder.mark(REFUSED, number)
            self.expect(error)
        else:
            for number in numbers:
                self.model.recorder.mark(ACKNOWLEDGED, number)

    def step(self) -> None:
        """A transaction, or several, or a compaction."""
        choice = self.chance.randrange(10)
        numbers = [self.model.number() for _ in range(1 if choice < 4 else self.chance.randrange(2, 5))]
        assert self.store is not None
        if choice < 4:
            self.run(numbers[0])
        elif choice < 7:
            self.reported(numbers, lambda store: store.run_all([(add, number) for number in numbers]))
        elif choice < 9:

            async def together() -> None:
                store = self.store
                assert store is not None

                async def one(number: int) -> None:
                    try:
                        await store.arun(add, number)
                    except JournalError:
                        self.model.recorder.mark(REFUSED, number)
                    else:
                        self.model.recorder.mark(ACKNOWLEDGED, number)

                await asyncio.gather(*map(one, numbers))

            asyncio.run(together())
        else:
            try:
                self.store.compact()
            except JournalError as error:
                self.expect(error)

    def live(self, path: Path) -> None:
        """Opens the store, and works until the journal has failed, or for some steps."""
        try:
            self.store = SeenStore(START, journal=path, invariants=[self.check])
        except JournalError as error:
            self.expect(error)
            return
        self.model.look(self.store)
        for _ in range(self.chance.randrange(1, 9)):
            self.step()
            self.join()
        self.model.look(self.store)
        try:
            self.store.close()
        except JournalError as error:
            self.expect(error)
        self.join()

    def join(self) -> None:
        while self.beside:
            self.beside.pop().join()


def check(
    model: Model, files: dict[str, bytes], notes: list[Note], before: set[int], *, lies: bool
) -> tuple[int, ...] | None:
    """Opens a store on what a crash has left, and compares it with what the notes before it promise."""
    marks: dict[int, set[int]] = {ACKNOWLEDGED: set(model.settled), REFUSED: set(), DELIVERED: set()}
    for one in notes:
        if one.kind == "m":
            marks[one.file].add(one.at)
    delivered = before | marks[DELIVERED]
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
            (Path(folder) / name).chmod(0o600)
        model.delivered, model.is_opening = [], True
        try:
            store = Store(START, journal=Path(folder) / "journal")
        except (JournalCorrupt, NotAJournal, StateError):
            assert lies, "only a disk that lies leaves what cannot be read"
            return None
        finally:
            model.is_opening = False
        with store:
            log = tuple(store.snapshot().log)
            assert store.snapshot() == of_log(log), f"the parts of the state are not of one version: {log}"
            assert store.version == len(log)
            redelivered = set(model.delivered)
    # What a disk that lies has kept may be as old as it likes.
    assert log in (model.ever if lies else model.known), f"{log} was never a version"
    if not lies:
        lost = marks[ACKNOWLEDGED] - set(log)
        assert not lost, f"{sorted(lost)} were acknowledged and are lost: {log}"
        early = marks[DELIVERED] - set(log)
        assert not early, f"the effects of {sorted(early)} were delivered, and the commits are lost: {log}"
    due = {number for number in log if has_effect(number)} - delivered - redelivered
    assert not due, f"the effects of {sorted(due)} are not delivered: {log}"
    assert redelivered <= set(log), f"effects without commits: {sorted(redelivered - set(log))}"
    return log


def lives(recorder: Recorder, seed: int) -> int:
    """Some lives, one after the other on one disk; returns how many crashes were tried."""
    global MODEL
    chance = random.Random(seed)
    model = MODEL = Model(recorder)
    files: dict[str, bytes] = {}
    delivered: set[int] = set()
    crashes = 0
    for _ in range(3):
        trouble = chance.randrange(4)
        size = len(files.get("journal", b"").rstrip(b"\0"))
        plan = Plan(
            fail_at=chance.randrange(1, 80) if trouble == 1 else 0,
            capacity=size + chance.randrange(64, 3000) if trouble == 2 else 0,
            short=chance.randrange(3) == 0,
            bare=chance.randrange(2),
        )
        with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
                (Path(folder) / name).chmod(0o600)
            life = Life(model, chance, plan)
            recorder.begin(Path(folder), "journal" if files else "", plan, seed + 1, life.hook)
            try:
                life.live(Path(folder) / "journal")
            finally:
                notes, _ = recorder.end()
        crashes += crashes_of(model, chance, files, notes, delivered)
        # The next life goes on with what one of these crashes leaves.
        disk = Disk(files, lies=False)
        end = len(notes) if chance.randrange(3) == 0 else chance.randrange(len(notes) + 1)
        for one in notes[:end]:
            disk.apply(one)
        files = disk.after_kill() if chance.randrange(2) else disk.after_crash(chance)
        found = check(model, files, notes[:end], delivered, lies=False)
        assert found is not None
        files = {name: content for name, content in files.items() if name == "journal"}
        delivered |= {one.at for one in notes[:end] if one.kind == "m" and one.file == DELIVERED}
        delivered &= set(found)
        model.settled, model.known = found, {found}
    return crashes


def crashes_of(
    model: Model, chance: random.Random, files: dict[str, bytes], notes: list[Note], delivered: set[int]
) -> int:
    """Tries crashes behind the steps of a life."""
    tried = 0
    for lies in (False, True):
        disk = Disk(files, lies=lies)
        for at, one in enumerate(notes, 1):
            disk.apply(one)
            if chance.randrange(16 if lies else 4) == 0:
                left = disk.after_crash(chance) if lies or chance.randrange(3) else disk.after_kill()
                check(model, left, notes[:at], delivered, lies=lies)
                tried += 1
    return tried


def ended(failure: threading.ExceptHookArgs) -> None:
    """No thread may end by an exception, those of the store neither."""
    threading.__excepthook__(failure)
    os._exit(1)


def unraised(failure: sys.UnraisableHookArgs) -> None:
    """Nor may what is called in between."""
    sys.__unraisablehook__(failure)
    os._exit(1)


def main() -> None:
    library, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    threading.excepthook, sys.unraisablehook = ended, unraised
    # So small a journal is compacted by itself.
    _log._LEAST = 2000
    recorder = Recorder(library)
    crashes = 0
    for seed in range(first, first + count):
        try:
            crashes += lives(recorder, seed)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr, flush=True)
            raise
    print(crashes)


if __name__ == "__main__":
    # Effects are found by the name of their module.
    from tests.faults import store_on_disk

    store_on_disk.main()
