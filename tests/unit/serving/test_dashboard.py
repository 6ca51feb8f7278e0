"""The numbers, events and orders of the dashboard, by HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask, call

from ropewalk import ConfigError
from ropewalk.serving import Server

SPINS = '''
import threading, time
from pathlib import Path

from ropewalk.serving import tool
from tests.tasks import Gate

@tool
def spin(folder: str) -> int:
    gate = Gate(Path(folder))
    gate.mark("spins")
    rounds = 0
    while not (gate.folder / "open").exists():
        rounds += deeper(50_000)
    return rounds

def deeper(n: int) -> int:
    total = 0
    for one in range(n):
        total += one * one
    return total

@tool
def in_c(folder: str) -> None:
    """Sits in C with the interpreter's lock."""
    Gate(Path(folder)).mark("in C")
    sum(range(10**12))

@tool
def beside(folder: str) -> None:
    """Waits in the main thread, beside a thread that waits, too."""
    gate = Gate(Path(folder))
    other = threading.Thread(target=a_thread_of_the_tool, args=(gate,), name="the-other", daemon=True)
    other.start()
    gate.hold("beside")
    other.join()

def a_thread_of_the_tool(gate: Gate) -> None:
    gate.hold("other")
'''


def status(server: Server, **headers: str) -> Any:
    said = ask(server, "GET", "/v1/status", headers=headers)
    assert said.status == 200, said
    return said.json


def status_with(server: Server, name: str) -> Any:
    """The status with what the program says beside the tools: it is left out where the program is slow to say it."""
    found: Any = {}

    def is_there() -> bool:
        nonlocal found
        found = status(server)
        return name in found

    until(is_there, 60)
    return found


def workers(server: Server) -> list[Any]:
    return [worker for pool in status(server)["pools"] for worker in pool["workers"]]


def post(server: Server, path: str, body: Any = None, **headers: str) -> Said:
    return ask(server, "POST", path, None if body is None else json.dumps(body).encode(), headers)


@contextmanager
def watching(server: Server, **headers: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a server."""
    connection = http.client.HTTPConnection(server.http or "", timeout=60)
    connection.request("GET", "/v1/status/events", headers=headers)
    response = connection.getresponse()

    def events() -> Iterator[tuple[str, Any]]:
        name = ""
        while line := response.readline():
            if line.startswith(b"event: "):
                name = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    try:
        assert response.status == 200, response.read()
        yield events()
    finally:
        # Before the response: it would read to the end.
        if connection.sock is not None:
            connection.sock.close()
        response.close()
        connection.close()


@contextmanager
def running(server: Server, tool: str, gate: Gate, mark: str) -> Iterator[None]:
    """A call that goes on until the gate opens, or its client leaves."""
    connection = http.client.HTTPConnection(server.http or "", timeout=60)
    before = len(gate.marks(mark))
    connection.request("POST", f"/v1/tools/{tool}", json.dumps({"folder": str(gate.folder)}))
    until(lambda: len(gate.marks(mark)) > before)
    try:
        yield
    finally:
        connection.close()


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_the_document_says_what_there_is(server: Server) -> None:
    assert call(server, "add", {"a": 1}).status == 200
    said = status(server)
    assert said["server"]["ready"]
    assert said["server"]["pid"] == os.getpid()
    assert said["may_administer"]
    (pool,) = said["pools"]
    assert (pool["name"], pool["size"], pool["ready"], pool["restarts"]) == ("tools", 2, 2, {})
    for worker in pool["workers"]:
        assert worker["state"] in ("idle", "busy")
        assert worker["can_be_inspected"]
        assert worker["memory"] > 1 << 20
        assert worker["age"] >= 0
        assert worker["pid"] != os.getpid()
    (add,) = [tool for tool in said["tools"] if tool["name"] == "add"]
    assert add["calls"] >= 1
    assert add["recent"]["rate"] > 0
    assert 0 < add["recent"]["p50"] <= add["recent"]["p99"]
    assert sum(row[1] for row in add["series"]) >= 1
    assert sum(row[1] for row in said["calls"]) >= 1
    assert "flows" not in said, "sections without anything are absent"


def test_what_a_worker_runs_is_told(server: Server, gate: Gate) -> None:
    with running(server, "polite", gate, "begun"):
        until(lambda: any(worker["tasks"] for worker in workers(server)))
        (busy,) = [worker for worker in workers(server) if worker["tasks"]]
        (task,) = busy["tasks"]
        assert (busy["state"], task["tool"], task["attempt"]) == ("busy", "polite", 1)
        assert task["seconds"] >= 0
    until(lambda: not any(worker["tasks"] for worker in workers(server)))


def test_failures_have_their_traceback_for_the_operator_alone(server: Server) -> None:
    said = call(server, "divide", {"a": 1, "b": 0})
    assert said.status == 500
    assert b"Traceback" not in said.body
    assert b"line" not in said.body
    until(lambda: any(one["tool"] == "divide" for one in status(server)["failures"]))
    failure = [one for one in status(server)["failures"] if one["tool"] == "divide"][-1]
    assert failure["status"] == "UNKNOWN"
    assert failure["message"].startswith("ZeroDivisionError: ")
    assert failure["message"].endswith("division by zero")
    assert "return a / b" in failure["traceback"]
    assert failure["pid"] in [one["pid"] for one in workers(server)]
    # What callers do wrong is no failure of the server.
    before = len(status(server)["failures"])
    assert call(server, "add", {"a": "x"}).status == 422
    assert len(status(server)["failures"]) == before


def test_failures_are_bounded(server: Server) -> None:
    for _ in range(60):
        assert call(server, "divide", {"a": 1, "b": 0}).status == 500
    said = status(server)
    assert len(said["failures"]) <= 100
    assert len({one["number"] for one in said["failures"]}) == len(said["failures"])


def test_events_begin_with_the_whole_and_go_on_with_what_changes(server: Server) -> None:
    with watching(server) as events:
        name, whole = next(events)
        assert name == "snapshot"
        assert whole["whole"]
        assert whole["pools"]
        for name, update in events:
            assert name == "update"
            assert not update["whole"]
            assert update["pools"]
            # Once more each time: of a second with many failures not all are kept.
            assert call(server, "divide", {"a": 1, "b": 0}).status == 500
            if any(one["tool"] == "divide" for one in update["failures"]):
                break
        last = max(one["number"] for one in update["failures"])
        name, update = next(events)
        assert all(one["number"] > last for one in update["failures"]), "each is told once"
        histories = [worker["history"] for pool in update["pools"] for worker in pool["workers"]]
        assert any(histories)
        assert all(0 <= part <= 100 for history in histories for part in history)


def test_watchers_are_bounded(server: Server) -> None:
    with watching(server) as first:
        next(first)
        with ExitStack() as stack:
            for _ in range(64):
                connection = stack.enter_context(
                    closing(http.client.HTTPConnection(server.http or "", timeout=60))
                )
                connection.request("GET", "/v1/status/events")
                response = stack.enter_context(connection.getresponse())
                if response.status != 200:
                    break
                # Before the response: it would read to the end.
                assert connection.sock is not None
                stack.callback(connection.sock.close)
            assert response.status == 503
            assert b"clients watch" in response.read()

    # Those that have left make room.
    def is_served() -> bool:
        try:
            with watching(server) as events:
                return bool(next(events))
        except AssertionError:
            return False

    until(is_served)


# --- the stacks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spinning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("spins") / "tools_that_spin.py"
    file.write_text(SPINS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


def look(server: Server, kind: str) -> Any:
    (worker,) = [one for one in workers(server) if one["state"] in ("busy", "idle")]
    said = post(server, f"/v1/workers/tools/{worker['number']}/{kind}")
    assert said.status == 200, said
    assert said.json["pid"] == worker["pid"]
    return said.json


def by_python(server: Server, kind: str, shows: Callable[[Any], bool] = lambda said: True) -> Any:
    """A look in which Python was asked in time and that shows something.

    A busy machine may take longer than the server waits, and may let a flame look only a few times.
    """
    found: list[Any] = []

    def asked() -> bool:
        found.append(look(server, kind))
        return bool(found[-1]["by"] == "python") and shows(found[-1])

    until(asked)
    return found[-1]


def of_main(said: Any) -> Any:
    """The thread that runs tools, from a look at stacks. One that answers an earlier look may still be beside it."""
    (main,) = (thread for thread in said["threads"] if thread["name"] == "MainThread")
    return main


def test_an_idle_worker_shows_its_stack(spinning: Server) -> None:
    until(lambda: workers(spinning)[0]["state"] == "idle")
    said = by_python(spinning, "stack")
    assert "note" not in said
    main = of_main(said)
    assert (main["idle"], main["frames"][0]["function"]) == (True, "_lane")


def test_a_worker_that_spins_shows_its_stack_and_its_flame(spinning: Server, gate: Gate) -> None:
    with running(spinning, "spin", gate, "spins"):
        main = of_main(by_python(spinning, "stack"))
        assert not main["idle"]
        inner = [one for one in main["frames"] if one["function"] == "spin"]
        assert inner
        assert inner[0]["file"].endswith("tools_that_spin.py")
        assert "code" in inner[0]

        def shows_deeper(said: Any) -> bool:
            return any("deeper (" in stack and stack.startswith("MainThread;") for stack in said["folded"])

        said = by_python(spinning, "flame?seconds=0.5", shows_deeper)
        assert said["samples"] > 0
        assert sum(said["folded"].values()) >= said["samples"]
        gate.open()


def test_threads_that_wait_are_seen_too(spinning: Server, gate: Gate) -> None:
    with running(spinning, "beside", gate, "beside"):
        threads = {thread["name"]: thread for thread in by_python(spinning, "stack")["threads"]}
        assert {"MainThread", "the-other"} <= set(threads)
        assert any(one["function"] == "a_thread_of_the_tool" for one in threads["the-other"]["frames"])
        by_python(
            spinning,
            "flame?seconds=0.3",
            lambda said: any(stack.startswith("the-other;") for stack in said["folded"]),
        )
        gate.open()


def test_a_worker_in_c_with_the_interpreter_s_lock_is_seen_by_a_signal(spinning: Server, gate: Gate) -> None:
    with running(spinning, "in_c", gate, "in C"):
        said = look(spinning, "stack")
        assert said["by"] == "signal"
        assert "signal handler" in said["note"]
        assert any(one["function"] == "in_c" for thread in said["threads"] for one in thread["frames"])


def test_a_flame_of_a_worker_in_c_is_sampled_by_a_signal(spinning: Server, gate: Gate) -> None:
    until(lambda: workers(spinning)[0]["state"] == "idle" and workers(spinning)[0]["can_be_inspected"])
    with running(spinning, "in_c", gate, "in C"):
        said = look(spinning, "flame?seconds=0.2")
        assert said["by"] == "signal"
        assert said["samples"] > 0
        assert any("in_c (" in stack for stack in said["folded"])


def test_a_look_at_nothing_says_so(server: Server) -> None:
    assert post(server, "/v1/workers/tools/999999/stack").status == 404
    assert post(server, "/v1/workers/nothing/1/stack").status == 404
    assert post(server, "/v1/workers/tools/1/flame?seconds=1000").status == 422
    for path, part in [
        ("/v1/workers/tools/x/stack", "path"),
        ("/v1/workers/tools/-1/recycle", "path"),
        ("/v1/pools/%ff/resize", "path"),
        ("/v1/tools/%ff", "path"),
        ("/v1/sessions/a/%ff", "path"),
        ("/v1/workers/tools/1/flame?seconds=x", "query"),
        (f"/v1/workers/tools/{'9' * 9000}/stack", "path"),
    ]:
        said = post(server, path)
        assert (said.status, said.error["code"]) == (400, "INVALID_ARGUMENT"), path
        assert said.error["message"].startswith(f"the {part} of the address cannot be read: ")
        assert len(said.body) < 500
    assert ask(server, "GET", "/v1/workers/tools/1/stack").status == 405


def test_a_stranger_at_the_workers_socket_changes_nothing(server: Server) -> None:
    inspected = server._inspected
    assert inspected is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect("\0" + inspected.address)
        stranger.send(b'{"look": 1, "begun": true}\n' * 1000)
        number = workers(server)[0]["number"]
        assert post(server, f"/v1/workers/tools/{number}/stack").json["by"] in ("python", "signal")


# --- orders -----------------------------------------------------------------------------------------------------------


def test_a_worker_is_replaced_and_a_pool_resized(make_server: Callable[..., Server]) -> None:
    server = make_server()
    assert server.wait_ready(60)
    (before,) = workers(server)
    assert post(server, f"/v1/workers/tools/{before['number']}/recycle").json == {"recycling": 1}
    until(lambda: [one["pid"] for one in workers(server)] not in ([], [before["pid"]]))
    until(lambda: status(server)["pools"][0]["restarts"] == {"asked": 1})
    assert post(server, "/v1/pools/tools/resize", {"workers": 2}).json == {"workers": 2}
    until(lambda: status(server)["pools"][0]["ready"] == 2)
    for wrong in ({"workers": 0}, {"workers": 5000}, {"workers": "2"}, {}, [1]):
        assert post(server, "/v1/pools/tools/resize", wrong).status == 422
    assert post(server, "/v1/pools/nothing/resize", {"workers": 2}).status == 404
    assert call(server, "add", {"a": 1}).status == 200


def test_drain_answers_what_has_begun_and_ends_the_server(
    make_server: Callable[..., Server], gate: Gate
) -> None:
    server = make_server()
    assert server.wait_ready(60)
    said: list[Said] = []
    caller = threading.Thread(target=lambda: said.append(call(server, "hold", {"folder": str(gate.folder)})))
    caller.start()
    until(lambda: gate.marks("task"))
    with watching(server) as events:
        next(events)
        assert post(server, "/v1/drain").status == 202
        # The events end, or the server would wait for them.
        for _ in events:
            pass
    gate.open()
    caller.join(60)
    assert said[0].status == 200
    until(lambda: server.not_ready() == "the server has ended")


def test_orders_need_a_token_where_there_are_tokens(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("token-secret-of-all\n")
    server = make_server(token_file=tmp_path / "tokens")
    assert server.wait_ready(60)
    for path in ("/v1/status", "/v1/status/events"):
        assert ask(server, "GET", path).status == 401
    for path in ("/v1/drain", "/v1/workers/tools/1/stack", "/v1/pools/tools/resize"):
        assert post(server, path).status == 401
    # The page asks for the token itself.
    assert ask(server, "GET", "/").status == 200
    known = {"Authorization": "Bearer token-secret-of-all"}
    assert status(server, **known)["may_administer"]
    assert post(server, "/v1/workers/tools/1/stack", **known).status == 200


CLIENTS = """
[clients.ann]
token = "token-secret-of-ann"
[clients.eye]
token = "token-secret-of-eye"
tools = []
metrics = true
[clients.chief]
token = "token-secret-of-chief"
tools = []
admin = true
"""


def test_the_dashboard_is_for_clients_that_may_see_it(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("token-secret-of-a-list\n")
    (tmp_path / "clients").write_text(CLIENTS)
    server = make_server(clients_file=tmp_path / "clients", token_file=tmp_path / "tokens")
    assert server.wait_ready(60)
    known = {
        name: {"Authorization": f"Bearer token-secret-of-{name}"}
        for name in ("ann", "eye", "chief", "a-list")
    }
    # Tokens of a list are no operators' where clients have entries.
    for name in ("ann", "a-list"):
        for path in ("/v1/status", "/v1/status/events"):
            said = ask(server, "GET", path, headers=known[name])
            assert (said.status, said.error["code"]) == (403, "PERMISSION_DENIED")
        assert ask(server, "GET", "/metrics", headers=known[name]).status == 200
    assert not status(server, **known["eye"])["may_administer"]
    assert status(server, **known["chief"])["may_administer"]
    for name, code in (("ann", 403), ("a-list", 403), ("eye", 403), ("chief", 200)):
        said = post(server, "/v1/workers/tools/1/stack", **known[name])
        assert said.status == code
        assert code == 200 or "needs `admin = true`" in said.error["message"]


def test_a_watcher_that_is_a_client_no_more_sees_no_more(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    file = tmp_path / "clients"
    file.write_text(CLIENTS)
    server = make_server(clients_file=file)
    assert server.wait_ready(60)
    host, _, port = str(server.http).rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
        connection.request(
            "GET", "/v1/status/events", headers={"Authorization": "Bearer token-secret-of-eye"}
        )
        answer = connection.getresponse()
        assert answer.readline() == b"event: snapshot\n"
        file.write_text(CLIENTS.replace("of-eye", "of-another"))
        server.reload_credentials()
        # The stream ends.
        while answer.readline():
            pass


def test_a_public_server_without_tokens_takes_no_orders(make_server: Callable[..., Server]) -> None:
    server = make_server(http="0.0.0.0:0", insecure=True)
    assert not status(server)["may_administer"]
    for path in ("/v1/drain", "/v1/workers/tools/1/stack", "/v1/pools/tools/resize"):
        said = post(server, path)
        assert (said.status, said.error["code"]) == (403, "PERMISSION_DENIED")


def test_pages_of_other_sites_neither_read_nor_order(server: Server) -> None:
    assert post(server, "/v1/drain", Origin="https://evil.example").status == 403
    # After DNS rebinding a browser sends no Origin with its reads.
    assert ask(server, "GET", "/v1/status", headers={"Host": "evil.example"}).status == 403
    assert server.not_ready() is None


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_from_elsewhere(server: Server) -> None:
    page = ask(server, "GET", "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    text = page.body.decode()
    loaded = re.findall(r'(?:src|href)="([^"#][^"]*)"', text)
    assert loaded
    assert all(path.startswith("/") and not path.startswith("//") for path in loaded)
    for path in {path for path in loaded if path.startswith("/dashboard")}:
        assert ask(server, "GET", path).headers["content-security-policy"] == policy
    assert " style=" not in text
    assert "onclick" not in text
    assert "<script>" not in text


def test_without_a_dashboard_there_is_nothing(make_server: Callable[..., Server]) -> None:
    server = make_server(dashboard=False)
    for path in ("/", "/dashboard.js", "/v1/status", "/v1/status/events"):
        assert ask(server, "GET", path).status == 404
    assert post(server, "/v1/drain").status == 404
    with pytest.raises((TypeError, ConfigError), match="dashboard"):
        make_server(dashboard="yes")


def test_workers_handle_both_signals(server: Server) -> None:
    # One that they did not handle would end them.
    number = workers(server)[0]
    handled = Path(f"/proc/{number['pid']}/status").read_text()
    caught = int(next(line for line in handled.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    assert caught >> 44 & 1
    assert caught >> 45 & 1


def test_flows_of_the_program_are_told(server: Server, tmp_path: Path) -> None:
    from ropewalk.flows import Flows, flow, step

    @flow
    def area(width: int, height: int) -> int:
        return step(max, width, 0) * step(max, height, 0)

    with Flows(tmp_path / "flows.wal") as flows:
        assert flows.start(area, 3, 4, id="first").result() == 12
        (told,) = status_with(server, "flows")["flows"]
        (run,) = told["runs"]
        assert (run["id"], run["state"], told["states"]) == ("first", "succeeded", {"succeeded": 1})
        assert [one["state"] for one in run["last_steps"]] in ([], ["succeeded"] * 2, ["done"] * 2)
    assert "flows" not in status(server)


def test_buses_and_stores_are_shown_that_the_program_names(
    make_server: Callable[..., Server],
) -> None:
    import ropewalk
    from ropewalk.state import Store

    server = make_server()
    with ropewalk.Bus() as bus, Store({"n": 0}) as store:
        server.show("orders", bus)
        server.show("bank", store)
        bus.publish("orders.new", 1)
        with store.transaction() as tx:
            tx.draft["n"] = 1
        said = status_with(server, "signals")
        assert [(one["name"], one["published"]) for one in said["signals"]] == [("orders", 1)]
        assert said["stores"] == [{"name": "bank", "commits": store.version}]
        with pytest.raises(TypeError, match=r"shows a ropewalk\.Bus"):
            server.show("other", object())  # type: ignore[arg-type]
        for number in range(62):
            server.show(str(number), bus)
        with pytest.raises(ValueError, match="64 buses"):
            server.show("one too many", bus)
    assert not {"signals", "stores"} & set(status(server)), "what is closed is gone"


def test_a_dead_worker_is_counted(make_server: Callable[..., Server]) -> None:
    server = make_server()
    assert server.wait_ready(60)
    os.kill(workers(server)[0]["pid"], signal.SIGKILL)
    until(lambda: status(server)["pools"][0]["restarts"] == {"crashed": 1})
    until(lambda: any(one["can_be_inspected"] for one in workers(server)))
    assert time.time() - status(server)["time"] < 60
