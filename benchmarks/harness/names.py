"""Public names that two builds under comparison spell differently.

`compare` also plays the rows of this tree against a build from before the renaming of these names. This module exists
for such comparisons alone: a row that meets a renamed name takes it from here, and the module goes when no build from
before the renaming is compared any more.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any


def register_joblib() -> None:
    """Loads the adapter that joblib's backend is: `ropewalk.adapters.joblib`, once `ropewalk.joblib`."""
    try:
        importlib.import_module("ropewalk.adapters.joblib")
    except ModuleNotFoundError:
        importlib.import_module("ropewalk.joblib")


def limited(pool: Any, seconds: float) -> Any:
    """The pool with a limit for each of its tasks: `options(task_timeout=)`, once `options(timeout=)`."""
    known = inspect.signature(pool.options).parameters
    return pool.options(**{"task_timeout" if "task_timeout" in known else "timeout": seconds})
