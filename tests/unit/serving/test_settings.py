"""The settings of a server, from arguments, the environment and a file."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ropewalk import ConfigError
from ropewalk.serving import Server, ServingError
from ropewalk.serving._settings import Settings, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with some settings."""
    path = tmp_path / "serve.toml"
    path.write_text(
        "[serve]\nhttp = 'localhost:1'\ngrpc = '[::1]:2'\nthreads = 3\nmax_request = '2 kB'\n"
        "drain_timeout = '1.5 min'\ninsecure = true\n"
    )
    return path


def test_defaults() -> None:
    settings = read({}, {"HOME": "/"}, None)
    assert settings == Settings()
    assert settings.listening().http == "127.0.0.1:8080"
    assert Settings(grpc="127.0.0.1:1").listening().http is None


def test_texts_of_the_file_are_read(file: Path) -> None:
    assert read({}, {}, str(file)) == Settings(
        http="127.0.0.1:1", grpc="[::1]:2", threads=3, max_request=2000, drain_timeout=90.0, insecure=True
    )


def test_arguments_precede_the_environment_and_that_the_file(file: Path) -> None:
    environment = {
        "ROPEWALK_SERVE_THREADS": "4",
        "ROPEWALK_SERVE_MAX_REQUEST": "1 MiB",
        "ROPEWALK_SERVE_INSECURE": "false",
    }
    settings = read({"threads": 5, "http": None}, environment, str(file))
    assert (settings.threads, settings.max_request, settings.insecure) == (5, 1 << 20, False)
    assert (settings.http, settings.drain_timeout) == ("127.0.0.1:1", 90.0)


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("http = 3", "serve.http", "must be an address"),
        ("http = '8080'", "serve.http", "must be an IP address and a port"),
        ("http = 'example.org:80'", "serve.http", "must be an IP address and a port"),
        ("http = '127.0.0.1:65536'", "serve.http", "must be an IP address and a port"),
        ("grpc = '127.0.0.1:-1'", "serve.grpc", "must be an IP address and a port"),
        ("threads = 0", "serve.threads", "1 or more"),
        ("threads = true", "serve.threads", "a whole number"),
        ("max_request = '3 furlongs'", "serve.max_request", "must be a number, or a number and one of B, kB"),
        ("head_timeout = -1", "serve.head_timeout", "0 or more"),
        ("token_file = 3", "serve.token_file", "the path of a file"),
        ("insecure = 'yes'", "serve.insecure", "True or False"),
        ("port = 3", "serve.port", "is not a setting. Allowed: http, grpc"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, line: str, key: str, words: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f"# a comment\n[serve]\n\n{line}\n")
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        read({}, {}, str(file))
    assert str(caught.value).startswith(f"{file}, line 4: {key}")
    assert (caught.value.place, caught.value.key) == (str(file), key)


def test_an_unknown_setting_may_be_a_token_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("[serve]\ntoken = 'a-secret-of-enough-length'\n")
    for environment, path in (({}, str(file)), ({"ROPEWALK_SERVE_TOKEN": "a-secret-of-enough-length"}, None)):
        with pytest.raises(ConfigError, match="is not a setting") as caught:
            read({}, environment, path)
        assert "secret-of" not in str(caught.value) + repr(vars(caught.value))


def test_relative_paths_of_the_file_begin_at_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/serve.toml").write_text(
        "[serve]\ntoken_file = 'tokens'\nclients_file = '/run/clients.toml'\ntls_key = '../key.pem'\n"
        "unix = 's.sock'\nzmq = 'ipc://z.sock'\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = read({"tls_cert": "cert.pem"}, {"ROPEWALK_SERVE_OTLP_CA": "ca.pem"}, "etc/serve.toml")
    assert settings == Settings(
        token_file="etc/tokens",
        clients_file="/run/clients.toml",
        tls_key="etc/../key.pem",
        unix="etc/s.sock",
        zmq="ipc://etc/z.sock",
        # Those of arguments and of the environment begin at the current folder.
        tls_cert="cert.pem",
        otlp_ca="ca.pem",
    )
    for endpoint in ("ipc:///run/z.sock", "ipc://@abstract", "tcp://127.0.0.1:5"):
        (tmp_path / "etc/serve.toml").write_text(f"[serve]\nzmq = '{endpoint}'\n")
        assert read({}, {}, "etc/serve.toml").zmq == endpoint
    (tmp_path / "serve.toml").write_text("[serve]\ntoken_file = 'tokens'\n")
    assert read({}, {}, "serve.toml").token_file == "tokens"


def test_a_file_that_is_no_configuration(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("serve = 3\n")
    with pytest.raises(ConfigError, match="line 1: serve=3: must be a table"):
        read({}, {}, str(file))
    file.write_text("serve = \n")
    with pytest.raises(ConfigError, match="this is not TOML"):
        read({}, {}, str(file))
    with pytest.raises(FileNotFoundError):
        read({}, {}, str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ROPEWALK_SERVE_THREADS", "x", "must be a whole number, not 'x'"),
        ("ROPEWALK_SERVE_HTTP", "x", "must be an IP address"),
        ("ROPEWALK_SERVE_INSECURE", "x", "must be True or False"),
        ("ROPEWALK_SERVE_PORT", "1", "is not a setting. Allowed: ROPEWALK_SERVE_HTTP"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read({}, {variable: value}, None)
    assert (caught.value.place, caught.value.key) == ("the environment", variable)


def test_wrong_arguments_are_named(app: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"http": "x"},
        {"threads": 0},
        {"max_request": "much"},
        {"drain_timeout": -1},
        {"insecure": 1},
        {"workers": 0},
        {"log": "loud"},
        {"log_format": "xml"},
        {"unix": 3},
        {"config": 3},
        {"token_file": b"tokens"},
    ]
    for one in wrong:
        with pytest.raises((TypeError, ValueError), match=next(iter(one))):
            Server(app, **one)


@pytest.mark.parametrize("wrong", [None, 3, "", b"app.py"])
def test_what_is_no_app_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match="app must be"):
        Server(wrong)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"])
def test_a_public_address_needs_tokens(address: str, tmp_path: Path) -> None:
    for settings in (Settings(http=address), Settings(http="127.0.0.1:0", grpc=address)):
        with pytest.raises(ServingError, match="is open to other machines"):
            settings.listening()
    assert Settings(http=address, insecure=True).listening().http == address
    (tmp_path / "tokens").write_text("  a-secret-of-enough-length  \n\nanother-of-enough-length\n")
    settings = Settings(http=address, token_file=str(tmp_path / "tokens")).listening()
    assert [one.token for one in settings.clients] == [
        sha256(b"a-secret-of-enough-length").digest(),
        sha256(b"another-of-enough-length").digest(),
    ]
    assert "secret-of" not in repr(settings)
    for address in ("127.0.0.9:0", "[::1]:0"):
        assert Settings(http=address).listening().http == address


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n\n", "has none"),
        (b"\xff", "not UTF-8"),
        (b"a-token-of-enough-length\na b\n", "line 2: a token must be a text of ASCII without spaces"),
        (b"\nabc\n", "line 2: a token must have 16 characters or more"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(ServingError, match=words):
        Settings(token_file=str(tmp_path / "tokens")).listening()
    with pytest.raises(ServingError, match="cannot be read: No such file"):
        Settings(token_file=str(tmp_path / "none")).listening()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[pools.a]\nkind = 'thread'", "line 2: pools.a.kind = 'thread': tools run in worker processes"),
        (
            "[pools.a]\nretries = 1",
            "line 2: pools.a.retries = 1: a tool that may be run again says so itself",
        ),
        ("[pools.a]\nworkers = 0", "line 2: pools.a.workers"),
        ("[pols.a]\nworkers = 1", "line 1: pols"),
        ("default = 'b'\n[pools.a]", "line 1: default"),
    ],
)
def test_pools_of_the_file_are_checked(app: Path, tmp_path: Path, toml: str, words: str) -> None:
    (tmp_path / "serve.toml").write_text(toml + "\n")
    with pytest.raises(ConfigError, match=words):
        Server(app, config=tmp_path / "serve.toml")


def test_workers_and_pools_exclude_each_other(app: Path, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("[pools.a]\n")
    with pytest.raises(ServingError, match="workers is for a server without pools"):
        Server(app, config=tmp_path / "serve.toml", workers=2)


@pytest.mark.parametrize("name", ["head_timeout", "write_timeout", "drain_timeout"])
@pytest.mark.parametrize("value", [float("inf"), 1e19, "100000 h"])
def test_a_limit_is_a_time_that_clocks_can_wait_for(app: Path, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a year at most"):
        Server(app, **{name: value})


def test_a_server_drains_however_long_it_may_take(app: Path) -> None:
    with Server(app, http="127.0.0.1:0", workers=1) as server:
        assert server.drain(float("inf"))
