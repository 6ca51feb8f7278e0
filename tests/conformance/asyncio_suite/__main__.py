"""The table of CPython's asyncio tests: how many pass on which loop.

python -m tests.conformance.asyncio_suite --loop asyncio --loop uvloop --loop ropewalk
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.asyncio_suite.exclusions import EXCLUSIONS
from tests.conformance.asyncio_suite.loops import LOOPS
from tests.conformance.asyncio_suite.suite import BAD, Report, Result, complaints, modules, run_module

COLUMNS = ("passed", *BAD, "skipped")


def _row(loop: str, what: str, results: list[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    numbers = " | ".join(f"{counts[column]}" for column in COLUMNS)
    return f"| {loop} | {what} | {len(results)} | {numbers} |"


def _rows(loop: str, results: list[Result]) -> list[str]:
    return [
        _row(loop, "all", results),
        _row(loop, "loop mixins", [result for result in results if result.is_mixin]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="such as test_events; all if none is named"
    )
    parser.add_argument("--loop", action="append", choices=LOOPS, help="may be given more than once")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time")
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds after which a test counts as hung"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every result, for a closer look")
    parser.add_argument("--all", action="store_true", help="also the modules that never make a loop")
    parser.add_argument("--list", action="store_true", help="name the tests that did not pass")
    arguments = parser.parse_args()
    table, everything, listed, wrong = [], {}, [], []
    for loop in arguments.loop or ["ropewalk"]:

        def run(module: str, loop: str = loop) -> Report:
            return run_module(module, loop, arguments.patience)

        with ThreadPoolExecutor(arguments.jobs) as executor:
            reports = list(executor.map(run, arguments.modules or modules(left_out=arguments.all)))
        results = [result for report in reports for result in report.results]
        table += _rows(loop, results)
        everything[loop] = [result.__dict__ for result in results]
        for report in reports:
            if arguments.list:
                listed += [f"{loop}: {r.test} {r.outcome}" for r in report.results if r.outcome in BAD]
            if loop == "ropewalk":
                wrong += complaints(report, EXCLUSIONS)
            elif report.trouble:
                wrong.append(f"{loop}: {report.module}: {report.trouble}")
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    print("\n".join(listed + wrong))
    print(f"CPython {platform.python_version()}")
    print(f"| loop | tests | run | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---|" * (len(COLUMNS) + 1))
    print("\n".join(table))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
