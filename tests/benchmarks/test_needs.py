"""What a case needs and this interpreter has not is found, and named."""

from __future__ import annotations

import sys

from harness.compare import _lacks
from harness.measure import lacking

NEEDS = (
    "json",
    "json:dumps",
    "json:no_such_name",
    "no_such_package",
    "no_such_package.part",
    "no_such_package:name",
)
LACKING = ["json:no_such_name", "no_such_package", "no_such_package.part", "no_such_package:name"]


def test_modules_and_names_in_them_are_found_lacking() -> None:
    assert lacking(NEEDS) == LACKING


def test_another_interpreter_is_asked_the_same() -> None:
    assert _lacks(sys.executable, NEEDS).split() == LACKING
