#!/usr/bin/env python3
"""Pools measured against their peers, every figure beside its goal.

    python benchmarks/pools.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

The exit status is 0 when everything ran, goals met or missed; 1 when a contestant that is installed failed;
2 for a wrong command line. See README.md beside this file for what is measured and how.
"""

from __future__ import annotations

import sys

import _rows_arrays
import _rows_demo
import _rows_faults
import _rows_functions
import _rows_joblib
import _rows_start
import _rows_tasks
from _driver import main

ROWS = (
    _rows_start.START,
    _rows_start.MEMORY,
    _rows_tasks.ROUNDTRIP,
    _rows_tasks.WINDOWED,
    _rows_tasks.MAP,
    _rows_functions.FUNCTIONS,
    _rows_joblib.JOBLIB,
    _rows_arrays.ARRAY,
    _rows_arrays.KERNEL,
    _rows_faults.KILL,
    _rows_faults.CANCEL,
    _rows_demo.DEMO,
)

if __name__ == "__main__":
    sys.exit(main("Measure Ropewalk's pools against their peers.", ROWS))
