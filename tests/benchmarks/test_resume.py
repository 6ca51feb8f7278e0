"""A run that goes on from what an earlier one has measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness import command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROW = "create"


def _run(folder: Path, *more: str) -> list[str]:
    assert command.main("results", ["--quick", "--only", ROW, "--json", str(folder / "run.json"), *more]) == 0
    return [section["name"] for section in json.loads((folder / "run.json").read_text())["sections"]]


def test_rows_of_an_earlier_run_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run(tmp_path) == [ROW]
    first = (tmp_path / "run.json").read_text()
    monkeypatch.delattr(command, "interleave")
    assert _run(tmp_path, "--resume") == [ROW]
    assert json.loads((tmp_path / "run.json").read_text())["sections"] == json.loads(first)["sections"]


def test_rows_that_a_file_does_not_hold_whole_are_measured(tmp_path: Path) -> None:
    _run(tmp_path)
    kept = json.loads((tmp_path / "run.json").read_text())
    kept["sections"][0]["measured"].popitem()
    (tmp_path / "run.json").write_text(json.dumps(kept))
    _run(tmp_path, "--resume")
    again = json.loads((tmp_path / "run.json").read_text())
    assert len(again["sections"][0]["measured"]) == len(kept["sections"][0]["measured"]) + 1
