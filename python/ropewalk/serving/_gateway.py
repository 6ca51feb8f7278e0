"""The gateway of a server, as its settings want it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ropewalk import _load
from ropewalk._errors import ServingError
from ropewalk.serving._app import Begun
from ropewalk.serving._clients import Client, together
from ropewalk.serving._dashboard import Inspected
from ropewalk.serving._settings import Settings


@dataclass(slots=True)
class _Wanted:
    """How the gateway listens."""

    http: str | None
    grpc: str | None
    threads: int
    largest: int
    connections: int
    head_timeout: float
    write_timeout: float
    unix: str | None
    tls: tuple[str, str, str | None] | None
    clients: list[Client]
    rate: tuple[float, int] | None
    otlp: str | None
    otlp_ca: str | None
    log: str
    sessions: int
    cache_size: int
    zmq: str | None
    dashboard: bool
    inspected: int | None


def gateway_of(settings: Settings, inspected: Inspected | None, begun: Begun) -> Any:
    """Returns the gateway, which listens and serves.

    Raises:
        ServingError: it cannot.
    """
    wanted = _Wanted(
        settings.http,
        settings.grpc,
        settings.threads,
        settings.max_request,
        settings.max_connections,
        settings.head_timeout,
        settings.write_timeout,
        settings.unix,
        _tls(settings),
        list(settings.clients),
        together(settings.rate, settings.burst),
        settings.otlp,
        settings.otlp_ca,
        settings.log,
        settings.max_sessions,
        settings.cache_size,
        settings.zmq,
        settings.dashboard,
        None if inspected is None else inspected.fileno(),
    )
    try:
        return _load.gateway.Gateway(begun.pools, begun.tools, begun.sessions, wanted)
    except ValueError as error:
        raise ServingError(f"{error}. {ServingError.remedy}") from error
    except OSError as error:
        listed = (settings.http, settings.grpc, settings.unix, settings.zmq)
        addresses = " and ".join(each for each in listed if each is not None)
        raise ServingError(f"cannot listen on {addresses}: {error}. {ServingError.remedy}") from error


def _tls(settings: Settings) -> tuple[str, str, str | None] | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return settings.tls_cert, settings.tls_key, settings.tls_client_ca
