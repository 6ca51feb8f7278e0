"""What the client makes of bytes: answers of HTTP/1.1, whole and broken, and server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from ropewalk import CallFailed, CallRefused, CallUnavailable
from ropewalk.client import AsyncClient, Client
from ropewalk.client._events import Events
from ropewalk.client._http import MAX_HEAD, Answer, Malformed, place_of

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def body_of(answer: Answer, *reads: bytes) -> bytes:
    return b"".join(part for data in reads for part in answer.feed(data))


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"a"),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (CHUNKED + b"2;x=y\r\n\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", b"\r\n0123456789"),
    ],
    ids=str,
)
def test_answers(data: bytes, body: bytes) -> None:
    whole, split = Answer(), Answer()
    assert body_of(whole, data) == body
    assert body_of(split, *(data[at : at + 1] for at in range(len(data)))) == body
    assert whole.ended
    assert split.ended
    assert whole.keeps
    assert split.keeps


def test_the_end_of_a_connection_ends_an_answer_without_a_length() -> None:
    answer = Answer()
    assert body_of(answer, b"HTTP/1.1 200 OK\r\n\r\nab", b"c") == b"abc"
    assert not answer.ended
    assert answer.feed(b"") == []
    assert answer.ended
    assert not answer.keeps


def test_what_a_connection_carries_no_further_request_after() -> None:
    for data in (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        CHUNKED + b"1\r\na\r\n",
    ):
        answer = Answer()
        answer.feed(data)
        assert not answer.keeps, data


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1" + b"0" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"1\r\nab\r\n",
        CHUNKED + b"1" * MAX_HEAD,
        b"a" * MAX_HEAD,
    ],
    ids=lambda data: str(data[:40]),
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(Malformed):
        Answer().feed(data)


def test_an_answer_that_ends_early() -> None:
    for data in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        CHUNKED + b"1\r\na",
    ):
        answer = Answer()
        if data:
            answer.feed(data)
        with pytest.raises(Malformed, match="in the midst"):
            answer.feed(b"")


def test_events() -> None:
    data = b": note\n\nevent: item\ndata: 1\n\ndata:a\ndata: b\r\n\r\n"
    data += b'event: error\ndata: {"x": "\xc3\xbc"}\n\ndata: cut'
    expected = [("item", b"1"), ("", b"a\nb"), ("error", b'{"x": "\xc3\xbc"}')]
    assert Events().feed(data) == expected
    events = Events()
    assert [event for at in range(len(data)) for event in events.feed(data[at : at + 1])] == expected


def test_places() -> None:
    place = place_of("http://[::1]:8080/tools/", None)
    assert (place.host, place.port, place.authority, place.prefix) == ("::1", 8080, "[::1]:8080", "/tools")
    assert place_of("http://tools.example", None).authority == "tools.example"
    assert place_of("https://tools.example", None).authority == "tools.example"
    assert place_of("unix:///run/a%20b", None).path == "/run/a b"


@pytest.fixture
def answering() -> Iterator[Callable[..., str]]:
    """Makes servers that answer each connection with the same bytes, and close it."""
    made: list[tuple[socket.socket, threading.Thread]] = []
    ends = threading.Event()

    def make(data: bytes, tls: ssl.SSLContext | None = None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                if ends.is_set():
                    connection.close()
                    return
                # A client that does not trust the certificate ends the handshake.
                with contextlib.suppress(OSError):
                    if tls is not None:
                        connection = tls.wrap_socket(connection, server_side=True)
                    connection.recv(65536)
                    connection.sendall(data)
                    if tls is None:
                        connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        made.append((listener, thread))
        return f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"

    yield make
    ends.set()
    for listener, thread in made:
        with socket.create_connection(listener.getsockname()):
            pass
        thread.join()
        listener.close()


def both(url: str) -> list[CallFailed]:
    """The failures of the two clients."""
    found: list[CallFailed] = []

    async def main() -> None:
        async with AsyncClient(url) as client:
            await client.call("add", a=1)

    def plain() -> None:
        with Client(url) as client:
            client.call("add", a=1)

    for call in (plain, lambda: asyncio.run(main())):
        with pytest.raises(CallFailed) as caught:
            call()
        found.append(caught.value)
    return found


def test_what_is_no_server_of_tools(answering: Callable[[bytes], str]) -> None:
    page = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nRetry-After: 7\r\nContent-Length: 6\r\n\r\n<html>"
    for status, kind, name in (
        (b"502 Bad Gateway", CallUnavailable, "UNAVAILABLE"),
        (b"429 Too Many Requests", CallRefused, "RESOURCE_EXHAUSTED"),
        (b"418 I'm a teapot", CallFailed, "UNKNOWN"),
        (b"200 OK", CallFailed, "UNKNOWN"),
    ):
        for failure in both(answering(page % status)):
            assert (type(failure), failure.status) == (kind, name)
            assert failure.retry_after == (None if name == "UNKNOWN" and status == b"200 OK" else 7)


def test_what_is_no_json(answering: Callable[[bytes], str]) -> None:
    for body in (b"{", b"[" * 100_000, b"\xff"):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for failure in both(answering(head.encode() + body)):
            assert "no JSON" in str(failure)


def test_a_connection_that_breaks(answering: Callable[[bytes], str]) -> None:
    for data in (b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"):
        for failure in both(answering(data)):
            assert isinstance(failure, CallUnavailable)


def test_a_stream_that_breaks(answering: Callable[[bytes], str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        Client(answering(head + b"17\r\nevent: item\ndata: 1\n\n")) as client,
        client.stream("count") as items,
    ):
        assert next(items) == 1
        with pytest.raises(CallUnavailable, match="in the midst"):
            next(items)


def test_tls(answering: Callable[..., str]) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    own, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(own)
    authority.configure_trust(trusting)
    said = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n3"
    url = answering(said, own)

    async def main() -> None:
        async with AsyncClient(url, tls=trusting) as client:
            assert await client.call("add", a=1) == 3

    with Client(url, tls=trusting) as client:
        assert client.call("add", a=1) == 3
    asyncio.run(main())
    for failure in both(url):
        assert "CERTIFICATE_VERIFY_FAILED" in str(failure)
