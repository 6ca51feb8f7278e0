"""The figures as a picture: every contender's time beside ours, on a scale of factors."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _report import Figure, Section

#: The panels: a title and the lines that they show, by contest and beginning.
PANELS = (
    ("Empty task, from outside (ns)", "submit", "empty task, from outside"),
    ("Latency, idle, p50 (µs)", "latency-idle", "submit → complete, p50"),
    ("Publish to 10 subscribers (ns)", "publish-10", "publish to 10 subscribers, through"),
    ("Error through ten frames (ns)", "frames", "error made"),
)
OURS, THEIRS = "#1f6f8b", "#b8b8b8"


def _bars(sections: Sequence[Section], contest: str, beginning: str) -> list[tuple[str, float]]:
    lines: list[Figure] = [
        line
        for section in sections
        if section.name == contest
        for line in section.figures
        if line.what.startswith(beginning) and line.ours
    ]
    bars = {line.peer: line.theirs.median for line in lines if line.theirs}
    if lines and lines[0].ours:
        bars["Windlass"] = lines[0].ours.median
    return sorted(bars.items(), key=lambda bar: -bar[1])


def draw(sections: Sequence[Section], path: Path) -> None:
    """Draw the panels that were measured; says so and draws nothing where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no plot", file=sys.stderr)
        return
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "windlass", "font.size": 9})
    from matplotlib import pyplot

    panels = [(title, bars) for title, *which in PANELS if (bars := _bars(sections, *which))]
    if not panels:
        print("nothing that was measured has a panel: no plot", file=sys.stderr)
        return
    drawing, axes = pyplot.subplots(len(panels), 1, figsize=(7, 1.9 * len(panels)), squeeze=False)
    for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
        names, values = zip(*bars, strict=True)
        colours = [OURS if name == "Windlass" else THEIRS for name in names]
        labels = [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values]
        axis.bar_label(axis.barh(names, values, color=colours), labels=labels, padding=3)
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 2, max(values) * 3)
        axis.set_title(f"{title}; less is better", loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
