"""The examples of messaging: as they are, and as programs for pyzmq that run on our sockets by its backend switch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "messaging"

#: What each of them prints.
PRINTED = {
    "asyncio_echo": ["500 right answers of 500"],
    "broker": ["60 answers by workers whom no client knows"],
    "ironhouse": ["ada was here: welcome", "eve does not come in"],
    "monitor": ["LISTENING", "ACCEPTED", "HANDSHAKE_SUCCEEDED"],
    "pair": ["two heard: one is ready", "three heard: two is ready"],
    "pipeline": ["1000 tasks by 4 workers: 332833500", "right"],
    "poller": ["a task", "bytes in a pipe", "the news"],
    "publish_subscribe": [
        "ann ['paris: rain']",
        "bob ['rome: sunny', 'oslo: snow']",
        "cleo ['rome: sunny', 'paris: rain', 'oslo: snow', 'lima: fog']",
    ],
    "request_reply": ["['olleh', 'dlrow', 'step on no pets']"] * 2,
    "steerable_proxy": ["4 ports", "before", "after", "ended"],
}
NAMES = sorted(PRINTED)


def run(program: Path, **environment: str) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str) -> None:
    assert run(EXAMPLES / f"{name}.py") == PRINTED[name]


@pytest.mark.skipif(importlib.util.find_spec("zmq") is None, reason="needs pyzmq")
@pytest.mark.parametrize("name", NAMES)
def test_an_example_of_pyzmq_s(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    for ours, theirs in (
        ("import ropewalk.zmq as zmq", "import zmq"),
        ("from ropewalk.zmq", "from zmq"),
    ):
        text = text.replace(ours, theirs)
    program = tmp_path / f"{name}.py"
    program.write_text(text.replace('if __name__ == "__main__":', f'{_ASKED}\nif __name__ == "__main__":', 1))
    assert run(program, PYZMQ_BACKEND="ropewalk.zmq.backend") == PRINTED[name]


#: Makes sure that it is our core which it runs on.
_ASKED = "assert zmq.backend.Socket.__module__.startswith('ropewalk.'), zmq.backend.Socket\n"
