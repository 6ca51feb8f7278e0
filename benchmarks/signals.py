#!/usr/bin/env python3
"""The bus measured against its peers, every figure beside its goal.

    python benchmarks/signals.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

As `pools.py`; see README.md beside this file.
"""

from __future__ import annotations

import sys

import _rows_signals
from _driver import main

ROWS = (
    _rows_signals.THREADS,
    _rows_signals.ASYNCIO,
    _rows_signals.BROADCAST,
    _rows_signals.PROCESSES,
    _rows_signals.DELIVERY,
)

if __name__ == "__main__":
    sys.exit(main("Measure Ropewalk's signals against their peers.", ROWS))
