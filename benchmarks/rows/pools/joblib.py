"""Table: joblib over each of its backends, as scikit-learn uses it: many short calls of `Parallel`."""

from __future__ import annotations

import importlib
import time
from typing import Any

from harness import names, workloads
from harness.measure import Size
from harness.table import Contest, Line, Row, times_the_peer

WORKERS = 2


def _backend(name: str) -> Any:
    if name == "ropewalk":
        names.register_joblib()
    return importlib.import_module("joblib")


def calls(backend: str, count: int) -> dict[str, float]:
    """The seconds of one call of `Parallel` with twenty trivial tasks, its pool warm."""
    joblib: Any = _backend(backend)
    with joblib.parallel_config(backend=backend, n_jobs=WORKERS):
        work = [joblib.delayed(workloads.increment)(number) for number in range(20)]
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


BACKENDS: dict[str, tuple[str, ...]] = {"ropewalk": ("ropewalk", "joblib"), "loky": ("joblib",)}
CALLS = Contest(calls, "calls", BACKENDS, as_argument="backend", count=Size(50, 2))
VALIDATION = Contest(
    validation, "validation", BACKENDS, as_argument="backend", needs=("sklearn",), count=Size(5, 1)
)
LOKY = {"loky": times_the_peer(1.0)}

ROW = Row(
    "joblib",
    "joblib, 2 workers",
    "Wall time of a call, after one that warms the workers up; both backends keep theirs between calls.",
    (
        Line("a `Parallel` of 20 trivial tasks, warm", "ms", CALLS, "seconds", None, LOKY, scale=1e3),
        Line(
            "`cross_val_score` of a small forest, 5 folds, warm",
            "ms",
            VALIDATION,
            "seconds",
            None,
            LOKY,
            scale=1e3,
        ),
    ),
)
