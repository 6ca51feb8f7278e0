"""Workers that are killed at random; `kill_storm.py` runs longer storms by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.faults.kill_storm import storm


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_storm_costs_what_was_running_and_nothing_else(make_pool: Callable[..., Any], workers: int) -> None:
    pool = make_pool(workers, kind="process")
    report = storm(pool, kills=60, seed=workers)
    assert report.wrong == 0
    assert report.failed <= report.kills == report.crashed == 60
    assert report.running == 0
    assert [pool.submit(tasks.square, n).result(60) for n in range(20)] == [n * n for n in range(20)]
