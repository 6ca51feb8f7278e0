"""Finds the suites and their tables by the names in `rows`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rows import SUITES

if TYPE_CHECKING:
    from harness.table import Row

__all__ = ["SUITES", "is_called", "rows_of"]


def rows_of(suite: str) -> list[Row]:
    """The tables of a suite, in the order of its `TABLES`; a file has one `ROW`, or several `ROWS` of one kind."""
    found: list[Row] = []
    for table in importlib.import_module(f"rows.{suite}").TABLES:
        module: Any = importlib.import_module(f"rows.{suite}.{table}")
        found += getattr(module, "ROWS", None) or (module.ROW,)
    return found


def is_called(row: Row, word: str) -> bool:
    """Whether a word on the command line names a row: by its name, or by the first part of `publish-10`."""
    return row.name == word or row.name.startswith(f"{word}-")
