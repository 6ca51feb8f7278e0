"""How a figure is made: fresh interpreters, contestants in turn, medians.

A *case* is one contestant in one contest. Every round plays every case once, A B C A B C, each time in a
fresh interpreter, so that no contestant inherits another's threads, heap or warm helper processes, and a
slow minute of the machine falls on all of them. A contest returns plain numbers; what is said about a case
is the median of its rounds, with the least and the greatest.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    quick: bool = False
    rounds: int = 5
    kills: int = 200

    def size(self, full: int, quick: int) -> int:
        """The full size, or the quick one in a smoke run."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Case:
    """One contestant in one contest."""

    label: str
    contest: str
    """``module:function``; called with ``arguments`` in a fresh interpreter, returns numbers by name."""
    arguments: dict[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Modules without which the case is left out."""
    rounds: int | None = None
    """At most so many rounds, for contestants that take seconds; they are spread over the run."""
    environment: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Folders to import from, in the contest and in its workers."""
    timeout: float = 180.0


@dataclass
class Outcome:
    """What a case said in all of its rounds."""

    values: dict[str, list[float]] = field(default_factory=dict)
    failure: str | None = None

    def sample(self, metric: str) -> Sample | None:
        """The rounds' values of one metric, if there are any."""
        values = self.values.get(metric)
        return Sample(tuple(values)) if values else None


@dataclass(frozen=True)
class Sample:
    """The values of one metric, one for each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value, which is what the report judges."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest value of any round."""
        return min(self.values)

    @property
    def greatest(self) -> float:
        """The largest value of any round."""
        return max(self.values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def play(case: Case) -> dict[str, float]:
    """One round of a case in a fresh interpreter.

    Raises:
        RuntimeError: The contest failed, or did not end in time; its processes are gone by then.
    """
    with tempfile.TemporaryDirectory(prefix="ropewalk-bench-") as folder:
        answer, noise = Path(folder, "answer.json"), Path(folder, "noise.txt")
        path = os.pathsep.join(filter(None, (str(HERE), *case.paths, os.environ.get("PYTHONPATH"))))
        with noise.open("wb") as output:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import _child; _child.main()",
                    case.contest,
                    json.dumps(case.arguments),
                    str(answer),
                ],
                cwd=folder,
                # An installed package has its bytecode, as the standard library has; so has this one after the first
                # round, whatever the surroundings say of writing it.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **case.environment, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            # A pidfd says that the child ended without reaping it, so its number still is its session's
            # when whatever the contest left behind, hung or not, goes with it.
            ended = os.pidfd_open(child.pid)
            try:
                in_time = bool(select.select([ended], [], [], case.timeout)[0])
            finally:
                os.close(ended)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            if not in_time:
                raise RuntimeError(f"did not end within {case.timeout:.0f} s")
        try:
            said = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = noise.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"died with status {child.returncode}: {' '.join(last)}") from None
        if "failure" in said:
            raise RuntimeError(said["failure"])
        return dict(said["figures"])


def interleave(
    cases: Sequence[Case], rounds: int, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Outcome]:
    """Play all cases in turn, for so many rounds; a case that fails is not played again."""
    outcomes = {case.label: Outcome() for case in cases}
    for case in cases:
        absent = [name for name in case.needs if importlib.util.find_spec(name) is None]
        if absent:
            outcomes[case.label].failure = f"{', '.join(absent)} not installed"
    for turn in range(rounds):
        for case in cases:
            outcome = outcomes[case.label]
            share = min(case.rounds or rounds, rounds)
            if outcome.failure or (turn * share // rounds == (turn - 1) * share // rounds and turn):
                continue
            tell(f"round {turn + 1}/{rounds}: {case.label}")
            try:
                figures = play(case)
            except RuntimeError as error:
                outcome.failure = str(error)
                continue
            for metric, value in figures.items():
                outcome.values.setdefault(metric, []).append(value)
    return outcomes


def surroundings() -> dict[str, str]:
    """What a reader must know about the machine and the versions to read the figures."""
    processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in processors if line.startswith("model name")]
    known = {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} "
        "usable cores",
        "load before the run": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
    for package in ("ropewalk", "joblib", "loky", "mpire", "numpy", "pebble"):
        try:
            known[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            known[package] = "not installed"
    return known
