"""What `docs/security.md` promises of a running server."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import logging
import os
import pickle
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.unit.serving.conftest import Said, ask, call

from ropewalk import CallFailed, CallUnavailable, ConfigError
from ropewalk.cli._errors import CommandError
from ropewalk.cli._status import Source
from ropewalk.client._http import said_in_text
from ropewalk.serving import Server, ServingError, _logs

TOKEN, OTHER = "token-secret-of-ann", "token-secret-of-bob"
ANN = {"authorization": f"Bearer {TOKEN}"}
CLIENTS = f"""
[clients.ann]
token = "{TOKEN}"
tools = ["add", "rev*"]

[clients.bob]
token_sha256 = "{hashlib.sha256(OTHER.encode()).hexdigest()}"
rate = "1/h"
"""
DEPTH = 100_000

Make = Callable[..., Server]


class UnixConnection(http.client.HTTPConnection):
    """HTTP at a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def said_by(connection: http.client.HTTPConnection, headers: dict[str, str] | None = None) -> Said:
    try:
        body = b'{"a": 1}'
        connection.request(
            "POST", "/v1/tools/add", body, {"content-type": "application/json"} | (headers or {})
        )
        response = connection.getresponse()
        return Said(response.status, response.headers, response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def guarded(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server with clients and a unix socket, and the folder of its files."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "clients.toml").write_text(CLIENTS)
    settings: dict[str, Any] = {"clients_file": folder / "clients.toml", "unix": folder / "s"}
    with Server(app, http="127.0.0.1:0", workers=1, **settings) as made:
        assert made.wait_ready(60)
        yield made, folder


def test_a_client_calls_its_own_tools(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    assert call(server, "add", {"a": 1}).status == 401
    assert call(server, "add", {"a": 1}, **ANN).json == 2
    assert call(server, "divide", {"a": 1, "b": 1}, **ANN).error["code"] == "PERMISSION_DENIED"
    assert call(server, "none", {}, **ANN).error["code"] == "PERMISSION_DENIED"
    listed = ask(server, "GET", "/v1/tools", headers=ANN).json["tools"]
    assert [one["name"] for one in listed] == ["add", "reverse"]


def test_a_client_that_calls_too_often_waits(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    bob = {"authorization": f"Bearer {OTHER}"}
    assert call(server, "add", {"a": 1}, **bob).status == 200
    said = call(server, "add", {"a": 1}, **bob)
    assert (said.status, said.error["code"]) == (429, "RESOURCE_EXHAUSTED")
    assert 3000 < int(said.headers["retry-after"]) <= 3600


def test_the_socket_is_for_the_user(guarded: tuple[Server, Path]) -> None:
    server, folder = guarded
    assert server.unix == str(folder / "s")
    assert stat.S_IMODE(os.stat(server.unix).st_mode) == 0o600
    assert said_by(UnixConnection(server.unix)).status == 401
    assert said_by(UnixConnection(server.unix), ANN).json == 2


def test_a_socket_that_is_taken_is_refused(guarded: tuple[Server, Path], app: Path) -> None:
    with pytest.raises(ServingError, match="another server listens there"):
        Server(app, unix=guarded[1] / "s", workers=1).start()


def test_a_dead_socket_is_replaced_and_the_file_goes_at_the_end(make_server: Make, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    mask = os.umask(0)
    try:
        server = make_server(http=None, unix=path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert server.http is None
    assert said_by(UnixConnection(str(path))).json == 2
    assert server.drain()
    assert not path.exists()


def test_clients_are_read_again(guarded: tuple[Server, Path], caplog: pytest.LogCaptureFixture) -> None:
    server, folder = guarded
    file = folder / "clients.toml"
    third = "token-secret-of-eve"
    try:
        with caplog.at_level(logging.INFO, "ropewalk.serving"):
            file.write_text(f"{CLIENTS}\n[clients.eve]\ntoken = '{third}'\nadmn = true\n")
            until(lambda: any("the former stays" in one.getMessage() for one in caplog.records))
            assert call(server, "add", {"a": 1}, **ANN).status == 200
            file.write_text(f"{CLIENTS}\n[clients.eve]\ntoken = '{third}'\n")
            eve = {"authorization": f"Bearer {third}"}
            until(lambda: call(server, "add", {"a": 1}, **eve).status == 200)
        assert "secret" not in caplog.text
        file.write_text(CLIENTS)
        server.reload_credentials()
        assert call(server, "add", {"a": 1}, **eve).status == 401
    finally:
        file.write_text(CLIENTS)
        server.reload_credentials()


def test_a_reload_reads_clients_again(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    entry = "[clients.ann]\ntoken = '{}'\n"
    file.write_text(entry.format(TOKEN))
    server = make_server(clients_file=file)
    bob = {"authorization": f"Bearer {OTHER}"}
    assert ask(server, "GET", "/v1/tools", headers=bob).status == 401
    file.write_text(entry.format(OTHER))
    server.reload()
    assert ask(server, "GET", "/v1/tools", headers=bob).status == 200
    file.write_text("[clients.ann]\n")
    with pytest.raises(ConfigError, match="needs a token"):
        server.reload()
    assert ask(server, "GET", "/v1/tools", headers=bob).status == 200


def bombs() -> Iterator[tuple[str, bytes]]:
    """Bodies that are nested without end, and their media types."""
    for head in (b"", b'{"a":'):
        for opening in (b"[", b'{"a":'):
            yield "application/json", head + opening * DEPTH
    yield "application/json", b'{"a":' + b"[" * DEPTH + b"]" * DEPTH + b"}"
    yield "application/msgpack", b"\x81\xa1a" + b"\x91" * DEPTH + b"\x01"
    yield "application/msgpack", b"\x81\xa1a" * DEPTH + b"\x01"
    # As deep as the gateway lets through: what reads it in the worker copes with it.
    yield "application/json", b'{"a":' + b"[" * 120 + b"]" * 120 + b"}"
    yield "application/msgpack", b"\x81\xa1a" + b"\x91" * 120 + b"\x01"


def test_nested_bodies_are_refused(server: Server) -> None:
    before = call(server, "process", {}).json
    for media_type, body in bombs():
        said = call(server, "add", body, content_type=media_type)
        assert (said.status, said.error["code"]) == (422, "INVALID_ARGUMENT"), body[:20]
    deep = b"[" * DEPTH + b"]" * DEPTH
    message = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":%b}}}' % deep
    )
    agent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    said = ask(server, "POST", "/mcp", message, agent)
    assert said.json["result"]["isError"]
    assert "nested more deeply than 128" in said.json["result"]["content"][0]["text"]
    packed = {"tool": "add", "arguments": {"json": base64.b64encode(b'{"a":%b}' % deep).decode()}}
    for body in (b'{"tool":"add","arguments":%b}' % deep, json.dumps(packed).encode()):
        said = ask(server, "POST", "/ropewalk.v1.Tools/Execute", body, {"content-type": "application/json"})
        assert said.json["code"] == "invalid_argument"
    assert call(server, "process", {}).json == before


class Marking:
    """Its pickle makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_no_pickle_is_loaded(server: Server, tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    bomb = Marking(mark)
    by_protocol = [pickle.dumps(bomb, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    framed = io.BytesIO()
    pickle.Pickler(framed, 5).dump(((1, b"{}", b""), {}, (bomb,)))
    refused = {"application/x-python-pickle", "application/python-pickle", "application/octet-stream+pickle"}
    for body in (*by_protocol, framed.getvalue()):
        text = base64.b64encode(body).decode()
        for media_type in ("application/json", "application/msgpack", "application/octet-stream", *refused):
            for tool in ("add", "metadata", "reverse"):
                said = call(server, tool, body, content_type=media_type)
                if (tool, media_type) == ("reverse", "application/octet-stream"):
                    assert said.body == body[::-1]
                else:
                    assert said.status == (415 if media_type in refused else 422)
        # As a value of arguments, as metadata, and as the fields of the other protocols.
        assert call(server, "reverse", {"data": text}).body == body[::-1]
        assert call(server, "metadata", {}, x_ropewalk_meta_pickle=text).json == {"pickle": text}
        for kind in ("json", "msgpack", "raw"):
            message = {"tool": "reverse", "arguments": {kind: text}, "metadata": {"pickle": text}}
            said = ask(
                server,
                "POST",
                "/ropewalk.v1.Tools/Execute",
                json.dumps(message).encode(),
                {"content-type": "application/json"},
            )
            assert said.status == (200 if kind == "raw" else 400)
        said = ask(server, "POST", "/mcp", body, {"content-type": "application/json"})
        assert said.status == 400
    assert not mark.exists()
    pickle.loads(by_protocol[-1])
    assert mark.exists()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_tokens_are_in_no_log(app: Path, tmp_path: Path, log_format: str) -> None:
    (tmp_path / "clients.toml").write_text(CLIENTS)
    (tmp_path / "tokens").write_text("token-secret-of-a-list\n")
    command = [sys.executable, "-m", "ropewalk", "serve", str(app), "--http", "127.0.0.1:0", "--workers", "1"]
    command += ["--clients-file", str(tmp_path / "clients.toml"), "--token-file", str(tmp_path / "tokens")]
    command += ["--unix", str(tmp_path / "s"), "--log", "calls", "--log-format", log_format]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: b"ready" in (tmp_path / "log").read_bytes(), 60)
        for token in (TOKEN, OTHER, "token-secret-of-a-list", "token-secret-of-nobody", "x y token-secret"):
            headers = {"authorization": f"Bearer {token}", "x-ropewalk-meta-key": "meta-secret"}
            assert said_by(UnixConnection(str(tmp_path / "s")), headers).status in (200, 401)
        until(lambda: b"ann" in (tmp_path / "log").read_bytes())
        # One that is wrong is not shown when the file is read again.
        (tmp_path / "clients.toml").write_text(CLIENTS + "tokn = 'token-secret-misspelt'\n")
        until(lambda: b"the former stays" in (tmp_path / "log").read_bytes())
    finally:
        process.terminate()
        assert process.wait(60) == 0
    text = (tmp_path / "log").read_text()
    assert "secret" not in text
    assert "tokn: is not a setting" in text


def test_errors_and_texts_of_settings_show_no_secret(app: Path, tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text(CLIENTS)
    server = Server(app, clients_file=tmp_path / "clients.toml")
    shown = repr(server) + repr(vars(server)) + repr(server._settings.clients)
    assert "secret" not in shown


def test_the_caller_is_in_the_log(guarded: tuple[Server, Path], caplog: pytest.LogCaptureFixture) -> None:
    record = (
        (logging.INFO, 0.0),
        ("add", "http", "OK", None, "ann"),
        (0.1, None, None),
        (0, 0, 0),
        None,
        None,
    )
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        _logs.write([record], [], 0)
    line = json.loads(_logs.Json().format(caplog.records[-1]))
    assert (line["caller"], line["tool"]) == ("ann", "add")


class Encrypted:
    """An authority, and what it has issued, as files."""

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme")
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.renew()
        self.client = self.authority.issue_cert("ann.example")

    def renew(self) -> None:
        """Issues the server's certificate again."""
        issued = self.authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        issued.cert_chain_pems[0].write_to_path(str(self.folder / "cert.pem"))

    @property
    def settings(self) -> dict[str, Path]:
        """The server's settings."""
        names = {"tls_cert": "cert.pem", "tls_key": "key.pem", "tls_client_ca": "ca.pem"}
        return {setting: self.folder / name for setting, name in names.items()}

    def context(self, *, shows: bool = True) -> ssl.SSLContext:
        """What a client trusts, and whether it shows its certificate."""
        made = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if shows:
            self.client.configure_cert(made)
        return made

    def said(self, server: Server, **shows: bool) -> Said:
        """Calls a tool."""
        return said_by(
            http.client.HTTPSConnection(server.http or "", timeout=60, context=self.context(**shows))
        )

    def serial(self, server: Server) -> object:
        """The number of the certificate that the server shows."""
        with socket.create_connection((server.http or "").split(":"), 60) as plain:  # type: ignore[arg-type]
            with self.context().wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                return (wrapped.getpeercert() or {})["serialNumber"]


def test_mutual_tls(make_server: Make, tmp_path: Path) -> None:
    encrypted = Encrypted(tmp_path)
    server = make_server(**encrypted.settings)
    assert server.is_encrypted
    assert encrypted.said(server).json == 2
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        encrypted.said(server, shows=False)
    with closing(http.client.HTTPConnection(server.http or "", timeout=60)) as plain:
        plain.request("GET", "/healthz")
        refused = plain.getresponse()
        assert (refused.status, refused.read()) == (400, b"This port speaks TLS: use https://.\n")
    # A renewed certificate is served within a moment.
    before = encrypted.serial(server)
    encrypted.renew()
    until(lambda: encrypted.serial(server) != before)
    assert encrypted.said(server).json == 2


def test_clients_say_what_is_wrong_with_the_way_to_a_server(
    make_server: Make, make_client: Callable[..., Any], tmp_path: Path
) -> None:
    encrypted = Encrypted(tmp_path)
    settings = {name: encrypted.settings[name] for name in ("tls_cert", "tls_key")}
    server = make_server(**settings)
    with pytest.raises(
        CallFailed, match="status 400, and is none of a tool: This port speaks TLS: use https://"
    ):
        make_client(f"http://{server.http}").call("add", a=1)
    with pytest.raises(
        CallUnavailable, match=rf"https://{server.http} cannot be reached: .*tls=ssl.create_default"
    ):
        make_client(f"https://{server.http}").call("add", a=1)
    with pytest.raises(CommandError, match="it answers 400: This port speaks TLS: use https://"):
        Source(f"http://{server.http}").once()
    with pytest.raises(CommandError) as caught:
        Source(f"https://{server.http}").once()
    assert "--tls-ca FILE" in caught.value.hint
    # A certificate of another name is no matter of its authority.
    other = f"https://localhost:{(server.http or '').rpartition(':')[2]}"
    with pytest.raises(CallUnavailable, match="cannot be reached") as of_name:
        make_client(other, tls=encrypted.context()).call("add", a=1)
    assert "create_default_context" not in str(of_name.value)
    with pytest.raises(CommandError) as caught:
        Source(other, tls=encrypted.context()).once()
    assert not caught.value.hint


def test_what_is_said_in_text_is_short_and_printable() -> None:
    assert said_in_text("text/plain; charset=utf-8", b"no\nmore \x1b[2J\xff") == "no more ?[2J\ufffd"
    assert said_in_text("Text/Plain", b"x" * 1000) == "x" * 200 + "..."
    assert said_in_text("text/html", b"no") is None
    assert said_in_text(None, b"no") is None


def test_wrong_files_of_tls_are_named(app: Path, tmp_path: Path) -> None:
    settings = Encrypted(tmp_path).settings
    (tmp_path / "key.pem").write_text("nothing")
    with pytest.raises(ServingError, match=r"tls_key: the file .*key\.pem. has no private key in PEM form"):
        Server(app, http="127.0.0.1:0", workers=1, **settings).start()


def test_a_public_address_in_the_clear_is_warned_of(
    make_server: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokens").write_text("token-secret-of-all\n")
    with caplog.at_level(logging.WARNING, "ropewalk.serving"):
        make_server(http="0.0.0.0:0", token_file=tmp_path / "tokens")
    assert "tokens of callers cross the network unencrypted at 0.0.0.0:0" in caplog.text
