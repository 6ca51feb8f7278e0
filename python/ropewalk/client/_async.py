"""`AsyncClient`: calls the tools of a server from coroutines, on asyncio's streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping
from typing import Any, Self, TypeVar

from ropewalk._errors import CallFailed
from ropewalk.client import _calls
from ropewalk.client._calls import Given, ToolInfo, Try
from ropewalk.client._events import Events
from ropewalk.client._http import READ, Answer, Malformed, Place, place_of, request
from ropewalk.client._session import Opened, SessionCalls, check_ended
from ropewalk.client._tool import signature_of

T = TypeVar("T")


#: Connections of the process that has forked this one. Their end here, by the collector too, would take them out of
#: the loop's selector, which the two processes share.
_INHERITED: list[deque[_Connection]] = []


class _Connection:
    """A connection; one call uses it at a time, on the loop that made it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.idle_since = 0.0
        self.reader = reader
        self.writer = writer
        self._loop = asyncio.get_running_loop()

    def is_fresh(self) -> bool:
        """Whether this loop can use it, and the server has not closed it."""
        return (
            self._loop is asyncio.get_running_loop()
            and time.monotonic() - self.idle_since <= _calls.IDLE
            and not self.reader.at_eof()
            and not self.writer.transport.is_closing()
        )

    def close(self) -> None:
        """Ends it at once. What a loop had that has ended, is closed by the collector."""
        if not self._loop.is_closed():
            self.writer.transport.abort()


async def _connected(place: Place) -> _Connection:
    async with asyncio.timeout(_calls.CONNECT):
        if place.path:
            return _Connection(*await asyncio.open_unix_connection(place.path))
        return _Connection(*await asyncio.open_connection(place.host, place.port, ssl=place.tls))


def _limit(until: float | None) -> asyncio.Timeout:
    return asyncio.timeout(None if until is None else max(until - time.monotonic(), 0))


class _Exchange:
    """A request, and its answer as it comes. What is left of the answer when it is closed ends the connection."""

    def __init__(self, client: AsyncClient, connection: _Connection, until: float | None) -> None:
        self._client = client
        self._connection: _Connection | None = connection
        self._until = until
        self._parts: deque[bytes] = deque()
        self.answer = Answer()

    async def begin(self, data: bytes) -> None:
        """Sends the request, and reads the head of the answer."""
        connection = self._connection
        assert connection is not None, "it is not closed"
        try:
            connection.writer.write(data)
            # A server that refuses a large request answers before it has read it, and closes the connection.
            with contextlib.suppress(ConnectionError):
                await self._limited(connection.writer.drain())
            while not self.answer.status:
                await self._receive(connection)
        except BaseException:
            self.close()
            raise

    async def _limited(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            async with _limit(self._until):
                # What need not wait would be beyond any limit.
                await asyncio.sleep(0)
                return await step
        except TimeoutError as error:
            # The network has limits of its own.
            is_ours = self._until is not None and time.monotonic() >= self._until - _calls.LATER
            raise (_calls.late() if is_ours else _calls.lost(error)) from None
        finally:
            step.close()

    async def _receive(self, connection: _Connection) -> None:
        try:
            self._parts += self.answer.feed(await self._limited(connection.reader.read(READ)))
        except CallFailed:
            raise
        except (OSError, Malformed) as error:
            raise _calls.lost(error) from error

    async def parts(self) -> AsyncIterator[bytes]:
        """The parts of the body, each when it has come."""
        while True:
            while self._parts:
                yield self._parts.popleft()
            if self.answer.ended or self._connection is None:
                return
            await self._receive(self._connection)

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.parts()])

    def close(self) -> None:
        """Gives the connection back, or ends it, by which the server sees that the caller has left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client._give(connection, keeps=self.answer.keeps)


class AsyncStream(AsyncIterator[Any]):
    """The items of a tool that streams, each when it has come; one task reads them.

    The call begins with the first item that is asked for. Leaving the `async with` block, `aclose()`, and dropping the
    object before the last item cancel the call: the server closes the generator.
    """

    __slots__ = ("_items",)

    def __init__(self, items: AsyncGenerator[Any, None]) -> None:
        """For `AsyncClient.stream` alone."""
        self._items = items

    async def __anext__(self) -> Any:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Cancels the call if it has not ended."""
        await self._items.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class AsyncRemoteTool:
    """A tool of a server, to be called as a function of its parameters; `AsyncClient.tool` makes it."""

    def __init__(self, info: ToolInfo, call: Callable[..., Any]) -> None:
        """For `AsyncClient.tool` alone."""
        #: What the server says of it.
        self.info = info
        self._call = call
        self.__name__ = self.__qualname__ = info.name
        self.__doc__ = info.description
        self.__signature__ = signature_of(info)

    def __call__(self, arguments: Given = None, /, **named: Any) -> Any:
        """Calls it, and returns a coroutine of its result, or an `AsyncStream`."""
        return self._call(self.info.name, _calls.merged(arguments, named))

    def __repr__(self) -> str:
        return f"<tool {self.info.name}{self.__signature__}>"


class AsyncSession(SessionCalls[Coroutine[Any, Any, Any], AsyncStream]):
    """A session of a server, whose object lives between calls; `AsyncClient.session` makes it.

    Tasks of the loop may share it; the server runs its calls one at a time, in the order in which they come.
    """

    async def _open(self) -> Self:
        self._opened.check_new()
        await self._answered(self._opened.opens, self._opened.take)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Opens it, and returns it."""
        return self._open().__await__()

    async def aclose(self) -> None:
        """Ends it; the server has then called what ends its object. A session that has ended stays so.

        Raises:
            CallUnavailable: the object is gone with its worker, and what ends it did not run.
            CallFailed: the server cannot be reached, or what ends the object raised.
        """
        ends = self._opened.ends()
        if ends is not None:
            try:
                await self._answered(ends, _calls.result)
            except CallFailed as failure:
                check_ended(failure)

    async def __aenter__(self) -> Self:
        """Opens it, if that has not been done."""
        return self if self._opened.is_open else await self._open()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # What the block raised says more than a failure of the end.
        with contextlib.nullcontext() if kind is None else contextlib.suppress(CallFailed):
            await self.aclose()


class AsyncClient:
    """Calls the tools of a server, over HTTP, from the coroutines of one loop.

    It keeps connections open between calls, and opens as many as there are calls at once. `aclose()`, or leaving the
    `async with` block, closes them. A call that ends by an exception, `asyncio.CancelledError` included, closes its
    connection; the server then cancels the call.
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
        #: The newest last: old ones are left to end.
        self._idle: deque[_Connection] = deque()
        self._process = os.getpid()
        self._is_closed = False

    async def call(
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
        return await self._answered(one, _calls.result)

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
    ) -> AsyncStream:
        """Calls a tool that streams, and returns an asynchronous iterator over its items; see `call`.

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
        return AsyncStream(self._items(one))

    async def tools(self) -> list[ToolInfo]:
        """Returns the tools of the server with their JSON Schemas.

        Raises:
            CallFailed: the server cannot be reached, or refuses.
        """
        end = None if self._settings.timeout is None else time.monotonic() + self._settings.timeout
        data = request(self._place, "GET", "/v1/tools", _calls.listing(self._settings), b"")
        exchange = _Exchange(self, await self._take(end), end)
        await exchange.begin(data)
        with contextlib.closing(exchange):
            return _calls.tools(exchange.answer, await exchange.body())

    async def tool(
        self,
        name: str,
        /,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        arrays: bool = False,
    ) -> AsyncRemoteTool:
        """Returns a tool as a function; the server is asked for its schema. The settings are those of each call.

        Raises:
            CallFailed: there is no such tool (``NOT_FOUND``), the server cannot be reached, or refuses.
        """
        info = _calls.one_of(await self.tools(), name)
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

        return AsyncRemoteTool(info, call)

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
    ) -> AsyncSession:
        """Returns a session of a class with ``@tool(session=True)``; the arguments are those of its constructor.

        An `async with` block opens it and ends it, and `await` opens it. The settings are those of the call that opens
        it; see `call`.

        Raises:
            TypeError, ValueError: an argument cannot be sent. Failures are raised where it is opened.
        """
        path = _calls.of_session(name)
        opens = Try(
            self._settings, path, arguments, named, timeout=timeout, metadata=metadata, retries=retries
        )
        opened = Opened(self._settings, name, opens)
        return AsyncSession(opened, self._answered, lambda one: AsyncStream(self._items(one)))

    async def aclose(self) -> None:
        """Closes the connections; calls that run end by themselves."""
        self._is_closed = True
        self._leave_parents()
        while self._idle:
            self._idle.pop().close()
        # Transports are closed by the loop's next turn.
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._place.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _items(self, one: Try) -> AsyncGenerator[Any, None]:
        exchange = await self._opened(one)
        with contextlib.closing(exchange):
            one.check_streams(exchange.answer)
            events = Events()
            async for part in exchange.parts():
                for name, text in events.feed(part):
                    yield _calls.item(name, text)

    async def _answered(self, one: Try, read: Callable[[Answer, bytes], T]) -> T:
        """Makes a call, again if it fails and may be tried again, and returns what is read from the answer."""
        while True:
            sent = False
            try:
                connection = await self._take(one.until())
                sent = True
                exchange = await self._begin(connection, one)
                with contextlib.closing(exchange):
                    one.check_plain(exchange.answer)
                    return read(exchange.answer, await exchange.body())
            except CallFailed as failure:
                await asyncio.sleep(one.pause(failure, sent=sent))

    async def _opened(self, one: Try) -> _Exchange:
        """Begins a stream, again if it fails before its first item and may be tried again."""
        while True:
            sent = False
            try:
                connection = await self._take(one.until())
                sent = True
                exchange = await self._begin(connection, one)
                if exchange.answer.status == 200:
                    return exchange
                with contextlib.closing(exchange):
                    _calls.result(exchange.answer, await exchange.body())
            except CallFailed as failure:
                await asyncio.sleep(one.pause(failure, sent=sent))

    async def _begin(self, connection: _Connection, one: Try) -> _Exchange:
        try:
            data = request(self._place, one.method, one.path, one.headers(), one.body)
        except BaseException:
            connection.close()
            raise
        exchange = _Exchange(self, connection, one.until())
        await exchange.begin(data)
        return exchange

    async def _take(self, until: float | None) -> _Connection:
        if self._is_closed:
            raise ValueError("the client is closed")
        self._leave_parents()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        try:
            async with _limit(until):
                return await _connected(self._place)
        except TimeoutError as error:
            if until is not None and time.monotonic() >= until - _calls.LATER:
                raise _calls.late() from None
            raise _calls.unreached(self._place, error) from error
        except OSError as error:
            raise _calls.unreached(self._place, error) from error

    def _leave_parents(self) -> None:
        """Puts connections aside that this process has by a fork."""
        if self._process != os.getpid():
            _INHERITED.append(self._idle)
            self._idle, self._process = deque(), os.getpid()

    def _give(self, connection: _Connection, *, keeps: bool) -> None:
        if keeps and not self._is_closed and len(self._idle) < _calls.MOST_IDLE:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
