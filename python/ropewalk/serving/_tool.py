"""`@tool`: says that a function is a tool, and how a server is to run it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from ropewalk._checked import checked_name, checked_span, checked_switch
from ropewalk._errors import ServingError

F = TypeVar("F", bound=Callable[..., Any])

#: The attribute of a function in which `tool` writes.
_MARK = "__ropewalk_tool__"
#: What a URL, a message of gRPC and a model can all write.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Seconds that a session lives without a call, if it does not say.
IDLE_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a server offers, or the class of a session; `tool` makes it."""

    #: The function itself.
    function: Callable[..., Any]
    #: Its name, unique on its server.
    name: str
    #: What it does, for people and for models.
    description: str
    #: Whether it is a generator, whose items are sent one by one.
    streams: bool
    #: The name of the pool that runs it; `None` for the server's choice.
    pool: str | None
    #: Seconds that a run may take.
    timeout: float | None
    #: Seconds that a call may take from its arrival, its time in the queue included.
    deadline: float | None
    #: Whether it may be run again when its worker has died.
    idempotent: bool
    #: Whether it changes nothing.
    read_only: bool
    #: Called in each worker before the first call.
    warmup: Callable[[], object] | None
    #: Whether it is a class, whose object lives from one call to the next.
    session: bool = False
    #: Seconds after which a session ends that nobody calls.
    idle_timeout: float = IDLE_TIMEOUT


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    pool: str | None = None,
    timeout: float | None = None,
    deadline: float | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    warmup: Callable[[], object] | None = None,
    session: bool = False,
    idle_timeout: float | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    pool: str | None = None,
    timeout: float | None = None,
    deadline: float | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    warmup: Callable[[], object] | None = None,
    session: bool = False,
    idle_timeout: float | None = None,
) -> Any:
    """Marks a function as a tool: `ropewalk serve` and `Server` offer it to callers.

    The function stays as it is, and can be called and submitted anywhere. Callers name its parameters; what its
    annotations say of them is checked before it is called. A generator function, plain or asynchronous, is a stream:
    each item is sent when it is made.

    Args:
        function: the function, for ``@tool`` without settings.
        name: the tool's name: up to 64 of the characters ``A-Z a-z 0-9 _ . -``; by default the function's.
        description: what it does, for people and for models; by default the function's docstring.
        pool: the name of the pool that runs it, in the server's configuration.
        timeout: seconds that a run may take; then its worker is ended, and the call fails.
        deadline: seconds that a call may take from its arrival, its time in the queue included. A caller may set a
            shorter one.
        idempotent: it may be run again if its worker dies, up to twice, because running it twice does no harm.
        read_only: it changes nothing. Agents read that over MCP, and may call it without asking their users.
        warmup: called without arguments in each worker before the first call. The server is ready when all have
            returned.
        session: it is a class. Its object lives in one worker from one call to the next, and each of its public
            methods can be called. The parameters of `__init__` open the session, and `close`, if there is one, ends
            it. The limits hold for each call.
        idle_timeout: seconds after which a session ends that nobody calls; 300 by default.

    Raises:
        ServingError: the function cannot be a tool.
        TypeError, ValueError: a setting is invalid.

    Examples:
        >>> from ropewalk.serving import tool
        >>> @tool(description="Adds two numbers.", timeout=5)
        ... def add(a: int, b: int = 1) -> int:
        ...     return a + b
        >>> add(2)
        3
    """
    settings: dict[str, Any] = {
        "pool": checked_name("pool", pool),
        "timeout": checked_span("timeout", timeout),
        "deadline": checked_span("deadline", deadline),
        "idempotent": checked_switch("idempotent", idempotent),
        "read_only": checked_switch("read_only", read_only),
        "warmup": warmup,
    }
    if warmup is not None and not callable(cast("object", warmup)):
        raise TypeError(f"warmup must be a callable without arguments, not {warmup!r}")
    named = checked_name("name", name)
    described = checked_name("description", description)
    if checked_switch("session", session):
        if settings["idempotent"]:
            raise ValueError(
                "a call in a session is not run again, because its state dies with the worker: leave out idempotent"
            )
        settings["session"] = True
        settings["idle_timeout"] = checked_span("idle_timeout", idle_timeout) or IDLE_TIMEOUT
    elif idle_timeout is not None:
        raise ValueError("idle_timeout is for sessions: @tool(session=True, idle_timeout=...)")

    def mark(function: F) -> F:
        name = _named(function, named, is_class=session)
        streams = not session and _streams(function)
        made = Tool(function, name, _described(function, described), streams, **settings)
        setattr(function, _MARK, made)
        return function

    return mark if function is None else mark(function)


def tool_of(value: object) -> Tool | None:
    """Returns what `tool` says of a function or a class, if it is marked itself: a subclass is not."""
    is_markable = inspect.isfunction(value) or inspect.isclass(value)
    made = vars(value).get(_MARK) if is_markable else None
    return made if isinstance(made, Tool) else None


def _named(function: Callable[..., Any], name: str | None, *, is_class: bool) -> str:
    if is_class and not inspect.isclass(function):
        raise ServingError(f"@tool(session=True) marks classes, not {function!r}. {ServingError.remedy}")
    if not is_class and not inspect.isfunction(function):
        hint = "Mark a class by @tool(session=True)" if inspect.isclass(function) else ServingError.remedy
        raise ServingError(f"@tool marks functions, not {function!r}. {hint}")
    text = function.__name__ if name is None else name
    if not _NAME.fullmatch(text):
        raise ServingError(
            f"a tool's name must be up to 64 of the characters A-Z a-z 0-9 _ . - and not {text!r}. "
            f"{ServingError.remedy}"
        )
    return text


def _described(function: Callable[..., Any], description: str | None) -> str:
    return inspect.getdoc(function) or "" if description is None else description


def _streams(function: Callable[..., Any]) -> bool:
    if inspect.iscoroutinefunction(function):
        raise ServingError(
            f"the tool {function.__name__!r} is a coroutine function. Make it a plain one that calls asyncio.run(...)"
        )
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
