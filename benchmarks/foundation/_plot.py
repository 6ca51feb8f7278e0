"""The figures as a picture: every contender's median and range beside ours, on a scale of factors."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _measure import Sample
    from _report import Figure, Section

#: The panels: a title and the lines that they show, by contest and beginning.
PANELS = (
    ("Empty task, from outside (ns)", "submit", "empty task, from outside"),
    ("Latency, idle, p50 (µs)", "latency-idle", "submit → complete, p50"),
    ("Publish to 10 subscribers (ns)", "publish-10", "publish to 10 subscribers, through"),
    ("Error through ten frames (ns)", "frames", "error made"),
)
OURS, THEIRS = "#1f6f8b", "#8a8a8a"


def _samples(sections: Sequence[Section], contest: str, beginning: str) -> list[tuple[str, Sample]]:
    lines: list[Figure] = [
        line
        for section in sections
        if section.name == contest
        for line in section.figures
        if line.what.startswith(beginning)
    ]
    found = {line.peer: line.theirs for line in lines if line.theirs}
    if lines and lines[0].ours:
        found["Ropewalk"] = lines[0].ours
    return sorted(found.items(), key=lambda item: -item[1].median)


def draw(sections: Sequence[Section], path: Path) -> None:
    """Draw the panels that were measured; says so and draws nothing where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no plot", file=sys.stderr)
        return
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "ropewalk", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    panels = [(title, samples) for title, *which in PANELS if (samples := _samples(sections, *which))]
    if not panels:
        print("nothing that was measured has a panel: no plot", file=sys.stderr)
        return
    drawing, axes = pyplot.subplots(len(panels), 1, figsize=(7, 1.8 * len(panels)), squeeze=False)
    for axis, (title, samples) in zip(axes[:, 0], panels, strict=True):
        for row, (name, sample) in enumerate(samples):
            colour, middle = OURS if name == "Ropewalk" else THEIRS, sample.median
            axis.hlines(row, sample.least, sample.greatest, color=colour, linewidth=2)
            axis.plot(middle, row, "o", color=colour)
            text = f"{middle:,.3g}" if middle < 1000 else f"{middle:,.0f}"
            axis.annotate(
                text, (middle, row), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=8
            )
        axis.set_yticks(range(len(samples)), [name for name, _ in samples])
        axis.set_ylim(-0.5, len(samples) - 0.2)
        axis.set_xscale("log")
        axis.grid(axis="x", color="#eeeeee")
        axis.set_axisbelow(True)
        axis.set_title(f"{title}; less is better", loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
