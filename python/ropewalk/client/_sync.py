"""`Client`: calls the tools of a server, from any thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Self, TypeVar

from ropewalk._errors import CallFailed
from ropewalk.client import _calls
from ropewalk.client._calls import Given, ToolInfo, Try
from ropewalk.client._events import Events
from ropewalk.client._http import READ, Answer, Malformed, Place, place_of, request
from ropewalk.client._session import Opened, SessionCalls, check_ended
from ropewalk.client._tool import signature_of

T = TypeVar("T")


class _Connection:
    """A connection; one call uses it at a time."""

    def __init__(self, place: Place, until: float | None) -> None:
        self.idle_since = 0.0
        self._socket = _connected(place, until)

    def send(self, data: bytes, until: float | None) -> None:
        self._socket.settimeout(_left(until))
        self._socket.sendall(data)

    def receive(self, until: float | None) -> bytes:
        self._socket.settimeout(_left(until))
        return self._socket.recv(READ)

    def is_fresh(self) -> bool:
        """Whether the server has neither closed it nor sent what nothing asked for."""
        if time.monotonic() - self.idle_since > _calls.IDLE:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


def _connected(place: Place, until: float | None) -> socket.socket:
    left = _left(until)
    limit = _calls.CONNECT if left is None else min(left, _calls.CONNECT)
    if place.path:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(limit)
            made.connect(place.path)
        except BaseException:
            made.close()
            raise
        return made
    made = socket.create_connection((place.host, place.port), limit)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made if place.tls is None else place.tls.wrap_socket(made, server_hostname=place.host)
    except BaseException:
        made.close()
        raise


def _left(until: float | None) -> float | None:
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


class _Exchange:
    """A request, and its answer as it comes. What is left of the answer when it is closed ends the connection."""

    def __init__(self, client: Client, connection: _Connection, data: bytes, until: float | None) -> None:
        self._client = client
        self._connection: _Connection | None = connection
        self._until = until
        self._parts: deque[bytes] = deque()
        self.answer = Answer()
        try:
            self._send(connection, data)
            while not self.answer.status:
                self._receive(connection)
        except BaseException:
            self.close()
            raise

    def _send(self, connection: _Connection, data: bytes) -> None:
        try:
            connection.send(data, self._until)
        except TimeoutError as error:
            raise self._late(error) from None
        except OSError as error:
            # A server that refuses a large request answers before it has read it, and closes the connection.
            with contextlib.suppress(CallFailed):
                while not self.answer.status:
                    self._receive(connection)
            if not self.answer.status:
                raise _calls.lost(error) from error

    def _receive(self, connection: _Connection) -> None:
        try:
            self._parts += self.answer.feed(connection.receive(self._until))
        except TimeoutError as error:
            raise self._late(error) from None
        except (OSError, Malformed) as error:
            raise _calls.lost(error) from error

    def _late(self, error: TimeoutError) -> CallFailed:
        # The network has limits of its own.
        is_ours = self._until is not None and time.monotonic() >= self._until - _calls.LATER
        return _calls.late() if is_ours else _calls.lost(error)

    def parts(self) -> Iterator[bytes]:
        """The parts of the body, each when it has come."""
        while True:
            while self._parts:
                yield self._parts.popleft()
            if self.answer.ended or self._connection is None:
                return
            self._receive(self._connection)

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.parts())

    def close(self) -> None:
        """Gives the connection back, or ends it, by which the server sees that the caller has left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client._give(connection, keeps=self.answer.keeps)


class Stream(Iterator[Any]):
    """The items of a tool that streams, each when it has come; one thread reads them.

    The call begins with the first item that is asked for. Leaving the `with` block, `close()`, and dropping the object
    before the last item cancel the call: the server closes the generator.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Generator[Any, None, None]) -> None:
        """For `Client.stream` alone."""
        self._items = items

    def __next__(self) -> Any:
        return next(self._items)

    def close(self) -> None:
        """Cancels the call if it has not ended."""
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RemoteTool:
    """A tool of a server, to be called as a function of its parameters; `Client.tool` makes it."""

    def __init__(self, info: ToolInfo, call: Callable[..., Any]) -> None:
        """For `Client.tool` alone."""
        #: What the server says of it.
        self.info = info
        self._call = call
        self.__name__ = self.__qualname__ = info.name
        self.__doc__ = info.description
        self.__signature__ = signature_of(info)

    def __call__(self, arguments: Given = None, /, **named: Any) -> Any:
        """Calls it, and returns its result, or a `Stream`."""
        return self._call(self.info.name, _calls.merged(arguments, named))

    def __repr__(self) -> str:
        return f"<tool {self.info.name}{self.__signature__}>"


class Session(SessionCalls[Any, Stream]):
    """An open session of a server, whose object lives between calls; `Client.session` makes it.

    Threads may share it; the server runs its calls one at a time, in the order in which they come.
    """

    def close(self) -> None:
        """Ends it; the server has then called what ends its object. A session that has ended stays so.

        Raises:
            CallUnavailable: the object is gone with its worker, and what ends it did not run.
            CallFailed: the server cannot be reached, or what ends the object raised.
        """
        ends = self._opened.ends()
        if ends is not None:
            try:
                self._answered(ends, _calls.result)
            except CallFailed as failure:
                check_ended(failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # What the block raised says more than a failure of the end.
        with contextlib.nullcontext() if kind is None else contextlib.suppress(CallFailed):
            self.close()


class Client:
    """Calls the tools of a server, over HTTP. Threads may share it.

    It keeps connections open between calls, and opens as many as there are calls at once. `close()`, or leaving the
    `with` block, closes them. A call that ends by an exception, Ctrl-C included, closes its connection; the server then
    cancels the call.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Makes a client; it connects with its first call.

        Args:
            url: where the server is: ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:///PATH``.
            token: what the server asks of its callers; by default `ROPEWALK_TOKEN` of the environment, if it is set.
            timeout: seconds that a call may take; the server gets this limit as well. No limit by default.
            metadata: what is sent beside the arguments of each call, as `current_task().metadata` of the tool. Names
                are of lower case, and texts of ASCII.
            retries: how often a call is tried again that the server refused because it is full, or that did not reach
                the server. Retries wait for as long as the server says, and end with `timeout`.
            tls: for ``https``, what to trust, and the client's own certificate; by default what the system trusts.

        Raises:
            TypeError, ValueError: an argument is invalid.
        """
        self._settings = _calls.settings(token, timeout, metadata, retries)
        self._place = place_of(url, tls)
        #: The newest last: old ones are left to end. Threads append and pop, which are single steps.
        self._idle: deque[_Connection] = deque()
        self._process = os.getpid()
        self._is_closed = False

    def call(
        self,
        tool: str,
        arguments: Given = None,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        arrays: bool = False,
        **named: Any,
    ) -> Any:
        """Calls a tool, and returns its result: what JSON says, bytes, or an array.

        Args:
            tool: the tool's name.
            arguments: the arguments by their names, for those that cannot be keywords here; or bytes for a tool whose
                one parameter is `bytes`; or an array, of NumPy's or of `array`, for the one array of a tool. Within
                other arguments, bytes are sent in base64; dataclasses, models of pydantic, dates and arrays are sent
                as JSON has them.
            timeout: seconds that the call may take, its retries included.
            metadata: added to that of the client.
            retries: instead of that of the client.
            idempotent: running it twice does no harm. Then retries are for calls too whose worker died or whose
                connection was lost.
            arrays: a result that is an array comes as one of NumPy's, which cannot be written to, and not as lists.
                So it does anyway if the argument is an array of NumPy's.
            named: the arguments.

        Raises:
            CallInvalid: the tool does not accept the arguments; `violations` names the fields.
            CallTimeout: it was not answered in time.
            CallRefused: the server is full, or the call is too large.
            CallUnavailable: the server cannot be reached or leaves, or the tool's worker died.
            CallFailed: any other failure, such as an exception of the tool; `status` says which.
            ExtraMissing: NumPy is not installed, and `arrays` was asked for.
            TypeError, ValueError: an argument cannot be sent.
        """
        one = Try(
            self._settings,
            _calls.of_tool(tool),
            arguments,
            named,
            arrays=arrays,
            timeout=timeout,
            metadata=metadata,
            retries=retries,
            idempotent=idempotent,
        )
        return self._answered(one, _calls.result)

    def stream(
        self,
        tool: str,
        arguments: Given = None,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        **named: Any,
    ) -> Stream:
        """Calls a tool that streams, and returns an iterator over its items; see `call`.

        Items that are bytes come as texts in base64. `timeout` is for the whole stream. Only a call that has no item
        yet is tried again.

        Raises:
            TypeError, ValueError: an argument cannot be sent. Failures of the call are raised by the iterator.
        """
        one = Try(
            self._settings,
            _calls.of_tool(tool),
            arguments,
            named,
            accept=_calls.EVENTS,
            timeout=timeout,
            metadata=metadata,
            retries=retries,
            idempotent=idempotent,
        )
        return Stream(self._items(one))

    def tools(self) -> list[ToolInfo]:
        """Returns the tools of the server with their JSON Schemas.

        Raises:
            CallFailed: the server cannot be reached, or refuses.
        """
        end = None if self._settings.timeout is None else time.monotonic() + self._settings.timeout
        data = request(self._place, "GET", "/v1/tools", _calls.listing(self._settings), b"")
        with contextlib.closing(_Exchange(self, self._take(end), data, end)) as exchange:
            return _calls.tools(exchange.answer, exchange.body())

    def tool(
        self,
        name: str,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        arrays: bool = False,
    ) -> RemoteTool:
        """Returns a tool as a function; the server is asked for its schema. The settings are those of each call.

        Raises:
            CallFailed: there is no such tool (``NOT_FOUND``), the server cannot be reached, or refuses.
        """
        info = _calls.one_of(self.tools(), name)
        settings: dict[str, Any] = {
            "timeout": timeout,
            "metadata": metadata,
            "retries": retries,
            "idempotent": idempotent,
        }

        def call(tool: str, arguments: Given) -> Any:
            if info.streams:
                return self.stream(tool, arguments, **settings)
            return self.call(tool, arguments, arrays=arrays, **settings)

        return RemoteTool(info, call)

    def session(
        self,
        name: str,
        arguments: Given = None,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        **named: Any,
    ) -> Session:
        """Opens a session of a class with ``@tool(session=True)``; the arguments are those of its constructor.

        The settings are those of the call that opens it; see `call`. Leaving the `with` block ends it.

        Raises:
            CallFailed: there is no such session (``NOT_FOUND``), its constructor raised, or a failure of any call.
            TypeError, ValueError: an argument cannot be sent.
        """
        path = _calls.of_session(name)
        opens = Try(
            self._settings, path, arguments, named, timeout=timeout, metadata=metadata, retries=retries
        )
        opened = Opened(self._settings, name, opens)
        self._answered(opens, opened.take)
        return Session(opened, self._answered, lambda one: Stream(self._items(one)))

    def close(self) -> None:
        """Closes the connections; calls that run end by themselves."""
        self._is_closed = True
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def __repr__(self) -> str:
        return f"<Client of {self._place.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _items(self, one: Try) -> Generator[Any, None, None]:
        exchange = self._opened(one)
        with contextlib.closing(exchange):
            one.check_streams(exchange.answer)
            events = Events()
            for part in exchange.parts():
                for name, text in events.feed(part):
                    yield _calls.item(name, text)

    def _answered(self, one: Try, read: Callable[[Answer, bytes], T]) -> T:
        """Makes a call, again if it fails and may be tried again, and returns what is read from the answer."""
        while True:
            sent = False
            try:
                connection = self._take(one.until())
                sent = True
                exchange = self._begin(connection, one)
                with contextlib.closing(exchange):
                    one.check_plain(exchange.answer)
                    return read(exchange.answer, exchange.body())
            except CallFailed as failure:
                time.sleep(one.pause(failure, sent=sent))

    def _opened(self, one: Try) -> _Exchange:
        """Begins a stream, again if it fails before its first item and may be tried again."""
        while True:
            sent = False
            try:
                connection = self._take(one.until())
                sent = True
                exchange = self._begin(connection, one)
                if exchange.answer.status == 200:
                    return exchange
                with contextlib.closing(exchange):
                    _calls.result(exchange.answer, exchange.body())
            except CallFailed as failure:
                time.sleep(one.pause(failure, sent=sent))

    def _begin(self, connection: _Connection, one: Try) -> _Exchange:
        try:
            data = request(self._place, one.method, one.path, one.headers(), one.body)
        except BaseException:
            connection.close()
            raise
        return _Exchange(self, connection, data, one.until())

    def _take(self, until: float | None) -> _Connection:
        if self._is_closed:
            raise ValueError("the client is closed")
        if self._process != os.getpid():
            # After a fork both processes would write to the same connections.
            self._idle, self._process = deque(), os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_fresh():
                    return connection
                connection.close()
        try:
            return _Connection(self._place, until)
        except TimeoutError as error:
            if until is not None and time.monotonic() >= until - _calls.LATER:
                raise _calls.late() from None
            raise _calls.unreached(self._place, error) from error
        except OSError as error:
            raise _calls.unreached(self._place, error) from error

    def _give(self, connection: _Connection, *, keeps: bool) -> None:
        if keeps and not self._is_closed and len(self._idle) < _calls.MOST_IDLE:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
