"""What the sessions of both clients have in common: their paths, and what opens, calls and ends them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from ropewalk._errors import CallFailed
from ropewalk.client import _calls
from ropewalk.client._calls import Given, Settings, Try
from ropewalk.client._http import Answer

R = TypeVar("R")
S = TypeVar("S")

#: What a server names a session by; it is a part of a path.
_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
#: Seconds that the end of a session may take if the client has no limit: the object has ten.
_ENDING = 15.0


class Opened:
    """A session: what opens it, and once it is open its calls."""

    def __init__(self, settings: Settings, name: str, opens: Try) -> None:
        self.name = name
        #: What opens it.
        self.opens = opens
        self._settings = settings
        self._path: str | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and its end was not asked for."""
        return self._path is not None and not self._is_over

    def check_new(self) -> None:
        """Raises `ValueError` if it was opened before: a session opens once."""
        if self._path is not None:
            raise ValueError(f"the session {self.name!r} was opened before: ask the client for another one")

    def take(self, answer: Answer, body: bytes) -> None:
        """Reads the answer of the server that has opened it.

        Raises:
            CallFailed: it has a failure, or is none.
        """
        said = _calls.result(answer, body)
        given: object = cast("dict[str, object]", said).get("session") if isinstance(said, dict) else None
        if not isinstance(given, str) or not _ID.fullmatch(given):
            raise CallFailed("the server names no session: it may be another server")
        self._path = f"/v1/sessions/{given}"

    def called(self, method: str, arguments: Given, named: Mapping[str, Any], **settings: Any) -> Try:
        """Returns a call of a method.

        Raises:
            ValueError: the session is not open, or an argument is invalid.
            TypeError: an argument cannot be sent.
        """
        if self._path is None or self._is_over:
            raise ValueError(f"the session {self.name!r} is not open")
        made = Try(self._settings, _calls.of_method(self._path, method), arguments, named, **settings)
        made.is_of_session = True
        return made

    def ends(self) -> Try | None:
        """Returns what ends it, once; `None` if there is nothing to end."""
        if self._path is None or self._is_over:
            return None
        self._is_over = True
        limited = (
            self._settings if self._settings.timeout is not None else replace(self._settings, timeout=_ENDING)
        )
        ending = Try(limited, self._path, None, {})
        ending.method, ending.body = "DELETE", b""
        return ending

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed" if self._is_over else "not open"
        return f"<session {self.name}, {state}>"


class SessionCalls(Generic[R, S]):
    """The calls of a session; `R` is what a call gives, at once or as a coroutine, and `S` a stream."""

    def __init__(
        self,
        opened: Opened,
        answered: Callable[[Try, Callable[[Answer, bytes], Any]], R],
        streamed: Callable[[Try], S],
    ) -> None:
        """For the clients alone."""
        self._opened = opened
        self._answered = answered
        self._streamed = streamed

    @property
    def name(self) -> str:
        """The name of its class at the server."""
        return self._opened.name

    def call(
        self,
        method: str,
        arguments: Given = None,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        arrays: bool = False,
        **named: Any,
    ) -> R:
        """Calls a method, as `call` of the client calls a tool.

        Raises:
            CallUnavailable: the session is lost with its worker. Later calls raise a `CallFailed`, ``NOT_FOUND``.
            CallFailed: any other failure.
            TypeError, ValueError: an argument cannot be sent, or the session is not open.
        """
        one = self._opened.called(
            method,
            arguments,
            named,
            timeout=timeout,
            metadata=metadata,
            retries=retries,
            idempotent=idempotent,
            arrays=arrays,
        )
        return self._answered(one, _calls.result)

    def stream(
        self,
        method: str,
        arguments: Given = None,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        **named: Any,
    ) -> S:
        """Calls a method that streams, and returns an iterator over its items, as `stream` of the client does.

        Raises:
            TypeError, ValueError: an argument cannot be sent, or the session is not open. Failures of the call are
                raised by the iterator.
        """
        one = self._opened.called(
            method,
            arguments,
            named,
            accept=_calls.EVENTS,
            timeout=timeout,
            metadata=metadata,
            retries=retries,
            idempotent=idempotent,
        )
        return self._streamed(one)

    def __repr__(self) -> str:
        return repr(self._opened)


def check_ended(failure: CallFailed) -> None:
    """Raises why a session could not be ended; one that has ended before, needs no end."""
    if failure.status != "NOT_FOUND":
        raise failure
