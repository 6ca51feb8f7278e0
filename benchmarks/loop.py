#!/usr/bin/env python3
"""The event loop measured against its peers, every figure beside its goal.

    python benchmarks/loop.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

As `pools.py`; see README.md beside this file. On a free-threaded interpreter `--only foreign` is the row of interest.
"""

from __future__ import annotations

import sys

import _rows_loop_calls
import _rows_loop_io
from _driver import main

ROWS = (
    _rows_loop_calls.CALLS,
    _rows_loop_calls.TIMERS,
    _rows_loop_calls.TASKS,
    _rows_loop_calls.FOREIGN,
    _rows_loop_calls.WHOLE,
    _rows_loop_io.ECHO,
    _rows_loop_io.HTTP,
)

if __name__ == "__main__":
    sys.exit(main("Measure Ropewalk's event loop against its peers.", ROWS))
