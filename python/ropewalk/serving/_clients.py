"""The clients of a server: who may call, which tools, until when and how often. From a list of tokens, or a TOML file.

No error shows a value of these files: it may be a token, or nearly one.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

from ropewalk._checked import checked_count, checked_switch
from ropewalk._errors import ConfigError, ServingError
from ropewalk.runtime._lines import located

#: The table of the file, with a table for each client.
TABLE = "clients"
#: Calls a second on average, and how many may come at once.
Rate: TypeAlias = "tuple[float, int]"

_RATE = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*/\s*(?P<unit>s|min|h)\s*")
_UNITS = {"s": 1, "min": 60, "h": 3600}
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_PATTERN = re.compile(r"[A-Za-z0-9_.*-]{1,64}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
#: Characters that make a token worth its name.
_SHORTEST = 16


@dataclass(frozen=True, slots=True)
class Client:
    """A client, as the gateway takes it."""

    #: Its name in logs; that of a plain list has none.
    name: str | None = None
    #: The SHA-256 of the token that it shows.
    token: bytes | None = None
    #: A name in the certificate that it shows.
    certificate: str | None = None
    #: The tools that it may call, ``*`` being any text; `None` is all.
    tools: list[str] | None = None
    #: The time of day after which it is refused.
    expires: float | None = None
    rate: Rate | None = None
    admin: bool = False
    #: Whether it may read the server's numbers; `None`: if it may call all tools.
    metrics: bool | None = None


def rate_of(name: str, value: object) -> float:
    """Reads calls a second: ``"100/s"``, ``"10/min"``.

    Raises:
        ValueError: it is no such text.
    """
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    per_second = 0.0 if found is None else float(found["number"]) / _UNITS[found["unit"]]
    if not 1e-6 <= per_second <= 1e9:
        raise ValueError(
            f"{name} must be a number of calls in a time, as in '100/s' or '10/min', not {value!r}"
        )
    return per_second


def burst_of(name: str, value: object) -> int:
    """Reads how many calls may come at once."""
    return checked_count(name, value, 1, 2**32 - 1)


def together(rate: float | None, burst: int | None) -> Rate | None:
    """Returns a rate with its burst, by default the calls of a second."""
    return None if rate is None else (rate, max(1, int(rate)) if burst is None else burst)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def of_tokens(path: str, *, admin: bool = False) -> tuple[Client, ...]:
    """Reads a file with a token on each line. Each may control the server, if `admin` says so.

    Raises:
        ServingError: it cannot be used.
    """
    found: list[Client] = []
    for number, line in enumerate(_text("the file of tokens", path).splitlines(), 1):
        token = line.strip()
        if not token:
            continue
        try:
            found.append(Client(token=_token(token), admin=admin))
        except ValueError as error:
            raise ServingError(
                f"the file of tokens {path!r}, line {number}: a token {error}. {ServingError.remedy}"
            ) from None
    if not found:
        raise ServingError(
            f"the file of tokens {path!r} has none: write one on each line. {ServingError.remedy}"
        )
    return tuple(found)


def _text(what: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ServingError(f"{what} {path!r} cannot be read: {reason}. {ServingError.remedy}") from None


def of_file(path: str) -> tuple[Client, ...]:
    """Reads a TOML file with a table ``[clients.NAME]`` for each client.

    Raises:
        ConfigError: an entry is wrong; the error names its key and its line.
        ServingError: the file cannot be read.
    """
    text = _text("the file of clients", path)
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: this is not TOML: {error}", path) from None
    try:
        return _read(path, tables)
    except ConfigError as error:
        raise located(error, text) from None


def _wrong(path: str, key: str, what: str, allowed: tuple[str, ...] = ()) -> ConfigError:
    return ConfigError(f"{path}: {key}: {what}.", path, key, None, allowed)


def _read(path: str, tables: Mapping[str, Any]) -> tuple[Client, ...]:
    for key in tables:
        if key != TABLE:
            raise _wrong(path, key, f"is not known here. Allowed: [{TABLE}.NAME]", (TABLE,))
    named = tables.get(TABLE, {})
    if not isinstance(named, dict) or not named:
        raise _wrong(path, TABLE, f"there are no clients: write a table [{TABLE}.NAME] for each")
    found: list[Client] = []
    shown: dict[object, str] = {}
    for name, table in cast("dict[str, Any]", named).items():
        client = _client(path, name, table)
        # What a client shows must say which one it is.
        proof: object = client.certificate if client.token is None else client.token
        if (other := shown.setdefault(proof, name)) != name:
            what = "certificate" if client.token is None else "token"
            raise _wrong(path, f"{TABLE}.{name}", f"has the same {what} as {TABLE}.{other}")
        found.append(client)
    return tuple(found)


def _client(path: str, name: str, table: object) -> Client:
    here = f"{TABLE}.{name}"
    if not isinstance(table, dict):
        raise _wrong(path, here, "must be a table")
    if not _NAME.fullmatch(name):
        raise _wrong(path, here, "a name has up to 64 of the characters A-Z a-z 0-9 _ . @ -")
    given: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", table).items():
        check = _CHECKS.get(key)
        if check is None:
            what = f"is not a setting. Allowed: {', '.join(_CHECKS)}"
            raise _wrong(path, f"{here}.{key}", what, tuple(_CHECKS))
        try:
            given[key] = check(value)
        except (TypeError, ValueError) as error:
            raise _wrong(path, f"{here}.{key}", str(error)) from None
    if "token" in given and "token_sha256" in given:
        raise _wrong(path, f"{here}.token_sha256", "is for a client without token")
    token = given.pop("token", given.pop("token_sha256", None))
    if token is None and "certificate" not in given:
        raise _wrong(
            path, here, "needs a token, a token_sha256 or a certificate, by which the client is known"
        )
    if "burst" in given and "rate" not in given:
        raise _wrong(path, f"{here}.burst", "is for a client with a rate")
    rate = together(given.pop("rate", None), given.pop("burst", None))
    return Client(name=name, token=token, rate=rate, **given)


def _token(value: object) -> bytes:
    if not isinstance(value, str) or not _is_token(value):
        raise ValueError("must be a text of ASCII without spaces, which a header can carry")
    if len(value) < _SHORTEST:
        raise ValueError(f"must have {_SHORTEST} characters or more, because it can be guessed otherwise")
    return _digest(value)


def _token_sha256(value: object) -> bytes:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("must be the 64 hexadecimal digits of the token's SHA-256")
    return bytes.fromhex(value)


def _certificate(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a name of the client's certificate")
    return value


def _tools(value: object) -> list[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(one, str) and _PATTERN.fullmatch(one) for one in listed):
        raise ValueError("must be a list of names of tools, in which * is any text, as in ['add', 'math.*']")
    return cast("list[str]", listed)


def _expires(value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("must be a date and a time with an offset, as in 2027-01-31T12:00:00Z")
    return value.timestamp()


def _switch(value: object) -> bool:
    return checked_switch("it", value)


_CHECKS: Mapping[str, Callable[[object], Any]] = {
    "token": _token,
    "token_sha256": _token_sha256,
    "certificate": _certificate,
    "tools": _tools,
    "expires": _expires,
    "rate": lambda value: rate_of("it", value),
    "burst": lambda value: burst_of("it", value),
    "admin": _switch,
    "metrics": _switch,
}
