"""Effects of stores with a journal, and disks that are full."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until

from ropewalk._errors import JournalError
from ropewalk.journal import Journal
from ropewalk.state import Store

SEEN: list[tuple[Any, str]] = []
FAILS: list[int] = []


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("ropewalk.state._effects._PAUSE", 0.001)
    SEEN.clear()
    FAILS.clear()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder) / "state.wal"


def effect(number: int, *, key: str) -> None:
    if FAILS and FAILS.pop():
        raise ArithmeticError
    SEEN.append((number, key))


def interrupt(number: int, *, key: str) -> None:
    if FAILS and FAILS.pop():
        raise KeyboardInterrupt
    SEEN.append((number, key))


def work(d: Any, number: int, function: Any = effect) -> None:
    d["n"] = number
    d.on_commit(function, number)


def opened(path: Path) -> Store[Any]:
    return Store({"n": 0}, journal=path)


def numbers() -> list[int]:
    return [number for number, _ in SEEN]


def test_effects_are_delivered_once(path: Path) -> None:
    with opened(path) as store:
        store.run(work, 1)
        store.run_all([(work, 2), (work, 3)])
    with opened(path) as store:
        store.run(work, 4)
        store.flush()
    opened(path).close()
    assert numbers() == [1, 2, 3, 4]
    assert len({key for _, key in SEEN}) == 4


def test_an_effect_that_fails_is_tried_again(path: Path) -> None:
    with opened(path) as store:
        FAILS.extend([1, 1, 1])
        store.run(work, 1)
        store.run(work, 2)
        until(lambda: sorted(numbers()) == [1, 2])
        until(lambda: store._effects.pending() == [])
        FAILS.append(1)
        store.run(work, 3)
        until(lambda: 3 in numbers())
    opened(path).close()
    assert sorted(numbers()) == [1, 2, 3]


def test_an_effect_that_fails_is_tried_again_by_the_next_program(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.state._effects._PAUSE", 1000)
    with opened(path) as store:
        FAILS.append(1)
        store.run(work, 1)
        store.run(work, 2)
        assert [one.args for one in store._effects.pending()] == [(1,)]
        # A compaction writes down what is open.
        store.compact()
        store.run(work, 3)
    assert numbers() == [2, 3]
    with opened(path):
        assert numbers() == [2, 3, 1]
    opened(path).close()
    assert numbers() == [2, 3, 1]


def test_an_interrupted_effect_is_delivered_with_the_next_commit(path: Path) -> None:
    with opened(path) as store:
        FAILS.append(1)
        with pytest.raises(KeyboardInterrupt):
            store.run(work, 1, interrupt)
        assert store.version == 1
        store.run(work, 2)
        assert numbers() == [1, 2]
    opened(path).close()
    assert numbers() == [1, 2]


def test_an_effect_that_ends_its_thread_is_tried_again(path: Path) -> None:
    with opened(path) as store:
        FAILS.extend([1, 1])
        with pytest.raises(KeyboardInterrupt):
            store.run(work, 1, interrupt)
        # Now in the thread that tries again: first as an error, then as an interrupt.
        store._effects._try_again(store._effects.pending()[0], 0.001)
        until(lambda: 1 in numbers())


def test_an_effect_that_was_delivered_may_be_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store:
        store.run(work, 1, interrupt)
    monkeypatch.delitem(globals(), "interrupt")
    with opened(path) as store:
        assert (store.version, numbers()) == (1, [1])


@pytest.mark.parametrize("compacts", [False, True])
def test_an_effect_whose_function_is_gone_waits_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compacts: bool
) -> None:
    monkeypatch.setattr("ropewalk.state._effects._PAUSE", 1000)
    with opened(path) as store:
        FAILS.append(1)
        store.run(work, 1, effect)
        store.run(work, 2, effect)
    assert numbers() == [2]
    kept = effect
    with monkeypatch.context() as gone:
        gone.delitem(globals(), "effect")
        with opened(path) as store:
            assert (store.version, store.snapshot()["n"]) == (2, 2)
            assert f"the effect {__name__}.effect of version 1 cannot be delivered" in caplog.text
            (pending,) = store.effects()
            assert (pending.version, pending.place) == (1, 0)
            assert f"{__name__}.effect" in repr(pending)
            # Others are delivered meanwhile.
            store.run(work, 3, interrupt)
            assert numbers() == [2, 3]
            if compacts:
                store.compact()
            assert store.effects() == [pending]
    assert effect is kept
    with opened(path) as store:
        assert numbers() == [2, 3, 1]
        assert store.effects() == []
    opened(path).close()
    assert numbers() == [2, 3, 1]


def test_an_effect_whose_function_comes_back_is_delivered(path: Path) -> None:
    with opened(path) as store:
        store._effects._is_closed = True  # As if the process died here.
        store.run(work, 1, effect)
    gone = globals().pop("effect")
    try:
        with opened(path) as store:
            assert len(store.effects()) == 1
            globals()["effect"] = gone
            until(lambda: numbers() == [1] and store.effects() == [])
    finally:
        globals()["effect"] = gone


def test_effects_are_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.state._effects._PAUSE", 1000)
    with opened(path) as store:
        FAILS.extend([1, 1])
        store.run(work, 1)
        store.run(work, 2)
        first, second = store.effects()
        assert (first.function, first.args, second.args) == (effect, (1,), (2,))
        store.drop_effects(first)
        assert store.effects() == [second]
        store.drop_effects(first, second)
        assert store.effects() == []
        # The thread that would have tried them again has nothing more to do.
        until(lambda: store._effects._thread is None)
    opened(path).close()
    assert numbers() == []


def test_a_cancelled_coroutine_leaves_its_effects_to_a_thread(path: Path) -> None:
    with opened(path) as store:

        async def main() -> None:
            waiting = asyncio.ensure_future(store.arun(work, 1))
            await asyncio.sleep(0)
            assert store.version == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(main())
        until(lambda: numbers() == [1] and store.effects() == [])
        assert store.version == 1
    opened(path).close()
    assert numbers() == [1]


def test_a_coroutine_that_is_cancelled_behind_its_loop(path: Path) -> None:
    with opened(path) as store:

        async def main() -> None:
            waiting = asyncio.ensure_future(store.arun(work, 1))
            await asyncio.sleep(0)
            assert store.version == 1
            assert not waiting.done()

        # The end of the loop cancels what is left.
        asyncio.run(main())
        until(lambda: numbers() == [1] and store.effects() == [])


def test_what_was_undone_with_the_commit_has_no_effect(path: Path) -> None:
    with opened(path) as store:

        def fail(d: Any) -> None:
            work(d, 1)
            raise KeyError

        with pytest.raises(KeyError):
            store.run(fail)
        store.run(work, 2)
    opened(path).close()
    assert numbers() == [2]


def test_effects_by_many_threads_come_in_the_order_of_versions(path: Path) -> None:
    with opened(path) as store:

        def commit(number: int) -> None:
            for step in range(50):
                store.run(work, number * 100 + step)

        threads = [threading.Thread(target=commit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        assert numbers() == [version.state["n"] for version in store.history(1)]
    opened(path).close()
    assert len(numbers()) == 200


CRASHES = """
import os, sys
from ropewalk.state import Store

def effect(number, *, key):
    with open(sys.argv[2], "a") as notes:
        notes.write(f"{number} {key}\\n")
    if sys.argv[3] == "die":
        os._exit(9)

def work(d):
    d["n"] = 1
    d.on_commit(effect, 1)
    d.on_commit(effect, 2)

store = Store({"n": 0}, journal=sys.argv[1])
if store.version == 0:
    store.run(work)
print(store.version)
store.close()
"""


def test_a_crash_between_commit_and_delivery(path: Path) -> None:
    notes, program = path.with_name("notes"), path.with_name("program.py")
    program.write_text(CRASHES)

    def run(how: str) -> int:
        command = [sys.executable, str(program), str(path), str(notes), how]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert [run("die"), run("die"), run("live"), run("live")] == [9, 9, 0, 0]
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [number for number, _ in lines] == ["1", "1", "1", "2"]
    assert len({key for _, key in lines}) == 2


FULL = """
import os, resource, sys, threading
from ropewalk._errors import JournalError
from ropewalk.state import Store

path = sys.argv[1]
undone = []

def effect(number):
    undone.append(number)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def add(d, me, text):
    d[me] = d[me] + 1
    d["text"][me] = text
    d.on_commit(effect, me)

acked = [0] * 8
failed = [0] * 8
store = Store({**{me: 0 for me in range(8)}, "text": {}}, journal=path)

def work(me):
    for step in range(40):
        try:
            if me % 2:
                store.run(add, me, str(step) * 200)
            else:
                with store.transaction(exclusive=step % 10 == 9) as tx:
                    add(tx.draft, me, str(step) * 200)
        except JournalError as error:
            failed[me] += 1
        except Exception as error:
            assert type(error).__name__ == "Conflict", error
        else:
            acked[me] += 1

if sys.argv[2] == "check":
    state = store.snapshot()
    print(store.version, sum(state[me] for me in range(8)))
    os._exit(0)
for round in range(12):
    limit(store._log.journal.size + 6000 if round % 3 != 2 else resource.RLIM_INFINITY)
    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    limit(resource.RLIM_INFINITY)
    state = store.snapshot()
    assert [state[me] for me in range(8)] == acked, (round, [state[me] for me in range(8)], acked)
    assert store.version == sum(acked), (store.version, sum(acked))
store.run(add, 0, "more")
acked[0] += 1
store.flush()
assert sorted(undone) == sorted(me for me in range(8) for _ in range(acked[me])), (len(undone), sum(acked))
state = store.snapshot()
if sys.argv[2] == "close":
    store.close()
    again = Store({}, journal=path)
    assert again.snapshot() == state and again.version == sum(acked)
print(sum(acked), sum(failed))
os._exit(0)
"""


@pytest.mark.parametrize("end", ["close", "die"])
def test_a_full_disk(path: Path, end: str) -> None:
    program = path.with_name("program.py")
    program.write_text(FULL)
    command = [sys.executable, str(program), str(path), end]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    acked, failed = map(int, done.stdout.split())
    assert acked > 100
    assert failed > 10
    command[-1] = "check"
    checked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert checked.stdout.split() == [str(acked), str(acked)]


def test_a_store_whose_journal_was_taken_away(path: Path) -> None:
    store = opened(path)
    store.run(work, 1)
    assert store._log is not None
    store._log.journal.close()
    with pytest.raises(JournalError):
        store.run(work, 2)
    assert (store.version, store.snapshot()["n"], numbers()) == (1, 1, [1])
    store.close()
    with Journal(path) as journal:
        assert journal.last == 3
