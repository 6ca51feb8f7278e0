"""Processes with a store that are killed again and again: what was acknowledged is there, and nothing by half."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ropewalk.state import PVector, Store

PROGRAM = '''
import asyncio, itertools, os, random, sys, threading
from ropewalk.state import Store

path, how, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
NAMES = "abcdefgh"


def transfer(d, number, source, target, amount):
    """Moves money, and writes down that it did."""
    d["accounts"][source] -= amount
    d["accounts"][target] += amount
    d["transfers"].append((number, source, target, amount))
    d["numbers"][number % 50] = number
    d.on_commit(effect, number)
    return number


def effect(number):
    pass


def acknowledge(*numbers):
    """Writes lines at once, each by one call, so that no kill takes a part of one."""
    os.write(1, "".join(f"{number}\\n" for number in numbers).encode())


def jobs(thread):
    chance = random.Random(f"{seed} {thread}")
    for step in itertools.count():
        number = (seed * 10 + thread) * 1_000_000 + step
        yield transfer, number, chance.choice(NAMES), chance.choice(NAMES), chance.randrange(100)


first = {"accounts": {name: 1000 for name in NAMES}, "transfers": [], "numbers": {}}
store = Store(first, journal=path)
acknowledge("opened")


def one_by_one(thread):
    for job in jobs(thread):
        acknowledge(store.run(*job))
        if thread == 0 and job[1] % 40 == 39:
            store.compact()


def in_groups(thread):
    some = jobs(thread)
    while True:
        acknowledge(*store.run_all(list(itertools.islice(some, 10))))


async def awaited():
    async def one(thread):
        for job in jobs(thread):
            acknowledge(await store.arun(*job))

    await asyncio.gather(*(one(thread) for thread in range(8)))


if how == "arun":
    asyncio.run(awaited())
else:
    work = one_by_one if how == "run" else in_groups
    for thread in range(3):
        threading.Thread(target=work, args=(thread,)).start()
'''


class Child:
    """The program, and the numbers that it has acknowledged."""

    def __init__(self, program: Path, path: Path, how: str, seed: int) -> None:
        command = [sys.executable, str(program), str(path), how, str(seed)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.strip())

    def killed_after(self, count: int) -> list[int]:
        """Kills it once it has acknowledged so many, and returns all that it has acknowledged."""
        deadline = time.monotonic() + 120
        while len(self.lines) <= count and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        ended = self.process.poll()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert ended is None, "it ended by itself"
        assert len(self.lines) > count, "it came to a stand"
        return [int(line) for line in self.lines if line != "opened"]


def checked(state: Any, acknowledged: list[int]) -> list[tuple[int, str, str, int]]:
    """Checks that a state is what its transfers have made of the first one; returns the transfers."""
    transfers = list(state["transfers"])
    accounts = dict.fromkeys("abcdefgh", 1000)
    numbers = {}
    for number, source, target, amount in transfers:
        accounts[source] -= amount
        accounts[target] += amount
        numbers[number % 50] = number
    assert dict(state["accounts"].items()) == accounts
    assert dict(state["numbers"].items()) == numbers
    assert sum(accounts.values()) == 8000
    there = [number for number, *_ in transfers]
    assert len(set(there)) == len(there), "a transfer is there twice"
    assert set(acknowledged) <= set(there), "an acknowledged transfer is lost"
    return transfers


@pytest.mark.parametrize("how", ["run", "run_all", "arun"])
def test_what_was_acknowledged_survives_any_kill(tmp_path: Path, how: str) -> None:
    program, path = tmp_path / "program.py", tmp_path / "state.wal"
    program.write_text(PROGRAM)
    chance = random.Random(how)
    acknowledged: list[int] = []
    before: list[tuple[int, str, str, int]] = []
    for seed in range(12):
        child = Child(program, path, how, seed)
        new = child.killed_after(chance.randrange(0, 150))
        acknowledged += new
        copy = tmp_path / "copy.wal"
        copy.write_bytes(path.read_bytes())
        sys.modules["__main__"].effect = effect  # type: ignore[attr-defined]
        try:
            with Store({"accounts": {}, "transfers": PVector(), "numbers": {}}, journal=copy) as store:
                if store.version or acknowledged:
                    transfers = checked(store.snapshot(), acknowledged)
                    assert transfers[: len(before)] == before, (
                        "what was there is no beginning of what is there"
                    )
                    assert store.version == len(transfers)
                    before = transfers
        finally:
            del sys.modules["__main__"].effect  # type: ignore[attr-defined]
        copy.unlink()
    assert len(acknowledged) > 300


def effect(number: int) -> None:
    """Stands for that of the program, which may have left some to deliver."""
