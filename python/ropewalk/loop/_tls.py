"""`TLSProtocol`: asyncio's protocol of TLS, with one buffer for all connections of a loop."""

from __future__ import annotations

from asyncio import sslproto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ropewalk.loop._loop import Loop

#: Type checkers do not know asyncio's private names.
_sslproto: Any = sslproto

#: The most that is received at once: asyncio's own size.
RECEIVE = 256 * 1024
#: OpenSSL decrypts one record at a time, and a record holds so many bytes at most.
RECORD = 16 * 1024

_WRAPPED = _sslproto.SSLProtocolState.WRAPPED
_FLUSHING = _sslproto.SSLProtocolState.FLUSHING
_Again = _sslproto.SSLAgainErrors


class TLSProtocol(_sslproto.SSLProtocol):  # type: ignore[misc]
    """asyncio's protocol between a transport and the protocol of a program.

    asyncio gives each connection a buffer of 256 KiB, which it clears when the connection is made. What a transport
    receives is copied out of the buffer before anything else can be received, so the connections of a loop share one.

    The methods here are those that run for each message. They do what asyncio's do, with fewer calls: above all they
    ask whether there is more to decrypt, where asyncio tries and gets an exception after each message.
    """

    max_size = RECORD

    if TYPE_CHECKING:
        _write_buffer_size: int

    def __init__(self, loop: Loop, *args: Any, **more: Any) -> None:
        _sslproto.SSLProtocol.__init__(self, loop, *args, **more)
        self._ssl_buffer, self._ssl_buffer_view = loop._tls_buffer()
        sslobj = self._sslobj
        # `ssl.SSLObject` only passes its calls on.
        compiled: Any = sslobj._sslobj if type(sslobj) is _sslproto.ssl.SSLObject else sslobj
        self._decrypt, self._encrypt, self._decrypted = compiled.read, compiled.write, compiled.pending

    def _do_read(self) -> None:
        state = self._state
        if state is not _WRAPPED and state is not _FLUSHING:
            return
        if self._app_reading_paused or self._app_protocol_is_buffer:
            _sslproto.SSLProtocol._do_read(self)
            return
        try:
            received, ended = self._decrypt_all()
            if received:
                self._app_protocol.data_received(received)
            if ended:
                self._call_eof_received()
                self._start_shutdown()
            if self._write_backlog:
                self._do_write()
            else:
                self._process_outgoing()
            if self._ssl_reading_paused or self._incoming.pending >= self._incoming_high_water:
                self._control_ssl_reading()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _decrypt_all(self) -> tuple[bytes, bool]:
        """Return what has arrived, and whether the peer has ended its side."""
        first, rest = b"", None
        try:
            first = chunk = self._decrypt(RECORD)
            while chunk and (self._incoming.pending or self._decrypted()):
                chunk = self._decrypt(RECORD)
                if rest is None:
                    rest = [first]
                rest.append(chunk)
        except _Again:
            chunk = b"more comes later"
        return first if rest is None else b"".join(rest), not chunk

    def _write_appdata(self, list_of_data: Sequence[Any]) -> None:
        if (
            len(list_of_data) != 1
            or type(list_of_data[0]) is not bytes
            or self._write_backlog
            or self._state is not _WRAPPED
        ):
            _sslproto.SSLProtocol._write_appdata(self, list_of_data)
            return
        try:
            (data,) = list_of_data
            try:
                sent = self._encrypt(data)
            except _Again:
                sent = 0
            if sent < len(data):
                self._write_backlog.append(data[sent:])
                self._write_buffer_size += len(data) - sent
            self._process_outgoing()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _process_outgoing(self) -> None:
        outgoing = self._outgoing
        if outgoing.pending and not self._ssl_writing_paused:
            self._transport.write(outgoing.read())
        if (
            self._app_writing_paused
            or outgoing.pending + self._write_buffer_size >= self._outgoing_high_water
        ):
            self._control_app_writing()
