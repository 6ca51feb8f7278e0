"""Calls by messages of ZeroMQ, from clients of libzmq."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import Gate
from tests.unit.serving.conftest import call, stops
from tests.unit.serving.test_batch import until

from ropewalk.serving import Server, ServingError

zmq = pytest.importorskip("zmq")


@pytest.fixture(scope="module")
def served(app: Path) -> Iterator[Server]:
    """A server with one worker and an endpoint."""
    with Server(app, http="127.0.0.1:0", zmq="tcp://127.0.0.1:*", workers=1) as made:
        assert made.wait_ready(60)
        yield made


class Client:
    """A DEALER, and its messages as JSON."""

    def __init__(self, endpoint: str, kind: int = zmq.DEALER, name: bytes = b"") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        if name:
            self.socket.setsockopt(zmq.ROUTING_ID, name)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, 60_000)
        self.socket.connect(endpoint)

    def send(self, id: bytes, tool: str, arguments: Any = None, **more: Any) -> None:
        said = {"tool": tool, "arguments": arguments or {}, **more}
        self.socket.send_multipart([id, json.dumps(said).encode()])

    def receive(self) -> tuple[bytes, bytes, Any]:
        id, kind, body = self.socket.recv_multipart()
        return id, kind, json.loads(body) if body else None

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.fixture
def client(served: Server) -> Iterator[Client]:
    """A client of the server."""
    made = Client(served.zmq or "")
    yield made
    made.close()


def test_calls_are_answered_by_their_ids(client: Client) -> None:
    for number in range(20):
        client.send(b"%d" % number, "add", {"a": number})
    found = {id: (kind, body) for id, kind, body in (client.receive() for _ in range(20))}
    assert found == {b"%d" % number: (b"result", number + 1) for number in range(20)}


def test_protobuf_is_answered_by_protobuf(client: Client) -> None:
    arguments = b'\x0a\x07{"a":4}'
    client.socket.send_multipart([b"1", b"\x0a\x03add" + b"\x12" + bytes([len(arguments)]) + arguments])
    # An ExecuteResponse with a Value of JSON.
    assert client.socket.recv_multipart() == [b"1", b"result", b"\x0a\x03\x0a\x015"]


def test_a_stream_sends_each_item(client: Client) -> None:
    client.send(b"s", "count", {"n": 300})
    said = [client.receive() for _ in range(301)]
    assert said == [*((b"s", b"item", n) for n in range(300)), (b"s", b"end", None)]
    client.send(b"t", "fails_late", {"n": 2})
    kinds = [client.receive()[1] for _ in range(3)]
    assert kinds == [b"item", b"item", b"error"]


def test_a_stream_waits_for_a_slow_client_and_ends_when_it_leaves(
    client: Client, served: Server, gate: Gate
) -> None:
    numbers = itertools.count()

    def leave() -> None:
        number = b"e%d" % next(numbers)
        client.send(number, "endless", {"folder": str(gate.folder)})
        while client.receive() != (number, b"item", 0):
            pass
        client.socket.send_multipart([number])

    stops(gate, leave)
    # The worker is free.
    assert call(served, "add", {"a": 1}).json == 2


def test_failures_are_those_of_http(client: Client) -> None:
    client.send(b"1", "divide", {"a": 1, "b": 0})
    id, kind, body = client.receive()
    assert (id, kind, body["error"]["code"]) == (b"1", b"error", "UNKNOWN")
    client.send(b"2", "add", {"a": "x"})
    assert client.receive()[2]["error"]["violations"][0]["field"] == "a"
    client.send(b"3", "nothing")
    assert client.receive()[2]["error"]["code"] == "NOT_FOUND"


def test_metadata_and_deadlines_reach_the_tool(client: Client) -> None:
    client.send(b"1", "metadata", metadata={"user": "me"})
    assert client.receive() == (b"1", b"result", {"user": "me"})
    client.send(b"2", "slow", timeout=0.01)
    assert client.receive()[2]["error"]["code"] == "DEADLINE_EXCEEDED"


def test_a_call_is_cancelled_by_its_id(client: Client, gate: Gate) -> None:
    client.send(b"long", "polite", {"folder": str(gate.folder)})
    until(lambda: bool(gate.marks("begun")))
    client.send(b"long", "add", {"a": 1})
    assert "a call with this id runs" in client.receive()[2]["error"]["message"]
    client.socket.send_multipart([b"long"])
    until(lambda: bool(gate.marks("stopped")))
    client.send(b"next", "add", {"a": 1})
    assert client.receive() == (b"next", b"result", 2)


def test_the_end_of_a_connection_cancels_its_calls_and_frees_its_name(served: Server, gate: Gate) -> None:
    first = Client(served.zmq or "", name=b"name")
    try:
        first.send(b"1", "polite", {"folder": str(gate.folder)})
        until(lambda: bool(gate.marks("begun")))
    finally:
        first.close()
    # No message has to be sent to it for that.
    until(lambda: bool(gate.marks("stopped")))
    second = Client(served.zmq or "", name=b"name")
    try:
        second.send(b"1", "add", {"a": 1})
        assert second.receive() == (b"1", b"result", 2)
    finally:
        second.close()


def test_clients_of_one_name_are_served_side_by_side(served: Server) -> None:
    clients = [Client(served.zmq or "", name=b"name") for _ in range(3)]
    try:
        for number, client in enumerate(clients):
            client.send(b"1", "add", {"a": number})
        assert [client.receive()[2] for client in clients] == [1, 2, 3]
    finally:
        for client in clients:
            client.close()


def test_a_deadline_may_stand_in_the_metadata(client: Client) -> None:
    client.send(b"1", "slow", metadata={"x-ropewalk-timeout": "0.01"})
    assert client.receive()[2]["error"]["code"] == "DEADLINE_EXCEEDED"
    client.send(b"2", "metadata", metadata={"x-ropewalk-timeout": "60", "user": "me"})
    assert client.receive() == (b"2", b"result", {"user": "me"})


@pytest.mark.parametrize(
    "parts",
    [
        [b"1", b"{"],
        [b"1", b"\xff\xff\xff"],
        [b"1", b"{}", b"", b""],
        [b"x" * 65, b"{}"],
        [b"1", b""],
        [b"1", b'{"tool": 1}'],
    ],
)
def test_nonsense_is_answered_by_an_error(client: Client, parts: list[bytes]) -> None:
    client.socket.send_multipart(parts)
    assert client.receive()[1] == b"error"
    client.send(b"2", "add", {"a": 1})
    assert client.receive() == (b"2", b"result", 2)


def test_a_request_socket_is_a_client(served: Server) -> None:
    client = Client(served.zmq or "", zmq.REQ)
    try:
        for number in range(3):
            client.send(b"id", "add", {"a": number})
            assert client.receive() == (b"id", b"result", number + 1)
    finally:
        client.close()


def test_callers_need_a_token(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("token-secret-of-all\n")
    endpoint = f"ipc://{tmp_path}/socket"
    server = make_server(zmq=endpoint, token_file=tokens)
    assert server.zmq == endpoint
    client = Client(endpoint)
    try:
        client.send(b"1", "add", {"a": 1})
        assert client.receive()[2]["error"]["code"] == "UNAUTHENTICATED"
        client.send(b"2", "metadata", metadata={"authorization": "Bearer token-secret-of-all", "user": "me"})
        # The tool does not see the token.
        assert client.receive() == (b"2", b"result", {"user": "me"})
    finally:
        client.close()


def test_the_file_of_an_endpoint_is_for_the_user_alone_and_goes_with_its_server(
    tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    path = folder / "tools"
    endpoint = f"ipc://{path}"
    before = os.umask(0)
    try:
        server = make_server(zmq=endpoint)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ServingError, match=r"zmq: the socket .* is taken: another server listens there"):
        make_server(zmq=endpoint)
    client = Client(endpoint)
    try:
        client.send(b"1", "add", {"a": 1})
        assert client.receive() == (b"1", b"result", 2)
    finally:
        client.close()
    assert server.drain(60)
    assert [*folder.iterdir()] == []


def test_a_file_that_is_no_socket_is_left_where_it_is(
    tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    path = tmp_path / "precious"
    path.write_text("as it was")
    with pytest.raises(ServingError, match="there is a file that is none"):
        make_server(zmq=f"ipc://{path}")
    assert path.read_text() == "as it was"
    # Nothing of a server that is gone without a word is in the way.
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    server = make_server(zmq=f"ipc://{dead}")
    assert server.zmq == f"ipc://{dead}"


def test_an_abstract_name_needs_tokens(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    endpoint = f"ipc://@{tmp_path}"
    with pytest.raises(ServingError, match="is open to other users of this machine"):
        make_server(zmq=endpoint)
    tokens = tmp_path / "tokens"
    tokens.write_text("token-secret-of-all\n")
    assert make_server(zmq=endpoint, token_file=tokens).zmq == endpoint


CLIENTS = """
[clients.ann]
token = "token-secret-of-ann"
tools = ["add", "metadata"]
rate = "0.001/s"
burst = 2
[clients.bob]
token = "token-secret-of-bob"
certificate = "bob"
"""


def test_clients_are_the_same_by_messages(tmp_path: Path, make_server: Callable[..., Server]) -> None:
    clients = tmp_path / "clients.toml"
    clients.write_text(CLIENTS)
    server = make_server(http="127.0.0.1:0", zmq="tcp://127.0.0.1:*", clients_file=clients)
    client = Client(server.zmq or "")

    def said(name: str, tool: str) -> tuple[bytes, Any]:
        metadata = {"authorization": f"Bearer token-secret-of-{name}"}
        client.send(b"1", tool, {"a": 1} if tool == "add" else {}, metadata=metadata)
        _, kind, body = client.receive()
        return kind, body["error"]["code"] if kind == b"error" else body

    try:
        # What ann may not call she does not learn of, and such a call does not count.
        assert said("ann", "process") == said("ann", "nothing") == (b"error", "PERMISSION_DENIED")
        assert said("ann", "add") == (b"result", 2)
        assert said("ann", "metadata") == (b"result", {})
        assert said("ann", "add") == (b"error", "RESOURCE_EXHAUSTED")
        # There are no certificates here, so a client that must show one cannot call.
        assert said("bob", "add") == said("eve", "add") == (b"error", "UNAUTHENTICATED")
        clients.write_text(CLIENTS.replace("of-ann", "of-eve").replace("0.001/s", "1000/s"))
        server.reload_credentials()
        assert said("ann", "add") == (b"error", "UNAUTHENTICATED")
        assert said("eve", "add") == (b"result", 2)
    finally:
        client.close()


def test_rates_of_addresses_hold_for_messages(make_server: Callable[..., Server]) -> None:
    server = make_server(zmq="tcp://127.0.0.1:*", rate="0.001/s", burst=1)
    client = Client(server.zmq or "")
    try:
        client.send(b"1", "add", {"a": 1})
        assert client.receive()[1] == b"result"
        client.send(b"2", "add", {"a": 1})
        assert client.receive()[2]["error"]["code"] == "RESOURCE_EXHAUSTED"
    finally:
        client.close()


def test_certificates_of_clients_are_none_of_messages(app: Path) -> None:
    with pytest.raises(ServingError, match="show no certificates"):
        Server(app, zmq="tcp://127.0.0.1:*", tls_cert="c", tls_key="k", tls_client_ca="a")


def test_what_has_begun_is_answered_before_the_server_ends(
    app: Path, gate: Gate, make_server: Callable[..., Server]
) -> None:
    server = make_server(zmq="tcp://127.0.0.1:*")
    client = Client(server.zmq or "")
    try:
        client.send(b"1", "hold", {"folder": str(gate.folder)})
        until(lambda: bool(gate.marks()))
        gate.open()
        assert server.drain(30)
        assert client.receive()[1] == b"result"
    finally:
        client.close()


def test_an_open_endpoint_needs_tokens(app: Path) -> None:
    with pytest.raises(ServingError, match="open to other machines"):
        Server(app, zmq="tcp://0.0.0.0:0").start()
    with pytest.raises(ValueError, match="zmq must be an endpoint"):
        Server(app, zmq="127.0.0.1:5555")
