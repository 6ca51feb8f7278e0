"""The Rust and C++ programs of `messaging/`, `foundation/` and `serving/`: built on first use, and played one round at
a time.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.measure import BENCHMARKS, Case, Size
from harness.table import Goal, Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.measure import Options

MESSAGING, FOUNDATION, SERVING = (BENCHMARKS / name for name in ("messaging", "foundation", "serving"))
#: Seconds that a round of a program may take.
PATIENCE = 60.0


@functools.cache
def target(folder: Path) -> Path:
    """Where cargo puts what it builds of a folder."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return Path(json.loads(said.stdout)["target_directory"])


@functools.cache
def _messaging(contender: str) -> str:
    """The contender's program; empty if it does not build, which is said once."""
    features = [] if contender == "raw" else ["--features", contender]
    command = ["cargo", "build", "--release", "--quiet", "--bin", contender, *features]
    if subprocess.run(command, cwd=MESSAGING, check=False).returncode:
        print(f"{contender} did not build, and is left out", file=sys.stderr)
        return ""
    return str(target(MESSAGING) / "release" / contender)


@functools.cache
def compiler() -> str:
    """The C++ compiler, if there is one."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or ""


@functools.cache
def _foundation() -> Path:
    """The folder of the foundation's programs, both languages optimised alike.

    Raises:
        subprocess.CalledProcessError: A compiler refused; it has said why.
    """
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=FOUNDATION, check=True)
    folder = target(FOUNDATION) / "release"
    if compiler():
        command = [compiler(), "-std=c++23", "-O2", "-DNDEBUG", "-pthread", str(FOUNDATION / "peers.cpp")]
        subprocess.run([*command, "-o", str(folder / "peers")], check=True)
    return folder


@functools.cache
def _serving() -> Path | None:
    """The folder of the programs of serving; `None` if they do not build, which is said once."""
    if subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=SERVING, check=False).returncode:
        print("the load for servers did not build", file=sys.stderr)
        return None
    return target(SERVING) / "release"


@dataclass(frozen=True)
class Program:
    """The path of a program, built when a run first needs it, unless the command line says where the programs are."""

    name: str
    foundation: bool = False
    serving: bool = False

    def of(self, options: Options) -> str:
        """The path; empty where there is none."""
        if options.programs is not None:
            path = options.programs / self.name
            return str(path) if path.exists() else ""
        if self.serving:
            folder = _serving()
            return "" if folder is None else str(folder / self.name)
        if not self.foundation:
            return _messaging(self.name)
        path = _foundation() / self.name
        return str(path) if path.exists() else ""


@dataclass(frozen=True)
class Contenders:
    """A contest of the programs of messaging, one for each contender.

    ``raw, spinning`` is `raw` that never sleeps, and ``raw, by epoll`` is `raw` that sleeps in an epoll set.
    """

    what: str
    contest: str
    arguments: dict[str, object]

    def by(self, player: str) -> Case:
        """The case of one contender."""
        contender, _, way = player.partition(", ")
        arguments = {
            "contender": contender,
            "path": Program(contender),
            "contest": self.contest,
            "way": way,
            **self.arguments,
        }
        label = f"{self.what}, {player}"
        ours = contender == "ropewalk"
        return Case(label, "harness.programs:play", arguments, ours=ours, timeout=60.0, player=player)


#: Ropewalk's peers. `raw` is blocking sockets without any ZeroMQ, the floor.
PEERS = ("raw", "libzmq", "monocoque", "omq", "zeromq", "rzmq")
#: How `raw` waits, if not in its read: what it finds in its environment.
_WAYS = {"spinning": "ROPEWALK_BENCH_SPIN", "by epoll": "ROPEWALK_BENCH_EPOLL"}
#: What each contest prints, and whether more of it is better.
_METRICS = {"roundtrip": ("us", False), "onethread": ("us", False), "idle": ("bytes", False)}
_SCALES = {"µs": 1.0, "k/s": 1e-3, "M/s": 1e-6, "KB": 1e-3}


def line(
    what: str,
    unit: str,
    contest: str,
    goal: Goal,
    peers: Sequence[str] | Mapping[str, Goal | None] = PEERS,
    *,
    count: int | None = None,
    **arguments: object,
) -> Line:
    """A line of a table that programs of messaging play; ``arguments`` are the programs' own."""
    if count is not None:
        arguments["count"] = Size(count, max(count // 100, 1000))
    against = peers if isinstance(peers, dict) else dict.fromkeys(peers)
    metric, more = _METRICS.get(contest, ("rate", True))
    played = Contenders(what, contest, arguments)
    return Line(what, unit, played, metric, goal, against, scale=_SCALES[unit], more_is_better=more)


#: What the percentiles of messages at a rate mean, for the tables.
PERCENTILES = (
    "p50, p90 and p99: half, nine tenths and 99 hundredths of all messages take no longer. At 1/s a round has ten "
    "messages, of which the slowest is p90 and p99."
)


def messages_at(rate: int) -> Size:
    """How many messages a round has: a second of them, and some at the lowest rates."""
    return Size(max(rate, min(10 * rate, 30)), max(rate // 100, min(2 * rate, 10)))


def paced(
    what: str,
    transport: str,
    against: str,
    others: Sequence[str],
    goal: Goal,
    *,
    rate: int,
    burst: int = 1,
    at: float | None = None,
) -> list[Line]:
    """The lines of one rate, one for each percentile. ``against`` is libzmq's transport; the goal is against libzmq."""
    arguments: dict[str, object] = {
        "size": 64,
        "place": "free",
        "rate": rate,
        "burst": burst,
        "count": messages_at(rate),
    }
    played = Contenders(what, "paced", {"transport": transport, **arguments})
    libzmq = Contenders(what, "paced", {"transport": against, **arguments}).by("libzmq")
    return [
        Line(
            f"{what}, {metric}",
            "µs",
            played,
            metric,
            None,
            {libzmq: goal, **dict.fromkeys(others)},
            at=at,
            curve=metric,
        )
        for metric in ("p50", "p90", "p99")
    ]


@dataclass(frozen=True)
class Foundation:
    """A contest of the programs of the foundation: one in Rust, one in C++, one that counts allocations."""

    contest: str
    rounds: int | None = None

    def by(self, player: str) -> Case:
        """The case of one contender."""
        program = "contest"
        if self.contest == "allocations":
            program = "allocations"
        elif player.startswith(("taskflow", "BS::thread_pool", "std::", "eventpp", "exception")):
            program = "peers"
        arguments = {
            "contender": player,
            "path": Program(program, foundation=True),
            "contest": self.contest,
            "quick": Size(0, 1),
        }
        ours = player.startswith("ropewalk")
        return Case(player, "harness.programs:play_foundation", arguments, ours=ours, rounds=self.rounds)


def play(contender: str, path: str, contest: str, **arguments: object) -> dict[str, float]:
    """One round of a program of messaging: called in the fresh interpreter of a case, whose folder is its own.

    Raises:
        RuntimeError: The program is not there, or it failed.
    """
    if not path:
        raise RuntimeError(
            f"{contender} {'its program did not build' if contender == 'ropewalk' else 'not installed'}"
        )
    settings = [f"{name}={value}" for name, value in arguments.items() if name != "way"]
    environment = {**os.environ, "TMPDIR": str(Path.cwd()), "RUST_BACKTRACE": "0"}
    if way := arguments.get("way"):
        environment[_WAYS[str(way)]] = "1"
    return _answer([path, contest, *settings], environment)


def play_foundation(contender: str, path: str, contest: str, quick: int) -> dict[str, float]:
    """One round of a contender of the foundation.

    Raises:
        RuntimeError: It is not there to take part, it failed, or it did not end.
    """
    if not path:
        raise RuntimeError("a C++ compiler is not installed")
    command = [path, *([] if contest == "allocations" else [contest]), contender]
    figures = _answer(command + ["--quick"] * (quick if contest != "allocations" else 0), dict(os.environ))
    if "absent" in figures:
        raise RuntimeError("its header is not installed")
    return figures


def _answer(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """What a program prints, which is JSON."""
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"did not end within {PATIENCE:.0f} s") from None
    if ended.returncode != 0:
        said = [line for line in ended.stderr.splitlines() if line and not line.startswith("note:")]
        raise RuntimeError(said[-1] if said else f"died with status {ended.returncode}")
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def compilers() -> str:
    """The compilers of the programs, and the C library."""
    commands = [["rustc", "--version"], *([[compiler(), "--version"]] if compiler() else [])]
    versions = [
        subprocess.run(command, cwd=FOUNDATION, capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    return ", ".join([*(said.splitlines()[0] for said in versions), " ".join(platform.libc_ver())])
