"""The kinds of pool that the tests run over: the table to which a new kind adds its line."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One way to make a pool."""

    #: What the tests' names say.
    name: str
    #: Arguments of `Pool` besides the number of workers.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Why pools of this kind cannot be made here; empty if they can.
    missing: str = ""
    #: Whether its workers may be on other machines: only the suite over all kinds makes such pools, on a small cluster.
    is_remote: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether `kind=` says all about it."""
        return self.settings == {"kind": self.name}

    def __str__(self) -> str:
        return self.name


KINDS = (
    Kind("process", {"kind": "process"}),
    Kind("process x threads", {"kind": "process", "threads": 2}),
    Kind("thread", {"kind": "thread"}),
    Kind(
        "interpreter",
        {"kind": "interpreter"},
        missing="" if sys.version_info >= (3, 14) else "interpreters are workers from Python 3.14 on",
    ),
    Kind(
        "ray",
        {"kind": "ray"},
        missing="" if importlib.util.find_spec("ray") else "Ray is not installed",
        is_remote=True,
    ),
)

#: What not every kind has, and the kinds that have it. `docs/pools.md` has this table for users, and
#: `tests/conformance/test_kinds.py` tests both halves of every row.
DIFFERENCES = {
    "a running task can be ended": {"process", "interpreter", "ray"},
    "a worker that crashes costs only its tasks": {"process", "ray"},
    "workers have objects of their own": {"process", "interpreter", "ray"},
    "a task has an environment and a folder of its own": {"process", "ray"},
    "a task can set handlers of signals": {"process"},
    "NumPy loads in a worker": {"process", "thread", "ray"},
    "a task can fork, and make a pool": {"process", "thread", "ray"},
    "`threads=`, `max_rss=`": {"process"},
    "`hang_timeout=`": {"process", "thread"},
    "`max_tasks=`, `max_age=`, `recycle()`": {"process", "interpreter", "ray"},
    "`min_workers=`": {"process", "interpreter"},
    "`statistics().worker_pids`": {"process", "ray"},
}

#: The kinds whose workers cannot import NumPy, and why.
WITHOUT_NUMPY = {
    kind.name: f"{kind.name}s do not load NumPy"
    for kind in KINDS
    if kind.is_plain and kind.name not in DIFFERENCES["NumPy loads in a worker"]
}
