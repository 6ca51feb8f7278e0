"""Compaction of a store's journal: by itself as it grows, while others commit, of states of any size."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ropewalk.journal import Journal
from ropewalk.state import Counter, PMap, StateError, Store


@dataclass(frozen=True, slots=True)
class State:
    items: PMap[Any, Any]
    hits: Counter = 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.wal"


def opened(path: Path) -> Store[State]:
    return Store(State(PMap(a=1)), journal=path)


def test_compaction_while_others_commit(path: Path) -> None:
    copies = []
    with opened(path) as store:

        def commit(number: int) -> None:
            for n in range(60):
                store.run(lambda s, n: s.items.update({(number, n): n}), n)
                store.run(lambda s: s.hits.add(1))

        threads = [threading.Thread(target=commit, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            before = store.version
            store.compact()
            copy = path.with_name(f"{len(copies)}.wal")
            if len(copies) < 10:
                shutil.copy(path, copy)
                copies.append((copy, before))
        for thread in threads:
            thread.join()
        state = store.snapshot()
        assert (store.version, state.hits) == (360, 180)
        size = path.stat().st_size
        store.compact()
        store.compact()
        assert path.stat().st_size <= size
    with opened(path) as store:
        assert store.snapshot() == state
        assert store.version == 360
    for copy, before in copies:
        with opened(copy) as store:
            assert store.version >= before - 3
            counted = store.snapshot().hits + sum(isinstance(key, tuple) for key in store.snapshot().items)
            assert counted == store.version


def test_a_journal_is_compacted_as_it_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.state._log._LEAST", 50_000)
    with opened(path) as store:
        assert store._log is not None
        largest = 0
        deadline = time.monotonic() + 60
        while store._log.journal.size >= largest:
            largest = store._log.journal.size
            store.run(lambda s, text: s.items.update(text=text), str(store.version % 10) * 1000)
            assert time.monotonic() < deadline
        assert largest >= 40_000
        state = store.snapshot()
    with opened(path) as store:
        assert store.snapshot() == state


def test_a_journal_of_programs_that_end_early_is_compacted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.state._log._LEAST", 50_000)
    for run in range(12):
        # Each program alone writes less than what makes a compaction due.
        with opened(path) as store:
            for index in range(10):
                store.run(lambda s, text: s.items.update(text=text), f"{run}{index}" * 500)
            state = store.snapshot()
    assert os.path.getsize(path) < 80_000
    with opened(path) as store:
        assert store.snapshot() == state
        assert store.version == 120


# --- large states -----------------------------------------------------------------------------------------------------


def test_a_state_that_no_record_takes_is_written_in_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.state._log._MOST", 1000)
    texts = {f"key {number}": str(number) * 50 for number in range(100)}
    with Store(State(PMap(texts)), journal=path) as store:
        store.run(lambda s: s.items.pop("key 0"))
    with opened(path) as store:
        assert len(store.snapshot().items) == 99
        store.compact()
        store.run(lambda s: s.items.pop("key 1"))
    with opened(path) as store:
        assert len(store.snapshot().items) == 98
        assert store.version == 2
        monkeypatch.setattr("ropewalk.state._log._MOST", 1 << 20)
        store.compact()
    with opened(path) as store:
        assert len(store.snapshot().items) == 98


def test_a_journal_that_was_only_begun_is_begun_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.state._log._MOST", 1000)
    texts = {f"key {number}": str(number) * 50 for number in range(100)}
    with Store(State(PMap(texts)), journal=path):
        pass
    with Journal(path) as journal:
        records = [record.payload for record in journal.records()]
    assert len(records) > 10
    for count in (1, 5, len(records) - 1):
        path.unlink()
        with Journal(path) as journal:
            journal.append_all(records[:count])
        with opened(path) as store:
            assert store.snapshot() == State(PMap(a=1))
            store.run(lambda s: s.hits.add(1))
        with opened(path) as store:
            assert store.snapshot() == State(PMap(a=1), 1)


def test_parts_of_no_state_are_refused(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(pickle.dumps(("part", 0, 1, b"nothing")))
    with pytest.raises(StateError, match="cannot be read"):
        opened(path)


# --- while a module is imported ---------------------------------------------------------------------------------------


def test_a_store_of_a_module_that_is_being_imported(tmp_path: Path) -> None:
    (tmp_path / "importing.py").write_text(
        textwrap.dedent("""\
            from dataclasses import dataclass
            from pathlib import Path

            import ropewalk.state._log as log
            from ropewalk.state import PMap, Store

            log._LEAST = 10_000


            @dataclass(frozen=True, slots=True)
            class Text:
                text: str


            @dataclass(frozen=True, slots=True)
            class State:
                texts: PMap[str, Text] = PMap()


            path = Path(__file__).with_name("state.wal")
            with Store(State(), journal=path) as store:
                for number in range(100):
                    store.run(lambda s: s.texts.update(a=Text("x" * 1000 + str(number))))
            print(path.stat().st_size < 50_000)
        """)
    )
    done = subprocess.run(
        [sys.executable, "-c", "import importing"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
