"""`@tool`: says that a function is a tool, and how a server is to run it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from ropewalk._checked import checked_count, checked_name, checked_seconds, checked_span, checked_switch
from ropewalk._errors import ServingError
from ropewalk.runtime import _units

F = TypeVar("F", bound=Callable[..., Any])

#: The attribute of a function in which `tool` writes.
_MARK = "__ropewalk_tool__"
#: What a URL, a message of gRPC and a model can all write.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: Seconds that a session lives without a call, if it does not say.
IDLE_TIMEOUT = 300.0
#: Calls that a batch can have.
_LARGEST_BATCH = 4096
#: How long a call waits for others if nothing says so, and how long it may.
_WINDOW, _LONGEST_WINDOW = "5 ms", 60.0
#: Seconds that a run may take at most to stop.
_LONGEST_GRACE = 60.0


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
    #: Calls that are run together at most; `None` if each runs alone.
    batch: int | None = None
    #: Seconds that a call may wait for others.
    window: float = 0.0
    #: Seconds for which a result answers equal calls; `None` if it does not.
    cache_ttl: float | None = None
    #: Seconds that a run may take to stop when its caller has left; `None` for the server's own times.
    grace: float | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    pool: str | None = None,
    timeout: float | str | None = None,
    deadline: float | str | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    warmup: Callable[[], object] | None = None,
    session: bool = False,
    idle_timeout: float | str | None = None,
    batch: int | None = None,
    window: float | str | None = None,
    cache_ttl: float | str | None = None,
    grace: float | str | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    pool: str | None = None,
    timeout: float | str | None = None,
    deadline: float | str | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    warmup: Callable[[], object] | None = None,
    session: bool = False,
    idle_timeout: float | str | None = None,
    batch: int | None = None,
    window: float | str | None = None,
    cache_ttl: float | str | None = None,
    grace: float | str | None = None,
) -> Any:
    """Marks a function as a tool: `ropewalk serve` and `Server` offer it to callers.

    The function stays as it is, and can be called and submitted anywhere. Callers name its parameters; what its
    annotations say of them is checked before it is called. A generator function, plain or asynchronous, is a stream:
    each item is sent when it is made.

    Args:
        function: the function, for ``@tool`` without settings.
        name: the tool's name: up to 64 of the characters ``A-Z a-z 0-9 _ . -``, none of the last three first; by
            default the function's.
        description: what it does, for people and for models; by default the function's docstring.
        pool: the name of the pool that runs it, in the server's configuration.
        timeout: how long a run may take, in seconds or as ``"5 s"``; then its worker is ended, and the call fails.
        deadline: how long a call may take from its arrival, its time in the queue included, in seconds or as
            ``"5 s"``. A caller may set a shorter one.
        idempotent: it may be run again if its worker dies, up to twice, because running it twice does no harm.
        read_only: it changes nothing. Agents read that over MCP, and may call it without asking their users.
        warmup: called without arguments in each worker before the first call. The server is ready when all have
            returned.
        session: it is a class. Its object lives in one worker from one call to the next, and each of its public
            methods can be called. The parameters of `__init__` open the session, and `close`, if there is one, ends
            it. The limits hold for each call.
        idle_timeout: after how long a session ends that nobody calls, in seconds or as ``"10 min"``; 300 s by default.
        batch: run up to so many calls together. Every parameter is annotated as ``list[T]``, and each caller passes a
            ``T``; the function is given lists of one length, and returns a list of as many results. An item that is an
            exception fails its caller alone.
        window: how long a call may wait for others, in seconds or as ``"5 ms"``, which is the default.
        cache_ttl: for how long a result answers calls with the same arguments without a worker, in seconds or as
            ``"10 min"``; the tool must be `read_only`.
        grace: how long a run may take to stop when its caller has left, in seconds or as ``"50 ms"``; then its worker
            is ended. By default 20 ms, and one second for a stream, which is closed after its current step.

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
        "timeout": checked_span("timeout", _seconds("timeout", timeout)),
        "deadline": checked_span("deadline", _seconds("deadline", deadline)),
        "idempotent": checked_switch("idempotent", idempotent),
        "read_only": checked_switch("read_only", read_only),
        "warmup": warmup,
        **_together(batch, window),
        "cache_ttl": None if cache_ttl is None else _span("cache_ttl", cache_ttl),
        "grace": None if grace is None else _span("grace", grace, _LONGEST_GRACE),
    }
    if cache_ttl is not None and not read_only:
        raise ServingError(
            "cache_ttl is for a tool that changes nothing, because a call that is answered from memory does nothing: "
            "say so by read_only=True"
        )
    if warmup is not None and not callable(cast("object", warmup)):
        raise TypeError(f"warmup must be a callable without arguments, not {warmup!r}")
    if inspect.iscoroutinefunction(warmup):
        raise ServingError(
            f"the warmup {warmup.__name__!r} is a coroutine function. Make it a plain one that calls asyncio.run(...)"
        )
    named = checked_name("name", name)
    described = checked_name("description", description)
    if checked_switch("session", session):
        if settings["idempotent"]:
            raise ValueError(
                "a call in a session is not run again, because its state dies with the worker: leave out idempotent"
            )
        if batch is not None or cache_ttl is not None:
            raise ServingError(
                "batch and cache_ttl are for functions: each call of a session changes its own state, or may"
            )
        settings["session"] = True
        limit = checked_span("idle_timeout", _seconds("idle_timeout", idle_timeout))
        settings["idle_timeout"] = limit or IDLE_TIMEOUT
    elif idle_timeout is not None:
        raise ValueError("idle_timeout is for sessions: @tool(session=True, idle_timeout=...)")

    def mark(function: F) -> F:
        name = _named(function, named, is_class=session)
        streams = not session and _streams(function)
        _check_kept(function, streams, batch is not None, cache_ttl is not None)
        made = Tool(function, name, _described(function, described), streams, **settings)
        setattr(function, _MARK, made)
        return function

    return mark if function is None else mark(function)


def _seconds(name: str, value: object) -> object:
    """Returns seconds for a text with a unit, and anything else as it is."""
    try:
        return _units.seconds(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"{name} must be {error}, not {value!r}") from None


def _span(name: str, value: object, longest: float | None = None) -> float:
    checked = checked_seconds(name, _seconds(name, value))
    if longest is not None and checked > longest:
        raise ValueError(f"{name} must be {longest:.0f} seconds or less, not {value!r}")
    return checked


def _together(batch: object, window: object) -> dict[str, Any]:
    if batch is None:
        if window is not None:
            raise ServingError(
                "window is the time in which calls form a batch: give the size, too, as in batch=32"
            )
        return {}
    count = checked_count("batch", batch, 1, _LARGEST_BATCH)
    span = _span("window", _WINDOW if window is None else window, _LONGEST_WINDOW)
    return {"batch": count, "window": span}


def _check_kept(function: Callable[..., Any], streams: bool, batch: bool, cache: bool) -> None:
    name = getattr(function, "__name__", "")
    if streams and (batch or cache):
        setting = "batch" if batch else "cache_ttl"
        raise ServingError(
            f"the tool {name!r} is a stream, which cannot have {setting}. Return a list, or remove it"
        )
    if batch:
        for each in inspect.signature(function).parameters.values():
            if each.default is not each.empty:
                raise ServingError(
                    f"the tool {name!r} with batch is given a list for {each.name!r}, so callers must pass it: remove "
                    f"the default"
                )


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
            f"a tool's name must be up to 64 of the characters A-Z a-z 0-9 _ . -, none of the last three "
            f"first, and not {text!r}. {ServingError.remedy}"
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
