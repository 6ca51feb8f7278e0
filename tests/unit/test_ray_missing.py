"""`kind="ray"` where Ray is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import ropewalk


def test_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = importlib.util.find_spec
    missing: Any = lambda name, *more: None if name == "ray" else plain(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(ropewalk.ExtraMissing, match=r"pip install 'ropewalk\[ray\]'"):
        ropewalk.Pool(1, kind="ray")
    with pytest.raises(ImportError):
        ropewalk.Pool(1, kind="ray")


@pytest.mark.parametrize("settings", [{"address": "auto"}, {"ray_options": {}}])
def test_settings_of_this_kind_alone(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='is for kind="ray", and this pool has kind='):
        ropewalk.Pool(1, kind="thread", **settings)
