"""Draws a run: each panel shows each contestant's median and range, on a scale of factors, or a table's curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.curves import OURS, THEIRS, draw_curves, is_curved
from harness.report import number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.measure import Sample
    from harness.table import Section


def _panels(sections: Sequence[Section]) -> list[tuple[str, list[tuple[str, Sample]]]]:
    """For each thing that was measured beside peers: its title, and who took how long, the slowest first."""
    panels: dict[str, dict[str, Sample]] = {}
    sections = [section for section in sections if not is_curved(section)]
    chosen = any(line.headline for section in sections for line in section.figures)
    for section in sections:
        for line in section.figures:
            if line.ours and line.theirs and (line.headline or not chosen):
                panel = panels.setdefault(f"{line.what} ({section.name}, {line.unit})", {})
                panel["Ropewalk"] = line.ours
                panel[line.peer] = line.theirs
    return [
        (title, sorted(known.items(), key=lambda item: -item[1].median)) for title, known in panels.items()
    ]


def draw(sections: Sequence[Section], path: Path) -> None:
    """Writes the picture; its kind is the file's suffix.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    mpl.rcParams.update({"svg.hashsalt": "ropewalk", "svg.fonttype": "none"})

    panels, curved = _panels(sections), [section for section in sections if is_curved(section)]
    heights = [*(len(known) + 1.5 for _, known in panels), *[10.0] * len(curved)]
    canvas = Canvas(figsize=(8, 0.32 * sum(heights) + 0.3), layout="constrained")
    axes = canvas.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, section in zip(axes[len(panels) :], curved, strict=True):
        draw_curves(axis, section)
    for axis, (title, known) in zip(axes, panels, strict=False):
        for place, (name, sample) in enumerate(known):
            colour = OURS if name == "Ropewalk" else THEIRS
            axis.plot([sample.least, sample.greatest], [place, place], color=colour, linewidth=5, alpha=0.35)
            axis.plot(sample.median, place, "o", color=colour)
            axis.annotate(
                f"{number(sample.median)}",
                (sample.median, place),
                xytext=(0, 6),
                textcoords="offset points",
                size=7,
            )
        axis.set_yticks(range(len(known)), [name for name, _ in known], size=8)
        axis.set_ylim(-0.7, len(known) - 0.2)
        axis.set_xscale("log")
        axis.tick_params(axis="x", which="both", labelsize=7)
        axis.set_title(title, loc="left", size=9)
        axis.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
