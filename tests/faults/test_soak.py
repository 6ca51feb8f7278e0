"""A few seconds of `soak`, which runs for ten minutes by hand."""

from __future__ import annotations

import pytest
from tests.faults.soak import FATES, Report, Storm, soak


def _is_as_promised(report: Report) -> None:
    assert not report.wrong, f"seed {report.seed}: {report.wrong}"
    assert report.tasks == sum(counter.total() for counter in report.outcomes.values())
    assert set(report.outcomes) == set(FATES)
    assert report.chaos.total() > 0


@pytest.mark.parametrize(("seed", "threads"), [(1, 1), (2, 3)])
def test_chaos_with_accounts(seed: int, threads: int) -> None:
    _is_as_promised(soak(6.0, seed, rounds=2, threads=threads))


def test_a_worker_is_killed_every_50_ms_while_others_are_recycled() -> None:
    report = soak(12.0, 3, rounds=2, kind=Storm)
    _is_as_promised(report)
    assert report.outcomes["stream"]["returned"] > 0
    assert report.outcomes["of a session"]["returned"] > 0
