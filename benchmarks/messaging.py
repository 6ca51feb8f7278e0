#!/usr/bin/env python3
"""Messaging measured against its peers, every figure beside its goal.

    python benchmarks/messaging.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

As `pools.py`; see README.md beside this file. The rows that do not begin with `python` are played by the Rust programs
of `messaging/`, which this builds first.
"""

from __future__ import annotations

import sys

import _rows_messaging
import _rows_messaging_python
from _driver import main

ROWS = (*_rows_messaging.ROWS, *_rows_messaging_python.ROWS)

if __name__ == "__main__":
    sys.exit(main("Measure messaging against its peers.", ROWS))
