"""What a page shows of a run: the best peer of a figure, whether it leads, the floor, and who was left out."""

from __future__ import annotations

from harness.measure import Outcome
from harness.report import summary
from harness.table import Contest, Line, Row, Section, at_most, times_better


def _nothing() -> dict[str, float]:
    return {}


PLAYERS = dict.fromkeys(("ropewalk", "fast", "slow", "raw", "absent"), ())
CONTEST = Contest(_nothing, "a contest", PLAYERS)
PEERS = {"slow": None, "fast": times_better(2), "raw": None, "absent": None}


def _page(*, more: bool, **values: float) -> list[str]:
    line = Line("time", "µs", CONTEST, "x", at_most(4), PEERS, more_is_better=more)
    row = Row("row", "Title", "What is in it.", (line,))
    outcomes = {
        case.label: Outcome({"x": [values[case.player]]} if case.player in values else {})
        for case in row.cases()
    }
    outcomes["absent, a contest"].failure = "absent not installed"
    made = Section(row.name, row.title, row.includes, row.figures(outcomes), outcomes)
    return summary({}, [made]).splitlines()


def test_the_best_peer_is_the_one_with_the_least_where_less_is_better() -> None:
    assert (
        "| time | µs | 5 | fast 4 | **0.8×** | slow 9 (1.8×) | 2 raw | ≤ 4 µs (**missed**); ≥ 2× fast (**missed**) |"
        in (_page(more=False, ropewalk=5, fast=4, slow=9, raw=2))
    )


def test_the_best_peer_is_the_one_with_the_most_where_more_is_better() -> None:
    page = _page(more=True, ropewalk=4, fast=2, slow=1, raw=9)
    assert "| time | µs | 4 | fast 2 | 2× | slow 1 (4×) | 9 raw | ≤ 4 µs; ≥ 2× fast |" in page


def test_who_is_not_installed_is_named_once() -> None:
    page = _page(more=False, ropewalk=5, fast=4, slow=9, raw=2)
    assert page[-1] == "- absent not installed"
    assert sum("absent" in text for text in page) == 1
