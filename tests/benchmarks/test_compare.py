"""The verdicts of `compare` on rounds whose outcome is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness import compare, measure
from harness.compare import FASTER, SAME, SLOWER, UNCLEAR, Build, Comparison, Measure, chance
from harness.measure import Case
from harness.table import Contest, Line, Row


def test_a_share_of_a_size_is_less_work_and_never_less_than_a_smoke_run() -> None:
    third = measure.Options(share=0.3)
    assert measure.Size(100, 3).of(third) == 30
    assert measure.Size(0.5, 0.02).of(third) == pytest.approx(0.15)
    assert measure.Size(4, 2).of(third) == 2
    assert measure.Size(2, 100).of(third) == 6  # every sixth file in place of every second
    assert measure.Size(100, 3).of(measure.Options()) == 100


def _measure(before: list[float], after: list[float], *, more_is_better: bool = False) -> Measure:
    return Measure("suite/row", "what", "ns", more_is_better, before, after)


def test_chance_counts_the_orders_of_two_samples() -> None:
    # Of the 252 orders of five and five values, one has all of one sample above all of the other.
    assert chance([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(1 / 252)
    assert chance([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == 1
    assert chance([1, 4], [2, 3]) == pytest.approx(4 / 6)
    assert chance([1] * 5, [1] * 5) > 0.4


@pytest.mark.parametrize("more_is_better", [False, True])
def test_a_build_that_is_clearly_worse_is_slower(more_is_better: bool) -> None:
    low, high = [100.0, 101, 102, 103, 104], [110.0, 111, 112, 113, 114]
    before, after = (high, low) if more_is_better else (low, high)
    assert _measure(before, after, more_is_better=more_is_better).verdict == SLOWER
    assert _measure(after, before, more_is_better=more_is_better).verdict == FASTER


def test_less_than_three_percent_is_the_same() -> None:
    assert _measure([100.0, 100, 100, 100, 100], [102.0, 102, 102, 102, 102]).verdict == SAME


def test_more_than_the_margin_within_the_noise_is_unclear() -> None:
    assert _measure([90.0, 150, 100, 130, 95], [140.0, 92, 131, 99, 120]).verdict == UNCLEAR


def test_an_alarm_counts_if_new_rounds_confirm_it() -> None:
    low, high = [100.0, 101, 102, 103, 104], [110.0, 111, 112, 113, 114]
    confirmed = _measure([*low, *low], [*high, *high])
    confirmed.again = 5
    assert confirmed.verdict == SLOWER
    refuted = _measure([*low, *low], [*high, *high, *high][:10])
    refuted.after[-5:] = low
    refuted.again = 5
    assert refuted.verdict != SLOWER


def test_two_samples_of_one_build_rarely_alarm() -> None:
    chosen = random.Random(11)
    alarms = 0
    for _ in range(300):
        sides = [[chosen.gauss(100, 10) for _ in range(8)] for _ in range(2)]
        alarms += _measure(*sides).verdict == SLOWER
    assert alarms < 12


def _contest(peer: str) -> dict[str, float]:
    raise NotImplementedError(peer)


LINES = (
    Line("one", "ns", Contest(_contest, players={"ropewalk": (), "peer": ()}), "ns", None, {"peer": None}),
    Line("two", "ns", Contest(_contest, players={"ropewalk": (), "peer": ()}), "other", None, {"peer": None}),
)
ROW = Row("row", "title", "includes", LINES)


def test_a_comparison_plays_our_side_by_both_builds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def play(case: Case, arguments: dict[str, object], python: str) -> dict[str, float]:
        assert case.label == "ropewalk"
        turns.append(python)
        return {"ns": 100.0, "other": 100.0 if python == "before" else 120.0 + len(turns)}

    monkeypatch.setattr(compare, "play", play)
    monkeypatch.setattr(compare, "_lacks", lambda *_: "")
    comparison = Comparison(Build("before", None), Build("after", None), seconds=0.0)
    one, two = comparison.compare("suite", ROW)
    # Five rounds, and five more for the alarm; each set begins with a small one that is not counted.
    assert turns == ["before", "after", *(["before", "after", "after", "before"] * 3)[:10]] * 2
    assert (one.verdict, two.verdict) == (SAME, SLOWER)


def test_a_case_that_fails_is_told_and_the_others_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(case: Case, arguments: dict[str, object], python: str) -> dict[str, float]:
        raise RuntimeError("it is broken")

    monkeypatch.setattr(compare, "play", play)
    monkeypatch.setattr(compare, "_lacks", lambda *_: "")
    comparison = Comparison(Build("before", None), Build("after", None), seconds=0.0)
    assert comparison.compare("suite", ROW) == []
    assert comparison.failures == ["suite/row, ropewalk: it is broken"]


def test_programs_are_left_out_unless_both_builds_have_theirs() -> None:
    assert measure.Options(programs=Path("/nowhere")).programs is not None
    comparison = Comparison(Build("before", None), Build("after", None), seconds=0.0)
    case = Case("ropewalk", "harness.programs:play", ours=True)
    assert "--programs" in comparison._unable(case)
