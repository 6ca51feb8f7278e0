"""Commits that share a sync of the disk: the jobs of `Store.run_all`, and coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state._run_all import State, adder, fail, journal_file, notes

from ropewalk._errors import JournalFailed
from ropewalk.state import Store
from ropewalk.state._syncer import Syncer


@pytest.fixture
def path() -> Iterator[Path]:
    with journal_file() as found:
        yield found


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_jobs_share_the_disk(path: Path) -> None:
    a, b = adder("a"), adder("b")
    with Store(State(), journal=path) as store:
        with pytest.raises(KeyError):
            store.run_all([a, lambda s: s.none["x"] if False else fail(KeyError("x"))(), a])
        assert store.version == 1
        assert store.run_all([a, b] * 50)[-2:] == [51, 50]
        assert store._durable()[0] == 101
    with Store(State(), journal=path) as store:
        assert (store.snapshot().a, store.snapshot().b, store.version) == (51, 50, 101)


@pytest.mark.parametrize("sides", [1, 2])
def test_each_failure_of_the_disk_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, sides: int
) -> None:
    a, b = adder("a"), adder("b")
    with Store(State(), journal=path) as store:
        commits = deque([(1, 0), (2, 0), (2, 1), (3, 1)])
        waited: list[tuple[int, int]] = []

        def wait(version: int, epoch: int) -> None:
            waited.append((version, epoch))
            if (version, epoch) in lost:
                raise JournalFailed("lost")

        lost: set[tuple[int, int]] = set()
        monkeypatch.setattr(store, "_attempt", lambda *_: ("done", commits.popleft()))
        monkeypatch.setattr(store, "_wait", wait)
        jobs = [a] * 4 if sides == 1 else [a, b] * 2
        assert store.run_all(jobs) == ["done"] * 4
        # A later commit of one epoch takes the earlier ones along, and none of another epoch.
        assert sorted(waited) == [(2, 0), (3, 1)]
        waited.clear()
        commits = deque([(1, 0), (2, 0), (2, 1), (3, 1)])
        lost.add((2, 0))
        with pytest.raises(JournalFailed) as caught:
            store.run_all([a] * 4)
        assert set(waited) == {(1, 0), (2, 0), (2, 1), (3, 1)}
        assert notes(caught.value) == "run_all: on the disk are jobs 0, 2-3 of 4"


# --- coroutines that share a wake-up ----------------------------------------------------------------------------------


def test_coroutines_of_one_turn_are_waited_for_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    turns: list[int] = []
    before = Syncer._hand_over

    def hand_over(self: Syncer, turn: Any) -> None:
        turns.append(len(turn.waiting))
        before(self, turn)

    monkeypatch.setattr(Syncer, "_hand_over", hand_over)
    a = adder("a")

    async def main() -> None:
        with Store(State(), journal=path) as store:
            assert await asyncio.gather(*(store.arun(a) for _ in range(20))) == list(range(1, 21))
            assert turns == [20]
            assert store._durable()[0] == 20
            # One that is cancelled leaves the others alone.
            running = [asyncio.ensure_future(store.arun(a)) for _ in range(3)]
            await asyncio.sleep(0)
            running[1].cancel()
            assert (await running[0], await running[2]) == (21, 23)
            with pytest.raises(asyncio.CancelledError):
                await running[1]
            assert store.snapshot().a == 23

    asyncio.run(main())


def test_loops_of_two_threads_wait_at_once(path: Path) -> None:

    tasks = [adder("a"), adder("b")]
    with Store(State(), journal=path, history=10_000) as store:

        def loop(one: Any) -> None:
            async def main() -> None:
                for _ in range(20):
                    await asyncio.gather(*(store.arun(one) for _ in range(5)))

            asyncio.run(main())

        threads = [threading.Thread(target=loop, args=(one,)) for one in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (store.snapshot().a, store.snapshot().b) == (100, 100)


def test_each_coroutine_hears_of_its_own_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    async def main() -> None:
        with Store(State(), journal=path) as store:

            def wait(version: int, epoch: int) -> None:
                if (version, epoch) in ((2, 0), (3, 0)):
                    raise JournalFailed(f"lost {version}")

            monkeypatch.setattr(store, "_wait", wait)
            commits = [(1, 0), (2, 0), (3, 0), (2, 1)]
            waiting = [store._syncer.settled(done) for done in commits]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [str(one) for one in found] == ["None", "lost 2", "lost 3", "None"]
            monkeypatch.undo()

    asyncio.run(main())
