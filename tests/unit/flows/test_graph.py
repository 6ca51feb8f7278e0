"""Graphs of runs: which steps stand beside each other, and what is said of each."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ropewalk.flows._graph import layers_of, seconds_of, svg_of, text_of
from ropewalk.flows._history import Form, RunHistory, Step, StepState


def run_of(*steps: Step) -> RunHistory:
    run = RunHistory(1, "run", "flow", b"", b"", b"", 0.0)
    run.steps = {step.key: step for step in steps}
    return run


def made(
    number: int,
    name: str,
    form: Form,
    began: float,
    ended: float | None,
    state: StepState = "finished",
    error: str = "",
) -> Step:
    return Step(bytes([number]) * 16, name, form, state, began, ended, error=error)


def shapes(run: RunHistory) -> list[list[tuple[str, str]]]:
    return [[(box.title, box.state) for box in layer] for layer in layers_of(run)]


def test_steps_one_after_another_stand_below_each_other() -> None:
    run = run_of(
        made(1, "b", "call", 0, 1), made(2, "a", "call", 1, 2), made(3, "c", "sleep", 2, None, "running")
    )
    assert shapes(run) == [[("b", "finished")], [("a", "finished")], [("c", "running")]]


def test_steps_of_a_map_stand_beside_each_other() -> None:
    steps = [made(n, "mapped", "map", 1 + n / 100, 2 + n / 100) for n in range(3)]
    run = run_of(made(9, "first", "call", 0, 1), *steps, made(10, "last", "call", 3, 4))
    assert shapes(run) == [[("first", "finished")], [("mapped", "finished")] * 3, [("last", "finished")]]


def test_many_steps_of_a_name_are_one_box() -> None:
    steps = [made(n, "mapped", "map", 0, 1) for n in range(13)]
    run = run_of(*steps, made(20, "other", "map", 0, None, "running"))
    assert shapes(run) == [[("mapped x 13", "finished"), ("other", "running")]]
    steps[5].state, steps[5].error = "failed", "ValueError: five"
    (box,) = layers_of(run_of(*steps))[0]
    assert (box.title, box.state, box.error, box.span()) == (
        "mapped x 13",
        "mixed",
        "ValueError: five",
        "1.0 s",
    )
    steps[6].ended = None
    assert layers_of(run_of(*steps))[0][0].span() == "not ended"


def test_the_text() -> None:
    run = run_of(
        made(1, "one", "map", 0, 1),
        made(2, "two", "map", 0, 2, "failed", "ValueError: of two\nlines"),
        made(3, "last", "call", 2, None, "running"),
    )
    assert text_of(run).splitlines() == [
        "run  (flow, running)",
        "  |-- [+] one  1.0 s",
        "  `-- [x] two  2.0 s  ValueError: of two",
        "  |   [>] last  not ended",
    ]
    assert text_of(run_of()).splitlines()[1:] == ["  no steps yet"]


@pytest.mark.parametrize("count", [0, 1, 12, 30])
def test_the_drawing_is_well_formed_and_has_every_box_once(count: int) -> None:
    layer = [made(n, f"step {n}", "map", 0, 1) for n in range(count)]
    below = [
        made(100 + n, "a & <b> \x00\x1b" + "long" * 20, "map", 2, 3, "failed", "\ud800\x07") for n in range(2)
    ]
    run = run_of(*layer, *below)
    root = ElementTree.fromstring(svg_of(run).encode())
    assert len(root.findall("{*}g")) == count + 2
    assert len(root.findall("{*}line")) == 2 * count
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
        assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])


def test_spans_of_time() -> None:
    spans = [
        (-1, "0.0 ms"),
        (0.0123, "12.3 ms"),
        (1.5, "1.5 s"),
        (119, "119.0 s"),
        (600, "10 min"),
        (7200, "2.0 h"),
    ]
    assert [seconds_of(seconds) for seconds, _ in spans] == [text for _, text in spans]
