"""Random generators that a preloaded module has made: each worker draws different numbers."""

from __future__ import annotations

import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.pool.worker import _random

np: Any = pytest.importorskip("numpy")

MODULE = """
import os
import random
import time

import numpy as np

PYTHON = random.Random(1)
GENERATOR = np.random.default_rng(2)
LEGACY = np.random.RandomState(3)
LEGACY.normal()  # The second of the pair is kept for the next call.
BITS = np.random.Philox(4)
HIDDEN = {"in": [np.random.Generator(np.random.SFC64(5))]}


def start():
    global SEEDED
    np.random.seed(6)
    SEEDED = np.random.random()


def draw(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    # So that every worker takes one.
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getpid(), {
        "the standard module": random.random(),
        "an instance of it": PYTHON.random(),
        "NumPy's module": np.random.random(),
        "a generator": GENERATOR.random(),
        "a child of it": GENERATOR.spawn(1)[0].random() if hasattr(GENERATOR, "spawn") else os.getpid(),
        "a legacy generator": LEGACY.normal(),
        "bits": int(BITS.random_raw()),
        "one out of sight": HIDDEN["in"][0].random(),
    }


def seeded(folder):
    draw(folder)
    return SEEDED
"""


@pytest.fixture
def drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "drawing_numbers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import drawing_numbers  # type: ignore[import-not-found]

    yield drawing_numbers
    del sys.modules["drawing_numbers"]


def test_no_two_workers_draw_the_same_numbers(
    drawing: Any, tmp_path: Path, make_pool: Callable[..., Any]
) -> None:
    folder = tmp_path / "met"
    folder.mkdir()
    pool = make_pool(3, kind="process", preload=["drawing_numbers"])
    drawn = dict(future.result(90) for future in [pool.submit(drawing.draw, str(folder)) for _ in range(3)])
    assert len(drawn) == 3
    for what in next(iter(drawn.values())):
        assert len({numbers[what] for numbers in drawn.values()}) == 3, what


def test_an_initializer_may_seed_on_purpose(
    drawing: Any, tmp_path: Path, make_pool: Callable[..., Any]
) -> None:
    folder = tmp_path / "met"
    folder.mkdir()
    pool = make_pool(3, kind="process", preload=["drawing_numbers"], initializer=drawing.start)
    numbers = [future.result(90) for future in [pool.submit(drawing.seeded, str(folder)) for _ in range(3)]]
    assert numbers == [np.random.RandomState(6).random_sample()] * 3


def test_pytorch_is_seeded_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A stand-in with the two names that are used of it.
    (tmp_path / "torch.py").write_text(
        textwrap.dedent(
            """
            SEEDED = []
            def seed():
                SEEDED.append("module")
            class Generator:
                def seed(self):
                    SEEDED.append("generator")
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    import torch  # type: ignore[import-not-found, unused-ignore]

    try:
        mine = torch.Generator()
        found = [each for each in _random.find() if each is mine]
        _random.reseed(found)
        assert torch.SEEDED == ["generator", "module"]
    finally:
        del sys.modules["torch"]


def test_one_that_cannot_be_seeded_is_told() -> None:
    class Stubborn(random.Random):
        def seed(self, *_: Any) -> None:
            if getattr(self, "made", False):
                raise ValueError("not now")

    stubborn = Stubborn()
    stubborn.made = True  # type: ignore[attr-defined]
    assert any(each is stubborn for each in _random.find())
    with pytest.warns(RuntimeWarning, match=r"Stubborn.*not now"):
        _random.reseed([stubborn])
