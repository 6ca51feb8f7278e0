"""A map with a journal whose program is killed, again and again, while it runs."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

COUNT = 400

#: Prints each result that it has; each task notes its input. The results of the first runs are few: the program is
#: killed after some of them.
_RUN = f"""
import os, sys, time
import ropewalk

path, notes, kind, method = sys.argv[1:]

def noted(number):
    time.sleep(0.001)
    os.write(file, b"%d\\n" % number)
    return number * 3

file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with ropewalk.Pool(2, kind=kind) as pool:
    for result in getattr(pool, method)(noted, range({COUNT}), journal=path):
        sys.stdout.write(f"{{result}}\\n")
        sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("kind", "method"), [("process", "map"), ("process", "map_unordered"), ("thread", "map")]
)
def test_what_a_map_has_yielded_never_runs_again(tmp_path: Path, kind: str, method: str) -> None:
    path, notes, chance = tmp_path / "run.wal", tmp_path / "notes", random.Random(11)
    command = [sys.executable, "-c", _RUN, str(path), str(notes), kind, method]
    settled: dict[int, int] = {}
    kills = 0
    for _ in range(30):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            told = "".join(program.stdout.readline() for _ in range(len(settled) + chance.randrange(120)))
            over = len(told.split()) == COUNT
            if not over:
                program.kill()
                kills += 1
            told += program.stdout.read()
        # A line that the kill has cut off says nothing.
        results = [int(line) for line in told[: told.rfind("\n") + 1].split()]
        assert len(set(results)) == len(results)
        runs = Counter(map(int, notes.read_text().split()))
        for number, times in settled.items():
            assert runs[number] == times, f"input {number} has run again"
        settled.update((result // 3, runs[result // 3]) for result in results)
        assert set(settled) <= set(range(COUNT))
        if over:
            break
    assert len(settled) == COUNT
    assert kills >= 3
    # Of each run that was killed only the inputs that were under way ran again.
    assert sum(runs.values()) <= COUNT + kills * (2 + 2 * 16)
