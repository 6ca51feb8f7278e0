"""Runs other projects' own tests on our loop and on our sockets, and compares with asyncio, uvloop and libzmq.

python -m tests.foreign                      # every suite, on ours
python -m tests.foreign aiohttp --keep       # one; its environment is kept for the next time
python -m tests.foreign aiohttp --loop asyncio
python -m tests.foreign --list
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from tests.foreign import judge
from tests.foreign.differences import DIFFERENCES
from tests.foreign.run import BAD, Choice, Report, failures, run_suite
from tests.foreign.suites import BY_NAME, SUITES, Suite
from tests.foreign.summary import Row, compared, counted, missing, table
from tests.foreign.workplace import NotPrepared, Workplace, agreed, cache, freeze, prepare, remove

COLUMNS = ("passed", *BAD, "skipped")
#: How often a test that fails on ours alone is run again by itself.
_AGAIN = 2
#: How many of the tests that fail on a peer are named.
_SHOWN = 40


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="all if none is named")
    parser.add_argument("--list", action="store_true", help="the suites, and where their tests come from")
    parser.add_argument(
        "--loop", choices=("asyncio", "uvloop", "ropewalk"), default="ropewalk", help="for suites of loops"
    )
    parser.add_argument(
        "--sockets", choices=("libzmq", "ropewalk"), default="ropewalk", help="for suites of sockets"
    )
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="only tests whose name matches it somewhere"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the environments, and use those that were kept"
    )
    parser.add_argument("--fresh", action="store_true", help="run the reference again, too")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="SUITE=DIRECTORY",
        help="a checkout of the project, where its source releases hold no tests",
    )
    parser.add_argument(
        "--cache", type=Path, default=cache(), metavar="DIRECTORY", help="default: %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every result, for a closer look")
    parser.add_argument(
        "--freeze",
        type=Path,
        metavar="FILE",
        help="write what pip installed for all suites alike, as constraints",
    )
    arguments = parser.parse_args()
    for name in arguments.suites:
        if name not in BY_NAME:
            parser.error(f"there is no suite {name}; --list names them")
    return arguments


def _print_list() -> None:
    for suite in SUITES:
        origin = f"its repository at {suite.tag}, by --source" if suite.tag else "its source release"
        known = sum(entry.suite == suite.name for entry in DIFFERENCES)
        print(f"{suite.name} {suite.version}: against {suite.reference}; tests from {origin}; {known} known")


def _alone(suite: Suite, on: str, workplace: Workplace, arguments: argparse.Namespace) -> Report:
    """Runs a suite on a peer; what becomes of all tests on the reference is stored, unless some were not run."""
    print(f"{suite.name} {suite.version} on {on} ...", flush=True)
    report = run_suite(suite, on, workplace, Choice(arguments.only))
    _print_row(suite, on, report)
    failed = sorted(failures(report.results))
    for test in failed[:_SHOWN]:
        print(f"  {test}: {report.results[test].outcome}")
    if failed[_SHOWN:]:
        print(f"  and {len(failed) - _SHOWN} more")
    if report.trouble:
        print(f"  TROUBLE: {report.trouble}")
    elif on == suite.reference and not arguments.only:
        outcomes = {test: result.outcome for test, result in report.results.items()}
        _stored(suite, workplace).write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    return report


def _stored(suite: Suite, workplace: Workplace) -> Path:
    return workplace.home / f"{suite.reference}.json"


def _reference(
    suite: Suite, workplace: Workplace, arguments: argparse.Namespace
) -> tuple[dict[str, str], str]:
    """What becomes of the tests on the reference, stored or run now; and what went wrong beside them."""
    stored = _stored(suite, workplace)
    if stored.exists() and not arguments.fresh:
        outcomes: dict[str, str] = json.loads(stored.read_text(encoding="utf-8"))
        return outcomes, ""
    report = _alone(suite, suite.reference, workplace, arguments)
    return {test: result.outcome for test, result in report.results.items()}, report.trouble


def _print_row(suite: Suite, on: str, report: Report) -> None:
    counts = Counter(result.outcome for result in report.results.values())
    numbers = ", ".join(f"{counts[column]} {column}" for column in COLUMNS if counts[column])
    print(f"{suite.name} {suite.version} on {on}: {len(report.results)} tests: {numbers}", flush=True)


def _again(suite: Suite, workplace: Workplace, failed: set[str]) -> set[str]:
    """Of tests that failed, those that pass when they are run by themselves."""
    passed: set[str] = set()
    for _ in range(_AGAIN):
        left = tuple(sorted(failed - passed))
        if left:
            report = run_suite(suite, "ropewalk", workplace, Choice(only=left), "again")
            passed |= {test for test in left if test in report.results} - failures(report.results)
    return passed


def _compare(suite: Suite, workplace: Workplace, arguments: argparse.Namespace) -> tuple[Report, Row]:
    reference, trouble = _reference(suite, workplace, arguments)
    entries = judge.applying(DIFFERENCES, suite.name)
    hopeless = tuple(test for test, entry in entries.items() if entry.hangs)
    print(f"{suite.name} {suite.version} on ropewalk ...", flush=True)
    report = run_suite(suite, "ropewalk", workplace, Choice(arguments.only, hopeless=hopeless))
    if arguments.only:
        reference = {test: reference[test] for test in reference.keys() & report.results.keys()}
    found = judge.differing(report, reference)
    unknown = {test for test in found if judge.entry_of(entries, test) is None}
    passed_again = _again(suite, workplace, failures(report.results, unknown))
    verdict = judge.judge(found, passed_again, entries, report.results.keys() | reference.keys())
    _print_row(suite, "ropewalk", report)
    absent = [test for test in verdict.new if test not in report.results]
    for test in verdict.new:
        result = report.results.get(test)
        if result is not None:
            print(f"  NEW: {test}: {result.outcome}")
            print("\n".join(f"    | {line}" for line in result.detail.splitlines()[-25:]))
    for test in absent[:_SHOWN]:
        print(f"  NEW: {test}: not run")
    if absent[_SHOWN:]:
        print(f"  and {len(absent) - _SHOWN} more that were not run")
    for test in verdict.gone:
        print(f"  GONE: {test} does not differ any more, but is in the table: {entries[test].reason}")
    for test in verdict.unsteady:
        print(f"  UNSTEADY: {test} failed, and passed when run again")
    if report.trouble:
        print(f"  TROUBLE: {report.trouble}")
    print(
        f"  {len(verdict.new)} new, {len(verdict.gone)} gone, {len(verdict.expected)} as expected, "
        f"{len(verdict.unsteady)} unsteady; the log is {workplace.home / 'ropewalk.log'}",
        flush=True,
    )
    return report, compared(suite, report, reference, verdict, trouble)


def main() -> int:
    arguments = _arguments()
    # Told to end, it ends the suite's processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if arguments.list:
        _print_list()
        return 0
    checkouts = dict(source.split("=", 1) for source in arguments.source)
    everything, rows, frozen = {}, [], set()
    for suite in SUITES:
        if arguments.suites and suite.name not in arguments.suites:
            continue
        checkout = Path(checkouts[suite.name]) if suite.name in checkouts else None
        on = arguments.sockets if suite.swaps == "zmq" else arguments.loop
        try:
            workplace = prepare(suite, arguments.cache, checkout, on)
        except NotPrepared as error:
            print(f"{suite.name}: {error}", flush=True)
            rows.append(missing(suite, on))
            continue
        frozen |= set(freeze(workplace).splitlines()) if arguments.freeze else set()
        if on == "ropewalk":
            report, row = _compare(suite, workplace, arguments)
        else:
            report = _alone(suite, on, workplace, arguments)
            row = counted(suite, on, report)
        rows.append(row)
        everything[suite.name] = {test: result._asdict() for test, result in report.results.items()}
        if not arguments.keep:
            remove(workplace)
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    if arguments.freeze:
        arguments.freeze.write_text(agreed(frozen), encoding="utf-8")
    print(table(rows))
    wrong = [row.suite for row in rows if row.wrong]
    print(f"not as expected: {', '.join(wrong)}" if wrong else "all as expected")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
