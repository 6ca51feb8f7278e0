"""How servers start, shed, give up and end."""

from __future__ import annotations

import http.client
import json
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import ask, call, stops

import ropewalk
from ropewalk.serving import Server, ServingError

Make = Callable[..., Server]
Begin = Callable[[Server, str, Any], http.client.HTTPConnection]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Sends calls, and does not read the answers; the connections are closed after the test."""
    made: list[http.client.HTTPConnection] = []

    def send(server: Server, tool: str, arguments: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(server.http or "", timeout=60)
        made.append(connection)
        connection.request(
            "POST", f"/v1/tools/{tool}", json.dumps(arguments), {"content-type": "application/json"}
        )
        return connection

    yield send
    for one in made:
        one.close()


def test_a_server_in_a_block(app: Path) -> None:
    server = Server(app, http="127.0.0.1:0", workers=1)
    assert server.http is None
    assert server.not_ready() == "the server has not started"
    with server:
        assert [tool.name for tool in server.tools][:2] == ["add", "count"]
        assert server.wait_ready(60)
        assert call(server, "add", {"a": 1}).json == 2
        pids = server.runtime["tools"].statistics().worker_pids
    assert server.not_ready() == "the server has ended"
    until(lambda: not any(map(is_alive, pids)))
    with pytest.raises(ServingError, match="starts once"):
        server.start()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(server)


def test_workers_that_become_ready_while_it_asks_are_ready(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Starting:
        """A gateway whose workers are ready when it is asked for the second time."""

        def __init__(self) -> None:
            self.answers: list[tuple[str, bool] | None] = [("0 of 1 workers are ready", True)]

        def not_ready(self) -> tuple[str, bool] | None:
            return self.answers.pop() if self.answers else None

    server = Server(app, http="127.0.0.1:0", workers=1)
    monkeypatch.setattr(server, "_gateway", Starting())
    assert server.wait_ready(60)
    monkeypatch.setattr(server, "_gateway", Starting())
    assert not server.wait_ready(0)


def test_a_call_sheds_when_the_queue_is_full(make_server: Make, gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[pools.jobs]\nworkers = 1\ncapacity = 1\n")
    server = make_server(config=tmp_path / "config.toml")
    server.wait_ready()
    with ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(call, server, "hold", {"folder": str(gate.folder)}) for _ in range(8)]
        until(lambda: [one for one in asked if one.done()])
        shed = next(one for one in asked if one.done()).result()
        assert (shed.status, shed.error["code"]) == (429, "RESOURCE_EXHAUSTED")
        assert int(shed.headers["retry-after"]) >= 1
        # Health waits for no tool.
        assert ask(server, "GET", "/healthz").status == 200
        gate.open()
        codes = sorted(one.result().status for one in asked)
    assert codes[0] == 200
    assert set(codes) == {200, 429}


def test_a_client_that_leaves_frees_the_worker(make_server: Make, begin: Begin, gate: Gate) -> None:
    server = make_server()
    connection = begin(server, "sleep", {"folder": str(gate.folder)})
    until(lambda: gate.marks("sleeps"))
    connection.close()
    assert call(server, "add", {"a": 1}).json == 2, "the only worker is free"


def test_a_task_is_asked_to_stop_before_its_worker_is_ended(
    make_server: Make, begin: Begin, gate: Gate
) -> None:
    server = make_server()

    def leave() -> None:
        before = len(gate.marks("begun"))
        connection = begin(server, "polite", {"folder": str(gate.folder)})
        until(lambda: gate.marks("begun")[before:])
        connection.close()

    pid = stops(gate, leave, "begun", "stopped")
    assert call(server, "process").json == pid, "the worker lives on"


def test_a_generator_ends_when_its_reader_leaves(make_server: Make, begin: Begin, gate: Gate) -> None:
    server = make_server()

    def leave() -> None:
        connection = begin(server, "endless", {"folder": str(gate.folder)})
        response = connection.getresponse()
        assert response.readline() == b"0\n"
        response.close()
        connection.close()

    stops(gate, leave)
    assert call(server, "add", {"a": 1}).json == 2


def test_a_call_that_waits_is_cancelled_with_its_client(make_server: Make, begin: Begin, gate: Gate) -> None:
    server = make_server()
    first = begin(server, "hold", {"folder": str(gate.folder), "name": "first"})
    until(lambda: gate.marks("first"))
    second = begin(server, "hold", {"folder": str(gate.folder), "name": "second"})
    pool = server.runtime["tools"]
    until(lambda: pool.statistics().submitted - pool.statistics().completed >= 2)
    second.close()
    until(lambda: pool.statistics().cancelled == 1)
    gate.open()
    assert first.getresponse().status == 200
    assert not gate.marks("second")


def test_it_is_ready_after_the_warmup(make_server: Make, gate: Gate, tmp_path: Path) -> None:
    file = tmp_path / "warms_slowly.py"
    file.write_text(
        "from pathlib import Path\nfrom ropewalk.serving import tool\nfrom tests.tasks import Gate\n"
        f"gate = Gate(Path({str(gate.folder)!r}))\n"
        "warm = False\n"
        "def load():\n    global warm\n    gate.hold('warms')\n    warm = True\n"
        "@tool(warmup=load)\ndef is_warm() -> bool:\n    return warm\n"
        "@tool(warmup=load)\ndef is_warm_too() -> bool:\n    return warm\n"
    )
    server = make_server(file)
    until(lambda: gate.marks("warms"))
    said = ask(server, "GET", "/readyz")
    assert (said.status, said.body) == (503, b"0 of 1 workers are ready\n")
    assert ask(server, "GET", "/healthz").status == 200
    assert not server.wait_ready(0.01)
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(call, server, "is_warm")
        gate.open()
        assert asked.result().json is True
    assert server.wait_ready(60)
    assert ask(server, "GET", "/readyz").status == 200
    assert len(gate.marks("warms")) == 1, "tools that share a warmup call it once"


def test_a_worker_that_cannot_become_ready_is_an_error(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "never_warm.py"
    file.write_text(
        "from ropewalk.serving import tool\n"
        "def load():\n    raise OSError('no model')\n"
        "@tool(warmup=load)\ndef answer() -> int:\n    return 42\n"
    )
    server = make_server(file)
    with pytest.raises(ServingError, match="no model"):
        server.wait_ready(60)
    assert ask(server, "GET", "/readyz").status == 503


def test_requests_that_have_begun_are_answered(make_server: Make, begin: Begin, gate: Gate) -> None:
    server = make_server()
    connection = begin(server, "hold", {"folder": str(gate.folder)})
    until(lambda: gate.marks())
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(server.drain(60)))
    thread.start()

    def is_refused() -> bool:
        try:
            ask(server, "GET", "/healthz")
        except ConnectionError:
            return True
        return False

    until(is_refused)
    gate.open()
    assert connection.getresponse().status == 200
    thread.join()
    assert drained == [True]


@contextmanager
def running(folder: Path, text: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A program of this text: its process, its output and its input."""
    program = folder / "program.py"
    program.write_text(text)
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, process.stdout, process.stdin


INTERRUPTED = """
import signal, sys, threading, urllib.request
from ropewalk.serving import Server, tool

@tool
def hold() -> None:
    print("holds", flush=True)
    threading.Event().wait()

if __name__ == "__main__":
    try:
        with Server(__file__, http="127.0.0.1:0", workers=1) as server:
            json = {"Content-Type": "application/json"}
            call = urllib.request.Request(f"http://{server.http}/v1/tools/hold", b"{}", json)
            threading.Thread(target=lambda: urllib.request.urlopen(call), daemon=True).start()
            sys.stdin.readline()
            print("drains", flush=True)
    except KeyboardInterrupt:
        print("interrupted", server.not_ready(), flush=True)
        # The thread of the call may say that its connection was lost.
        sys.stderr.close()
"""


def test_ctrl_c_is_heard_while_a_program_drains_its_server(tmp_path: Path) -> None:
    with running(tmp_path, INTERRUPTED) as (process, said, told):
        assert said.readline() == "holds\n"
        told.write("\n")
        told.flush()
        assert said.readline() == "drains\n"
        # The drain has begun or is about to; it would take half a minute.
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert said.read() == "interrupted the server has ended\n"


WARMS = """
import os, sys, time
from ropewalk.serving import Server, tool

def warm() -> None:
    if os.path.exists(__file__ + ".slow"):
        open(__file__ + ".warms", "w").close()
        time.sleep(100)

@tool(warmup=warm)
def number() -> int:
    return os.getpid()

if __name__ == "__main__":
    with Server(__file__, http="127.0.0.1:0", workers=1) as server:
        server.wait_ready()
        print(server.http, flush=True)
        open(__file__ + ".slow", "w").close()
        try:
            server.reload()
        except KeyboardInterrupt:
            print("interrupted", server.not_ready(), flush=True)
        sys.stdin.readline()
"""


def test_ctrl_c_is_heard_while_new_workers_warm_up(tmp_path: Path) -> None:
    with running(tmp_path, WARMS) as (process, said, told):
        url = f"http://{said.readline().strip()}/v1/tools/number"

        def asked() -> int:
            call = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
            with urllib.request.urlopen(call, timeout=30) as answer:
                return int(answer.read())

        before = asked()
        until(lambda: (tmp_path / "program.py.warms").exists(), 60)
        process.send_signal(signal.SIGINT)
        assert said.readline() == "interrupted None\n"
        assert asked() == before, "the old worker serves on"
        told.close()


def test_a_reload_for_which_no_thread_starts_is_given_up(
    make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    assert server.wait_ready(60)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ropewalk.OutOfProcesses, match="ropewalk-reloading"):
            server._asked.ask(server._start)
    assert call(server, "add", {"a": 1}).json == 2
    server._asked.ask(server._start)
    until(lambda: not server._asked._runs)
    assert call(server, "add", {"a": 1}).json == 2


def test_a_drain_has_a_limit(make_server: Make, begin: Begin, gate: Gate) -> None:
    server = make_server()
    connection = begin(server, "hold", {"folder": str(gate.folder)})
    (pid,) = until(lambda: gate.marks())
    assert server.drain(0.05) is False
    assert connection.getresponse().status == 503
    until(lambda: not is_alive(pid))


def test_a_server_that_is_left_by_an_exception_ends_at_once(
    make_server: Make, begin: Begin, gate: Gate
) -> None:
    server = make_server()
    connection = begin(server, "hold", {"folder": str(gate.folder)})
    (pid,) = until(lambda: gate.marks())
    with pytest.raises(KeyError), server:
        raise KeyError
    until(lambda: not is_alive(pid))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        connection.getresponse()


def test_an_address_that_is_taken(make_server: Make) -> None:
    server = make_server()
    with pytest.raises(ServingError, match=rf"cannot listen on {server.http}: "):
        make_server(http=server.http)


def test_tools_run_on_the_pools_that_they_name(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "routed_tools.py"
    file.write_text(
        "import threading\nimport ropewalk\nfrom ropewalk.serving import tool\n"
        "def name():\n    return ropewalk._load.worker and threading.current_thread().name\n"
        "import os\n"
        "@tool(pool='b')\ndef one() -> int:\n    return os.getpid()\n"
        "@tool\n@ropewalk.route('c')\ndef two() -> int:\n    return os.getpid()\n"
        "@tool\ndef three() -> int:\n    return os.getpid()\n"
    )
    (tmp_path / "config.toml").write_text(
        "default = 'a'\n[pools.a]\nworkers = 1\n[pools.b]\nlike = 'a'\n[pools.c]\nlike = 'a'\n[serve]\nthreads = 1\n"
    )
    server = make_server(file, config=tmp_path / "config.toml")
    for tool, pool in (("one", "b"), ("two", "c"), ("three", "a")):
        pid = call(server, tool).json
        assert server.runtime[pool].statistics().worker_pids == (pid,)
    (tmp_path / "config.toml").write_text("[pools.a]\nworkers = 1\n")
    with pytest.raises(ServingError, match="wants the pool 'b', and there is none: name one of a"):
        make_server(file, config=tmp_path / "config.toml")


def test_a_file_that_starts_threads_is_imported_by_each_worker(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "starts_a_thread.py"
    file.write_text(
        "import queue, threading\nfrom ropewalk.serving import tool\n"
        "asked, answers = queue.SimpleQueue(), queue.SimpleQueue()\n"
        "def serve():\n    while True:\n        answers.put(asked.get() + 1)\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
        "@tool\ndef after(n: int) -> int:\n    asked.put(n)\n    return answers.get(timeout=30)\n"
    )
    assert call(make_server(file), "after", {"n": 1}).json == 2


def test_the_limits_of_a_pool_are_for_tools_that_have_none(
    make_server: Make, gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("[pools.a]\nworkers = 1\ntask_timeout = '100 ms'\n")
    server = make_server(config=tmp_path / "config.toml")
    said = call(server, "sleep", {"folder": str(gate.folder)})
    assert (said.status, said.error["message"]) == (504, "the tool took longer than it may")
    (tmp_path / "config.toml").write_text("[pools.a]\nworkers = 1\nhang_timeout = 0.1\n")
    server = make_server(config=tmp_path / "config.toml")
    assert call(server, "sleep", {"folder": str(gate.folder)}).status == 503


def test_a_program_that_leaves_its_server_open_ends(app: Path) -> None:
    code = (
        "import http.client, sys\nfrom ropewalk.serving import Server\n"
        "server = Server(sys.argv[1], http='127.0.0.1:0', workers=1).start()\n"
        "c = http.client.HTTPConnection(server.http)\nc.request('POST', '/v1/tools/divide', '{\"a\": 1, \"b\": 0}')\n"
        "with c.getresponse() as said:\n    print(said.status)\nc.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(app)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "500\n", "")


def test_the_metadata_of_other_tasks_is_empty() -> None:
    with ropewalk.Pool(1, kind="thread") as pool:
        assert pool.submit(lambda: dict(ropewalk.current_task().metadata)).result() == {}  # type: ignore[union-attr]
