"""`ropewalk serve`: what it prints, and how signals end it."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.polling import descendants, is_alive, until
from tests.tasks import Gate
from tests.unit.cli.conftest import Run, command

from ropewalk.client import Client

APP = """
from pathlib import Path
from ropewalk.serving import tool
from tests.tasks import Gate

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

@tool
def hold(folder: str) -> int:
    return Gate(Path(folder)).hold()
"""
ROOT = Path(__file__).parents[3]


class Served:
    """The command while it serves."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self.connections: list[http.client.HTTPConnection] = []
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            command("serve", "app_of_cli.py", "--http", "127.0.0.1:0", "--workers", "1", *arguments),
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"},
        )
        self.reader = Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def address(self) -> str:
        found = until(lambda: re.search(r"http://(\S+)", "".join(self.lines)))
        return found[1]

    def wait_ready(self) -> None:
        until(lambda: any("ready after" in line for line in self.lines))

    def begin(self, tool: str, arguments: str) -> http.client.HTTPConnection:
        """Sends a call; the connection is closed with the test, also if that fails."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        self.connections.append(connection)
        connection.request("POST", f"/v1/tools/{tool}", arguments)
        return connection

    def is_refused(self) -> bool:
        try:
            self.begin("add", "{}").close()
        except ConnectionError:
            return True
        return False

    def end(self) -> int:
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            # It then says where its threads are.
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            self.reader.join()
            raise AssertionError("it does not end:\n" + "".join(self.lines)) from None
        self.reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A command that serves, on one worker."""
    pytest.importorskip("pydantic")
    (tmp_path / "app_of_cli.py").write_text(APP)
    served = Served(tmp_path, "--drain-timeout", "60")
    yield served
    served.process.kill()
    served.end()
    for connection in served.connections:
        connection.close()


def test_it_serves_until_sigterm(served: Served) -> None:
    connection = served.begin("add", '{"a": 2}')
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"3")
    served.wait_ready()
    assert served.lines[0].endswith("(HTTP, MCP, gRPC, Connect): add, hold\n")
    left = descendants(served.process.pid)
    served.process.send_signal(signal.SIGTERM)
    assert served.end() == 0
    until(lambda: not any(map(is_alive, left)))


def test_sigterm_to_every_process_drains(served: Served, gate: Gate) -> None:
    connection = served.begin("hold", f'{{"folder": "{gate.folder}"}}')
    until(lambda: gate.marks())
    for pid in [*descendants(served.process.pid), served.process.pid]:
        # As a service manager does.
        os.kill(pid, signal.SIGTERM)
    until(served.is_refused)
    gate.open()
    response = connection.getresponse()
    # A response that says that the connection ends holds its socket until it is read.
    assert (response.status, response.read().isdigit()) == (200, True)
    assert served.end() == 0


def test_a_second_signal_ends_it_at_once(served: Served, gate: Gate) -> None:
    served.begin("hold", f'{{"folder": "{gate.folder}"}}')
    (worker,) = until(lambda: gate.marks())
    served.process.send_signal(signal.SIGTERM)
    until(served.is_refused)
    served.process.send_signal(signal.SIGINT)
    assert served.end() == 128 + signal.SIGINT
    until(lambda: not is_alive(worker))


def test_ctrl_c_ends_it_at_once(served: Served, gate: Gate) -> None:
    served.begin("hold", f'{{"folder": "{gate.folder}"}}')
    (worker,) = until(lambda: gate.marks())
    served.process.send_signal(signal.SIGINT)
    assert served.end() == 130
    until(lambda: not is_alive(worker))


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_it_serves_without_standard_error(tmp_path: Path, closed: tuple[int, ...]) -> None:
    pytest.importorskip("pydantic")
    (tmp_path / "app_of_cli.py").write_text(APP)
    where = str(tmp_path / "sock")
    line = shlex.join(command("serve", "app_of_cli.py", "--http", "127.0.0.1:0", "-w", "1", "--unix", where))
    without = " ".join(f"{number}>&-" for number in closed)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        ["sh", "-c", f"exec {line} {without}"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}
    )
    try:
        until(lambda: os.path.exists(where) or process.poll() is not None)
        with Client(f"unix://{where}") as client:
            assert client.call("add", a=2) == 3
        # A socket that had this number would have what the tools print.
        for pid in [process.pid, *descendants(process.pid)]:
            assert os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


SLOW = """
import os, time
from ropewalk.serving import tool

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

def stay():
    open(os.environ["IMPORTED"], "a").close()
    time.sleep(100)

"""


@pytest.mark.parametrize(
    "then",
    [
        "stay()\n",
        # As dataclasses do while they are made.
        "exec('stay()')\n",
        # In the process that imports it for the workers.
        "if os.environ.setdefault('OF_PROGRAM', str(os.getpid())) != str(os.getpid()):\n    stay()\n",
    ],
    ids=["plain", "exec", "workers"],
)
@pytest.mark.parametrize("reloads", [False, True], ids=["start", "reload"])
def test_ctrl_c_while_the_file_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, reloads: bool
) -> None:
    pytest.importorskip("pydantic")
    imported, app = tmp_path / "imported", tmp_path / "app_of_cli.py"
    monkeypatch.setenv("IMPORTED", str(imported))
    app.write_text(SLOW if reloads else SLOW + then)
    served = Served(tmp_path, *(["--reload"] if reloads else []))
    try:
        if reloads:
            served.wait_ready()
            app.write_text(SLOW + then)
        until(imported.exists)
        left = descendants(served.process.pid)
        served.process.send_signal(signal.SIGINT)
        assert served.end() == 130
    finally:
        served.process.kill()
        served.end()
    assert "Traceback" not in "".join(served.lines)
    until(lambda: not any(map(is_alive, left)))


def test_what_cannot_be_served(run: Run, folder: Path) -> None:
    pytest.importorskip("pydantic")
    (folder / "tools.py").write_text("from ropewalk.serving import tool\n@tool\ndef f(): ...\n")
    (folder / "cold.py").write_text(
        "from ropewalk.serving import tool\ndef load():\n    raise OSError('no model')\n"
        "@tool(warmup=load)\ndef f(): ...\n"
    )
    (folder / "bad.toml").write_text("[serve]\nthreads = 0\n")
    local = ("--http", "127.0.0.1:0")
    for arguments, words in (
        (("nothing.py",), "there is no file 'nothing.py'\n  try: name it as FILE.py or as package.module"),
        (("tasks_of_cli.py",), "has no tools. Put @tool of ropewalk.serving above"),
        (("tools.py", "--http", "0.0.0.0:0"), "is open to other machines"),
        (("tools.py", "--host", "0.0.0.0", "--port", "80"), "--port 80; the address is --http HOST:PORT"),
        (("tools.py", "--http", "here"), "http must be an IP address and a port"),
        (("tools.py", "--config", "none.toml"), "cannot read none.toml: No such file or directory"),
        (("tools.py", "--config", "bad.toml"), "bad.toml, line 2: serve.threads must be 1 or more"),
        (("tools.py", "--token-file", "none"), "the file of tokens 'none' cannot be read"),
        (("tools.py", "--threads", "0"), "--threads: '0' is not a whole number of at least 1"),
        (("cold.py", *local), "no model"),
    ):
        done = run("serve", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        # Workers log what their warmup raised.
        assert "Traceback" not in done.stderr or arguments[0] == "cold.py"


@pytest.mark.parametrize(
    ("variable", "words"), [("THREADS", "must be a whole number, not 'x'"), ("TOKEN", "is not a setting")]
)
def test_an_error_of_the_environment_advises_no_file(
    run: Run, folder: Path, variable: str, words: str
) -> None:
    done = run("serve", "tasks_of_cli.py", env=os.environ | {f"ROPEWALK_SERVE_{variable}": "x"})
    assert done.returncode == 2
    first, advice = done.stderr.splitlines()
    assert f"the environment: ROPEWALK_SERVE_{variable} {words}" in first
    assert advice == f"  try: correct the variable, or unset ROPEWALK_SERVE_{variable}"


def test_help_names_every_setting(run: Run) -> None:
    from ropewalk.serving._settings import CHECKS

    text = run("serve", "--help").stdout
    for name in CHECKS:
        assert f"--{name.replace('_', '-')}" in text
