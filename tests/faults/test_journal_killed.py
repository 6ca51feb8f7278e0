"""A journal whose writers are killed, one after the other, while they append and compact."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk import journal
from ropewalk.journal import Journal

#: Appends numbers from several threads and says which are committed; compacts now and then. A snapshot has all numbers
#: that it stands for.
_WRITER = """
import sys, threading
import ropewalk

path, sync = sys.argv[1:]
journal = ropewalk.Journal(path, sync=sync)
known = [int(part) for record in journal.records() for part in record.payload.split()]
lock = threading.Lock()
print("open", len(known), flush=True)

def write():
    while True:
        with lock:
            number = len(known)
            known.append(number)
            journal.append_nowait(b"%d" % number)
            if number % 50 == 49:
                journal.sync()
                journal.compact([b" ".join(b"%d" % one for one in known)])
        journal.append(b"")
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()

for _ in range(3):
    threading.Thread(target=write).start()
"""


@pytest.mark.parametrize("sync", ["always", "group", "interval"])
def test_nothing_committed_is_lost_and_nothing_is_there_twice(tmp_path: Path, sync: str) -> None:
    path, chance = tmp_path / "journal.wal", random.Random(7)
    committed = 0
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), sync], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline().split()
            assert first[0] == "open"
            assert int(first[1]) >= committed
            told = "".join(writer.stdout.readline() for _ in range(chance.randrange(60)))
            writer.kill()
            told += writer.stdout.read()
        # A line that the kill has cut off says nothing.
        numbers = [int(line) for line in told[: told.rfind("\n") + 1].split()]
        committed = max([committed, *(number + 1 for number in numbers)])
        found = [int(part) for record in journal.read(path) for part in record.payload.split()]
        assert found == list(range(len(found)))
        assert len(found) >= committed
    assert committed > 100
    with Journal(path) as opened:
        assert opened.recovered.dropped_bytes == 0 or not opened.recovered.was_closed
