"""HTTP/1.1 without reads and writes: where a server is, the bytes of a request, and an answer from bytes.

Source: RFC 9112.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

#: Bytes that the head of an answer, or the line of a chunk's size, may have.
MAX_HEAD = 64 << 10
#: Bytes that one read asks for.
READ = 64 << 10
_VALUE = re.compile(r"[\x20-\x7e]*")


class Malformed(Exception):
    """What came is no answer of HTTP/1.1, or it ended early."""


class Place(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    #: The file of a unix socket; empty for TCP.
    path: str
    tls: ssl.SSLContext | None
    #: What stands in front of every path, without a slash at its end.
    prefix: str

    @property
    def authority(self) -> str:
        """What the header `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address of the server, for people."""
        if self.path:
            return f"unix://{self.path}"
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


#: Characters of an answer in plain text that are shown.
_MOST_SAID = 200
#: Why OpenSSL does not trust a certificate whose authority it does not know, as X509_verify_cert_error_string(3) names
#: them: X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, ..._DEPTH_ZERO_SELF_SIGNED_CERT, ..._SELF_SIGNED_CERT_IN_CHAIN,
#: ..._UNABLE_TO_GET_ISSUER_CERT_LOCALLY, ..._UNABLE_TO_VERIFY_LEAF_SIGNATURE.
_NOT_KNOWN = {2, 18, 19, 20, 21}


def said_in_text(content_type: str | None, body: bytes) -> str | None:
    """Returns what an answer says that is plain text; `None` if it is not."""
    if (content_type or "").partition(";")[0].strip().lower() != "text/plain":
        return None
    text = " ".join(body[: 4 * _MOST_SAID].decode("utf-8", "replace").split())
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= _MOST_SAID else shown[:_MOST_SAID] + "..."


def is_of_unknown_authority(error: object) -> bool:
    """Whether a connection failed because the client does not know the authority of the server's certificate."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _NOT_KNOWN


def place_of(url: str, tls: ssl.SSLContext | None) -> Place:
    """Reads the address of a server.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"url must be a text such as 'http://127.0.0.1:8080', not {url!r}")
    if tls is not None and not isinstance(tls, ssl.SSLContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tls must be an ssl.SSLContext or None, not {tls!r}")
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path not in ("", "/"):
        return Place("localhost", 80, unquote(parts.path), None, "")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == -1
        or parts.query
        or parts.fragment
    ):
        raise ValueError(
            f"url must be as 'http://127.0.0.1:8080', 'https://tools.example' or 'unix:///run/tools.sock', not {url!r}"
        )
    if parts.username is not None or parts.password is not None:
        # Not shown: it may hold a secret.
        raise ValueError("url must have no user and no password; pass a token as `token`")
    if parts.scheme == "https":
        tls = tls or ssl.create_default_context()
        return Place(parts.hostname, port or 443, "", tls, parts.path.rstrip("/"))
    return Place(parts.hostname, port or 80, "", None, parts.path.rstrip("/"))


def is_header_value(text: str) -> bool:
    """Whether a header can carry a text: printable ASCII, which every server reads."""
    return _VALUE.fullmatch(text) is not None and text == text.strip()


def request(place: Place, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Returns the bytes of a request."""
    lines = [f"{method} {place.prefix}{path} HTTP/1.1", f"Host: {place.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class Answer:
    """An answer, from bytes as they come."""

    def __init__(self) -> None:
        self.status = 0
        #: Names in lower case; of several lines of one name the last.
        self.headers: dict[str, str] = {}
        #: Whether it has come to its end.
        self.ended = False
        #: Whether any byte of it has come.
        self.begun = False
        self._waiting = bytearray()
        #: Bytes that the body, or its chunk, still has; `None` if the end of the connection ends it.
        self._left: int | None = 0
        #: Whether the body comes in chunks, and what the next line of such a body is.
        self._chunks = False
        self._next = "size"

    @property
    def keeps(self) -> bool:
        """Whether the connection can carry another request after this answer."""
        said = self.headers.get("connection", "").lower()
        return self.ended and not self._waiting and self._left is not None and said != "close"

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what was read, of which nothing is the end of the connection, and returns parts of the body.

        Raises:
            Malformed: it is no answer, or ended early.
        """
        if not data:
            if not self.status or self._left is not None:
                raise Malformed("the connection was closed in the midst of an answer")
            self.ended = True
            return []
        self.begun = True
        self._waiting += data
        if not self.status and not self._read_head():
            return []
        return self._read_chunks() if self._chunks else self._read_plain()

    def _read_head(self) -> bool:
        while not self.status:
            end = self._waiting.find(b"\r\n\r\n", 0, MAX_HEAD)
            if end < 0:
                if len(self._waiting) >= MAX_HEAD:
                    raise Malformed(f"the head of the answer is larger than {MAX_HEAD} bytes")
                return False
            first, *lines = self._waiting[:end].decode("latin-1").split("\r\n")
            del self._waiting[: end + 4]
            found = re.fullmatch(r"HTTP/1\.[01] ([1-9][0-9]{2})(?: .*)?", first)
            if found is None:
                raise Malformed("the server speaks no HTTP/1.1")
            # A status of 1xx comes before the answer.
            if found[1][0] != "1":
                self.status = int(found[1])
                self._read_headers(lines)
        return True

    def _read_headers(self, lines: list[str]) -> None:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise Malformed("a header of the answer is malformed")
            self.headers[name.lower()] = value.strip()
        length = self.headers.get("content-length")
        if self.status in (204, 304):
            self.ended = True
        elif "transfer-encoding" in self.headers:
            if self.headers["transfer-encoding"].lower() != "chunked":
                raise Malformed("the answer has a transfer coding other than chunked")
            self._chunks = True
        elif length is None:
            self._left = None
        elif length.isascii() and length.isdecimal() and len(length) < 20:
            self._left = int(length)
            self.ended = self._left == 0
        else:
            raise Malformed("the length of the answer is no number")

    def _taken(self, most: int | None) -> bytes:
        part = bytes(self._waiting if most is None else self._waiting[:most])
        del self._waiting[: len(part)]
        return part

    def _read_plain(self) -> list[bytes]:
        part = self._taken(self._left)
        if self._left is not None:
            self._left -= len(part)
            self.ended = self.ended or self._left == 0
        return [part] if part else []

    def _read_chunks(self) -> list[bytes]:
        parts: list[bytes] = []
        while not self.ended:
            if self._left:
                part = self._taken(self._left)
                if not part:
                    break
                self._left -= len(part)
                parts.append(part)
                continue
            end = self._waiting.find(b"\r\n", 0, MAX_HEAD)
            if end < 0:
                if len(self._waiting) >= MAX_HEAD:
                    raise Malformed("a chunk of the answer has no size")
                break
            line = self._taken(end + 2)[:-2]
            if self._next == "end":
                if line:
                    raise Malformed("a chunk of the answer is longer than its size")
                self._next = "size"
            elif self._next == "trailers":
                self.ended = not line
            else:
                size = re.fullmatch(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?", line)
                if size is None:
                    raise Malformed("the size of a chunk of the answer is no number")
                self._left = int(size[1], 16)
                self._next = "end" if self._left else "trailers"
        return parts
