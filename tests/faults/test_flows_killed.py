"""Processes with flows that are killed again and again, and journals that end anywhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.flows import Flows, current_step, flow, on_commit, step
from ropewalk.flows._history import History, entries, history_of
from ropewalk.flows._records import Entry
from ropewalk.journal import Journal

PROGRAM = '''
import os, sys, time
import ropewalk
from ropewalk.flows import Flows, current_step, flow, on_commit, sleep, step

folder = sys.argv[1]


def note(*words):
    """Writes a line at once, so that no kill can take it. Behind the last one that it may write, it waits for that."""
    handle = os.open(f"{folder}/notes", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    os.write(handle, (" ".join(map(str, words)) + "\\n").encode())
    count = os.pread(handle, 1 << 20, 0).count(b"\\n")
    os.close(handle)
    if count >= int(sys.argv[4]):
        time.sleep(100)


def work(number):
    note("ran", sys.argv[2], current_step().key)
    time.sleep(0.005)
    on_commit(effect, number)
    return number * number


def effect(number, *, key):
    note("delivered", number, key)


@flow
def sum_up(run, count):
    total = sum(step.map(work, range(run * 1000, run * 1000 + count)))
    for number in range(count):
        total += step(work, run * 1000 + number, retries=1)
    sleep(0.01)
    return total


if __name__ == "__main__":
    pool = None if sys.argv[3] == "none" else ropewalk.Pool(2, kind=sys.argv[3])
    with Flows(f"{folder}/flows.wal", pool=pool) as flows:
        runs = [flows.start(sum_up, run, 12, id=f"run-{run}") for run in range(4)]
        note("began")
        print([run.result() for run in runs], flush=True)
'''


def expected(run: int) -> int:
    return 2 * sum((run * 1000 + number) ** 2 for number in range(12))


def notes(folder: Path) -> list[list[str]]:
    path = folder / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("kind", ["none", "thread", "process"])
def test_nothing_finished_is_done_again(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = tmp_path / "flows.wal"
    chance = random.Random(17)
    finished: set[str] = set()
    kills = 0
    for attempt in range(100):
        # After some lines, not after some time, so that each attempt gets somewhere, however slow the machine is.
        lines_then = len(notes(tmp_path)) + chance.randrange(2, 30) if attempt < 25 else sys.maxsize
        child = subprocess.Popen(
            # A kill that comes late finds the program where it has written some lines more.
            [sys.executable, str(program), str(tmp_path), str(attempt), kind, str(lines_then + 20)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while len(notes(tmp_path)) < lines_then and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        out, _ = child.communicate()
        out = out if child.returncode == 0 else ""
        lines = notes(tmp_path)
        ran = {words[2] for words in lines if words[0] == "ran" and words[1] == str(attempt)}
        assert not ran & finished, "a step whose result was recorded ran again"
        history = history_of(str(path)) if path.exists() else History()
        now = {
            step.key.hex()
            for run in history.runs.values()
            for step in run.steps.values()
            if step.state == "finished"
        }
        assert finished <= now, "a recorded result is lost"
        finished = now
        if out:
            assert out.strip() == str([expected(run) for run in range(4)])
            break
    else:
        pytest.fail("it never came to its end")
    assert kills >= 1
    delivered = [words for words in notes(tmp_path) if words[0] == "delivered"]
    assert len({words[2] for words in delivered}) == 4 * 24, "an effect was not delivered"
    assert all(not run.effects for run in history_of(str(path)).runs.values())


RAN: list[str] = []
PUBLISHED: list[str] = []


def square(number: int) -> int:
    RAN.append(current_step().key)
    if number % 2:
        on_commit(publish, number)
    return number * number


def publish(number: int, *, key: str) -> None:
    PUBLISHED.append(key)


@flow
def squares(count: int) -> int:
    return sum(step.map(square, range(count))) + step(square, count)


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A folder in memory, where a sync costs nothing: nothing loses power here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


def written(path: Path) -> tuple[bytes, list[Entry]]:
    """A journal of a run that has ended, and its records."""
    with Flows(path) as flows:
        assert flows.start(squares, 3, id="one").result() == 14
    return path.read_bytes(), list(entries(str(path)))


def test_a_journal_that_ends_at_any_byte_is_the_beginning_of_the_whole(fast_path: Path) -> None:
    whole, known = written(fast_path / "whole.wal")
    cut = fast_path / "cut.wal"
    lengths: set[int] = set()
    for size in range(64, len(whole)):
        cut.write_bytes(whole[:size])
        with Journal(cut):
            pass
        found = list(entries(str(cut)))
        assert found == known[: len(found)], size
        lengths.add(len(found))
    assert lengths == set(range(len(known) + 1)), "each record is there as soon as its bytes are"


def test_a_run_goes_on_from_every_record(fast_path: Path) -> None:
    whole, known = written(fast_path / "whole.wal")
    cut = fast_path / "cut.wal"
    size = 64
    for count in range(len(known) + 1):
        # The shortest file that has so many records.
        while True:
            cut.write_bytes(whole[:size])
            with Journal(cut) as journal:
                records = journal.last
            if records > count or size >= len(whole):
                break
            size += 1
        history = History()
        for entry in entries(str(cut)):
            history.apply(entry)
        finished = {
            step.key.hex()
            for run in history.runs.values()
            for step in run.steps.values()
            if step.state == "finished"
        }
        pending = {effects.step.hex() for run in history.runs.values() for effects in run.effects}
        RAN.clear()
        PUBLISHED.clear()
        with Flows(cut) as flows:
            assert flows.start(squares, 3, id="one").result() == 14
        assert not set(RAN) & finished
        assert len(RAN) == len(set(RAN)) == (4 - len(finished))
        assert (
            len(PUBLISHED) == len(set(PUBLISHED)) == len(pending) + (2 - len(finished & with_effects(known)))
        )


def with_effects(known: list[Entry]) -> set[str]:
    """The keys of the steps that have effects."""
    history = History()
    for entry in known:
        history.apply(entry)
    return {step.key.hex() for step in history.runs["one"].steps.values() if step.effects}
