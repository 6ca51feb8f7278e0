"""How a server listens and ends: from arguments, the environment and a file, in this order of precedence."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from ropewalk._checked import checked_count, checked_seconds, checked_switch
from ropewalk._errors import ConfigError, ServingError
from ropewalk.runtime import _units
from ropewalk.runtime._lines import located
from ropewalk.serving import _clients
from ropewalk.serving._clients import Client

#: Which calls leave a record.
LoggedCalls: TypeAlias = Literal["nothing", "failures", "calls"]
#: How records are written.
LogFormat: TypeAlias = Literal["text", "json"]
#: The table of the file, and the beginning of the variables of the environment.
TABLE = "serve"
PREFIX = "ROPEWALK_SERVE_"
#: The place of an error in a variable.
ENVIRONMENT = "the environment"
#: Seconds that a limit may have: what is longer, infinity included, is no time that clocks can be asked to wait for.
LONGEST = 365 * 86400.0
#: Where a server listens if nothing says so.
DEFAULT_HTTP = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server."""

    #: Where HTTP is served; gRPC and Connect are served there, too.
    http: str | None = None
    #: Where gRPC is served; the others are served there, too.
    grpc: str | None = None
    #: The path of a unix socket, at which all is served, too.
    unix: str | None = None
    #: The server's certificate, in PEM form, and its key: connections of TCP are encrypted.
    tls_cert: str | None = None
    tls_key: str | None = None
    #: The authorities of clients' certificates: a client must show one.
    tls_client_ca: str | None = None
    #: Serve MCP on standard input and output.
    stdio: bool = False
    #: Threads that read requests and write answers.
    threads: int = 2
    #: Bytes that a request may have.
    max_request: int = 16 << 20
    #: Connections that may be open at each address.
    max_connections: int = 16_384
    #: Sessions that may be open at a time.
    max_sessions: int = 1024
    #: Seconds that a client may take for a handshake, and for the head of a request.
    head_timeout: float = 10.0
    #: Seconds for which a client may take nothing of what is to be written to it.
    write_timeout: float = 30.0
    #: Seconds that requests have which have begun, when the server is asked to leave.
    drain_timeout: float = 30.0
    #: A file with the tokens of callers, one on each line; without one every caller is served.
    token_file: str | None = None
    #: A TOML file with clients, what each may call, and how often.
    clients_file: str | None = None
    #: Calls a second of each client, or of each address if there are no clients; and how many may come at once.
    rate: float | None = None
    burst: int | None = None
    #: Serve a public address though callers need no token.
    insecure: bool = False
    #: The address of a collector of OpenTelemetry; without one the environment says whether there is any.
    otlp: str | None = None
    #: The authorities of an encrypted collector's certificate; by default those that the system knows.
    otlp_ca: str | None = None
    #: Which calls are logged: ``"nothing"``, ``"failures"`` or ``"calls"``.
    log: LoggedCalls = "failures"
    #: How `Server.wait` writes records of `logging`, ``"text"`` or ``"json"``; `None` leaves that to the program.
    log_format: LogFormat | None = None
    #: Bytes of results that are kept for tools with `cache_ttl`.
    cache_size: int = 64 << 20
    #: Where calls come as messages of ZeroMQ.
    zmq: str | None = None
    #: Load the file again when it has changed.
    reload: bool = False
    #: Serve the page that shows what goes on, its numbers and its orders.
    dashboard: bool = True
    #: What `token_file` and `clients_file` hold; never shown.
    clients: tuple[Client, ...] = field(default=(), repr=False)

    def listening(self) -> Settings:
        """Returns settings with an address, and with the clients of the files.

        Raises:
            ServingError: an address is public, and callers need nothing; a file cannot be used; a setting needs
                another.
            ConfigError: the file of clients is wrong.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ServingError("tls_cert and tls_key, a certificate and its key, are given together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ServingError("tls_client_ca is for a server with TLS: give tls_cert and tls_key, too")
        if self.burst is not None and self.rate is None:
            raise ServingError("burst is for a server with a rate: give rate, too")
        has_tokens = self.token_file is not None or self.clients_file is not None
        if self.zmq is not None and self.tls_client_ca is not None and not has_tokens:
            raise ServingError(
                "clients of ZeroMQ show no certificates: beside tls_client_ca, zmq is for callers with tokens "
                "(token_file, clients_file)"
            )
        http = self.http if self.http or self.grpc or self.stdio or self.unix or self.zmq else DEFAULT_HTTP
        made = replace(self, http=http, clients=self.read_clients())
        if not (made.clients or made.tls_client_ca or made.insecure):
            for address in made.public():
                raise ServingError(
                    f"{address} is open to other machines, and every caller would be served: give callers tokens "
                    f"(--token-file, --clients-file) or certificates (--tls-client-ca), serve 127.0.0.1, or accept it "
                    f"(--insecure, insecure)"
                )
        return made

    def read_clients(self) -> tuple[Client, ...]:
        """Returns the clients, as their files have them now."""
        # Where clients have entries, these say which may control the server.
        admin = self.clients_file is None
        plain = () if self.token_file is None else _clients.of_tokens(self.token_file, admin=admin)
        named = () if self.clients_file is None else _clients.of_file(self.clients_file)
        return plain + named

    def public(self) -> list[str]:
        """Returns the addresses that other machines reach."""
        return [each for each in (self.http, self.grpc) if each is not None and not _is_local(each)]

    def danger(self) -> str | None:
        """Returns what the network can read that it should not, or do; `None` if it is nothing."""
        public = " and ".join(self.public())
        if public and not (self.clients or self.tls_client_ca):
            return f"{public} is open to other machines, and every caller is served (insecure)"
        if public and self.tls_cert is None:
            return (
                f"tokens of callers cross the network unencrypted at {public}: give tls_cert and tls_key, "
                f"or let a proxy encrypt"
            )
        if self.zmq is not None and not _is_local_endpoint(self.zmq):
            return f"tokens of callers cross the network unencrypted at {self.zmq}: let a tunnel encrypt"
        return None

    def files(self) -> list[str]:
        """Returns the files that are read again when they change."""
        all_files = (self.token_file, self.clients_file, self.tls_cert, self.tls_key, self.tls_client_ca)
        return [each for each in all_files if each is not None]


def _address(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be an address such as '127.0.0.1:8080', not {value!r}")
    host, colon, port = value.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        ip, number = None, -1
    if not colon or ip is None or not 0 <= number < 65536 or not port.isdecimal():
        raise ValueError(f"{name} must be an IP address and a port, as in '127.0.0.1:8080', not {value!r}")
    return f"[{ip}]:{number}" if ip.version == 6 else f"{ip}:{number}"


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return ipaddress.ip_address(host).is_loopback


def _is_local_endpoint(endpoint: str) -> bool:
    if not endpoint.startswith("tcp://"):
        return True
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name, of a host or of an interface.
        return host in ("localhost", "lo")


#: How the endpoint of a socket begins: its path follows, or ``@`` and an abstract name.
_IPC = "ipc://"


def _endpoint(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith(("tcp://", _IPC)):
        raise ValueError(
            f"{name} must be an endpoint as in 'tcp://127.0.0.1:5555' or 'ipc:///run/tools.sock', not {value!r}"
        )
    return value


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be the path of a file, not {value!r}")
    return value


def _count(name: str, value: object) -> int:
    return checked_count(name, value, 1)


def _bytes(name: str, value: object) -> int:
    return checked_count(name, _measured(name, value, _units.size), 1)


def _seconds(name: str, value: object) -> float:
    seconds = checked_seconds(name, _measured(name, value, _units.seconds))
    if seconds > LONGEST:
        raise ValueError(f"{name} must be a year at most, {LONGEST:.0f} seconds, not {value!r}")
    return seconds


def _measured(name: str, value: object, read: Callable[[str], float]) -> object:
    try:
        return read(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"{name} must be {error}, not {value!r}") from None


def _url(name: str, value: object) -> str:
    if isinstance(value, str) and re.match(r"https?://[^/?#]*@", value):
        # Not shown: it may hold a secret.
        raise ValueError(f"{name} must have no user and no password: a collector is sent none")
    if not isinstance(value, str) or not re.match(r"https?://[^/]", value):
        raise ValueError(
            f"{name} must be the address of a collector, as in 'http://127.0.0.1:4318', not {value!r}"
        )
    return value


def _choice(*choices: str) -> Callable[[str, object], str]:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    return check


#: What checks each setting.
CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "http": _address,
    "grpc": _address,
    "unix": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "tls_client_ca": _path,
    "stdio": checked_switch,
    "threads": _count,
    "max_request": _bytes,
    "max_connections": _count,
    "max_sessions": _count,
    "head_timeout": _seconds,
    "write_timeout": _seconds,
    "drain_timeout": _seconds,
    "token_file": _path,
    "clients_file": _path,
    "rate": _clients.rate_of,
    "burst": _clients.burst_of,
    "insecure": checked_switch,
    "otlp": _url,
    "otlp_ca": _path,
    "log": _choice(*get_args(LoggedCalls)),
    "log_format": _choice(*get_args(LogFormat)),
    "cache_size": _bytes,
    "reload": checked_switch,
    "zmq": _endpoint,
    "dashboard": checked_switch,
}


def read(arguments: Mapping[str, Any], environment: Mapping[str, str], path: str | None) -> Settings:
    """Puts the settings together: arguments that are not `None`, variables ``ROPEWALK_SERVE_HTTP`` and so on, a file.

    Raises:
        ConfigError: a setting of the environment or the file is wrong.
        TypeError, ValueError: an argument is wrong.
        OSError: the file cannot be read.
    """
    found = {} if path is None else _of_file(path)
    found |= _of_environment(environment)
    found |= {name: CHECKS[name](name, value) for name, value in arguments.items() if value is not None}
    return Settings(**found)


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX):
            continue
        check = CHECKS.get(name)
        if check is None:
            allowed = tuple(PREFIX + each.upper() for each in CHECKS)
            raise ConfigError(
                f"{ENVIRONMENT}: {variable} is not a setting. Allowed: {', '.join(allowed)}",
                ENVIRONMENT,
                variable,
                # Its text is not kept: it may be a token.
                None,
                allowed,
            )
        value: Any = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
        if check in (_count, _clients.burst_of):
            value = int(text) if text.isdecimal() else text
        elif check is not checked_switch:
            value = text
        found[name] = _checked(ENVIRONMENT, variable, check, value)
    return found


def _of_file(path: str) -> dict[str, Any]:
    text, tables = tables_of(path)
    table = tables.get(TABLE, {})
    try:
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {TABLE}={table!r}: must be a table", path, TABLE, table)
        return dict(_of_table(path, cast("dict[str, Any]", table)))
    except ConfigError as error:
        raise located(error, text) from error.__cause__


def _of_table(path: str, table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        check = CHECKS.get(name)
        key = f"{TABLE}.{name}"
        if check is None:
            raise ConfigError(
                # The value is not shown: it may be a token.
                f"{path}: {key}: is not a setting. Allowed: {', '.join(CHECKS)}",
                path,
                key,
                None,
                tuple(CHECKS),
            )
        made = _checked(path, key, check, value)
        found[name] = _beside(path, check, made)
    return found


def _beside(path: str, check: Callable[[str, object], Any], value: Any) -> Any:
    """Returns a setting of a file: a relative path in it begins at the folder of the file."""
    folder = os.path.dirname(path)
    if check is _path:
        return os.path.join(folder, value)
    if check is _endpoint and value.startswith(_IPC) and not value.startswith(_IPC + "@"):
        return _IPC + os.path.join(folder, value.removeprefix(_IPC))
    return value


def _checked(place: str, key: str, check: Callable[[str, object], Any], value: object) -> Any:
    try:
        return check(key, value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: {error}.", place, key, value) from error


def tables_of(path: str) -> tuple[str, dict[str, Any]]:
    """Reads a file of TOML: its text, and its tables.

    Raises:
        ConfigError: it is not TOML.
        OSError: it cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: this is not TOML: {error}", path) from None
