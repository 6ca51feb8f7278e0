"""The example clients in other languages call, stream and cancel against a server; each needs its own tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.polling import until

from ropewalk.serving import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = EXAMPLES / "clients"
TOKEN = "for-the-examples"
#: Seconds that a program may take: Go compiles its standard library for the first one.
PATIENCE = 280
pytestmark = pytest.mark.timeout(300)
#: What each of them prints; the second line has the name of its language.
PRINTED = [
    "add: 5",
    "greet: Hello, {}",
    "wrong arguments: INVALID_ARGUMENT a c",
    "without a token: UNAUTHENTICATED",
    "stream: 99961 99971 99989 99991",
    "left stream: 2 3 5",
    "deadline: DEADLINE_EXCEEDED",
    "cancelled: yes",
    "add again: 3",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of examples/tools.py with one worker, whose callers need a token."""
    pytest.importorskip("pydantic")
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(TOKEN + "\n")
    with Server(EXAMPLES / "tools.py", http="127.0.0.1:0", workers=1, token_file=str(tokens)) as made:
        assert made.wait_ready(60)
        yield made


def calls(server: Server) -> dict[tuple[str, str], int]:
    """How many calls have ended, by tool and status."""
    request = urllib.request.Request(
        f"http://{server.http}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r'^ropewalk_tool_calls_total\{tool="(\w+)",.*status_code="(\w+)"\} (\d+)', text, re.M)
    return {(tool, status): int(number) for tool, status, number in found}


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*programs: str) -> None:
    """Skips the test if a program is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")


def copied(language: str, folder: Path) -> Path:
    """A copy of an example, for what its tools write beside it."""
    return Path(shutil.copytree(CLIENTS / language, folder / language))


def typescript(folder: Path) -> tuple[list[str], Path]:
    """Node, after the compiler has checked the program."""
    needs("node", "npm")
    version = int(run(["node", "--version"], folder).lstrip("v").split(".")[0])
    if version < 20:
        pytest.skip("needs Node 20")
    here = copied("typescript", folder)
    installed = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip("needs TypeScript, which npm could not install")
    run(["npx", "--no-install", "tsc"], here)
    return ["node", "build/client.js"], here


def go(folder: Path) -> tuple[list[str], Path]:
    """Go, which compiles the program."""
    needs("go")
    here = copied("go", folder)
    run(["go", "vet", "."], here)
    run(["go", "build", "-o", "client", "."], here)
    return [str(here / "client")], here


def java(folder: Path) -> tuple[list[str], Path]:
    """Java, which compiles the one file."""
    needs("java", "javac")
    return ["java", "ToolsClient.java"], CLIENTS / "java"


def elixir(folder: Path) -> tuple[list[str], Path]:
    """Elixir, which compiles the program as it loads it."""
    needs("elixir")
    return ["elixir", "client.exs"], CLIENTS / "elixir"


@pytest.mark.parametrize(
    ("name", "prepare"),
    [("TypeScript", typescript), ("Go", go), ("Java", java), ("Elixir", elixir)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_client(
    server: Server, name: str, prepare: Callable[[Path], tuple[list[str], Path]], tmp_path: Path
) -> None:
    command, folder = prepare(tmp_path)
    before = calls(server)
    # A proxy of the environment leads nowhere from here.
    printed = run(command, folder, ROPEWALK_URL=f"http://{server.http}", ROPEWALK_TOKEN=TOKEN, NO_PROXY="*")
    assert printed.splitlines() == [line.format(name) for line in PRINTED]

    def more(tool: str, *statuses: str) -> int:
        now = calls(server)
        return sum(now.get((tool, status), 0) - before.get((tool, status), 0) for status in statuses)

    # The stream that the program has left, and the calls that would run for ten minutes on the only worker. A client
    # whose deadline passes before the server has read the call leaves nothing to count.
    until(lambda: more("primes", "CANCELLED") == 1)
    until(lambda: more("wait", "CANCELLED", "DEADLINE_EXCEEDED") >= 1)


def test_every_language_is_run() -> None:
    assert sorted(path.name for path in CLIENTS.iterdir()) == ["elixir", "go", "java", "typescript"]
