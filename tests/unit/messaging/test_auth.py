"""Authentication: certificates, an authenticator's decisions, and their effect on connections."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq.auth import (
    CURVE_ALLOW_ANY,
    Authenticator,
    create_certificates,
    load_certificate,
    load_certificates,
)
from ropewalk.zmq.auth.asyncio import AsyncioAuthenticator
from ropewalk.zmq.auth.thread import ThreadAuthenticator
from ropewalk.zmq.utils import z85
from ropewalk.zmq.utils.monitor import recv_monitor_message

Context = zmq.Context[zmq.Socket[bytes]]


@pytest.fixture
def context() -> Iterator[Context]:
    context = zmq.Context()
    context.linger = 0
    yield context
    context.destroy(linger=0)


# --- certificates ----------------------------------------------------------------------------------------------------


def test_a_certificate_is_two_files(tmp_path: Path) -> None:
    public_file, secret_file = create_certificates(tmp_path, "server", {"name": "the server"})
    assert public_file == str(tmp_path / "server.key")
    assert secret_file == str(tmp_path / "server.key_secret")
    public, nothing = load_certificate(public_file)
    assert nothing is None
    both = load_certificate(secret_file)
    assert both[0] == public
    assert both[1] is not None
    assert zmq.curve_public(both[1]) == public
    assert both[1].decode() not in Path(public_file).read_text()
    assert "name = the server" in Path(secret_file).read_text()


def test_nobody_else_reads_a_secret(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "a.key_secret").write_text("everybody could read this")
        _, secret_file = create_certificates(tmp_path, "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(secret_file).st_mode) == 0o600


def test_a_folder_s_public_keys_are_loaded(tmp_path: Path) -> None:
    keys = {load_certificate(create_certificates(tmp_path, name)[0])[0] for name in ("a", "b")}
    assert load_certificates(tmp_path) == dict.fromkeys(keys, True)


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no certificate"):
        load_certificate(tmp_path / "none.key")
    with pytest.raises(OSError, match="no folder"):
        load_certificates(tmp_path / "none")
    (tmp_path / "empty.key").write_text("# public-key = 'in a comment'\ncurve\n")
    with pytest.raises(ValueError, match="no public key"):
        load_certificate(tmp_path / "empty.key")


def test_a_file_of_another_writer_is_read(tmp_path: Path) -> None:
    public, secret = zmq.curve_keypair()
    text = f'# czmq\nmetadata\n    email = "a=b"\ncurve\n    public-key = "{public.decode()}"\n'
    (tmp_path / "x").write_text(f"{text}    secret-key = '{secret.decode()}'\n")
    assert load_certificate(tmp_path / "x") == (public, secret)


# --- decisions -------------------------------------------------------------------------------------------------------


class Recorded(Authenticator):
    """Keeps its replies instead of sending them."""

    replies: list[list[bytes]]

    def start(self) -> None:
        self.replies = []
        outer = self

        class Sink:
            def send_multipart(self, parts: list[bytes]) -> None:
                outer.replies.append(parts)

        self.zap_socket = Sink()  # type: ignore[assignment]

    def ask(
        self, mechanism: bytes, *credentials: bytes, domain: bytes = b"", address: bytes = b"10.0.0.1"
    ) -> tuple[bytes, bytes, bytes]:
        """Status, reason and user."""
        asyncio.run(self.handle_zap_message([b"1.0", b"7", domain, address, b"", mechanism, *credentials]))
        version, request, status, reason, user, metadata = self.replies.pop()
        assert (version, request, metadata) == (b"1.0", b"7", b"")
        return status, reason, user


@pytest.fixture
def authenticator(context: Context) -> Recorded:
    authenticator = Recorded(context)
    authenticator.start()
    return authenticator


KEY = bytes(range(32))


def test_without_rules_only_null_may_connect(authenticator: Recorded) -> None:
    assert authenticator.ask(b"NULL") == (b"200", b"OK", b"anonymous")
    assert authenticator.ask(b"PLAIN", b"u", b"p") == (b"400", b"No passwords defined", b"")
    assert authenticator.ask(b"CURVE", KEY) == (b"400", b"Unknown domain", b"")
    assert authenticator.ask(b"GSSAPI", b"principal")[0] == b"400"
    assert authenticator.ask(b"NONSENSE")[0] == b"400"


def test_addresses_come_first(context: Context) -> None:
    allowing, denying = Recorded(context), Recorded(context)
    for each in (allowing, denying):
        each.start()
        each.configure_plain(passwords={"u": "p"})
    allowing.allow("10.0.0.1", "10.0.0.2")
    denying.deny("10.0.0.3")
    for each in (allowing, denying):
        assert each.ask(b"NULL")[0] == b"200"
        assert each.ask(b"NULL", address=b"10.0.0.3")[0] == b"400"
        assert each.ask(b"PLAIN", b"u", b"p", address=b"10.0.0.3")[0] == b"400"
        assert each.ask(b"PLAIN", b"u", b"p") == (b"200", b"OK", b"u")
        # A good address is no password.
        assert each.ask(b"PLAIN", b"u", b"q")[0] == b"400"
        assert each.ask(b"OTHER")[0] == b"400"
    with pytest.raises(ValueError):
        allowing.deny("10.0.0.3")
    with pytest.raises(ValueError):
        denying.allow("10.0.0.1")


def test_passwords_belong_to_domains(authenticator: Recorded) -> None:
    authenticator.configure_plain("own", {"u": "own"})
    assert authenticator.ask(b"PLAIN", b"u", b"own") == (b"400", b"Invalid domain", b"")
    authenticator.configure_plain("*", {"u": "any", "ü": "ß"})
    assert authenticator.ask(b"PLAIN", b"u", b"own", domain=b"own")[0] == b"200"
    assert authenticator.ask(b"PLAIN", b"u", b"any", domain=b"own") == (b"400", b"Invalid password", b"")
    assert authenticator.ask(b"PLAIN", b"u", b"any", domain=b"other")[0] == b"200"
    assert authenticator.ask(b"PLAIN", b"nobody", b"any") == (b"400", b"Invalid username", b"")
    assert authenticator.ask(b"PLAIN", "ü".encode(), "ß".encode()) == (b"200", b"OK", "ü".encode())
    assert authenticator.ask(b"PLAIN", b"u") == (b"400", b"Invalid credentials", b"")


def test_keys_come_from_a_folder(authenticator: Recorded, tmp_path: Path) -> None:
    public, _ = load_certificate(create_certificates(tmp_path, "client")[0])
    authenticator.configure_curve("own", tmp_path)
    assert authenticator.ask(b"CURVE", z85.decode(public), domain=b"own") == (b"200", b"OK", public)
    assert authenticator.ask(b"CURVE", KEY, domain=b"own") == (b"400", b"Unknown key", b"")
    assert authenticator.ask(b"CURVE", z85.decode(public)) == (b"400", b"Unknown domain", b"")
    authenticator.configure_curve("own", tmp_path / "none")
    assert authenticator.ask(b"CURVE", KEY, domain=b"own")[0] == b"400"


def test_any_key_is_good_where_that_was_said(authenticator: Recorded) -> None:
    authenticator.configure_curve("own", CURVE_ALLOW_ANY)
    assert authenticator.ask(b"CURVE", KEY, domain=b"own") == (b"200", b"OK", z85.encode(KEY))
    assert authenticator.ask(b"CURVE", KEY, domain=b"other")[0] == b"400"
    authenticator.configure_curve(location=CURVE_ALLOW_ANY)
    assert authenticator.ask(b"CURVE", KEY, domain=b"other")[0] == b"200"


def test_a_callback_may_decide(authenticator: Recorded) -> None:
    asked: list[tuple[str, bytes]] = []

    class Provider:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def callback(self, domain: str, key: bytes) -> Any:
            asked.append((domain, key))
            return self.answer() if callable(self.answer) else self.answer

    async def later() -> bool:
        await asyncio.sleep(0)
        return True

    authenticator.configure_curve(location=CURVE_ALLOW_ANY)
    authenticator.configure_curve_callback("own", Provider(False))
    assert authenticator.ask(b"CURVE", KEY, domain=b"own") == (b"400", b"Unknown key", b"")
    assert authenticator.ask(b"CURVE", KEY, domain=b"other")[0] == b"400"
    authenticator.configure_curve_callback("*", Provider(later))
    assert authenticator.ask(b"CURVE", KEY, domain=b"other")[0] == b"200"
    assert asked == [("own", z85.encode(KEY)), ("other", z85.encode(KEY))]

    def fail() -> bool:
        raise OSError("the database is away")

    authenticator.configure_curve_callback("own", Provider(fail))
    assert authenticator.ask(b"CURVE", KEY, domain=b"own")[0] == b"500"


def test_every_request_is_answered(authenticator: Recorded) -> None:
    for message in ([], [b"1.0"], [b"1.0", b"8", b"", b"", b""], [b"2.0", b"8", b"", b"", b"", b"NULL"]):
        asyncio.run(authenticator.handle_zap_message(message))
        assert authenticator.replies.pop()[2] == b"400"


def test_there_is_no_gssapi(authenticator: Recorded) -> None:
    with pytest.raises(NotImplementedError):
        authenticator.configure_gssapi()


# --- on the wire -----------------------------------------------------------------------------------------------------


@pytest.fixture
def thread(context: Context) -> Iterator[ThreadAuthenticator]:
    thread = ThreadAuthenticator(context)
    thread.start()
    yield thread
    thread.stop()


Options = Callable[[zmq.Socket[bytes]], None]


def connects(context: Context, server: Options, client: Options) -> bytes | None:
    """The user's name as a server sees it in the client's first message; None if that is refused."""
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        server(pull)
        client(push)
        with push.get_monitor_socket() as monitor:
            monitor.rcvtimeo = 20_000
            push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
            end = (
                zmq.EVENT_HANDSHAKE_SUCCEEDED
                | zmq.EVENT_HANDSHAKE_FAILED_AUTH
                | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            )
            end |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
            while not (event := recv_monitor_message(monitor)["event"]) & end:
                pass
            push.disable_monitor()
        if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            assert pull.poll(50) == 0
            return None
        push.send(b"x")
        assert pull.poll(20_000)
        user: str = pull.recv(copy=False)["User-Id"]
        return user.encode()


def plain(user: str, password: str) -> Options:
    def set_options(socket: zmq.Socket[bytes]) -> None:
        socket.plain_username, socket.plain_password = user.encode(), password.encode()

    return set_options


def plain_server(socket: zmq.Socket[bytes]) -> None:
    socket.plain_server = True
    socket.zap_domain = b"global"


def curve(folder: Path, server: str | None, client: str) -> Options:
    def set_options(socket: zmq.Socket[bytes]) -> None:
        socket.curve_publickey, socket.curve_secretkey = load_certificate(folder / f"{client}.key_secret")
        if server is None:
            socket.curve_server = True
            socket.zap_domain = b"global"
        else:
            socket.curve_serverkey = load_certificate(folder / f"{server}.key")[0]

    return set_options


def test_plain_on_the_wire(context: Context, thread: ThreadAuthenticator) -> None:
    assert thread.is_alive()
    thread.configure_plain(passwords={"ada": "secret"})
    assert connects(context, plain_server, plain("ada", "secret")) == b"ada"
    assert connects(context, plain_server, plain("ada", "wrong")) is None
    assert connects(context, plain_server, plain("eve", "secret")) is None


def test_null_on_the_wire(context: Context, thread: ThreadAuthenticator) -> None:
    def domain(socket: zmq.Socket[bytes]) -> None:
        socket.zap_domain = b"global"

    thread.deny("127.0.0.1")
    assert connects(context, domain, lambda _: None) is None


def test_curve_on_the_wire(context: Context, thread: ThreadAuthenticator, tmp_path: Path) -> None:
    for name in ("server", "other"):
        create_certificates(tmp_path, name)
    clients = tmp_path / "clients"
    clients.mkdir()
    public = load_certificate(create_certificates(clients, "ada")[0])[0]
    create_certificates(tmp_path, "eve")
    (tmp_path / "ada.key_secret").write_bytes((clients / "ada.key_secret").read_bytes())
    thread.configure_curve("*", clients)
    server = curve(tmp_path, None, "server")
    assert connects(context, server, curve(tmp_path, "server", "ada")) == public
    assert connects(context, server, curve(tmp_path, "server", "eve")) is None


@pytest.mark.parametrize("run", [asyncio.run, ropewalk.run])
def test_in_a_loop(context: Context, run: Any) -> None:
    async def main() -> None:
        authenticator = AsyncioAuthenticator(context)
        authenticator.start()
        authenticator.configure_plain(passwords={"ada": "secret"})
        assert await asyncio.to_thread(connects, context, plain_server, plain("ada", "secret")) == b"ada"
        assert await asyncio.to_thread(connects, context, plain_server, plain("ada", "wrong")) is None
        authenticator.stop()

    run(main())


def test_a_thread_can_be_started_again(context: Context, thread: ThreadAuthenticator) -> None:
    thread.stop()
    assert not thread.is_alive()
    thread.start()
    thread.configure_plain(passwords={"ada": "secret"})
    assert connects(context, plain_server, plain("ada", "secret")) == b"ada"


def test_a_thread_ends_with_its_context() -> None:
    context = zmq.Context()
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    thread = authenticator.thread
    assert thread is not None
    authenticator.zap_socket.linger = 0
    context.destroy(linger=0)
    thread.join(20)
    assert not thread.is_alive()
    authenticator.stop()


def test_two_handlers_are_refused(context: Context, thread: ThreadAuthenticator) -> None:
    with pytest.raises(zmq.ZMQError) as caught:
        Authenticator(context).start()
    assert caught.value.errno == zmq.EADDRINUSE
