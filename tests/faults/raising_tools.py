"""A tool that raises, for the scenes of `exit_scenes.py`."""

from __future__ import annotations

from ropewalk.serving import tool


@tool
def fail() -> None:
    """Raises."""
    raise ValueError("always")
