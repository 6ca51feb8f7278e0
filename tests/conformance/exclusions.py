"""The table of CPython's executor tests that are not run against `ropewalk.Pool`, each with the reason.

A test is here only if it looks at a private part of the standard library's own executors, or at something that is not
in the contract of `concurrent.futures.Executor`. `test_stdlib.py` holds the table to the installed interpreter: an
entry for which there is no test fails.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Exclusion(NamedTuple):
    """One test, or one class of tests if `test` is empty."""

    module: str
    kind: str
    test: str
    reason: str
    #: The versions of Python that have it: from this one on, and before that one.
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (4,)

    @property
    def applies(self) -> bool:
        """Whether the running interpreter should have the test."""
        return self.since <= tuple(sys.version_info[:3]) < self.until


ON_DEMAND = (
    "Counts workers that are started one by one as tasks come; a Pool starts all of them when it is made."
)
CONTEXT = "Looks at the private context of multiprocessing; a Pool's workers come from a zygote, whatever the limit."
FORCED = (
    "terminate_workers and kill_workers are ProcessPoolExecutor's own methods, not in the Executor contract."
)
NAMES = (
    "The names of the executor's threads, which are not in the Executor contract; Pool(name=...) has its own."
)

EXCLUSIONS = (
    Exclusion("test_shutdown", "thread", "test_threads_terminate", ON_DEMAND),
    Exclusion("test_shutdown", "thread", "test_thread_names_assigned", NAMES),
    Exclusion("test_shutdown", "thread", "test_thread_names_default", NAMES),
    Exclusion("test_thread_pool", "thread", "test_idle_thread_reuse", ON_DEMAND),
    Exclusion(
        "test_thread_pool",
        "thread",
        "test_default_workers",
        "ThreadPoolExecutor's own default, five threads and more; a Pool has one worker for each usable core.",
    ),
    Exclusion("test_process_pool", "process", "test_max_tasks_per_child_defaults_to_spawn_context", CONTEXT),
    Exclusion("test_process_pool", "process", "test_idle_process_reuse_one", ON_DEMAND),
    Exclusion("test_process_pool", "process", "test_idle_process_reuse_multiple", ON_DEMAND),
    Exclusion(
        "test_process_pool",
        "process",
        "test_python_finalization_error",
        "Makes the executor's private feeder thread fail to start; a Pool needs no such thread.",
    ),
    Exclusion("test_process_pool", "process", "test_terminate_workers", FORCED, since=(3, 14)),
    Exclusion("test_process_pool", "process", "test_kill_workers", FORCED, since=(3, 14)),
    Exclusion("test_process_pool", "process", "test_force_shutdown_workers", FORCED, since=(3, 14)),
    Exclusion(
        "test_process_pool", "process", "test_force_shutdown_workers_dead_workers", FORCED, since=(3, 14)
    ),
    Exclusion(
        "test_process_pool", "process", "test_force_shutdown_workers_invalid_op", FORCED, since=(3, 14)
    ),
    Exclusion(
        "test_process_pool", "process", "test_force_shutdown_workers_not_started_yet", FORCED, since=(3, 14)
    ),
    Exclusion(
        "test_process_pool", "process", "test_force_shutdown_workers_stops_pool", FORCED, since=(3, 14)
    ),
    Exclusion(
        "test_deadlock",
        "process",
        "test_gh105829_should_not_deadlock_if_wakeup_pipe_full",
        "Replaces the private thread and pipe of the standard library's executor; a Pool has neither.",
        since=(3, 12),
    ),
    Exclusion(
        "test_init",
        "none",
        "FailingInitializerResourcesTest",
        "Watches the resource tracker of multiprocessing; a Pool does not use it.",
    ),
)
