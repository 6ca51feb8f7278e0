"""`ropewalk top`: its tables, and its screen."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.cli import _status
from ropewalk.cli._app import main
from ropewalk.cli._errors import CommandError
from ropewalk.cli._status import Source
from ropewalk.serving import Server

TOOLS = """
from ropewalk.serving import tool

@tool
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("top") / "tools_of_top.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=2) as made:
        assert made.wait_ready(60)
        double(made)
        yield made


def double(server: Server) -> None:
    request = urllib.request.Request(f"http://{server.http}/v1/tools/double", json.dumps({"n": 1}).encode())
    request.add_header("Content-Type", "application/json")
    assert urllib.request.urlopen(request, timeout=60).read() == b"2"


def test_without_a_terminal_it_prints_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", f"http://{server.http}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ready, up ")
    for wanted in ("tools/1", "tools/2", "double", "p99", "idle"):
        assert wanted in printed
    assert max(len(line) for line in printed.splitlines()) <= 200


def test_what_cannot_be_read_says_why(
    make_refused: Callable[..., str], server: Server, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Source("http://127.0.0.1:1").once()
    for wrong in ("", "ftp://x", "http://", "http://x:port", "unix://", "http://ann:secret@x"):
        with pytest.raises(CommandError, match="is no address") as caught:
            Source(wrong)
        assert "secret" not in str(caught.value)
    with pytest.raises(CommandError, match="--tls-ca is for a server at https://"):
        Source("http://127.0.0.1:1", tls=ssl.create_default_context())
    for status, why in ((401, "asks for a token"), (404, "has no dashboard"), (500, "it answers 500")):
        with pytest.raises(CommandError, match=why):
            Source(make_refused(status)).once()
    with pytest.raises(CommandError, match="no worker 99"):
        Source(server.http or "").stack("tools", 99)


@pytest.fixture
def make_refused() -> Iterator[Callable[[int], str]]:
    """Makes servers that answer every request with a status."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    made: list[HTTPServer] = []

    def make(status: int) -> str:
        class Refuses(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        one = HTTPServer(("127.0.0.1", 0), Refuses)
        made.append(one)
        threading.Thread(target=one.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{one.server_port}"

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


def test_a_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.cli._top import _token

    monkeypatch.delenv("ROPEWALK_TOKEN", raising=False)
    (tmp_path / "tokens").write_text("one\ntwo\n")
    (tmp_path / "empty").write_text("\n")
    assert _token(str(tmp_path / "tokens")) == "one"
    assert _token(None) is None
    monkeypatch.setenv("ROPEWALK_TOKEN", "three")
    assert _token(None) == "three"
    assert _token(str(tmp_path / "tokens")) == "one"
    monkeypatch.setenv("ROPEWALK_TOKEN", "no header")
    with pytest.raises(CommandError, match="the token must be ASCII") as caught:
        _token(None)
    assert "header" not in str(caught.value)
    for wrong in ("empty", "missing"):
        with pytest.raises(CommandError, match="the file of tokens"):
            _token(str(tmp_path / wrong))


def test_a_server_at_a_socket_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pydantic")
    (tmp_path / "tools_of_top_socket.py").write_text(TOOLS)
    (tmp_path / "tokens").write_text("a-secret-of-enough-length\n")
    url = f"unix://{tmp_path}/a%20socket"
    monkeypatch.delenv("ROPEWALK_TOKEN", raising=False)
    with Server(
        tmp_path / "tools_of_top_socket.py",
        unix=tmp_path / "a socket",
        token_file=tmp_path / "tokens",
        workers=1,
    ) as made:
        assert made.wait_ready(60)
        assert main(["top", url]) == 2
        assert "ROPEWALK_TOKEN" in capsys.readouterr().err
        monkeypatch.setenv("ROPEWALK_TOKEN", "a-secret-of-enough-length")
        assert main(["top", url]) == 0
        assert "ready, up" in capsys.readouterr().out
        assert next(Source(url, "a-secret-of-enough-length").events())["server"]["ready"]


def test_an_authority_is_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic")
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    (tmp_path / "tools_of_top_tls.py").write_text(TOOLS)
    with Server(
        tmp_path / "tools_of_top_tls.py",
        http="127.0.0.1:0",
        tls_cert=tmp_path / "both.pem",
        tls_key=tmp_path / "both.pem",
        workers=1,
    ) as made:
        assert made.wait_ready(60)
        url = f"https://{made.http}"
        assert main(["top", url]) == 2
        assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
        assert main(["top", url, "--tls-ca", str(tmp_path / "ca.pem")]) == 0
        assert "ready, up" in capsys.readouterr().out
    for wrong in (tmp_path / "missing", Path(__file__)):
        assert main(["top", url, "--tls-ca", str(wrong)]) == 2
        assert "cannot be used" in capsys.readouterr().err


def test_numbers_have_words() -> None:
    said = [_status.seconds(time) for time in (None, 2e-7, 0.0015, 0.5, 1.25, 75, 7300, 90_000)]
    assert said == ["–", "1 µs", "1.5 ms", "500 ms", "1.2 s", "1 min 15 s", "2 h 1 min", "1 d 1 h"]
    assert [_status.size(size) for size in (0, 2048, 50 << 20)] == ["0 B", "2.0 KiB", "50 MiB"]
    assert [_status.count(number) for number in (0, 0.25, 12, 12_345, 2e6)] == [
        "0",
        "0.2",
        "12",
        "12.3k",
        "2.0M",
    ]


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_the_screen_lives_and_obeys_keys(server: Server, key: str) -> None:
    pytest.importorskip("textual")
    from textual.widgets import DataTable, Sparkline, Static

    from ropewalk.cli._top_app import StackScreen, Top

    async def drive() -> None:
        top = Top(Source(server.http or ""))

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not condition():
                    await pilot.pause(0.02)

        async with top.run_test(size=(120, 40)) as pilot:
            await until(lambda: top.document is not None)
            workers, tools = top.query_one("#workers", DataTable), top.query_one("#tools", DataTable)
            assert (workers.row_count, tools.row_count) == (2, 1)
            assert str(top.query_one("#summary", Static).render()).startswith("ready, up ")
            before = int(str(tools.get_cell("double", "calls")))
            await asyncio.to_thread(double, server)
            await until(lambda: int(str(tools.get_cell("double", "calls"))) == before + 1)
            await until(lambda: any(top.query_one("#rate", Sparkline).data or ()))
            await pilot.press("o")
            assert "order: busy" in str(top.query_one("#state", Static).render())
            await pilot.press("down", "s")
            await until(lambda: isinstance(top.screen, StackScreen))
            shown = str(top.screen.query_one("#stack-text", Static).render())
            assert "MainThread (waits for tasks)" in shown
            assert "in _lane" in shown
            await pilot.press("escape")
            await until(lambda: not isinstance(top.screen, StackScreen))
            top.lose("it is gone")
            assert top.query_one("#state", Static).has_class("lost")
            await until(lambda: not top.query_one("#state", Static).has_class("lost"))
            if key == "ctrl+c":
                await pilot.press("down", "s")
                await until(lambda: isinstance(top.screen, StackScreen))
            await pilot.press(key)
        assert top.return_code == 0

    asyncio.run(drive())
