"""Draws the tables whose lines are points of curves: a panel for each table, a curve for each percentile and side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from harness.table import Figure, Section

OURS, THEIRS = "#1f6f8b", "#8a8a8a"
STYLES = ("-", "--", ":")


def is_curved(section: Section) -> bool:
    """Whether the table has points of curves."""
    return any(line.at is not None for line in section.figures)


def _points(lines: Sequence[Figure], *, ours: bool) -> list[tuple[float, float]]:
    """Where the curve of one side goes through."""
    sides = [(line.at, line.ours if ours else line.theirs) for line in lines]
    return sorted((at, side.median) for at, side in sides if at is not None and side is not None)


def draw_curves(axis: Any, section: Section) -> None:
    """One panel: Ropewalk against the peer that has the goal."""
    points = [line for line in section.figures if line.at is not None and line.goal]
    for style, curve in zip(STYLES, dict.fromkeys(line.curve for line in points), strict=False):
        lines = [line for line in points if line.curve == curve]
        # A case's label names its player and, with a slash, its rate.
        peer = next(part for part in lines[0].peer.split(", ") if "/" not in part)
        for ours, name, colour in ((False, peer, THEIRS), (True, "Ropewalk", OURS)):
            if found := _points(lines, ours=ours):
                axis.plot(*zip(*found, strict=True), style, color=colour, label=f"{name}, {curve}")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("messages each second", size=8)
    axis.set_ylabel("µs", size=8)
    axis.tick_params(which="both", labelsize=7)
    axis.legend(fontsize=6)
    axis.set_title(section.title, loc="left", size=9)
    axis.spines[["top", "right"]].set_visible(False)
