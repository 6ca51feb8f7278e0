"""A run as a graph: each step follows those that had ended when it began. As text, and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from ropewalk.flows._history import RunHistory, Step

#: More steps of one name in one layer are drawn as one box.
_MOST = 12
_WIDTH, _HEIGHT, _GAP, _MARGIN = 190, 46, 26, 20
_COLORS = {"finished": "#2e7d32", "failed": "#c62828", "running": "#1565c0", "mixed": "#ef6c00"}


class Box(NamedTuple):
    """A step, or several of one name that ran at the same time."""

    name: str
    state: str
    number: int
    began: float
    ended: float | None
    error: str

    @property
    def title(self) -> str:
        """What stands in it."""
        return self.name if self.number == 1 else f"{self.name} x {self.number}"

    def span(self) -> str:
        """How long it took."""
        return "not ended" if self.ended is None else seconds_of(self.ended - self.began)


def seconds_of(seconds: float) -> str:
    """Returns a span of time in a unit that suits it."""
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def layers_of(run: RunHistory) -> list[list[Box]]:
    """Returns the steps in layers: those of a layer began before any of them had ended."""
    layers: list[list[Step]] = []
    end = float("inf")
    for step in sorted(run.steps.values(), key=lambda step: step.began):
        # A tenth of a millisecond: the records of a step that ends and of the next that begins may have one time.
        if not layers or step.began >= end:
            layers.append([])
            end = float("inf")
        layers[-1].append(step)
        end = min(end, float("inf") if step.ended is None else step.ended)
        if step.form != "map":
            # A call in the flow's code ends before the next one begins.
            end = step.began
    return [_boxes(layer) for layer in layers]


def _boxes(layer: Sequence[Step]) -> list[Box]:
    by_name: dict[str, list[Step]] = {}
    for step in layer:
        by_name.setdefault(step.name, []).append(step)
    boxes: list[Box] = []
    for name, steps in by_name.items():
        groups = [[step] for step in steps] if len(steps) <= _MOST else [steps]
        for group in groups:
            states = {step.state for step in group}
            ends = [step.ended for step in group if step.ended is not None]
            boxes.append(
                Box(
                    name,
                    states.pop() if len(states) == 1 else "mixed",
                    len(group),
                    min(step.began for step in group),
                    max(ends) if len(ends) == len(group) else None,
                    next((step.error for step in group if step.error), ""),
                )
            )
    return boxes


def text_of(run: RunHistory) -> str:
    """Returns the graph as text, a line for each box."""
    marks = {"finished": "+", "failed": "x", "running": ">", "mixed": "~"}
    lines = [f"{run.id}  ({run.flow}, {run.state})"]
    layers = layers_of(run)
    for layer in layers:
        for index, box in enumerate(layer):
            branch = "|--" if index < len(layer) - 1 else "`--"
            stem = f"  {branch}" if len(layer) > 1 else "  |  "
            error = f"  {box.error.splitlines()[0][:80]}" if box.error else ""
            lines.append(f"{stem} [{marks[box.state]}] {box.title}  {box.span()}{error}")
    if not layers:
        lines.append("  no steps yet")
    return "\n".join(lines)


def svg_of(run: RunHistory) -> str:
    """Returns the graph as an SVG document."""
    layers = layers_of(run)
    widest = max((len(layer) for layer in layers), default=1)
    width = 2 * _MARGIN + widest * _WIDTH + (widest - 1) * _GAP
    height = 2 * _MARGIN + 30 + len(layers) * (_HEIGHT + _GAP)
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(width),
            "height": str(height),
            "viewBox": f"0 0 {width} {height}",
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )
    _text(root, _MARGIN, _MARGIN + 4, f"{run.id} ({run.flow}, {run.state})", weight="bold")
    above: list[tuple[float, float]] = []
    for row, layer in enumerate(layers):
        top = _MARGIN + 30 + row * (_HEIGHT + _GAP)
        left = (width - len(layer) * _WIDTH - (len(layer) - 1) * _GAP) / 2
        feet: list[tuple[float, float]] = []
        for column, box in enumerate(layer):
            x = left + column * (_WIDTH + _GAP)
            middle = x + _WIDTH / 2
            for from_x, from_y in above:
                line = {"x1": from_x, "y1": from_y, "x2": middle, "y2": top}
                shown = {key: f"{value:g}" for key, value in line.items()}
                ElementTree.SubElement(root, "line", {**shown, "stroke": "#9e9e9e"})
            _box(root, x, top, box)
            feet.append((middle, top + _HEIGHT))
        above = feet if len(feet) * len(above or [0]) <= 400 else feet[:1]
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _box(root: ElementTree.Element, x: float, y: float, box: Box) -> None:
    color = _COLORS[box.state]
    size = {"x": f"{x:g}", "y": f"{y:g}", "width": str(_WIDTH), "height": str(_HEIGHT), "rx": "6"}
    group = ElementTree.SubElement(root, "g")
    ElementTree.SubElement(group, "title").text = _for_xml(
        f"{box.title}: {box.state}" + (f", {box.error}" if box.error else "")
    )
    ElementTree.SubElement(group, "rect", {**size, "fill": "white", "stroke": color, "stroke-width": "2"})
    title = box.title if len(box.title) <= 26 else box.title[:25] + "…"
    _text(group, x + 10, y + 19, title, weight="bold")
    _text(group, x + 10, y + 36, f"{box.state}, {box.span()}", fill=color)


def _text(
    parent: ElementTree.Element,
    x: float,
    y: float,
    text: str,
    *,
    weight: str = "normal",
    fill: str = "#212121",
) -> None:
    place = {"x": f"{x:g}", "y": f"{y:g}", "font-weight": weight, "fill": fill}
    ElementTree.SubElement(parent, "text", place).text = _for_xml(text)


def _for_xml(text: str) -> str:
    """Returns a text without control characters, which XML has not."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)
