"""Scripts that make a server while they are imported, and workers that do not become fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = """
import os
from ropewalk.serving import Server, tool

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

"""
STARTS = 'with Server(__file__, http="127.0.0.1:0", workers=1) as server:\n    print("started")\n'
#: A server in a thread for which the file waits.
THREADED = """
import threading

failed = []

def serve():
    try:
        with Server(__file__, http="127.0.0.1:0", workers=1) as server:
            print("started")
    except Exception as error:
        failed.append(error)

thread = threading.Thread(target=serve)
thread.start()
thread.join()
if __name__ == "__main__":
    raise failed[0]
"""


@pytest.fixture(autouse=True)
def _checker() -> None:
    pytest.importorskip("pydantic")


def run(tmp_path: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Runs the first of some files as a program."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    first = tmp_path / f"{next(iter(files))}.py"
    return subprocess.run([sys.executable, first], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "files",
    [
        {"unguarded": TOOL + STARTS},
        {"begins": "import unguarded", "unguarded": TOOL + STARTS},
        {"waits": TOOL + 'Server(__file__, http="127.0.0.1:0", workers=1).wait()\n'},
        {
            "other": TOOL + "from tools import add\n" + STARTS.replace("__file__", "'tools'"),
            "tools": TOOL + "import other\n",
        },
        {"threaded": TOOL + THREADED},
        {"no-name": TOOL + THREADED},
    ],
    ids=["script", "imported", "waits", "circle", "thread", "thread of no module"],
)
def test_a_server_made_by_an_import_is_refused_at_once(tmp_path: Path, files: dict[str, str]) -> None:
    done = run(tmp_path, **files)
    assert done.returncode == 1
    assert "started" not in done.stdout
    *_, last = done.stderr.splitlines()
    assert last.startswith("ropewalk._errors.ServingError: ")
    assert 'Put what makes and uses the server under `if __name__ == "__main__":`' in last
    assert done.stderr.count("makes a Server while it is imported") == 1
    assert "PoolNested" not in done.stderr


def test_a_server_that_only_workers_would_make_ends_the_server(tmp_path: Path) -> None:
    guard = "if os.environ.setdefault('OF_PROGRAM', str(os.getpid())) != str(os.getpid()):\n"
    own = 'if __name__ == "__main__":\n    Server(__file__, http="127.0.0.1:0", workers=1).wait()\n'
    done = run(tmp_path, sly=TOOL + guard + "    Server('sly')\n" + own)
    assert done.returncode == 1
    assert "the workers are gone: loading its tools raised ServingError: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("wait", ["server.wait()", "server.start().wait_ready()"])
def test_a_failing_warmup_is_logged_once_and_names_its_tools(tmp_path: Path, wait: str) -> None:
    text = (
        "from ropewalk.serving import Server, tool\n"
        "def load():\n    raise OSError('no model')\n"
        "@tool(warmup=load)\ndef add() -> int: ...\n"
        "@tool(warmup=load)\ndef sub() -> int: ...\n"
        "if __name__ == '__main__':\n"
        "    server = Server(__file__, http='127.0.0.1:0', workers=2)\n"
        f"    {wait}\n"
    )
    done = run(tmp_path, cold=text)
    last = done.stderr.splitlines()[-1]
    assert last.endswith("the warmup of the tools 'add', 'sub' raised OSError: no model")
    assert done.stderr.count("in load") == 1, done.stderr
