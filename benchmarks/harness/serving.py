"""The servers of the suite `serving`, and the load that they are put under."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the tool of `echo` is sent.
BODY = '{"text": "hello world"}'
#: The peers of `echo`, and what they need.
HTTP_PLAYERS: dict[str, tuple[str, ...]] = {
    "ropewalk": ("ropewalk", "pydantic"),
    "axum": (),
    "FastAPI + executor": ("fastapi", "uvicorn", "httptools"),
    "granian + executor": ("granian",),
    "LitServe": ("litserve",),
    "Ray Serve": ("ray.serve",),
}
GRPC_PLAYERS: dict[str, tuple[str, ...]] = {
    "ropewalk": ("ropewalk", "pydantic"),
    "tonic": (),
    "grpc.aio + executor": ("grpc",),
}
MCP_PLAYERS: dict[str, tuple[str, ...]] = {
    "ropewalk": ("ropewalk", "pydantic"),
    "MCP SDK": ("mcp", "uvicorn"),
}
#: Processes that run tools, of every contender.
WORKERS = 2
#: Seconds that a server may take to be ready.
PATIENCE = 60.0


@dataclass(frozen=True)
class Running:
    """A server."""

    port: int
    pid: int
    #: The folder that its tools write in.
    folder: Path

    def memory(self) -> int:
        """The resident bytes of the server's own process."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def server(contender: str, protocol: str, ceiling: str = "", setting: str = "") -> Iterator[Running]:
    """A server in a process of its own, which has answered before it is given."""
    if contender in ("axum", "tonic"):
        if not ceiling:
            raise RuntimeError(f"{contender} not installed")
        command = [ceiling, contender]
    else:
        command = [sys.executable, "-m", "harness.serving_servers", contender, protocol, setting]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline().split()
            if not said:
                raise RuntimeError(f"the server of {contender} did not start")
            yield Running(int(said[0]), process.pid, Path.cwd())
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def load(program: str, contest: str, **words: object) -> dict[str, float]:
    """What a load's program says.

    Raises:
        RuntimeError: It failed.
    """
    if not program:
        raise RuntimeError("the load's program did not build")
    command = [program, contest, *(f"{name}={value}" for name, value in words.items())]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode:
        raise RuntimeError((ended.stderr.splitlines() or [f"status {ended.returncode}"])[-1])
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


@contextlib.contextmanager
def loading(program: str, contest: str, **words: object) -> Iterator[subprocess.Popen[str]]:
    """A load that goes on beside what the caller does; its first line says that it has begun, where it says so."""
    command = [program, contest, *(f"{name}={value}" for name, value in words.items())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
