"""Tasks with ``strict="warn"``: what they really touch, and the contract that they should have."""

from __future__ import annotations

import sys
from typing import Any, cast

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._contract import Contract, describe
from ropewalk.state._paths import Path, covers, path_from
from ropewalk.state._places import typed
from ropewalk.state._task import Task

#: Accesses that read, of those that a footprint has.
_READS = ("read", "seen", "whole")


def observed(kind: Any, transaction: _native.Transaction) -> tuple[list[Path[Any]], list[Path[Any]]]:
    """Returns the paths that a transaction has read and written so far."""
    reads: list[Path[Any]] = []
    writes: list[Path[Any]] = []
    for steps, access in transaction.footprint():
        try:
            path = path_from(kind, typed(transaction.base, steps))
        except StateError:
            # A place that the annotations do not have, below one that may be anything.
            continue
        (reads if access in _READS else writes).append(path)
    return reads, writes


class Watcher:
    """Prints, once for each, the contracts that tasks should have."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def look(self, task: Task[..., Any], kind: Any, transaction: _native.Transaction) -> None:
        """Compares what a task has touched with its contract."""
        reads, writes = observed(kind, transaction)
        contract = task.contract or Contract()
        missing_reads = [path for path in reads if not _is_covered(path, (*contract.reads, *contract.writes))]
        missing_writes = [path for path in writes if not _is_covered(path, contract.writes)]
        if not missing_reads and not missing_writes:
            return
        line = describe([*contract.reads, *reads], [*contract.writes, *writes])
        if (task.label, line) in self._said:
            return
        self._said.add((task.label, line))
        missing = ", ".join(dict.fromkeys(str(path) for path in (*missing_writes, *missing_reads)))
        sys.stderr.write(
            f"ropewalk: {task.label} touches {missing}, which it does not declare:\n    {line}\n"
        )


def _is_covered(path: Path[Any], declared: tuple[Any, ...]) -> bool:
    return any(
        isinstance(cast("object", one), Path) and (one == path or _covers(one, path)) for one in declared
    )


def _covers(one: Path[Any], path: Path[Any]) -> bool:
    try:
        return covers(one, path)
    except StateError:
        return False
