"""`Authenticator`: decides which peers may connect, by address, password or CURVE key."""

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
    """Answers the ZAP requests of a context's sockets, which ask whether a peer may connect.

    It runs no thread and no task: pass the messages that arrive at `zap_socket` to `handle_zap_message`, or use a
    subclass that does.

    It checks the address first, then the credentials of the mechanism:

    - NULL: every peer whose address is allowed. A socket asks about NULL only if it has a ``zap_domain``.
    - PLAIN: no peer before `configure_plain`.
    - CURVE: no peer before `configure_curve` or `configure_curve_callback`.
    - any other mechanism: no peer.

    A rule for the domain ``"*"`` applies to every domain that has no rule of its own.
    """

    def __init__(self, context: Context[Any] | None = None, encoding: str = "utf-8", log: Any = None) -> None:
        self.context: Context[Any] = context or Context.instance()
        self.encoding = encoding
        self.log: Any = log or logging.getLogger("ropewalk.zmq.auth")
        #: Whether every CURVE key is accepted, in every domain.
        self.allow_any = False
        #: The socket that receives requests; None before `start`.
        self.zap_socket: Any = None
        #: For each domain the passwords of its users.
        self.passwords: dict[str, dict[str, str]] = {}
        #: For each domain the public keys that are accepted.
        self.certs: dict[str, dict[bytes, Any]] = {}
        #: For each domain an object whose `callback(domain, key)` decides about a key.
        self.credentials_providers: dict[str, Any] = {}
        self._any_key: set[str] = set()
        self._allowed: set[str] = set()
        self._denied: set[str] = set()

    def start(self) -> None:
        """Bind the socket that receives requests.

        Raises:
            ZMQError: the context has a ZAP handler already.
        """
        self.zap_socket = self.context.socket(REP, socket_class=Socket)
        self.zap_socket.linger = 1
        try:
            self.zap_socket.bind(_ENDPOINT)
        except ZMQError:
            Authenticator.stop(self)
            raise

    def stop(self) -> None:
        """Close the socket that receives requests."""
        socket, self.zap_socket = self.zap_socket, None
        if socket is not None:
            # The endpoint is free when this returns, even if the socket itself ends later.
            with suppress(ZMQError):
                socket.unbind(_ENDPOINT)
            socket.close()

    def allow(self, *addresses: str) -> None:
        """Allow these addresses to connect, and no others; it cannot be combined with `deny`."""
        if self._denied:
            raise ValueError("use allow or deny, not both")
        self._allowed.update(addresses)

    def deny(self, *addresses: str) -> None:
        """Deny these addresses, and allow all others; it cannot be combined with `allow`."""
        if self._allowed:
            raise ValueError("use allow or deny, not both")
        self._denied.update(addresses)

    def configure_plain(self, domain: str = "*", passwords: dict[str, str] | None = None) -> None:
        """Set a domain's users and their passwords. The dictionary is not copied, and may be changed at any time."""
        if passwords is not None:
            self.passwords[domain] = passwords

    def configure_curve(self, domain: str = "*", location: str | os.PathLike[str] = ".") -> None:
        """Allow peers whose public keys are in the folder `location`, or all peers with `CURVE_ALLOW_ANY`.

        The folder is read once; call this again when its files have changed. If it cannot be read, the error is logged
        and nothing changes.
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
        """Let `credentials_provider.callback(domain, key)` decide about keys, in Z85; its result may be awaitable.

        A domain's provider replaces its keys of `configure_curve`.
        """
        self._any_key.clear()
        self.allow_any = False
        if credentials_provider is None:
            self.log.error("no credentials_provider for the domain %s", domain)
        else:
            self.credentials_providers[domain] = credentials_provider

    def configure_gssapi(self, domain: str = "*", location: str | None = None) -> None:
        """Refuse: GSSAPI is not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("GSSAPI is not supported; use CURVE")

    def curve_user_id(self, client_public_key: bytes) -> str:
        """Return the user's name for an accepted key: the key in Z85, unless a subclass overrides this."""
        return z85.encode(client_public_key).decode("ascii")

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer one request, even a malformed one: the socket that asks waits for the answer."""
        if len(msg) < 6:
            self.log.error("a ZAP request has %d parts, and needs 6 or more", len(msg))
            return self._reply(msg[1] if len(msg) > 1 else b"", b"400", b"Not enough frames")
        version, request_id, domain, address, _, mechanism, *credentials = msg
        if version != VERSION:
            self.log.error("a ZAP request has the unknown version %r", version)
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
        """Answer all requests that have arrived; none after the socket or its context has ended."""
        with suppress(Again):
            while self.zap_socket is not None:
                await self.handle_zap_message(self.zap_socket.recv_multipart(NOBLOCK))

    async def _decide(
        self, domain: str, address: str, mechanism: bytes, credentials: list[bytes]
    ) -> tuple[bytes, str]:
        """Return the reason for a refusal, empty if the peer may connect, and the user's name."""
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
        # Compared in constant time, whatever the characters of the password.
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
