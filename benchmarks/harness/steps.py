"""What runs durable steps, behind one shape."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from harness.logs import OURS, RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ON_SQLITE = "ropewalk's steps on sqlite"
DBOS = "dbos on sqlite"
PLAYERS: dict[str, tuple[str, ...]] = {OURS: ("ropewalk",), ON_SQLITE: ("ropewalk",), DBOS: ("dbos",)}


def work(number: int) -> bytes:
    """A step: its result has the size of a record of the other tables."""
    return RECORD


class Runner:
    """Runs flows of so many steps, one after the other or several at once."""

    def __init__(self, peer: str, where: str) -> None:
        self._start: Callable[[int], Any]
        self._start_map: Callable[[int], Any] | None = None
        if peer == DBOS:
            self._open_dbos(where)
        else:
            self._open_flows(peer, where)

    def steps(self, runs: int, count: int) -> None:
        """Runs flows at once, each with so many steps in a row; returns when all have ended."""
        for run in [self._start(count) for _ in range(runs)]:
            run()

    def maps(self, count: int) -> None:
        """Runs a flow with maps of 64 steps each."""
        assert self._start_map is not None
        self._start_map(count)()

    def close(self) -> None:
        """Ends it."""
        self._close()

    def _open_flows(self, peer: str, where: str) -> None:
        from ropewalk.flows import Flows, _engine, flow, step

        # A map takes an executor that runs each call at once; other steps run in their flow's thread, as the peer's.
        at_once: Any = _AtOnce()

        @flow(name="bench")
        def bench(count: int) -> None:
            for number in range(count):
                step(work, number)

        @flow(name="bench_maps")
        def bench_maps(count: int) -> None:
            for number in range(count):
                step.map(work, range(64 * number, 64 * number + 64), pool=at_once)

        kept = _engine.Journal
        if peer == ON_SQLITE:
            _engine.Journal = _SqliteJournal  # type: ignore[assignment,misc]
        try:
            flows = Flows(os.path.join(where, "flows.wal"))
        finally:
            _engine.Journal = kept  # type: ignore[misc]
        self._start = lambda count: flows.start(bench, count).result
        self._start_map = lambda count: flows.start(bench_maps, count).result
        self._close = flows.close

    def _open_dbos(self, where: str) -> None:
        import dbos

        # Its names are those of the process, of which each trial has one of its own.
        dbos.DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{where}/dbos.sqlite",
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )
        dbos_step = dbos.DBOS.step()(work)

        @dbos.DBOS.workflow()  # type: ignore[untyped-decorator]
        def bench(count: int) -> None:
            for number in range(count):
                dbos_step(number)

        dbos.DBOS.launch()
        self._start = lambda count: dbos.DBOS.start_workflow(bench, count).get_result
        self._close = dbos.DBOS.destroy


class _AtOnce:
    """An executor that runs a call where it is submitted."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(function(*args))
        return future


class _SqliteJournal:
    """The journal's methods that flows use, over a well-tuned SQLite: one connection, one insert statement."""

    def __init__(self, path: str) -> None:
        import sqlite3

        self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for order in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=10000",
            "locking_mode=EXCLUSIVE",
        ):
            self._base.execute(f"PRAGMA {order}")
        self._base.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, record BLOB)")
        self._lock = threading.Lock()
        self._later: list[bytes] = []
        self.last = 0
        self.closed = False

    def append(self, record: bytes) -> int:
        return self.append_all([record])

    def append_all(self, records: Sequence[bytes]) -> int:
        with self._lock:
            later, self._later = self._later, []
            self._base.execute("BEGIN")
            self._base.executemany(
                "INSERT INTO log (record) VALUES (?)", [(one,) for one in (*later, *records)]
            )
            self._base.execute("COMMIT")
            self.last += len(later) + len(records)
            return self.last

    def append_nowait(self, record: bytes) -> int:
        self._later.append(record)
        return self.last

    def sync(self) -> None:
        self.append_all([])

    def close(self) -> None:
        self.closed = True
        self._base.close()
