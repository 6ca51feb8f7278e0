"""A server of tools: the gateway, as Python starts and ends it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

class _Described(Protocol):
    """A tool, as the gateway takes it."""

    name: str
    description: str
    input_schema: str
    output_schema: str
    streams: bool
    read_only: bool
    idempotent: bool
    timeout: float | None
    deadline: float | None
    hang: float | None
    grace: float | None
    retries: int
    batch: tuple[int, float, int, int] | None
    cache_ttl: float | None
    pool: int
    call: Any

class _DescribedSession(Protocol):
    """A session, as the gateway takes it. Its name is that of what opens it."""

    idle_timeout: float
    @property
    def open(self) -> _Described: ...
    @property
    def methods(self) -> Sequence[_Described]: ...
    @property
    def close(self) -> _Described | None: ...

class _Wanted(Protocol):
    """How the gateway listens. Addresses are an IP and a port; sizes are bytes, times seconds.

    Clients are as `ropewalk.serving._clients.Client` describes them.
    """

    http: str | None
    grpc: str | None
    threads: int
    largest: int
    connections: int
    head_timeout: float
    write_timeout: float
    unix: str | None
    tls: tuple[str, str, str | None] | None
    clients: list[Any]
    rate: tuple[float, int] | None
    otlp: str | None
    otlp_ca: str | None
    log: str
    sessions: int
    cache_size: int
    zmq: str | None
    dashboard: bool
    inspected: int | None

@final
class Gateway:
    """A server that runs."""

    def __new__(
        cls,
        pools: list[Any],
        tools: Sequence[_Described],
        sessions: Sequence[_DescribedSession],
        settings: _Wanted,
    ) -> Gateway: ...
    @property
    def addresses(self) -> tuple[str | None, str | None]: ...
    @property
    def zmq(self) -> str | None: ...
    def attend(self, input: int, output: int) -> None: ...
    def explain(
        self,
        explain: Callable[[BaseException], tuple[str, str, list[tuple[str, str]], str | None, str | None]],
    ) -> None: ...
    def fulfil(
        self,
        drain: Callable[[], object],
        beside: Callable[[], str],
        buses: Callable[[], list[tuple[str, int, int, int]]],
    ) -> None: ...
    def log(self, write: Callable[[list[Any], list[Any], int], None]) -> None: ...
    def admit(self, clients: list[Any], rate: tuple[float, int] | None) -> None: ...
    def certify(self) -> None: ...
    def not_ready(self) -> tuple[str, bool] | None: ...
    def reload(
        self,
        pools: list[Any],
        tools: Sequence[_Described],
        sessions: Sequence[_DescribedSession],
    ) -> int: ...
    def retire(self, number: int, timeout: float) -> bool: ...
    @staticmethod
    def end_idle_zygotes() -> None: ...
    def change_log(self, log: str) -> None: ...
    def drain(self, timeout: float) -> bool: ...
    def stop(self) -> None: ...
