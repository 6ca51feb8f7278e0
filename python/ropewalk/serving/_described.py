"""Tools and sessions as the gateway takes them: each operation of a session is described as a tool is."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from ropewalk._errors import ServingError
from ropewalk._target import Place
from ropewalk.serving._sessions import CLOSE, OPEN, Session
from ropewalk.serving._signature import Signature
from ropewalk.serving._tool import Tool
from ropewalk.serving._worker import Call


@dataclass(slots=True)
class Described:
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
    call: Call


@dataclass(slots=True)
class DescribedSession:
    """A session. Its name is that of what opens it; a method's is the session's, a dot, and its own."""

    idle_timeout: float
    open: Described
    methods: list[Described]
    close: Described | None


def describe(
    tool: Tool, session: Session, place: Place, operation: Callable[[str, Signature], Described]
) -> DescribedSession:
    """Describes a session; `operation` describes one of its operations, by name, as a tool of these settings."""
    made = {
        name: replace(
            operation(tool.name if name == OPEN else f"{tool.name}.{name}", signature),
            description=tool.description if name == OPEN else session.describe(name),
            streams=session.streams(name),
            call=Call(place, tool.name, session.qualname(name), name),
        )
        for name, signature in session.signatures.items()
    }
    opening, closing = made.pop(OPEN), made.pop(CLOSE, None)
    return DescribedSession(tool.idle_timeout, opening, list(made.values()), closing)


def check_names(tools: Container[str], sessions: Mapping[str, Session]) -> None:
    """Checks that no tool has the name of an operation: over MCP and in metrics both have names of tools.

    Raises:
        ServingError: one has.
    """
    for name, session in sessions.items():
        for operation in {*session.signatures, CLOSE} - {OPEN}:
            if f"{name}.{operation}" in tools:
                raise ServingError(
                    f"a tool has the name {name}.{operation}, which the session {name!r} uses. {ServingError.remedy}"
                )
