"""Table: matrix products by all cores, and the threads that compute them."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from harness import workloads
from harness.measure import Size
from harness.table import Contest, Line, Row, at_most, times_the_peer

PLAIN = "plain NumPy"
PROCESSES = "ropewalk"
THREADS = "ropewalk threads"
KINDS = {PROCESSES: "process", THREADS: "thread"}
PLAYERS: dict[str, tuple[str, ...]] = {PROCESSES: ("ropewalk",), THREADS: ("ropewalk",), PLAIN: ()}
#: Products for each core in one turn.
EACH = 4
#: A thread that is on a processor for this part of the busiest one's time takes part.
BUSY = 0.2


def products(peer: str, side: int, turns: int) -> dict[str, float]:
    """Seconds of a turn of products, and how many threads compute for each core.

    A pool has as many workers as there are cores, and divides the cores among them. Plain NumPy does one product after
    the other, each by all cores.
    """
    import numpy as np

    cores = len(os.sched_getaffinity(0))
    count = EACH * cores
    if peer == PLAIN:
        left, right, *outs = (np.zeros((side, side)) for _ in range(2 + count))
        _fill(left, right)

        def turn() -> None:
            for out in outs:
                np.matmul(left, right, out=out)

        taken, threads = _play(turn, turns, {os.getpid()})
        return {"seconds": taken, "threads per core": threads / cores}

    import ropewalk

    left, right, *outs = (ropewalk.shared.array((side, side)) for _ in range(2 + count))
    _fill(np.asarray(left), np.asarray(right))
    kind: Any = KINDS[peer]
    more: dict[str, Any] = {"preload": ["numpy", "harness.workloads"]} if kind == "process" else {}
    with ropewalk.Pool(cores, kind=kind, blas_threads=1, **more) as pool:

        def turn() -> None:
            for task in [pool.submit(workloads.multiply, left, right, out) for out in outs]:
                task.result()

        turn()  # maps the pages
        told = [pool.submit(workloads.blas_threads).result() for _ in range(4 * cores)]
        pids = {pid for pid, _ in told}
        lanes = cores if kind == "thread" else 1
        allowed = max(threads for _, threads in told) * lanes * len(pids)
        if allowed > cores:
            raise RuntimeError(f"{allowed} threads of BLAS may run at once on {cores} cores")
        if kind == "process":
            pids = set(pool.statistics().worker_pids)
        taken, threads = _play(turn, turns, pids)
    expected = np.asarray(left)[0] @ np.asarray(right)
    if not all(np.allclose(np.asarray(out)[0], expected) for out in outs):
        raise RuntimeError("a product is wrong")
    return {"seconds": taken, "threads per core": threads / cores}


def _play(turn: Any, turns: int, pids: set[int]) -> tuple[float, int]:
    """The median time of a turn, and the threads of these processes that take part in all of them together."""
    turn()
    before = _on_processor(pids)
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        turn()
        times.append(time.perf_counter() - began)
    after = _on_processor(pids)
    spent = [after[thread] - before.get(thread, 0.0) for thread in after]
    busy = sum(seconds > 0 and seconds >= BUSY * max(spent) for seconds in spent)
    return statistics.median(times), busy


def _on_processor(pids: set[int]) -> dict[str, float]:
    """The seconds for which each thread of these processes has been on a processor."""
    found = {}
    for stat in (stat for pid in pids for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        found[stat.parent.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _fill(*operands: Any) -> None:
    import numpy as np

    for operand in operands:
        operand[:] = np.random.default_rng(7).random(operand.shape)


ALL = Contest(products, players=PLAYERS, needs=("numpy",), side=Size(1000, 60), turns=Size(7, 2))
AGAINST = {PLAIN: times_the_peer(1.0)}

ROW = Row(
    "products",
    "matrix products 1000 × 1000 by all cores",
    "Wall time of four products for each core: as tasks of a pool with a worker for each core and one BLAS thread in "
    "each, operands and results in shared arrays; and one after the other in a plain program, whose BLAS uses all "
    "cores. Pages are mapped and threads awake. The threads are those that are on a processor for a fifth of the "
    "busiest one's time or more.",
    (
        Line("processes", "s", ALL, "seconds", None, AGAINST, PROCESSES),
        Line("threads", "s", ALL, "seconds", None, AGAINST, THREADS),
        Line(
            "processes: threads that compute, per core",
            "",
            ALL,
            "threads per core",
            at_most(1),
            {},
            PROCESSES,
        ),
        Line("threads: threads that compute, per core", "", ALL, "threads per core", at_most(1), {}, THREADS),
    ),
)
