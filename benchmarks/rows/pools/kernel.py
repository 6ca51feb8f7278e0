"""Table: computing on shared arrays."""

from __future__ import annotations

import statistics
import time
from typing import Any

from harness import pools, workloads
from harness.measure import Size
from harness.table import Contest, Line, Row, times_the_peer

TASKS, WORKERS = 4, 2


def kernel(side: int, repeats: int) -> dict[str, float]:
    """Kernels on shared and on plain arrays, turn by turn inside one worker: milliseconds of each."""
    import ropewalk

    contestant = pools.Ropewalk(1, ("numpy", "harness.workloads"), blas_threads=1)
    source, out = (ropewalk.shared.array((side, side)) for _ in range(2))
    _fill(source)
    times = contestant.call(workloads.kernels, source, out, repeats)
    contestant.close()
    return {name: statistics.median(values) for name, values in times.items()}


def products_pooled(side: int, blas_threads: int) -> dict[str, float]:
    """Four matrix products as tasks of two workers, operands and results in shared arrays."""
    import numpy as np

    import ropewalk

    contestant = pools.Ropewalk(WORKERS, ("numpy", "harness.workloads"), blas_threads=blas_threads)
    left, right, *outs = (ropewalk.shared.array((side, side)) for _ in range(2 + TASKS))
    for operand in (left, right):
        _fill(operand)

    def turn() -> None:
        handles = [contestant.submit(workloads.multiply, left, right, out) for out in outs]
        for handle in handles:
            handle.result()

    turn()  # maps the pages and wakes BLAS's threads
    began = time.perf_counter()
    turn()
    seconds = time.perf_counter() - began
    expected = np.asarray(left)[0] @ np.asarray(right)
    if not all(np.allclose(np.asarray(out)[0], expected) for out in outs):
        raise RuntimeError("a product is wrong")
    contestant.close()
    return {"seconds": seconds}


def products_plain(side: int) -> dict[str, float]:
    """The same four products one after another in this process, BLAS's threads set from outside."""
    import numpy as np

    left, right, *outs = (np.zeros((side, side)) for _ in range(2 + TASKS))
    for operand in (left, right):
        _fill(operand)

    def turn() -> None:
        for out in outs:
            np.matmul(left, right, out=out)

    turn()
    began = time.perf_counter()
    turn()
    return {"seconds": time.perf_counter() - began}


def _fill(array: Any) -> None:
    import numpy as np

    view = np.asarray(array)
    view[:] = np.random.default_rng(7).random(view.shape)


def _blas(threads: int) -> dict[str, str]:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


SIDE = Size(3000, 120)
KERNELS = Contest(kernel, needs=("ropewalk", "numpy"), side=SIDE, repeats=Size(15, 3))


def _pooled(blas_threads: int) -> Contest:
    return Contest(products_pooled, needs=("ropewalk", "numpy"), side=SIDE, blas_threads=blas_threads)


def _plain(blas_threads: int) -> Contest:
    return Contest(products_plain, needs=("numpy",), environment=_blas(blas_threads), side=SIDE)


ALONE_2 = _plain(2).by("one process, 2 BLAS threads")
ALONE_1 = _plain(1).by("one process, 1 BLAS thread")


def _kernel(what: str, name: str) -> tuple[Line, Line]:
    """On shared against plain arrays; and against plain ones without huge pages.

    Where the kernel gives shared memory no huge pages, the second is the reason for the first.
    """
    against = f"{what}, shared against plain arrays"
    plain = {("ropewalk", f"{name} plain"): times_the_peer(1.02)}
    small = {("ropewalk", f"{name} small-paged"): None}
    return (
        Line(against, "ms", KERNELS, f"{name} shared", None, plain, scale=1e3),
        Line(f"{against} without huge pages", "ms", KERNELS, f"{name} shared", None, small, scale=1e3),
    )


ROW = Row(
    "kernel",
    "computing on shared 3000 × 3000 arrays",
    "Kernels: turn by turn in one worker on shared and on private arrays, pages mapped. Products: wall "
    "time of four tasks against four calls in a fresh process, pages mapped, threads awake, operands "
    "shared beforehand.",
    (
        *_kernel("out = a × 2.5 + 1 in place", "elementwise"),
        *_kernel("sums of rows", "rows"),
        Line(
            "four products, a BLAS thread to a worker",
            "s",
            _pooled(1),
            "seconds",
            None,
            {ALONE_2: times_the_peer(1.08), ALONE_1: None},
            "2 workers, 1 BLAS thread each",
        ),
        Line(
            "four products, two BLAS threads to a worker",
            "s",
            _pooled(2),
            "seconds",
            None,
            {ALONE_2: None},
            "2 workers, 2 BLAS threads each",
        ),
    ),
)
