#!/usr/bin/env python3
"""Ropewalk measured against its peers, every figure beside its goal; and one build of Ropewalk against another.

    python benchmarks pools [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]
    python benchmarks compare BEFORE AFTER [ROW...]

The suites are pools, loop, signals, results, journal, state, messaging, foundation and
serving. The exit status is 0 when
everything ran, goals met or missed; 1 when a contestant that is installed failed, or when a row of `compare` became
slower; 2 for a wrong command line. See README.md beside this file for what is measured and how.
"""

from __future__ import annotations

import sys

from harness import command, compare
from harness.suites import SUITES


def main() -> int:
    """Run the command that the first argument names."""
    name, *arguments = sys.argv[1:] or [""]
    if name == "compare":
        return compare.main(arguments)
    if name in SUITES:
        return command.main(name, arguments)
    print(__doc__, file=sys.stdout if name in ("-h", "--help") else sys.stderr)
    return 0 if name in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
