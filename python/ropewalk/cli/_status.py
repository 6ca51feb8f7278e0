"""A server's `/v1/status`, as `ropewalk top` reads it: by the standard library, and as tables of text."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import quote

from ropewalk.cli._errors import CommandError
from ropewalk.client._http import is_header_value, is_of_unknown_authority, place_of, said_in_text

#: A document of a server, or a part of one.
Document: TypeAlias = dict[str, Any]

#: Seconds that a server may be silent: it says something each second.
_SILENCE = 10.0
#: Bytes of a line of events: a server with thousands of tools says much.
_LONGEST = 64 << 20


class _Socket(http.client.HTTPConnection):
    """A connection by a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SILENCE)
        self._path = path

    def connect(self) -> None:
        """Connects to the socket's file."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SILENCE)
        self.sock.connect(self._path)


def checked_token(token: str | None) -> str | None:
    """Returns a token that a header can carry; it is not shown.

    Raises:
        CommandError: it is none.
    """
    if token is not None and not (is_header_value(token) and " " not in token):
        raise CommandError("the token must be ASCII without spaces")
    return token


class Source:
    """A server that shows what goes on."""

    def __init__(self, url: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Takes the address of a server, the token that it asks for, and what to trust at ``https``.

        Raises:
            CommandError: it is no address.
        """
        url = url if "://" in url else f"http://{url}"
        try:
            self._place = place_of(url, tls)
        except ValueError as error:
            # Its text shows no address with a password in it.
            raise CommandError(f"this is no address of a server: {error}") from None
        if tls is not None and self._place.tls is None:
            raise CommandError(f"--tls-ca is for a server at https://, not {url!r}")
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def _connection(self) -> http.client.HTTPConnection:
        place = self._place
        if place.path:
            return _Socket(place.path)
        if place.tls is not None:
            return http.client.HTTPSConnection(place.host, place.port, timeout=_SILENCE, context=place.tls)
        return http.client.HTTPConnection(place.host, place.port, timeout=_SILENCE)

    def once(self) -> Document:
        """Returns the document as it is now.

        Raises:
            CommandError: the server cannot be reached, or refuses.
        """
        return dict(self._ask("GET", "/v1/status"))

    def events(self) -> Iterator[Document]:
        """Yields the document, and each second what has changed; it ends with the connection.

        Raises:
            CommandError: the server cannot be reached, refuses, or has left.
        """
        connection = self._connection()
        try:
            response = self._answer(connection, "GET", "/v1/status/events")
            while line := response.readline(_LONGEST):
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._lost(error) from None
        finally:
            connection.close()

    def stack(self, pool: str, worker: int) -> Document:
        """Asks a worker for its stacks.

        Raises:
            CommandError: the server or the worker cannot be reached, or refuses.
        """
        return dict(self._ask("POST", f"/v1/workers/{quote(pool, safe='')}/{worker}/stack"))

    def _ask(self, method: str, path: str) -> Any:
        connection = self._connection()
        try:
            return json.loads(self._answer(connection, method, path).read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._lost(error) from None
        finally:
            connection.close()

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str
    ) -> http.client.HTTPResponse:
        connection.request(method, self._place.prefix + path, headers=self._headers)
        response = connection.getresponse()
        if response.status == 200:
            return response
        if response.status == 401:
            raise CommandError(
                f"{self.url} asks for a token", "give it with --token-file FILE, or ROPEWALK_TOKEN"
            )
        if response.status == 404 and path.startswith("/v1/status"):
            raise CommandError(
                f"{self.url} has no dashboard", "is it a ropewalk serve without --no-dashboard?"
            )
        body = response.read(_LONGEST)
        try:
            why = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            said = said_in_text(response.headers.get("content-type"), body)
            why = f"it answers {response.status}{f': {said}' if said else ''}"
        raise CommandError(f"{self.url}: {why}")

    def _lost(self, error: Exception) -> CommandError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if is_of_unknown_authority(error):
            hint = "give the file of its certificate's authority with --tls-ca FILE"
        elif isinstance(error, ssl.SSLError):
            hint = ""
        else:
            hint = "is the server there?"
        return CommandError(f"{self.url} cannot be read: {reason}", hint)


# --- words for numbers ------------------------------------------------------------------------------------------------


def seconds(time: float | None) -> str:
    """Returns a time in words: ``"1.5 ms"``."""
    if time is None:
        return "–"
    if time < 0.001:
        return f"{max(1, round(time * 1e6))} µs"
    if time < 1:
        return f"{time * 1e3:.1f} ms" if time < 0.01 else f"{time * 1e3:.0f} ms"
    if time < 60:
        return f"{time:.1f} s" if time < 10 else f"{time:.0f} s"
    if time < 3600:
        return f"{time // 60:.0f} min {time % 60:.0f} s"
    if time < 86400:
        return f"{time // 3600:.0f} h {time % 3600 // 60:.0f} min"
    return f"{time // 86400:.0f} d {time % 86400 // 3600:.0f} h"


def size(number: int) -> str:
    """Returns a number of bytes in words: ``"3.2 MiB"``."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def count(number: float) -> str:
    """Returns a number in words: ``"12.3k"``."""
    if number >= 1e6:
        return f"{number / 1e6:.1f}M"
    if number >= 1e4:
        return f"{number / 1e3:.1f}k"
    return f"{number:.1f}" if number < 10 and number != int(number) else f"{number:.0f}"


# --- tables -----------------------------------------------------------------------------------------------------------

#: The columns of workers and of tools, and whether each is a number.
WORKERS = {
    "worker": False,
    "state": False,
    "task": False,
    "for": True,
    "busy": True,
    "memory": True,
    "age": True,
    "done": True,
    "process": True,
}
TOOLS = {
    "tool": False,
    "calls/s": True,
    "p50": True,
    "p90": True,
    "p99": True,
    "failed": True,
    "shed": True,
    "active": True,
    "calls": True,
}
#: What workers can be sorted by, and what puts those first that matter most.
SORTS = ("worker", "busy", "memory", "age", "done")


def workers(document: Document, sort: str = "worker") -> list[tuple[str, int, tuple[str, ...]]]:
    """Returns the workers: pool, number, and the texts of `WORKERS`."""
    found = [(pool["name"], worker) for pool in document["pools"] for worker in pool["workers"]]
    if sort != "worker":
        found.sort(key=lambda one: -_weight(one[1], sort))
    return [(pool, worker["number"], _worker(pool, worker)) for pool, worker in found]


def _weight(worker: Document, sort: str) -> float:
    if sort == "busy":
        return float(sum(task["seconds"] for task in worker["tasks"]))
    return float(worker[{"memory": "memory", "age": "age", "done": "completed"}[sort]] or 0)


def _worker(pool: str, worker: Document) -> tuple[str, ...]:
    tasks = worker["tasks"]
    history = worker["history"]
    return (
        f"{pool}/{worker['number']}",
        worker["state"],
        ", ".join(task["tool"] or "a task" for task in tasks),
        seconds(max(task["seconds"] for task in tasks)) if tasks else "",
        f"{history[-1]} %" if history else "–",
        size(worker["memory"]),
        seconds(worker["age"]),
        count(worker["completed"]),
        str(worker["pid"] or "–"),
    )


def tools(document: Document) -> list[tuple[str, ...]]:
    """Returns the texts of `TOOLS` for each tool, the busiest first."""
    found = sorted(document["tools"], key=lambda tool: (-tool["recent"]["rate"], tool["name"]))
    return [
        (
            tool["name"],
            count(tool["recent"]["rate"]),
            *(seconds(tool["recent"][part]) for part in ("p50", "p90", "p99")),
            count(tool["recent"]["failed"]),
            count(tool["recent"]["shed"]),
            count(tool["active"]),
            count(tool["calls"]),
        )
        for tool in found
    ]


def summary(document: Document) -> str:
    """Returns a line on the whole."""
    server, pools = document["server"], document["pools"]
    state = "ready" if server["ready"] else server["why_not"] or "not ready"
    rate = sum(tool["recent"]["rate"] for tool in document["tools"])
    failed = sum(tool["recent"]["failed"] for tool in document["tools"])
    shed = sum(tool["recent"]["shed"] for tool in document["tools"])
    queued = sum(pool["queued"] for pool in pools)
    oldest = max((pool["oldest"] or 0.0 for pool in pools), default=0.0)
    waits = f", the oldest for {seconds(oldest)}" if oldest > 0.001 else ""
    return (
        f"{state}, up {seconds(server['uptime'])} · {count(rate)} calls/s · {queued} waiting{waits} · "
        f"in a minute {failed} failed, {shed} shed"
    )


def stack_text(said: Document) -> str:
    """Returns what a worker said of its stacks."""
    parts: list[str] = [said["note"]] if said.get("note") else []
    for thread in said["threads"]:
        head = f"{thread['name']}{' (waits for tasks)' if thread['idle'] else ''}:"
        calls: list[str] = []
        for call in thread["frames"]:
            calls.append(f'  File "{call["file"]}", line {call["line"]}, in {call["function"]}')
            if call.get("code"):
                calls.append(f"    {call['code']}")
        parts.append("\n".join([head, *calls]))
    return "\n\n".join(parts)
