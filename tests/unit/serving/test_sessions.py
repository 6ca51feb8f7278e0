"""Sessions of tools: by HTTP with the standard library, by gRPC with grpcio, by MCP with messages of our own."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask

from ropewalk.serving import Server, ServingError, tool

Make = Callable[..., Server]

TOOLS = '''
import itertools, os, time
from collections.abc import Iterator
from pathlib import Path

import ropewalk
from ropewalk.serving import ToolError, tool
from tests.tasks import Gate

@tool(session=True)
class Counter:
    """Counts."""

    def __init__(self, folder: str, start: int = 0) -> None:
        if start < 0:
            raise ToolError("too few", "FAILED_PRECONDITION")
        self.gate, self.number = Gate(Path(folder)), start

    def add(self, n: int = 1) -> int:
        """Adds to the number."""
        self.number += n
        return self.number

    def process(self) -> int:
        return os.getpid()

    def numbers(self, n: int) -> Iterator[int]:
        for _ in range(n):
            self.number += 1
            yield self.number

    def endless(self) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            self.gate.mark("closed-generator")

    async def later(self) -> int:
        return self.number

    def metadata(self) -> dict[str, str]:
        return dict(ropewalk.current_task().metadata)

    def hold(self, name: str = "task") -> int:
        self.gate.hold(name)
        return self.add()

    def polite(self) -> None:
        self.gate.mark("begun")
        task = ropewalk.current_task()
        while not task.cancelled:
            pass

    def busy(self) -> None:
        """Sits in C code, which no exception interrupts."""
        self.gate.mark("busy")
        sum(itertools.repeat(1))

    def fail(self) -> None:
        raise KeyError("x")

    def _hidden(self) -> None: ...

    def close(self) -> None:
        self.gate.mark("closed")

@tool(session=True, idle_timeout=0.3)
class Brief:
    def __init__(self, folder: str) -> None:
        self.gate = Gate(Path(folder))

    def ask(self) -> str:
        return "here"

    def __exit__(self, *_: object) -> None:
        self.gate.mark("left")

@tool(session=True, grace="9 s")
class Patient:
    def __init__(self, folder: str) -> None:
        self.gate = Gate(Path(folder))

    def work(self) -> None:
        self.gate.mark("works")
        while not ropewalk.current_task().cancelled:
            time.sleep(0.002)
        # Longer than a call may take to stop where its tool says nothing.
        time.sleep(0.1)
        self.gate.mark("stopped")

    def close(self) -> None:
        self.gate.mark("closed")

@tool(session=True, timeout=0.5)
class Limited:
    def hold(self, folder: str) -> None:
        Gate(Path(folder)).hold()

@tool(session=True)
class Slow:
    def __init__(self, folder: str) -> None:
        Gate(Path(folder)).hold()

    def add(self, text: str) -> str:
        return text

    def close(self) -> None:
        raise ValueError("no end")

@tool
def plain() -> int:
    return 1
'''


@pytest.fixture(scope="module")
def sessions_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of sessions."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("sessions") / "tools_of_sessions.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture(scope="module")
def shared(sessions_app: Path) -> Iterator[Server]:
    """A server for the tests that leave its workers alive."""
    with Server(sessions_app, http="127.0.0.1:0", workers=2) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture
def own(make_server: Make, sessions_app: Path) -> Server:
    """A server on one worker, for a test that ends it."""
    server = make_server(sessions_app)
    assert server.wait_ready(60)
    return server


def post(server: Server, path: str, body: Any = None, /, **headers: str) -> Said:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(server, "POST", path, json.dumps(body or {}).encode(), named)


def opened(server: Server, name: str = "Counter", /, **arguments: Any) -> str:
    """The path of a new session."""
    said = post(server, f"/v1/sessions/{name}", arguments)
    assert said.status == 201, said
    assert said.headers["location"] == f"/v1/sessions/{said.json['session']}"
    return said.headers["location"]


def at_rest(server: Server) -> bool:
    """Whether no worker has the state of a session."""
    return server.runtime["tools"].statistics().sessions == 0


def gone_with(said: Said, pid: int) -> None:
    """On a machine with much to do, a call that was asked to stop may take longer for that than it has."""
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    until(lambda: not is_alive(pid))


def metric(server: Server, line: str) -> int:
    lines = ask(server, "GET", "/metrics").body.decode().splitlines()
    return next(int(one.rpartition(" ")[2]) for one in lines if one.startswith(line))


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_a_state_lives_from_one_call_to_the_next(shared: Server, gate: Gate) -> None:
    folder = str(gate.folder)
    one, other = opened(shared, folder=folder, start=5), opened(shared, folder=folder)
    assert [post(shared, f"{one}/add", {"n": n}).json for n in (1, 2)] == [6, 8]
    assert post(shared, f"{other}/add").json == 1
    assert post(shared, f"{one}/later").json == 8
    assert len({post(shared, f"{one}/process").json for _ in range(4)}) == 1
    said = ask(shared, "DELETE", one)
    assert (said.status, said.body) == (204, b"")
    # The end of the object is over when the answer comes.
    assert len(gate.marks("closed")) == 1
    for method, path in (("POST", f"{one}/add"), ("DELETE", one)):
        said = ask(shared, method, path)
        assert (said.status, said.error["code"]) == (404, "NOT_FOUND")
    assert post(shared, f"{other}/add").json == 2
    assert ask(shared, "DELETE", other).status == 204
    until(lambda: at_rest(shared))


def test_streams_and_metadata_within_a_session(shared: Server, gate: Gate) -> None:
    path = opened(shared, folder=str(gate.folder))
    said = post(shared, f"{path}/numbers", {"n": 3})
    assert (said.headers["content-type"], said.body) == ("application/jsonl", b"1\n2\n3\n")
    said = post(shared, f"{path}/numbers", {"n": 1}, accept="text/event-stream")
    assert said.body == b"event: item\ndata: 4\n\n"
    assert post(shared, f"{path}/metadata", x_ropewalk_meta_user="ann").json == {"user": "ann"}
    ask(shared, "DELETE", path)


def test_failures_leave_a_session_open(shared: Server, gate: Gate) -> None:
    path = opened(shared, folder=str(gate.folder))
    said = post(shared, f"{path}/add", {"n": "1"})
    assert (said.status, said.error["violations"][0]["field"]) == (422, "n")
    said = post(shared, f"{path}/fail")
    assert (said.status, said.error["message"]) == (500, "KeyError: 'x'")
    for hidden in ("_hidden", "close", "__init__", "nothing"):
        said = post(shared, f"{path}/{hidden}")
        assert said.status == 404
        assert "add, busy" in said.error["message"]
    assert post(shared, f"{path}/add").json == 1
    ask(shared, "DELETE", path)


def test_what_cannot_be_opened(shared: Server, gate: Gate) -> None:
    said = post(shared, "/v1/sessions/Counter", {"folder": 3})
    assert (said.status, said.error["violations"][0]["field"]) == (422, "folder")
    said = post(shared, "/v1/sessions/Counter", {"folder": str(gate.folder), "start": -1})
    assert (said.status, said.error) == (400, {"code": "FAILED_PRECONDITION", "message": "too few"})
    for path in ("/v1/sessions/plain", "/v1/sessions/Nothing", "/v1/tools/Nothing"):
        assert post(shared, path).status == 404
    said = post(shared, "/v1/tools/Counter")
    assert (said.status, said.error["code"]) == (400, "FAILED_PRECONDITION")
    until(lambda: at_rest(shared))


def test_sessions_are_described(shared: Server) -> None:
    listed = ask(shared, "GET", "/v1/tools").json
    assert [one["name"] for one in listed["tools"]] == ["plain"]
    counter = next(one for one in listed["sessions"] if one["name"] == "Counter")
    assert counter["description"] == "Counts."
    assert counter["input_schema"]["required"] == ["folder"]
    add = next(one for one in counter["methods"] if one["name"] == "add")
    assert (add["description"], add["output_schema"]["type"]) == ("Adds to the number.", "integer")
    document = ask(shared, "GET", "/openapi.json").json
    operations = document["paths"]
    assert "201" in operations["/v1/sessions/Counter"]["post"]["responses"]
    assert "204" in operations["/v1/sessions/{session}"]["delete"]["responses"]
    asked = {
        name: operations[f"/v1/sessions/{{session}}/{name}"]["post"]["requestBody"]["content"]
        for name in ("numbers", "add")
    }
    schemas = {name: content["application/json"]["schema"] for name, content in asked.items()}
    assert schemas["numbers"]["properties"].keys() == {"n"}
    # Two classes have such a method.
    assert [one["properties"].keys() for one in schemas["add"]["anyOf"]] == [{"n"}, {"text"}]


def test_an_idle_session_ends(shared: Server, gate: Gate) -> None:
    path = opened(shared, "Brief", folder=str(gate.folder))
    until(lambda: gate.marks("left"))
    assert post(shared, f"{path}/ask").status == 404
    assert metric(shared, 'ropewalk_sessions_active{tool="Brief"}') == 0
    assert metric(shared, 'ropewalk_sessions_ended_total{tool="Brief",cause="idle"}') == 1


def test_only_so_many_sessions_are_open(make_server: Make, sessions_app: Path, gate: Gate) -> None:
    server = make_server(sessions_app, max_sessions=2)
    path, _ = opened(server, folder=str(gate.folder)), opened(server, folder=str(gate.folder))
    said = post(server, "/v1/sessions/Counter", {"folder": str(gate.folder)})
    assert (said.status, said.error["code"]) == (429, "RESOURCE_EXHAUSTED")
    assert "max_sessions" in said.error["message"]
    assert int(said.headers["retry-after"]) >= 1
    assert ask(server, "DELETE", path).status == 204
    opened(server, folder=str(gate.folder))


def test_calls_of_a_session_take_turns_and_only_so_many_wait(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    came: queue.SimpleQueue[Said] = queue.SimpleQueue()

    def call(method: str) -> None:
        came.put(post(own, f"{path}/{method}"))

    threads = [threading.Thread(target=call, args=("hold",))]
    threads[0].start()
    until(gate.marks)
    for _ in range(65):
        threads.append(threading.Thread(target=call, args=("add",)))
        threads[-1].start()
    said = came.get(timeout=30)
    assert (said.status, said.error["code"]) == (429, "RESOURCE_EXHAUSTED")
    gate.open()
    numbers = sorted(came.get(timeout=30).json for _ in range(65))
    assert numbers == list(range(1, 66))
    for thread in threads:
        thread.join()


def test_a_call_does_not_wait_beyond_its_deadline(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    holder = threading.Thread(target=post, args=(own, f"{path}/hold"))
    holder.start()
    until(gate.marks)
    said = post(own, f"{path}/add", x_ropewalk_timeout="0.05")
    assert (said.status, said.error["code"]) == (504, "DEADLINE_EXCEEDED")
    gate.open()
    holder.join()
    # It never ran, and the session goes on.
    assert post(own, f"{path}/add").json == 2


def test_a_stream_that_its_client_does_not_read_ends_with_its_session(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    connection = http.client.HTTPConnection(own.http or "", timeout=60)
    connection.request("POST", f"{path}/endless", "{}")
    assert connection.getresponse().readline() == b"0\n"
    # The client stays, and reads no more.
    assert ask(own, "DELETE", path).status == 204
    assert (len(gate.marks("closed-generator")), len(gate.marks("closed"))) == (1, 1)
    until(lambda: at_rest(own))
    assert post(own, f"{opened(own, folder=str(gate.folder))}/add").json == 1
    connection.close()


def test_a_session_is_lost_with_its_worker(own: Server, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    path = opened(own, folder=str(gate.folder), start=7)
    pid = post(own, f"{path}/process").json
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    said = post(own, f"{path}/add")
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    assert post(own, f"{path}/add").status == 404
    # The log has the session's tool, and not the session's name.
    found = until(lambda: [one for one in caplog.records if getattr(one, "tool", "") == "Counter.add"])
    assert found[0].status == "UNAVAILABLE"
    assert path.rpartition("/")[2] not in caplog.text
    assert metric(own, 'ropewalk_sessions_ended_total{tool="Counter",cause="lost"}') == 1
    assert metric(own, 'ropewalk_sessions_active{tool="Counter"}') == 0
    assert at_rest(own)
    assert post(own, f"{opened(own, folder=str(gate.folder))}/add").json == 1


def test_a_worker_that_dies_in_a_call_fails_it_once(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    came: list[Said] = []
    holder = threading.Thread(target=lambda: came.append(post(own, f"{path}/hold")))
    holder.start()
    [pid] = until(gate.marks)
    os.kill(pid, signal.SIGKILL)
    holder.join()
    assert (came[0].status, came[0].error["code"]) == (503, "UNAVAILABLE")
    assert post(own, f"{path}/add").status == 404


def test_a_client_that_leaves_a_call_in_c_code_frees_the_core(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    connection = http.client.HTTPConnection(own.http or "", timeout=60)
    connection.request("POST", f"{path}/busy", b"{}")
    [pid] = until(lambda: gate.marks("busy"))
    connection.close()
    until(lambda: not is_alive(pid))
    # The state went with the worker.
    assert post(own, f"{path}/add").status == 503
    until(lambda: at_rest(own))
    assert post(own, "/v1/tools/plain").json == 1


def test_a_call_that_stops_when_asked_leaves_the_session_open(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    pid = post(own, f"{path}/process").json
    connection = http.client.HTTPConnection(own.http or "", timeout=60)
    connection.request("POST", f"{path}/endless", b"{}")
    assert connection.getresponse().readline() == b"0\n"
    connection.close()
    said = post(own, f"{path}/add")
    if said.status == 200:
        assert (said.json, len(gate.marks("closed-generator"))) == (1, 1)
    else:
        gone_with(said, pid)


def test_a_client_that_leaves_while_its_session_opens(own: Server, gate: Gate) -> None:
    connection = http.client.HTTPConnection(own.http or "", timeout=60)
    connection.request("POST", "/v1/sessions/Slow", json.dumps({"folder": str(gate.folder)}))
    [pid] = until(gate.marks)
    connection.close()
    until(lambda: not is_alive(pid))
    until(lambda: at_rest(own))
    assert metric(own, 'ropewalk_sessions_opened_total{tool="Slow"}') == 0


def test_an_end_that_raises_is_said_and_is_an_end(own: Server, gate: Gate) -> None:
    gate.open()
    path = opened(own, "Slow", folder=str(gate.folder))
    assert post(own, f"{path}/add", {"text": "a"}).json == "a"
    said = ask(own, "DELETE", path)
    assert (said.status, said.error["message"]) == (500, "ValueError: no end")
    assert ask(own, "DELETE", path).status == 404
    until(lambda: at_rest(own))


def test_a_session_is_lost_with_a_worker_that_is_recycled(
    make_server: Make, sessions_app: Path, gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('[pools.jobs]\nkind = "process"\nworkers = 1\nmax_tasks = 3\n')
    server = make_server(sessions_app, config=tmp_path / "config.toml")
    path = opened(server, folder=str(gate.folder))
    numbers = []
    while (said := post(server, f"{path}/add")).status == 200:
        numbers.append(said.json)
    # The state never began anew.
    assert numbers == list(range(1, len(numbers) + 1))
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    assert post(server, f"{path}/add").status == 404


def test_ending_a_session_cancels_its_call(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    came: list[Said] = []
    caller = threading.Thread(target=lambda: came.append(post(own, f"{path}/polite")))
    caller.start()
    [pid] = until(lambda: gate.marks("begun"))
    said = ask(own, "DELETE", path)
    caller.join()
    assert (came[0].status, came[0].error["code"]) == (499, "CANCELLED")
    if gate.marks("closed"):
        assert said.status == 204
    else:
        # A call that does not stop in time takes its object with it.
        assert not is_alive(pid)
        assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    until(lambda: at_rest(own))


def test_an_end_that_did_not_run_is_no_end_that_went_well(own: Server, gate: Gate) -> None:
    path = opened(own, folder=str(gate.folder))
    caller = threading.Thread(target=post, args=(own, f"{path}/busy"))
    caller.start()
    [pid] = until(lambda: gate.marks("busy"))
    said = ask(own, "DELETE", path)
    caller.join()
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    assert said.error["message"].startswith("the session is over, but the end of its object did not run: ")
    until(lambda: not is_alive(pid))
    assert gate.marks("closed") == []
    assert ask(own, "DELETE", path).status == 404
    # So it is with a worker that is gone before.
    path = opened(own, folder=str(gate.folder))
    pid = post(own, f"{path}/process").json
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    said = ask(own, "DELETE", path)
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")


def test_an_end_waits_for_a_call_that_stops_within_its_grace(own: Server, gate: Gate) -> None:
    path = opened(own, "Patient", folder=str(gate.folder))
    caller = threading.Thread(target=post, args=(own, f"{path}/work"))
    caller.start()
    until(lambda: gate.marks("works"))
    assert ask(own, "DELETE", path).status == 204
    caller.join()
    assert len(gate.marks("stopped")) == len(gate.marks("closed")) == 1


def test_a_limit_of_a_session_is_one_of_each_call(own: Server, gate: Gate) -> None:
    path = opened(own, "Limited")
    said = post(own, f"{path}/hold", {"folder": str(gate.folder)})
    assert (said.status, said.error["code"]) == (504, "DEADLINE_EXCEEDED")
    # The call was ended with its worker: the next caller hears of that.
    assert post(own, f"{path}/hold", {"folder": str(gate.folder)}).status == 503
    assert post(own, f"{path}/hold", {"folder": str(gate.folder)}).status == 404


def test_a_server_that_leaves_ends_sessions(make_server: Make, sessions_app: Path, gate: Gate) -> None:
    server = make_server(sessions_app)
    opened(server, folder=str(gate.folder))
    assert server.drain(30)
    assert len(gate.marks("closed")) == 1


# --- the decorator ----------------------------------------------------------------------------------------------------


def test_a_class_that_is_no_session() -> None:
    pytest.importorskip("pydantic")
    from ropewalk.serving._sessions import Session

    class Nothing:
        def _private(self) -> None: ...

    class Taken:
        def call(self, session: str) -> None: ...

    class Many:
        def call(self, *args: int) -> None: ...

    for cls, words in ((Nothing, "has no methods"), (Taken, "'session'"), (Many, "'args' of")):
        with pytest.raises(ServingError, match=words):
            Session(cls)


def test_what_the_decorator_refuses() -> None:
    with pytest.raises(ServingError, match="marks classes"):
        tool(session=True)(lambda: None)
    with pytest.raises(ServingError, match="session=True"):
        tool(type("Plain", (), {}))
    with pytest.raises(ValueError, match="idle_timeout is for sessions"):
        tool(idle_timeout=3)
    with pytest.raises(ValueError, match="idempotent"):
        tool(session=True, idempotent=True)
    with pytest.raises(ValueError, match="more than 0"):
        tool(session=True, idle_timeout=0)


def test_a_tool_may_not_have_the_name_of_an_operation(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    text = "@tool(name='Counter.add')\ndef plain() -> int:"
    (tmp_path / "clash.py").write_text(TOOLS.replace("@tool\ndef plain() -> int:", text))
    with pytest.raises(ServingError, match=r"Counter\.add"):
        Server(tmp_path / "clash.py")


# --- gRPC -------------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


def field(number: int, value: float | bytes) -> bytes:
    """A field of protobuf."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def fields(data: bytes) -> dict[int, Any]:
    """The fields of a message, the last of each number."""
    found: dict[int, Any] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
        else:
            size = 8 if key & 7 == 1 else number()
            found[key >> 3] = data[at : at + size]
            at += size
    return found


class Talk:
    """A session by gRPC."""

    def __init__(self, server: Server, timeout: float = 60, token: str | None = None) -> None:
        grpc = pytest.importorskip("grpc")
        self._channel = grpc.insecure_channel(server.http)
        self._asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method = self._channel.stream_stream("/ropewalk.v1.Tools/Session")
        shown = [] if token is None else [("authorization", f"Bearer {token}")]
        self.said = method(iter(self._asked.get, None), timeout=timeout, metadata=shown)

    def open(self, name: str = "Counter", /, **arguments: Any) -> None:
        value = field(1, json.dumps(arguments).encode())
        self._asked.put(field(1, field(1, name.encode()) + field(2, value)))

    def call(self, number: int, method: str, timeout: float = 0.0, /, **arguments: Any) -> None:
        value = field(1, json.dumps(arguments).encode())
        call = field(1, number) + field(2, method.encode()) + field(3, value) + field(5, timeout)
        self._asked.put(field(2, call))

    def cancel(self, number: int) -> None:
        self._asked.put(field(3, field(1, number)))

    def send(self, message: bytes) -> None:
        self._asked.put(message)

    def half_close(self) -> None:
        self._asked.put(None)

    def read(self) -> tuple[int, str, Any]:
        """The next answer: the call's number, its kind, and what it says."""
        found = fields(next(self.said))
        number = found.pop(1, 0)
        [(kind, content)] = found.items()
        inner = fields(content)
        name = {2: "opened", 3: "result", 4: "item", 5: "end", 6: "failure"}[kind]
        if name in ("result", "item"):
            return number, name, json.loads(inner[1])
        return number, name, inner.get(1) if name == "failure" else None

    def status(self) -> str:
        """How the whole has ended, whatever was not read before."""
        for _ in self._left():
            pass
        return str(self.said.code().name)

    def _left(self) -> Iterator[bytes]:
        import grpc

        try:
            yield from self.said
        except grpc.RpcError:
            return

    def close(self) -> None:
        self.said.cancel()
        self.half_close()
        self._channel.close()


@pytest.fixture
def talk() -> Iterator[Callable[..., Talk]]:
    """Begins sessions by gRPC, which have ended after the test."""
    made: list[Talk] = []

    def begin(server: Server, **settings: Any) -> Talk:
        made.append(Talk(server, **settings))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_a_session_over_one_call(shared: Server, gate: Gate, talk: Callable[..., Talk]) -> None:
    one = talk(shared)
    one.open(folder=str(gate.folder), start=3)
    assert one.read() == (0, "opened", None)
    for number, amount in ((7, 1), (8, 2)):
        one.call(number, "add", n=amount)
    assert [one.read(), one.read()] == [(7, "result", 4), (8, "result", 6)]
    one.call(9, "numbers", n=2)
    one.call(10, "fail")
    one.call(11, "add", n="x")
    one.call(12, "nothing")
    came = [one.read() for _ in range(6)]
    assert [(number, kind) for number, kind, _ in came if number == 9] == [
        (9, "item"),
        (9, "item"),
        (9, "end"),
    ]
    codes = {number: content for number, kind, content in came if kind == "failure"}
    assert codes == {10: 2, 11: 3, 12: 5}
    one.call(13, "add")
    # What has come before the end of the client's side is answered.
    one.half_close()
    assert one.read() == (13, "result", 9)
    assert one.status() == "OK"
    assert len(gate.marks("closed")) == 1
    until(lambda: at_rest(shared))


def test_a_call_is_cancelled_by_its_number(own: Server, gate: Gate, talk: Callable[..., Talk]) -> None:
    one = talk(own)
    one.open(folder=str(gate.folder))
    one.read()
    one.call(1, "polite")
    one.call(2, "add")
    one.call(3, "add")
    [pid] = until(lambda: gate.marks("begun"))
    one.cancel(2)
    assert one.read() == (2, "failure", 1)
    one.cancel(99)
    one.cancel(1)
    first, third = sorted([one.read(), one.read()])
    assert first == (1, "failure", 1)
    if third == (3, "result", 1):
        one.call(1, "add")
        assert one.read() == (1, "result", 2)
    else:
        # On a machine with much to do, the call may take longer to stop than it has.
        assert third == (3, "failure", 14)
        until(lambda: not is_alive(pid))


def test_a_deadline_of_a_call(own: Server, gate: Gate, talk: Callable[..., Talk]) -> None:
    one = talk(own)
    one.open(folder=str(gate.folder))
    one.read()
    one.call(1, "hold")
    one.call(2, "add", 0.05)
    assert one.read() == (2, "failure", 4)
    gate.open()
    assert one.read() == (1, "result", 1)


def test_a_broken_connection_ends_the_session(own: Server, gate: Gate, talk: Callable[..., Talk]) -> None:
    one = talk(own)
    one.open(folder=str(gate.folder))
    one.read()
    one.call(1, "busy")
    [pid] = until(lambda: gate.marks("busy"))
    one.said.cancel()
    until(lambda: not is_alive(pid))
    until(lambda: at_rest(own))
    name = 'ropewalk_sessions_ended_total{tool="Counter",cause="client_left"}'
    until(lambda: metric(own, name) == 1)


def test_a_worker_that_dies_ends_the_call_of_its_session(
    own: Server, gate: Gate, talk: Callable[..., Talk]
) -> None:
    one = talk(own)
    one.open(folder=str(gate.folder))
    one.read()
    one.call(1, "hold")
    one.call(2, "add")
    [pid] = until(gate.marks)
    os.kill(pid, signal.SIGKILL)
    assert sorted([one.read(), one.read()]) == [(1, "failure", 14), (2, "failure", 14)]
    assert one.status() == "UNAVAILABLE"


def test_messages_that_are_wrong_end_the_session(
    shared: Server, gate: Gate, talk: Callable[..., Talk]
) -> None:
    one = talk(shared)
    one.call(1, "add")
    assert one.status() == "INVALID_ARGUMENT"
    for name, arguments, status in (
        ("Counter", {"folder": 3}, "INVALID_ARGUMENT"),
        ("Counter", {"folder": str(gate.folder), "start": -1}, "FAILED_PRECONDITION"),
        ("Nothing", {}, "NOT_FOUND"),
    ):
        one = talk(shared)
        one.open(name, **arguments)
        assert one.status() == status
    for wrong in (b"", field(1, field(1, b"Counter")), b"\xff\xff"):
        one = talk(shared)
        one.open(folder=str(gate.folder))
        one.read()
        one.send(wrong)
        assert one.status() in ("INVALID_ARGUMENT", "INTERNAL")
    one = talk(shared)
    one.open(folder=str(gate.folder))
    one.read()
    one.call(5, "polite")
    one.call(5, "add")
    assert one.status() == "INVALID_ARGUMENT"
    until(lambda: at_rest(shared))


def test_sessions_by_grpc_have_the_time_to_drain(own: Server, gate: Gate, talk: Callable[..., Talk]) -> None:
    one = talk(own)
    one.open(folder=str(gate.folder))
    one.read()
    drained: list[bool] = []
    leaving = threading.Thread(target=lambda: drained.append(own.drain(2)))
    leaving.start()
    one.call(1, "add")
    assert one.read() == (1, "result", 1)
    assert one.status() == "UNAVAILABLE"
    leaving.join()
    assert drained == [True]
    assert len(gate.marks("closed")) == 1


# --- MCP --------------------------------------------------------------------------------------------------------------

REVISION = "2026-07-28"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def mcp(server: Server, method: str, params: Any, capabilities: Any = None) -> Any:
    """The result of a request of the current revision, or its error."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION,
        "mcp-method": method,
    }
    name = params.get("name") or params.get("taskId")
    if name:
        headers["mcp-name"] = name
    said = ask(server, "POST", "/mcp", json.dumps(message).encode(), headers)
    return said.json.get("result") or said.json["error"]


def called(server: Server, name: str, capabilities: Any = None, /, **arguments: Any) -> Any:
    return mcp(server, "tools/call", {"name": name, "arguments": arguments}, capabilities)


def test_agents_open_sessions(shared: Server, gate: Gate) -> None:
    listed = {one["name"]: one for one in mcp(shared, "tools/list", {})["tools"]}
    assert {"plain", "Counter", "Counter.add", "Counter.close", "Brief.close"} <= listed.keys()
    assert "Counter.add" in listed["Counter"]["description"]
    schema = listed["Counter.numbers"]["inputSchema"]
    assert (sorted(schema["properties"]), schema["required"]) == (["n", "session"], ["session", "n"])
    session = called(shared, "Counter", folder=str(gate.folder), start=1)["structuredContent"]["session"]
    assert called(shared, "Counter.add", session=session, n=4)["structuredContent"] == {"result": 5}
    numbers = called(shared, "Counter.numbers", session=session, n=2)
    assert numbers["structuredContent"] == {"result": [6, 7]}
    for wrong, words in (
        ({"n": 1}, "session: it is missing"),
        ({"session": session, "n": "x"}, "n: Input"),
        ({"session": "other"}, "there is no such session"),
    ):
        said = called(shared, "Counter.add", **wrong)
        assert said["isError"]
        assert words in said["content"][0]["text"]
    said = called(shared, "Brief.ask", session=session)
    assert "a session of Counter" in said["content"][0]["text"]
    assert not called(shared, "Counter.close", session=session)["isError"]
    assert len(gate.marks("closed")) == 1
    assert called(shared, "Counter.add", session=session)["isError"]
    until(lambda: at_rest(shared))


def finished(server: Server, said: Any) -> Any:
    """The result of a call of a client that takes tasks: it may have become one."""
    if said["resultType"] != "task":
        return said
    task = {"taskId": said["taskId"]}
    done = until(lambda: (now := mcp(server, "tasks/get", task, TASKS))["status"] == "completed" and now)
    return done["result"]


def test_a_call_that_takes_long_becomes_a_task(own: Server, gate: Gate) -> None:
    assert finished(own, called(own, "plain", TASKS))["structuredContent"] == {"result": 1}
    session = called(own, "Counter", folder=str(gate.folder))["structuredContent"]["session"]
    made = called(own, "Counter.hold", TASKS, session=session)
    assert (made["resultType"], made["status"]) == ("task", "working")
    task = {"taskId": made["taskId"]}
    assert mcp(own, "tasks/get", task, TASKS)["status"] == "working"
    # Others are not given the task's state.
    assert mcp(own, "tasks/get", {"taskId": "other"}, TASKS)["code"] == -32602
    assert mcp(own, "tasks/get", task)["code"] == -32021
    gate.open()
    done = finished(own, made)
    assert done["structuredContent"] == {"result": 1}
    # It may be read again.
    assert mcp(own, "tasks/get", task, TASKS)["result"] == done


def test_a_task_that_is_cancelled_frees_its_worker(own: Server, gate: Gate) -> None:
    session = called(own, "Counter", folder=str(gate.folder))["structuredContent"]["session"]
    made = called(own, "Counter.busy", TASKS, session=session)
    [pid] = until(lambda: gate.marks("busy"))
    task = {"taskId": made["taskId"]}
    assert mcp(own, "tasks/cancel", task, TASKS)["resultType"] == "complete"
    until(lambda: not is_alive(pid))
    until(lambda: mcp(own, "tasks/get", task, TASKS)["status"] == "cancelled")
    assert called(own, "plain")["structuredContent"] == {"result": 1}


def test_clients_without_tasks_wait_for_their_results(own: Server, gate: Gate) -> None:
    session = called(own, "Counter", folder=str(gate.folder))["structuredContent"]["session"]
    came: list[Any] = []
    caller = threading.Thread(target=lambda: came.append(called(own, "Counter.hold", session=session)))
    caller.start()
    until(gate.marks)
    gate.open()
    caller.join()
    assert came[0]["structuredContent"] == {"result": 1}
