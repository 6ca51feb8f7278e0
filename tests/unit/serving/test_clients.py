"""The file of clients: what it says, and what is wrong with it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from ropewalk import ConfigError
from ropewalk.serving import ServingError, _clients
from ropewalk.serving._clients import Client, of_file
from ropewalk.serving._settings import Settings

TOKEN = "a-secret-of-enough-length"
DIGEST = hashlib.sha256(TOKEN.encode())


def file_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "clients.toml"
    path.write_text(text)
    return str(path)


def test_a_file_names_clients(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        f"""
        [clients.ann]
        token = "{TOKEN}"
        tools = ["add", "math.*"]
        expires = 2027-01-31T12:00:00+01:00
        rate = "120/min"
        burst = 7
        [clients.bob]
        token_sha256 = "{DIGEST.hexdigest()[::-1].upper()}"
        rate = "0.5/s"
        admin = true
        [clients."eve@example.org"]
        certificate = "eve"
        metrics = true
        """,
    )
    ann, bob, eve = of_file(path)
    assert ann == Client("ann", DIGEST.digest(), None, ["add", "math.*"], 1801393200.0, (2.0, 7))
    assert bob == Client("bob", bytes.fromhex(DIGEST.hexdigest()[::-1]), rate=(0.5, 1), admin=True)
    assert eve == Client("eve@example.org", certificate="eve", metrics=True)
    assert TOKEN not in repr((ann, bob, eve))


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        ("token = 3", "clients.a.token", "must be a text of ASCII"),
        ("token = 'no spaces in headers'", "clients.a.token", "must be a text of ASCII"),
        ("token = 'short'", "clients.a.token", "16 characters or more"),
        ("token_sha256 = 'abc'", "clients.a.token_sha256", "64 hexadecimal digits"),
        (f"tokn = '{TOKEN}'", "clients.a.tokn", "is not a setting. Allowed: token, "),
        ("certificate = ''", "clients.a.certificate", "a name of the client's certificate"),
        ("tools = 'add'", "clients.a.tools", "a list of names of tools"),
        ("tools = ['a d']", "clients.a.tools", "a list of names of tools"),
        ("expires = 2027-01-31", "clients.a.expires", "a date and a time with an offset"),
        ("expires = 2027-01-31T00:00:00", "clients.a.expires", "a date and a time with an offset"),
        ("rate = 3", "clients.a.rate", "as in '100/s' or '10/min'"),
        ("rate = '0/s'", "clients.a.rate", "as in '100/s' or '10/min'"),
        ("rate = '1/week'", "clients.a.rate", "as in '100/s' or '10/min'"),
        ("burst = 0", "clients.a.burst", "1 or more"),
        ("admin = 1", "clients.a.admin", "True or False"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, lines: str, key: str, words: str) -> None:
    path = file_of(tmp_path, f"# a comment\n[clients.a]\n{lines}\n")
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        of_file(path)
    assert str(caught.value).startswith(f"{path}, line 3: {key}: ")
    assert (caught.value.place, caught.value.key) == (path, key)
    # A key that is misspelt has a secret behind it all the same.
    assert TOKEN not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no clients"),
        ("clients = 3", "there are no clients"),
        ("[clint.a]\n", "line 1: clint: is not known here"),
        ("[clients]\na = 3", "clients.a: must be a table"),
        ("[clients.'a b']\ncertificate = 'a'", "a name has up to 64 of the characters"),
        ("[clients.a]\nadmin = true", "needs a token, a token_sha256 or a certificate"),
        (
            f"[clients.a]\ntoken = '{TOKEN}'\ntoken_sha256 = '{DIGEST.hexdigest()}'",
            "is for a client without token",
        ),
        (f"[clients.a]\ntoken = '{TOKEN}'\nburst = 3", "is for a client with a rate"),
        (
            f"[clients.a]\ntoken = '{TOKEN}'\n[clients.b]\ntoken_sha256 = '{DIGEST.hexdigest()}'",
            "line 3: clients.b: has the same token as clients.a",
        ),
        (
            "[clients.a]\ncertificate = 'c'\n[clients.b]\ncertificate = 'c'",
            "clients.b: has the same certificate as clients.a",
        ),
        ("[clients", "this is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        of_file(file_of(tmp_path, text))
    assert TOKEN not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="cannot be read: No such file"):
        of_file(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ServingError, match="not UTF-8"):
        of_file(str(tmp_path / "binary"))


def test_a_rate_has_a_burst() -> None:
    assert _clients.together(None, None) is None
    assert _clients.together(0.5, None) == (0.5, 1)
    assert _clients.together(100.0, None) == (100.0, 100)
    assert _clients.together(100.0, 3) == (100.0, 3)


def test_clients_are_an_authentication(tmp_path: Path) -> None:
    path = file_of(tmp_path, f"[clients.a]\ntoken = '{TOKEN}'")
    public = "192.0.2.1:80"
    settings = Settings(http=public, clients_file=path).listening()
    assert [one.name for one in settings.clients] == ["a"]
    assert TOKEN not in repr(settings)
    assert "unencrypted at 192.0.2.1:80" in str(settings.danger())
    encrypted = Settings(http=public, clients_file=path, tls_cert="c", tls_key="k")
    assert encrypted.listening().danger() is None
    mutual = Settings(http=public, tls_cert="c", tls_key="k", tls_client_ca="a")
    assert mutual.listening().danger() is None
    assert "every caller is served" in str(Settings(http=public, insecure=True).listening().danger())
    assert Settings(http="127.0.0.1:1").listening().danger() is None
    with pytest.raises(ServingError, match="is open to other machines"):
        Settings(http=public, tls_cert="c", tls_key="k").listening()


@pytest.mark.parametrize(
    ("endpoint", "is_public"),
    [
        ("tcp://127.0.0.1:*", False),
        ("tcp://[::1]:5555", False),
        ("tcp://localhost:5555", False),
        ("ipc:///run/tools.sock", False),
        ("tcp://0.0.0.0:5555", True),
        ("tcp://*:5555", True),
        ("tcp://eth0:5555", True),
    ],
)
def test_messages_in_the_clear_are_warned_of(tmp_path: Path, endpoint: str, is_public: bool) -> None:
    path = file_of(tmp_path, f"[clients.a]\ntoken = '{TOKEN}'")
    # TLS is of the other addresses.
    settings = Settings(zmq=endpoint, clients_file=path, tls_cert="c", tls_key="k")
    assert ("let a tunnel encrypt" in str(settings.listening().danger())) == is_public


def test_tokens_of_a_list_are_operators_where_clients_have_no_entries(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("token-secret-of-a-list\n")
    alone = Settings(token_file=str(tmp_path / "tokens"))
    assert [one.admin for one in alone.read_clients()] == [True]
    path = file_of(tmp_path, f"[clients.a]\ntoken = '{TOKEN}'\n[clients.b]\ncertificate = 'b'\nadmin = true")
    beside = Settings(token_file=str(tmp_path / "tokens"), clients_file=path)
    assert [one.admin for one in beside.read_clients()] == [False, False, True]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(tls_cert="c"), "are given together"),
        (Settings(tls_key="k"), "are given together"),
        (Settings(tls_client_ca="a"), "is for a server with TLS"),
        (Settings(burst=3), "is for a server with a rate"),
    ],
)
def test_settings_that_need_another(settings: Settings, words: str) -> None:
    with pytest.raises(ServingError, match=words):
        settings.listening()


def test_a_socket_is_an_address() -> None:
    assert Settings(unix="s").listening().http is None


def test_the_example_of_the_documentation_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [one.name for one in of_file(file_of(tmp_path, example))] == [
        "shop",
        "intern",
        "deploy",
        "prometheus",
    ]
