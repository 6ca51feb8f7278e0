"""Row: joblib over each of its backends, as scikit-learn uses it: many short calls of `Parallel`, one after another."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

import _workloads
from _measure import Case, Options, Outcome
from _report import Figure, figure, times_the_peer
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BACKENDS = ("ropewalk", "loky")
WORKERS = 2


def _backend(name: str) -> Any:
    if name == "ropewalk":
        importlib.import_module("ropewalk.adapters.joblib")
    return importlib.import_module("joblib")


def calls(backend: str, count: int) -> dict[str, float]:
    """The seconds of one call of `Parallel` with twenty trivial tasks, its pool warm."""
    joblib: Any = _backend(backend)
    with joblib.parallel_config(backend=backend, n_jobs=WORKERS):
        work = [joblib.delayed(_workloads.increment)(number) for number in range(20)]
        expected = joblib.Parallel()(work)
        began = time.perf_counter()
        for _ in range(count):
            if joblib.Parallel()(work) != expected:
                raise RuntimeError("a wrong result")
        return {"seconds": (time.perf_counter() - began) / count}


def validation(backend: str, count: int) -> dict[str, float]:
    """The seconds of a five-fold `cross_val_score` of a small forest."""
    joblib: Any = _backend(backend)
    datasets: Any = importlib.import_module("sklearn.datasets")
    selection: Any = importlib.import_module("sklearn.model_selection")
    ensemble: Any = importlib.import_module("sklearn.ensemble")
    samples, classes = datasets.make_classification(2000, 20, random_state=0)
    forest = ensemble.RandomForestClassifier(10, random_state=0)
    with joblib.parallel_config(backend=backend, n_jobs=WORKERS):
        selection.cross_val_score(forest, samples, classes, cv=5)
        began = time.perf_counter()
        for _ in range(count):
            selection.cross_val_score(forest, samples, classes, cv=5)
        return {"seconds": (time.perf_counter() - began) / count}


def _cases(options: Options) -> Sequence[Case]:
    contests = (
        ("calls", calls, options.size(50, 2), ("joblib",)),
        ("validation", validation, options.size(5, 1), ("joblib", "sklearn")),
    )
    return [
        Case(
            f"{name} by {backend}",
            f"_rows_joblib:{contest.__name__}",
            {"backend": backend, "count": count},
            needs,
        )
        for name, contest, count, needs in contests
        for backend in BACKENDS
    ]


def _figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    for name, what in (
        ("calls", "a `Parallel` of 20 trivial tasks, warm"),
        ("validation", "`cross_val_score` of a small forest, 5 folds, warm"),
    ):
        yield figure(
            outcomes,
            what,
            "ms",
            (f"{name} by ropewalk", "seconds"),
            (f"{name} by loky", "seconds"),
            scale=1e3,
            goal=times_the_peer(1.0),
        )


JOBLIB = Row(
    "joblib",
    "joblib, 2 workers",
    "Wall time of a call, after one that warms the workers up; both backends keep theirs between calls.",
    _cases,
    _figures,
)
