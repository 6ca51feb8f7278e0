"""The two programs, and how they are played in turn.

A round of a contender is a process of its own: no one inherits another's threads or heap, and Rust and C++ take turns
within one run, so that a slow minute of the machine falls on all of them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from _measure import Outcome, surroundings as machine

if TYPE_CHECKING:
    from _contests import Contest

HERE = Path(__file__).resolve().parent
#: What a contender may take for one round, a thousand times what most take.
PATIENCE = 60.0
#: The contenders of the C++ program; the Rust program has all others.
CXX = ("taskflow", "BS::thread_pool", "std::", "eventpp", "exception")


@dataclass(frozen=True)
class Programs:
    """The built programs."""

    folder: Path
    cxx: str
    quick: bool

    @classmethod
    def build(cls, *, quick: bool) -> Programs:
        """Build both, optimised alike.

        Raises:
            subprocess.CalledProcessError: A compiler refused; it has said why.
        """
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE, check=True)
        told = subprocess.run(
            ["cargo", "metadata", "--no-deps", "--format-version", "1"],
            cwd=HERE, check=True, capture_output=True,
        )  # fmt: skip
        folder = Path(json.loads(told.stdout)["target_directory"], "release")
        cxx = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        if not cxx:
            print("no C++ compiler found: the C++ peers are left out", file=sys.stderr)
            return cls(folder, "", quick)
        command = [cxx, "-std=c++23", "-O2", "-DNDEBUG", "-pthread", str(HERE / "peers.cpp")]
        subprocess.run([*command, "-o", str(folder / "peers")], check=True)
        return cls(folder, cxx, quick)

    def play(self, contest: str, contender: str) -> dict[str, float]:
        """One round of a contender.

        Raises:
            LookupError: It is not there to take part.
            RuntimeError: It failed, or did not end.
        """
        foreign = contender.startswith(CXX)
        if foreign and not self.cxx:
            raise LookupError("a C++ compiler is not installed")
        if contest == "allocations":
            command = [str(self.folder / "allocations"), contender]
        else:
            command = [str(self.folder / ("peers" if foreign else "contest")), contest, contender]
            command += ["--quick"] * self.quick
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not end within {PATIENCE:.0f} s") from None
        if ended.returncode != 0:
            raise RuntimeError(
                (ended.stderr.strip() or f"died with status {ended.returncode}").splitlines()[-1]
            )
        figures: dict[str, float] = json.loads(ended.stdout)
        if "absent" in figures:
            raise LookupError("its header is not installed")
        return figures

    def surroundings(self) -> dict[str, str]:
        """What a reader must know to read the figures."""
        known = machine()
        compilers = (["rustc", "--version"], *([[self.cxx, "--version"]] if self.cxx else []))
        versions = [
            subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.splitlines()[
                0
            ]
            for command in compilers
        ]
        return {
            "compilers": ", ".join([*versions, f"{platform.libc_ver()[0]} {platform.libc_ver()[1]}"]),
            "flags": "Rust: release, fat LTO, one codegen unit; C++: -std=c++23 -O2 -DNDEBUG",
            **{name: known[name] for name in ("system", "processor", "load before the run")},
        }


def interleave(programs: Programs, contest: Contest, rounds: int) -> dict[str, Outcome]:
    """Play all contenders in turn, for so many rounds; one that fails is not played again."""
    outcomes = {contender: Outcome() for contender in contest.contenders()}
    for _ in range(min(rounds, contest.rounds)):
        for contender, outcome in outcomes.items():
            if outcome.failure:
                continue
            try:
                figures = programs.play(contest.name, contender)
            except (LookupError, RuntimeError) as error:
                outcome.failure = str(error)
                continue
            for metric, value in figures.items():
                outcome.values.setdefault(metric, []).append(value)
    return outcomes
