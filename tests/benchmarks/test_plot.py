"""What a run needs for its picture is asked for before it measures anything."""

from __future__ import annotations

import pytest

from harness import command


def test_a_picture_without_matplotlib_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    monkeypatch.delattr(command, "interleave")
    with pytest.raises(SystemExit):
        command.main("results", ["--quick", "--only", "create", "--plot", "run.svg"])
    assert "needs matplotlib" in capsys.readouterr().err
