"""The workers that a reload has replaced: later reloads do not wait for them, within a bound; the server ends them."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask, call
from tests.unit.serving.test_reload import SESSION, write

from ropewalk.serving import Server, _reload

pytest.importorskip("pydantic")


class Held:
    """A call that holds a worker of the tools that serve now."""

    def __init__(self, server: Server, folder: Path) -> None:
        folder.mkdir()
        self.gate = Gate(folder)
        self.said: list[tuple[int, object]] = []
        self._server = server
        self._thread = threading.Thread(target=self._call)
        self._thread.start()
        [self.pid] = until(self.gate.marks)

    def _call(self) -> None:
        # The server may end first.
        with contextlib.suppress(OSError, http.client.HTTPException):
            said = call(self._server, "hold", {"folder": str(self.gate.folder)})
            self.said.append((said.status, said.json))

    def end(self) -> tuple[int, object]:
        self.gate.open()
        self._thread.join()
        return self.said[0]


@pytest.fixture
def hold(tmp_path: Path) -> Callable[[Server, str], Held]:
    return lambda server, name: Held(server, tmp_path / name)


def version(server: Server) -> object:
    return call(server, "version").json


Hold = Callable[[Server, str], Held]


def test_old_calls_keep_no_reload_waiting(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(write(tmp_path, "one"), drain_timeout=60)
    first = hold(server, "first")
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        for name in ("two", "three", "four"):
            write(tmp_path, name)
            assert _reload.reload_and_log(server)
            assert version(server) == [name, name]
    assert not first.said
    # The workers of the two between them had nothing to do.
    until(lambda: len(server._replaced) == 1)
    assert first.end() == (200, "one")
    until(lambda: not server._replaced and not is_alive(first.pid))
    assert caplog.text.count("loaded again in") == 3
    assert re.search(r"go on with the tools before, for up to (60|5\d) s", caplog.text)


def test_a_reload_of_idle_workers_says_no_more(
    tmp_path: Path,
    make_server: Callable[..., Server],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_server(write(tmp_path, "one"))
    # They have no more to do than to end, however long that takes here.
    monkeypatch.setattr(_reload, "_MOMENT", 60)
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        assert _reload.reload_and_log(server)
    assert "loaded again in" in caplog.text
    assert "go on" not in caplog.text


def test_two_older_generations_are_all_that_there_may_be(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(write(tmp_path, "one"), drain_timeout=60)
    held = [hold(server, "of one")]
    for name in ("two", "three"):
        write(tmp_path, name)
        server.reload()
        held.append(hold(server, f"of {name}"))
    write(tmp_path, "four", "1 / 0\n")
    # What is wrong is said at once.
    assert not _reload.reload_and_log(server)
    assert "ZeroDivisionError" in caplog.text
    assert "waits" not in caplog.text
    write(tmp_path, "four")
    reloading = threading.Thread(target=server.reload)
    reloading.start()
    until(lambda: "the next reload waits for the workers of an earlier one" in caplog.text)
    assert len(server._replaced) == 2
    # What changes meanwhile, is loaded.
    write(tmp_path, "five")
    assert held[1].end() == (200, "two")
    reloading.join()
    assert version(server) == ["five", "five"]
    assert [one.end() for one in (held[0], held[2])] == [(200, "one"), (200, "three")]
    until(lambda: not any(is_alive(one.pid) for one in held))


def test_calls_that_older_workers_have_not_begun_are_unavailable(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold
) -> None:
    server = make_server(write(tmp_path, "one"), workers=1, drain_timeout=1)
    hold(server, "first")
    said: list[Said] = []
    folder = str(tmp_path / "first")
    waiting = [
        threading.Thread(target=lambda: said.append(call(server, "hold", {"folder": folder})))
        for _ in range(5)
    ]
    for thread in waiting:
        thread.start()
    [pool] = server.runtime.statistics().pools
    until(lambda: server.runtime.statistics().pools[pool].queued >= 4)
    write(tmp_path, "two")
    server.reload()
    for thread in waiting:
        thread.join()
    assert [one.status for one in said] == [503] * 5
    assert all("newer workers replaced" in one.error["message"] for one in said)


def test_a_drain_answers_the_calls_of_older_generations(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold
) -> None:
    server = make_server(write(tmp_path, "one"), drain_timeout=60)
    held = hold(server, "first")
    write(tmp_path, "two")
    server.reload()
    drained: list[bool] = []
    draining = threading.Thread(target=lambda: drained.append(server.drain()))
    draining.start()
    assert held.end() == (200, "one")
    draining.join()
    assert drained == [True]
    until(lambda: not is_alive(held.pid))


@pytest.mark.parametrize("within", [None, 0.0])
def test_a_server_that_ends_ends_the_older_generations(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold, within: float | None
) -> None:
    server = make_server(write(tmp_path, "one", SESSION), drain_timeout=60)
    assert ask(server, "POST", "/v1/sessions/Counter", b"{}").status == 201
    held = [hold(server, "first")]
    write(tmp_path, "two")
    server.reload()
    held.append(hold(server, "second"))
    write(tmp_path, "three")
    server.reload()
    assert len(server._replaced) == 2
    if within is None:
        server.close()
    else:
        assert not server.drain(within)
    until(lambda: not server._replaced and not any(is_alive(one.pid) for one in held))
    until(lambda: "ropewalk-retiring" not in [thread.name for thread in threading.enumerate()])
    for one in held:
        one.gate.open()


def test_a_server_that_ends_ends_the_wait_of_a_reload(
    tmp_path: Path, make_server: Callable[..., Server], hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(write(tmp_path, "one"), drain_timeout=60)
    for number in range(2):
        hold(server, str(number))
        server.reload()
    loaded: list[bool] = []
    reloading = threading.Thread(target=lambda: loaded.append(_reload.reload_and_log(server)))
    reloading.start()
    until(lambda: "the next reload waits" in caplog.text)
    server.close()
    reloading.join()
    assert loaded == [False]
    assert "not loaded again" not in caplog.text


def test_older_workers_end_without_a_thread_for_that(
    tmp_path: Path, make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(write(tmp_path, "one"))
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "ropewalk-retiring":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    write(tmp_path, "two")
    server.reload()
    assert not server._replaced
    assert version(server) == ["two", "two"]
