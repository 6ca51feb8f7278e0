"""The benchmark of the foundation: executor, bus and results beside their Rust and C++ peers.

Builds the two programs (``contest`` in Rust, ``peers`` in C++) and plays them in turn::

    python benchmarks/foundation/measure.py                      # about three minutes; use a quiet machine
    python benchmarks/foundation/measure.py --only submit        # contests whose name holds this word
    python benchmarks/foundation/measure.py --quick              # does everything run? the figures mean nothing
    python benchmarks/foundation/measure.py --publish            # also writes docs/foundation.md and its plot
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import _page  # noqa: E402 - the modules of the other benchmarks are found by the line above
import _plot  # noqa: E402
from _assembly import compared  # noqa: E402
from _contests import CONTESTS  # noqa: E402
from _programs import Programs, interleave  # noqa: E402

from _report import FAILED, Section, tally  # noqa: E402

DOCS = HERE.parents[1] / "docs"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the foundation beside its peers.")
    parser.add_argument("--only", default="", metavar="WORD", help="contests whose name holds this word")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each contest (default: 7)")
    parser.add_argument("--quick", action="store_true", help="one small round: does everything run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's values")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures; needs matplotlib")
    parser.add_argument("--publish", action="store_true", help="put table and plot into docs/")
    return parser.parse_args()


def main() -> int:
    """Measure, and say what was found; 1 if a contender failed to run, goals met or missed."""
    asked = _arguments()
    programs = Programs.build(quick=asked.quick)
    # First, because it compiles: what it leaves warm or busy is gone when the contests begin.
    shapes = [compared()] if asked.only in "machine-code" else []
    sections: list[Section] = []
    for contest in CONTESTS:
        if asked.only not in contest.name:
            continue
        print(f"{contest.name}: {contest.title}", file=sys.stderr, flush=True)
        outcomes = interleave(programs, contest, 1 if asked.quick else asked.rounds)
        sections.append(
            Section(contest.name, contest.title, contest.includes, contest.figures(outcomes), outcomes)
        )
    sections += shapes

    surroundings = programs.surroundings()
    page = _page.markdown(surroundings, sections)
    print(page)
    if asked.markdown:
        asked.markdown.write_text(page, encoding="utf-8")
    if asked.json:
        asked.json.write_text(_page.as_json(surroundings, sections), encoding="utf-8")
    plots = [
        path for path in (asked.plot, DOCS / "img" / "foundation.svg" if asked.publish else None) if path
    ]
    for path in plots:
        _plot.draw(sections, path)
    if asked.publish:
        _page.publish(DOCS / "foundation.md", page)
    return 1 if tally(sections)[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
