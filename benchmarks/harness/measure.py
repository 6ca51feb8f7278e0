"""How a figure is made: fresh interpreters, contestants in turn, medians.

A *case* is one contestant in one contest. Every round plays every case once, A B C A B C, each time in a
fresh interpreter, so that no contestant inherits another's threads, heap or warm helper processes, and a
slow minute of the machine falls on all of them. A contest returns plain numbers; what is said about a case
is the median of its rounds, with the least and the greatest.
"""

from __future__ import annotations

import contextlib
import importlib
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
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import ropewalk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BENCHMARKS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    quick: bool = False
    rounds: int = 5
    kills: int = 200
    share: float = 1.0
    """Sizes are this share of the full ones."""
    programs: Path | None = None
    """The folder that holds the Rust programs ready built; without one they are built here."""


@runtime_checkable
class Setting(Protocol):
    """An argument of a contest that depends on the command line."""

    def of(self, options: Options) -> object:
        """The argument itself."""


@dataclass(frozen=True)
class Size:
    """A size of full runs, and that of a smoke run."""

    full: float
    quick: float

    def of(self, options: Options) -> float:
        """The full size or the share of it that is asked for, or the quick one in a smoke run."""
        if options.quick or options.share == 1:
            return self.quick if options.quick else self.full
        if self.full < self.quick:  # A larger number is less work: a step, not a count.
            return type(self.full)(min(self.quick, self.full / options.share))
        return type(self.full)(max(self.quick, self.full * options.share))


@dataclass(frozen=True, eq=False)
class Case:
    """One contestant in one contest."""

    label: str
    function: str
    """``module:function``; called with ``arguments`` in a fresh interpreter, returns numbers by name."""
    arguments: dict[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Modules without which the case is left out, or names in modules, as ``module:name``."""
    ours: bool = False
    """Whether the case measures Ropewalk and not a peer."""
    rounds: int | None = None
    """At most so many rounds, for contestants that take seconds; they are spread over the run."""
    environment: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Folders to import from, in the contest and in its workers."""
    timeout: float = 180.0
    player: str = ""
    """Who plays, where the label says more than that."""

    def settled(self, options: Options) -> dict[str, object]:
        """The arguments that this command line gives the contest."""
        return {
            name: value.of(options) if isinstance(value, Setting) else value
            for name, value in self.arguments.items()
        }


@dataclass
class Outcome:
    """What a case said in all of its rounds."""

    values: dict[str, list[float]] = field(default_factory=dict)
    failure: str | None = None

    def sample(self, metric: str) -> Sample | None:
        """The rounds' values of one metric, if there are any."""
        values = self.values.get(metric)
        return Sample(tuple(values)) if values else None

    def add(self, figures: dict[str, float]) -> None:
        """Keep one more round."""
        for metric, value in figures.items():
            self.values.setdefault(metric, []).append(value)


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


def play(case: Case, arguments: dict[str, object], python: str = sys.executable) -> dict[str, float]:
    """One round of a case in a fresh interpreter.

    Raises:
        RuntimeError: The contest failed, or did not end in time; its processes are gone by then.
    """
    with tempfile.TemporaryDirectory(prefix="ropewalk-bench-") as folder:
        answer, noise = Path(folder, "answer.json"), Path(folder, "noise.txt")
        path = os.pathsep.join(filter(None, (str(BENCHMARKS), *case.paths, os.environ.get("PYTHONPATH"))))
        command = [python, "-c", "from harness import child; child.main()", case.function]
        with noise.open("wb") as output:
            child = subprocess.Popen(
                [*command, json.dumps(arguments), str(answer)],
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


def missing(case: Case) -> str | None:
    """Which of the modules that a case needs this interpreter lacks, if any, as the report words it."""
    absent = lacking(case.needs)
    return f"{', '.join(absent)} not installed" if absent else None


def lacking(needs: Sequence[str]) -> list[str]:
    """Which of these this interpreter lacks: a module, or a name in one, as ``module:name``."""
    absent = []
    for need in needs:
        module, _, name = need.partition(":")
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # The package around it is not there.
            found = False
        if not found or (name and not hasattr(importlib.import_module(module), name)):
            absent.append(need)
    return absent


def interleave(
    cases: Sequence[Case], options: Options, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Outcome]:
    """Play all cases in turn, for so many rounds; a case that fails is not played again."""
    outcomes = {case.label: Outcome(failure=missing(case)) for case in cases}
    rounds = options.rounds
    for turn in range(rounds):
        for case in cases:
            outcome = outcomes[case.label]
            share = min(case.rounds or rounds, rounds)
            if outcome.failure or (turn * share // rounds == (turn - 1) * share // rounds and turn):
                continue
            tell(f"round {turn + 1}/{rounds}: {case.label}")
            try:
                outcome.add(play(case, case.settled(options)))
            except RuntimeError as error:
                outcome.failure = str(error)
    return outcomes


#: What the suites compare with, and what both sides are built upon.
PACKAGES = (
    *("joblib", "loky", "mpire", "numpy", "pebble", "pyzmq", "uvloop", "pydantic", "msgspec"),
    *("grpcio", "fastapi", "uvicorn", "granian", "litserve", "ray", "mcp"),
)


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
    found = [f"{one} {version}" for one in PACKAGES if (version := _version(one))]
    return known | {"ropewalk": ropewalk.__version__, "beside it": ", ".join(found)}


def _version(package: str) -> str:
    """Empty if it is not installed: the rows that need it say so."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
