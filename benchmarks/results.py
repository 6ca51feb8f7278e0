#!/usr/bin/env python3
"""Results measured against their peers, every figure beside its goal.

    python benchmarks/results.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

As `pools.py`; see README.md beside this file.
"""

from __future__ import annotations

import sys

import _rows_results
from _driver import main

ROWS = (_rows_results.CREATE, _rows_results.CHAIN, _rows_results.FAILURE)

if __name__ == "__main__":
    sys.exit(main("Measure Ropewalk's results against their peers.", ROWS))
