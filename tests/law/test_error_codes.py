"""docs/errors.md has every exception, with its code and what else it is."""

from __future__ import annotations

import builtins
import concurrent.futures.process
import pickle
import queue
import re
from pathlib import Path

from tests.law._tree import text

from windlass import _errors
from windlass.zmq import error as _zmq_errors

_ROW = re.compile(r"^\| `(\w+)` \| `(WL-[A-Z-]+)` \| ([^|]+) \|", re.MULTILINE)


def _classes() -> dict[str, type[_errors.WindlassError]]:
    return {
        name: value
        for name, value in {**vars(_errors), **vars(_zmq_errors)}.items()
        if isinstance(value, type) and issubclass(value, _errors.WindlassError)
    }


def test_every_error_is_on_the_page() -> None:
    rows = {name: code for name, code, _ in _ROW.findall(text(Path("docs/errors.md")))}
    assert rows == {name: value.code for name, value in _classes().items()}


def test_codes_are_unique() -> None:
    codes = [value.code for value in _classes().values()]
    assert len(codes) == len(set(codes))


def test_every_error_is_what_the_page_says() -> None:
    known = {
        **vars(builtins),
        **_classes(),
        "queue.Full": queue.Full,
        "queue.Empty": queue.Empty,
        "pickle.PicklingError": pickle.PicklingError,
        "BrokenProcessPool": concurrent.futures.process.BrokenProcessPool,
    }
    for name, _, bases in _ROW.findall(text(Path("docs/errors.md"))):
        for base in re.findall(r"`([\w.]+)`", bases):
            assert issubclass(_classes()[name], known[base]), f"{name} is no {base}"
