"""Loading a file again while its server serves: nothing is lost, and what fails changes nothing."""

from __future__ import annotations

import http.client
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask, call

from ropewalk.serving import Server, ServingError, _logs, _reload
from ropewalk.serving._reload import Changes

pytest.importorskip("pydantic")


def part_of(folder: Path) -> str:
    """The module that the file of tools in this folder imports."""
    return f"part_{zlib.crc32(bytes(folder)):x}"


def write(folder: Path, version: str, more: str = "") -> Path:
    """Writes a file of tools, and a module that it imports; their names are those of no other test."""
    part = part_of(folder)
    (folder / f"{part}.py").write_text(f"VERSION = {version!r}\n")
    file = folder / f"tools_with_{part}.py"
    file.write_text(
        f"""
import os
from pathlib import Path
import {part} as part
from ropewalk.serving import tool
from tests.tasks import Gate

OWN = {version!r}

@tool
def version() -> list[str]:
    return [OWN, part.VERSION]

@tool
def hold(folder: str) -> str:
    Gate(Path(folder)).hold()
    return OWN

@tool(read_only=True, cache_ttl="1 h")
def kept() -> str:
    return OWN

@tool(batch=8, window="1 ms")
def batched(n: list[int]) -> list[str]:
    return [OWN] * len(n)
{more}
"""
    )
    return file


def test_calls_find_the_new_tools(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    server = make_server(write(tmp_path, "one"))
    assert call(server, "version").json == ["one", "one"]
    assert call(server, "kept").json == "one"
    write(tmp_path, "two", "@tool\ndef added(n: int) -> int:\n    return n\n")
    server.reload()
    assert call(server, "version").json == ["two", "two"]
    assert call(server, "kept").json == "two"
    assert call(server, "batched", {"n": 1}).json == "two"
    assert call(server, "added", {"n": 3}).json == 3
    listed = [one["name"] for one in ask(server, "GET", "/v1/tools").json["tools"]]
    assert "added" in listed
    assert "/v1/tools/added" in ask(server, "GET", "/openapi.json").json["paths"]
    assert "added" in [one.name for one in server.tools]
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "added", "arguments": {"n": 4}},
    }
    accept = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    assert b'"result":4' in ask(server, "POST", "/mcp", json.dumps(body).encode(), accept).body
    write(tmp_path, "three")
    server.reload()
    assert call(server, "added", {"n": 3}).status == 404


def test_the_program_keeps_its_modules(
    tmp_path: Path, make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    server = make_server(write(tmp_path, "one"))
    before = sys.modules[part_of(tmp_path)]
    write(tmp_path, "two")
    server.reload()
    assert sys.modules[part_of(tmp_path)] is before
    assert call(server, "version").json == ["two", "two"]


def test_what_has_begun_ends_where_it_began(
    tmp_path: Path, gate: Gate, make_server: Callable[..., Server]
) -> None:
    server = make_server(write(tmp_path, "one"), workers=2)
    said: list[str] = []
    holding = threading.Thread(
        target=lambda: said.append(call(server, "hold", {"folder": str(gate.folder)}).json)
    )
    holding.start()
    until(lambda: bool(gate.marks()))
    write(tmp_path, "two")
    server.reload()
    assert call(server, "version").json == ["two", "two"]
    assert not said
    gate.open()
    holding.join()
    assert said == ["one"]


def test_what_cannot_be_loaded_changes_nothing(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    server = make_server(write(tmp_path, "one"))
    assert server.wait_ready(60)
    for more, text in [
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("@tool\ndef wrong(*args: int) -> None: ...\n", "has no name for them"),
        ("@tool(warmup=lambda: 1 / 0)\ndef cold() -> None: ...\n", "the old ones serve on"),
        ("@tool(pool='none')\ndef elsewhere() -> None: ...\n", "there is none"),
    ]:
        write(tmp_path, "two", more)
        with pytest.raises(ServingError, match=text):
            server.reload()
        assert call(server, "version").json == ["one", "one"]
    write(tmp_path, "three")
    server.reload()
    assert call(server, "version").json == ["three", "three"]


def test_what_fails_is_logged_with_its_lines(
    tmp_path: Path, make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(write(tmp_path, "one"))
    write(tmp_path, "two", "1 / 0\n")
    with caplog.at_level(logging.ERROR, "ropewalk.serving"):
        assert not _reload.reload_and_log(server)
    (record,) = (one for one in caplog.records if one.name == "ropewalk.serving")
    first, *_, last = _logs.formatter("text").format(record).splitlines()
    assert first.startswith("ropewalk: ERROR: not loaded again: ")
    assert first.endswith("fails when it is imported:")
    assert last.startswith("  ZeroDivisionError")
    assert "ZeroDivisionError" in json.loads(_logs.formatter("json").format(record))["exception.stacktrace"]


def test_nothing_is_lost_under_load(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    server = make_server(write(tmp_path, "version 0"))
    over = threading.Event()
    wrong: list[object] = []
    served: list[int] = []

    def hammer(name: str, body: bytes) -> None:
        connection = http.client.HTTPConnection(server.http or "", timeout=60)
        count = 0
        while not over.is_set():
            connection.request("POST", f"/v1/tools/{name}", body, {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status != 200 or b'"version ' not in text:
                wrong.append((response.status, text))
            if name == "version" and len(set(json.loads(text))) != 1:
                wrong.append(text)
            count += 1
        connection.close()
        served.append(count)

    calls = [("version", b"{}"), ("version", b"{}"), ("batched", b'{"n": 1}'), ("kept", b"{}")]
    threads = [threading.Thread(target=hammer, args=one) for one in calls]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 4):
            write(tmp_path, f"version {number}")
            server.reload()
            assert call(server, "version").json == [f"version {number}"] * 2
            assert call(server, "kept").json == f"version {number}"
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert all(count > 3 for count in served)


def test_descriptors_and_processes_stay_as_many(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    server = make_server(write(tmp_path, "one"))
    assert server.wait_ready(60)

    def children() -> int:
        return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    def held() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), children(), len(os.listdir("/proc/self/task"))

    server.reload()
    before = held()
    for number in range(3):
        write(tmp_path, f"number {number}")
        server.reload()
    # What ends, ends a moment later.
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    fails = "\ndef fail() -> None:\n    raise ValueError\n\n@tool(warmup=fail)\ndef cold() -> None: ...\n"
    for number in range(3):
        write(tmp_path, f"wrong {number}", fails)
        with pytest.raises(ServingError, match="the old ones serve on"):
            server.reload()
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))


def test_a_server_that_does_not_serve_loads_nothing(app: Path) -> None:
    server = Server(app, http="127.0.0.1:0", workers=1)
    with pytest.raises(ServingError, match="does not serve"):
        server.reload()


def test_an_error_that_the_caller_handles_keeps_its_frames(app: Path) -> None:
    server = Server(app, http="127.0.0.1:0", workers=1)

    def fail() -> None:
        found = "what a debugger shows"
        raise LookupError(found)

    def handle() -> None:
        try:
            fail()
        except LookupError:
            with pytest.raises(ServingError, match="does not serve"):
                server.reload()
            raise

    with pytest.raises(LookupError) as caught:
        handle()
    assert caught.traceback[-1].frame.f_locals["found"] == "what a debugger shows"


@contextmanager
def serving(
    file: Path, *arguments: str
) -> Generator[tuple[subprocess.Popen[str], str, Callable[[str], None]]]:
    """Runs the command; gives it, its address, and what waits for a text on its standard error."""
    command = [
        sys.executable,
        "-m",
        "ropewalk",
        "serve",
        str(file),
        "--http",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True) as process:
        seen: list[str] = []

        def read() -> None:
            for line in process.stderr or ():
                seen.append(line)  # noqa: PERF402 (each as it comes)

        reader = threading.Thread(target=read)
        reader.start()

        def wait_for(text: str) -> None:
            until(lambda: any(text in line for line in seen))

        try:
            wait_for("ready after")
            (address,) = (line.split("http://")[1].split()[0] for line in seen if "http://" in line)
            yield process, address, wait_for
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            reader.join()


def said(address: str) -> list[str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", "/v1/tools/version", b"{}", {"content-type": "application/json"})
        found: list[str] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()


def test_a_signal_loads_the_file_again(tmp_path: Path) -> None:
    with serving(write(tmp_path, "one")) as (process, address, wait_for):
        assert said(address) == ["one", "one"]
        write(tmp_path, "two", "def broken(:\n")
        process.send_signal(signal.SIGHUP)
        wait_for("not loaded again")
        wait_for("SyntaxError")
        assert said(address) == ["one", "one"]
        # No signal has come, so it is the file's own.
        write(tmp_path, "two", "raise KeyboardInterrupt\n")
        process.send_signal(signal.SIGHUP)
        wait_for("not loaded again: KeyboardInterrupt")
        write(tmp_path, "three")
        process.send_signal(signal.SIGHUP)
        wait_for("loaded again in")
        assert said(address) == ["three", "three"]


def test_a_file_that_has_changed_is_loaded_again(tmp_path: Path) -> None:
    with serving(write(tmp_path, "one"), "--reload") as (_, address, _):
        (tmp_path / f"{part_of(tmp_path)}.py").write_text("VERSION = 'changed'\n")
        until(lambda: said(address) == ["one", "changed"])


def test_watching_goes_on_when_a_module_is_gone(
    tmp_path: Path, make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(write(tmp_path, "one"), reload=True)
    assert call(server, "version").json == ["one", "one"]
    part = tmp_path / f"{part_of(tmp_path)}.py"
    part.unlink()
    until(lambda: "not loaded again" in caplog.text)
    assert call(server, "version").json == ["one", "one"]
    part.write_text("VERSION = 'it is back'\n")
    until(lambda: call(server, "version").json == ["one", "it is back"])
    # One that nothing imports any more is not missed.
    file = write(tmp_path, "two")
    file.write_text(file.read_text().replace(f"import {part.stem} as part", "class part: VERSION = 'none'"))
    part.unlink()
    until(lambda: call(server, "version").json == ["two", "none"])


@pytest.mark.parametrize("first", ["def broken(:\n", "1 / 0\n", "raise KeyboardInterrupt\n", None])
def test_watching_goes_on_when_a_new_module_is_wrong(
    tmp_path: Path, make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture, first: str | None
) -> None:
    server = make_server(write(tmp_path, "one"), reload=True)
    new = tmp_path / f"package_{part_of(tmp_path)}" / "new.py"
    if first is not None:
        new.parent.mkdir()
        new.write_text(first)
    file = tmp_path / f"tools_with_{part_of(tmp_path)}.py"
    file.write_text(f"from {new.parent.name}.new import NEW\n" + file.read_text().replace("'one'", "NEW"))
    until(lambda: "not loaded again" in caplog.text)
    new.parent.mkdir(exist_ok=True)
    new.write_text("NEW = 'new'\n")
    until(lambda: call(server, "version").json == ["new", "one"])


def test_what_is_watched(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("1")
    changes = Changes([str(one)])
    assert changes.seen() is None
    # It was not loaded, and nothing has failed.
    other.write_text("1")
    assert changes.seen() is None
    one.unlink()
    assert changes.seen() is None, "an editor may be about to write it anew"
    gone = changes.seen()
    assert gone is not None
    assert gone[str(one)] is None
    changes.take([str(one)], gone, fails=True)
    assert changes.seen() is None
    other.write_text("22")
    seen = changes.seen()
    assert seen is not None
    # What has changed while it was loaded, has changed.
    one.write_text("1")
    changes.take([str(one), str(other)], seen, fails=False)
    assert changes.seen() is not None


def test_reloads_that_are_asked_for_meanwhile_are_one(
    monkeypatch: pytest.MonkeyPatch, make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server(write(tmp_path, "one"))
    began, goes_on = queue.SimpleQueue[None](), queue.SimpleQueue[None]()

    def load(_server: Server) -> bool:
        began.put(None)
        goes_on.get(timeout=60)
        return True

    monkeypatch.setattr(_reload, "reload_and_log", load)
    threads: list[threading.Thread] = []

    def begin(_name: str, run: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=run))
        threads[-1].start()

    asked = _reload.Asked(server)
    asked.ask(begin)
    began.get(timeout=60)
    for _ in range(20):
        asked.ask(begin)
    goes_on.put(None)
    began.get(timeout=60)
    goes_on.put(None)
    for thread in threads:
        thread.join()
    assert began.empty()
    asked.ask(begin)
    began.get(timeout=60)
    goes_on.put(None)
    for thread in threads:
        thread.join()
    assert len(threads) == 2


def test_calls_that_newer_workers_end_say_so(
    tmp_path: Path, gate: Gate, make_server: Callable[..., Server]
) -> None:
    server = make_server(write(tmp_path, "one", SESSION), workers=1, drain_timeout=0.5)
    session = ask(server, "POST", "/v1/sessions/Counter", b"{}").json["session"]
    ended: list[Said] = []
    holding = threading.Thread(
        target=lambda: ended.append(call(server, "hold", {"folder": str(gate.folder)}))
    )
    holding.start()
    until(lambda: bool(gate.marks()))
    write(tmp_path, "two", SESSION)
    server.reload()
    holding.join()
    assert (ended[0].status, ended[0].error["code"]) == (503, "UNAVAILABLE")
    assert "newer workers replaced the tool's" in ended[0].error["message"]
    said = until(lambda: lost(ask(server, "POST", f"/v1/sessions/{session}/add", b"{}")))
    assert said.status == 503
    assert "newer workers replaced the session's" in said.error["message"]
    assert call(server, "version").json == ["two", "two"]


def lost(said: Said) -> Said | None:
    return None if said.status == 200 else said


SESSION = """
@tool(session=True)
class Counter:
    def __init__(self) -> None:
        self.number = 0

    def add(self) -> list[int | str]:
        self.number += 1
        return [self.number, OWN]
"""


def test_sessions_go_on_with_their_class_and_then_are_lost(
    tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    server = make_server(write(tmp_path, "one", SESSION), workers=1, drain_timeout=3.0)

    def opened() -> str:
        said = ask(server, "POST", "/v1/sessions/Counter", b"{}")
        assert said.status == 201
        return f"/v1/sessions/{said.json['session']}/add"

    before = opened()
    assert ask(server, "POST", before, b"{}").json == [1, "one"]
    write(tmp_path, "two", SESSION)
    server.reload()
    # New sessions have the new class, while those from before go on.
    assert call(server, "version").json == ["two", "two"]
    assert ask(server, "POST", before, b"{}").json == [2, "one"]
    assert ask(server, "POST", opened(), b"{}").json == [1, "two"]
    until(lambda: ask(server, "POST", before, b"{}").status == 503)
    assert ask(server, "POST", before, b"{}").status == 404
