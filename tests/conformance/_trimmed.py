"""Fills a hole in trimmed copies of CPython's `test` package.

A module of the executor tests takes a decorator from `test.test_importlib`, which smaller builds leave out. Importing
this module puts a decorator of that name in its place if the real one is missing; workers import it as well, since
they import the tests.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

HOME = "test.test_importlib.metadata.fixtures"


def parameterize(*sets: dict[str, Any]) -> Callable[[Any], Any]:
    """Runs a test once with each set of arguments, as a subtest."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(self: unittest.TestCase) -> None:
            for parameters in sets:
                with self.subTest(**parameters):
                    test(self, **parameters)

        return run

    return decorate


if importlib.util.find_spec("test") is not None and importlib.util.find_spec("test.test_importlib") is None:
    for _dots in (2, 1, 0):
        _name = HOME.rsplit(".", _dots)[0]
        sys.modules[_name] = types.ModuleType(_name)
    sys.modules[HOME].parameterize = parameterize  # type: ignore[attr-defined]
