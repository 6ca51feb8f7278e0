"""A task that takes all memory of its control group: the kernel kills its worker, and the pool goes on."""

from __future__ import annotations

import collections
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate

import ropewalk

MIB = 1 << 20
#: What the workers of a test have together; one without a task has some MiB.
LIMIT = 160 * MIB
#: Where control groups of memory are, in both versions, and the file that limits one.
_PLACES = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}


def _limited(name: str) -> Path:
    """Makes a control group with the limit; raises `OSError` where none can be made."""
    why = OSError("there is no control group of memory")
    for place, limit in _PLACES.items():
        made = place / name
        try:
            made.mkdir()
        except OSError as error:
            why = error
            continue
        try:
            if not (made / limit).exists():
                raise OSError(f"{made} has no {limit}")
            (made / limit).write_text(str(LIMIT))
        except OSError as error:
            made.rmdir()
            why = error
            continue
        return made
    raise why


def _is_gone(group: Path) -> bool:
    with suppress(OSError):  # A process that is dead, and not gone, is still in it.
        group.rmdir()
    return not group.exists()


@pytest.fixture
def group(gate: Gate) -> Iterator[Path]:
    """A control group with little memory, for the workers of one test; their processes end it before it goes."""
    try:
        made = _limited(f"ropewalk-test-{os.getpid()}-{gate.folder.parent.name}")
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    yield made
    until(lambda: _is_gone(made), 60)


@pytest.fixture
def make_limited(group: Path, make_pool: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Makes pools whose workers are in the group, and ends them before the group."""
    pools: list[Any] = []

    def make(workers: int, **settings: Any) -> Any:
        pools.append(make_pool(workers, kind="process", initializer=join, initargs=(str(group),), **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.terminate()


def join(group: str) -> None:
    """Puts the worker that calls it into the group."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def is_in(group: str) -> bool:
    return str(os.getpid()) in (Path(group) / "cgroup.procs").read_text().split()


def take_all(gate: Gate) -> None:
    """Takes memory until the kernel ends that; ten times the limit at most."""
    gate.mark("hog")
    taken = [bytearray(os.urandom(4096)) * (MIB // 4096) for _ in range(10 * LIMIT // MIB)]
    raise AssertionError(f"nothing has ended it at {len(taken)} MiB")


def note(gate: Gate, number: int) -> int:
    gate.mark(f"task-{number}")
    return number * number


def test_the_kernel_kills_a_task_that_takes_all_memory_and_no_other(
    make_limited: Callable[..., Any], group: Path, gate: Gate
) -> None:
    pool = make_limited(2)
    assert pool.submit(is_in, str(group)).result(60)
    before = [pool.submit(note, gate, number) for number in range(50)]
    hog = pool.submit(take_all, gate)
    after = [pool.submit(note, gate, number) for number in range(50, 100)]
    error = hog.exception(120)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert (error.signal, error.exit_code, error.task, error.attempt) == (
        signal.SIGKILL,
        None,
        hog.task.id,
        1,
    )
    assert error.pid in gate.marks("hog")
    assert "was killed by SIGKILL (which the kernel sends when memory runs out) while it ran task" in str(
        error
    )
    assert "If the worker was killed for memory, run fewer workers" in str(error)
    assert [future.result(60) for future in before + after] == [number * number for number in range(100)]
    # Each has run once, and the one that was killed, too.
    assert {
        name: len(gate.marks(name)) for name in ("hog", *(f"task-{n}" for n in range(100)))
    } == dict.fromkeys(("hog", *(f"task-{n}" for n in range(100))), 1)
    now = pool.statistics()
    assert (now.submitted, now.completed, now.failed, now.crashed, now.retried) == (102, 101, 1, 1, 0)
    outcomes = collections.Counter(record.outcome for record in pool.records())
    assert outcomes == {"returned": 101, "crashed": 1}
    # The pool has two workers again, both of them in the group.
    until(lambda: pool.statistics().ready == 2)
    assert error.pid not in pool.statistics().worker_pids
    assert all(future.result(60) for future in [pool.submit(is_in, str(group)) for _ in range(20)])


def test_a_task_that_takes_all_memory_again_and_again_is_not_run_for_ever(
    make_limited: Callable[..., Any], gate: Gate
) -> None:
    pool = make_limited(1, retries=9, poison_after=2)
    hog = pool.submit(take_all, gate)
    error = hog.exception(120)
    assert isinstance(error, ropewalk.PoisonTask)
    assert [death.signal for death in error.crashes] == [signal.SIGKILL] * 2
    assert len(gate.marks("hog")) == 2
    assert "SIGKILL" in str(error)
    assert pool.submit(note, gate, 3).result(60) == 9
