"""`Authenticator`: decides which peers may connect, by the sender's address, a password or a CURVE key."""

from __future__ import annotations

import hmac
import logging
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ropewalk.zmq._context import Context
from ropewalk.zmq._socket import Socket
from ropewalk.zmq.auth.certs import load_certificates
from ropewalk.zmq.constants import NOBLOCK, REP
from ropewalk.zmq.error import Again, ZMQError
from ropewalk.zmq.utils import z85

if TYPE_CHECKING:
    import os

CURVE_ALLOW_ANY = "*"
VERSION = b"1.0"
_ENDPOINT = "inproc://zeromq.zap.01"


class Authenticator:
    """Answers the requests of a context's sockets whether a peer may connect.

    Nothing runs by itself here: pass what arrives at `zap_socket` to `handle_zap_message`, or use one of the subclasses
    that do.

    An address is looked at first, then what the mechanism brings:

    - NULL: all may connect whose address may. A socket asks about NULL only if it has a ``zap_domain``.
    - PLAIN: nobody, until `configure_plain`.
    - CURVE: nobody, until `configure_curve` or `configure_curve_callback`.
    - anything else: nobody.

    A rule for the domain ``"*"`` holds for every domain that has no rule of its own.
    """

    def __init__(self, context: Context[Any] | None = None, encoding: str = "utf-8", log: Any = None) -> None:
        self.context: Context[Any] = context or Context.instance()
        self.encoding = encoding
        self.log: Any = log or logging.getLogger("ropewalk.zmq.auth")
        #: Every CURVE key is good, in every domain.
        self.allow_any = False
        #: What requests come to; None unless it was started.
        self.zap_socket: Any = None
        #: For each domain the passwords of its users.
        self.passwords: dict[str, dict[str, str]] = {}
        #: For each domain the public keys that are good.
        self.certs: dict[str, dict[bytes, Any]] = {}
        #: For each domain an object whose `callback(domain, key)` says whether a key is good.
        self.credentials_providers: dict[str, Any] = {}
        self._any_key: set[str] = set()
        self._allowed: set[str] = set()
        self._denied: set[str] = set()

    def start(self) -> None:
        """Bind the socket that requests come to.

        Raises:
            ZMQError: the context has such a handler already.
        """
        self.zap_socket = self.context.socket(REP, socket_class=Socket)
        self.zap_socket.linger = 1
        try:
            self.zap_socket.bind(_ENDPOINT)
        except ZMQError:
            Authenticator.stop(self)
            raise

    def stop(self) -> None:
        """Close that socket."""
        socket, self.zap_socket = self.zap_socket, None
        if socket is not None:
            # The name is free for the next one when this returns, whenever the rest of the socket ends.
            with suppress(ZMQError):
                socket.unbind(_ENDPOINT)
            socket.close()

    def allow(self, *addresses: str) -> None:
        """Let these addresses connect, and no other; not to be used together with `deny`."""
        if self._denied:
            raise ValueError("use allow or deny, not both")
        self._allowed.update(addresses)

    def deny(self, *addresses: str) -> None:
        """Let these addresses not connect, and all others; not to be used together with `allow`."""
        if self._allowed:
            raise ValueError("use allow or deny, not both")
        self._denied.update(addresses)

    def configure_plain(self, domain: str = "*", passwords: dict[str, str] | None = None) -> None:
        """Give a domain's users and their passwords. The dictionary is kept, and may be changed at any time."""
        if passwords is not None:
            self.passwords[domain] = passwords

    def configure_curve(self, domain: str = "*", location: str | os.PathLike[str] = ".") -> None:
        """Let those connect whose public keys are in the folder `location`, or all with `CURVE_ALLOW_ANY`.

        The folder is read now; call this again when its files have changed. One that cannot be read is logged, and
        changes nothing.
        """
        if location == CURVE_ALLOW_ANY:
            self._any_key.add(domain)
        else:
            self._any_key.discard(domain)
            try:
                self.certs[domain] = load_certificates(location)
            except (OSError, ValueError) as error:
                self.log.error("cannot read the certificates in %s: %s", location, error)
        self.allow_any = "*" in self._any_key

    def configure_curve_callback(self, domain: str = "*", credentials_provider: Any = None) -> None:
        """Ask `credentials_provider.callback(domain, key)` about a key, in Z85; the answer may be awaitable.

        Once there is a provider, the keys of `configure_curve` are not looked at any more.
        """
        self._any_key.clear()
        self.allow_any = False
        if credentials_provider is None:
            self.log.error("no credentials_provider for the domain %s", domain)
        else:
            self.credentials_providers[domain] = credentials_provider

    def configure_gssapi(self, domain: str = "*", location: str | None = None) -> None:
        """Refused: there is no GSSAPI here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("there is no GSSAPI here; use CURVE")

    def curve_user_id(self, client_public_key: bytes) -> str:
        """The user's name for a key that is good: the key in Z85, unless a subclass knows better."""
        return z85.encode(client_public_key).decode("ascii")

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer one request, whatever is in it: a socket that waits for an answer takes no other request."""
        if len(msg) < 6:
            self.log.error("a request of %d parts, not 6 or more", len(msg))
            return self._reply(msg[1] if len(msg) > 1 else b"", b"400", b"Not enough frames")
        version, request_id, domain, address, _, mechanism, *credentials = msg
        if version != VERSION:
            self.log.error("a request of version %r", version)
            return self._reply(request_id, b"400", b"Invalid version")
        where = domain.decode(self.encoding, "replace")
        sender = address.decode(self.encoding, "replace")
        try:
            reason, user = await self._decide(where, sender, mechanism, credentials)
        except Exception:
            self.log.exception("cannot decide about %s", sender)
            return self._reply(request_id, b"500", b"Internal error")
        self.log.debug("%s %s domain=%s address=%s", mechanism, reason or "OK", where, sender)
        if reason:
            return self._reply(request_id, b"400", reason)
        return self._reply(request_id, b"200", b"OK", user)

    async def answer_requests(self) -> None:
        """Answer all requests that are there; none after the socket or its context has ended."""
        with suppress(Again):
            while self.zap_socket is not None:
                await self.handle_zap_message(self.zap_socket.recv_multipart(NOBLOCK))

    async def _decide(
        self, domain: str, address: str, mechanism: bytes, credentials: list[bytes]
    ) -> tuple[bytes, str]:
        """Why not (empty if it may connect), and the user's name."""
        if self._allowed and address not in self._allowed:
            return b"Address not allowed", ""
        if address in self._denied:
            return b"Address denied", ""
        if mechanism == b"NULL":
            return b"", "anonymous"
        if mechanism == b"PLAIN" and len(credentials) == 2:
            user, password = (part.decode(self.encoding, "replace") for part in credentials)
            return self._authenticate_plain(domain, user, password), user
        if mechanism == b"CURVE" and len(credentials) == 1:
            reason = await self._authenticate_curve(domain, credentials[0])
            return reason, "" if reason else self.curve_user_id(credentials[0])
        if mechanism in (b"PLAIN", b"CURVE"):
            return b"Invalid credentials", ""
        return b"Security mechanism not supported", ""

    def _authenticate_plain(self, domain: str, user: str, password: str) -> bytes:
        if not self.passwords:
            return b"No passwords defined"
        passwords = _rule(self.passwords, domain)
        if passwords is None:
            return b"Invalid domain"
        known = passwords.get(user)
        if known is None:
            return b"Invalid username"
        # Compared in a time that depends on no character of the password.
        same = hmac.compare_digest(known.encode("utf-8", "replace"), password.encode("utf-8", "replace"))
        return b"" if same else b"Invalid password"

    async def _authenticate_curve(self, domain: str, client_key: bytes) -> bytes:
        if self.allow_any or domain in self._any_key:
            return b""
        key = z85.encode(client_key)
        if self.credentials_providers:
            provider = _rule(self.credentials_providers, domain)
            if provider is None:
                return b"Unknown domain"
            good: Any = provider.callback(domain or "*", key)
            if isawaitable(good):
                good = await good
            return b"" if good else b"Unknown key"
        keys = _rule(self.certs, domain)
        if keys is None:
            return b"Unknown domain"
        return b"" if keys.get(key) else b"Unknown key"

    def _reply(self, request_id: bytes, status: bytes, text: bytes, user: str = "") -> None:
        metadata = b""
        self.zap_socket.send_multipart(
            [VERSION, request_id, status, text, user.encode(self.encoding, "replace"), metadata]
        )


def _rule(rules: dict[str, Any], domain: str) -> Any:
    rule = rules.get(domain)
    return rules.get("*") if rule is None else rule


__all__ = ["CURVE_ALLOW_ANY", "Authenticator"]
