"""The Rust programs of `messaging/`: one for each contender, built on first use, and how one is played."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "messaging"

#: Ropewalk first, then its peers. `raw` is blocking sockets without any ZeroMQ, the floor.
CONTENDERS = ("ropewalk", "raw", "libzmq", "monocoque", "omq", "zeromq", "rzmq")

#: What may ask the kernel for the bytes of many connections: ours first, then io_uring in two ways.
DRIVERS = ("epoll", "sends", "multishot")


@functools.cache
def program(contender: str) -> str:
    """Where the contender's program is; empty if it does not build, which is told once."""
    features = [] if contender == "raw" else ["--features", contender]
    command = ["cargo", "build", "--release", "--quiet", "--bin", contender, *features]
    if subprocess.run(command, cwd=HERE, check=False).returncode:
        print(f"{contender} did not build, and is left out", file=sys.stderr)
        return ""
    return str(Path(_target(), "release", contender))


@functools.cache
def _target() -> str:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    told = subprocess.run(command, cwd=HERE, check=True, capture_output=True)
    folder: str = json.loads(told.stdout)["target_directory"]
    return folder


def play(contender: str, path: str, contest: str, **arguments: object) -> dict[str, float]:
    """One round of a contender: called in the fresh interpreter of a case, whose folder is its own.

    Raises:
        RuntimeError: The program is not there, or it failed.
    """
    if not path:
        missing = "its program did not build" if contender == "ropewalk" else "not installed"
        raise RuntimeError(f"{contender} {missing}")
    settings = [f"{name}={value}" for name, value in arguments.items() if name != "spin"]
    environment = {**os.environ, "TMPDIR": str(Path.cwd()), "RUST_BACKTRACE": "0"}
    if arguments.get("spin"):
        environment["ROPEWALK_BENCH_SPIN"] = "1"
    ended = subprocess.run(
        [path, contest, *settings],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode != 0:
        said = [line for line in ended.stderr.splitlines() if line and not line.startswith("note:")]
        raise RuntimeError(said[-1] if said else f"died with status {ended.returncode}")
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures
