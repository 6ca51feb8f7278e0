"""What clients have in common: calls as requests, answers as results or failures, and when to try again."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from typing import Any, TypeAlias, cast

from ropewalk._checked import checked_count, checked_span
from ropewalk._errors import CallFailed, CallInvalid, CallRefused, CallTimeout, CallUnavailable
from ropewalk.client import _arrays
from ropewalk.client._http import Answer, Place, is_header_value, is_of_unknown_authority, said_in_text

#: The variable of the environment that has the token of a client that is given none.
VARIABLE = "ROPEWALK_TOKEN"
#: Seconds after which an idle connection is not used again; servers close theirs later.
IDLE = 5.0
#: Idle connections that a client keeps.
MOST_IDLE = 64
#: Seconds that a connection may take.
CONNECT = 10.0
#: Seconds that a client waits beyond a deadline for the server's own answer.
LATER = 0.1
#: Seconds that no clock of a socket or a server has; a longer timeout is none.
LONGEST = 1e9
#: Seconds before the second try if the server names none; doubled for each further one.
BACKOFF = 0.05
_MOST_BACKOFF = 5.0

#: A name that a URL can carry as it is; the server has no other tools.
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_METADATA = re.compile(r"[a-z0-9_.-]{1,256}")
#: Where tools are called.
_TOOLS = "/v1/tools/"
_RANDOM = random.SystemRandom()

#: The statuses of what is no answer of a server of tools, but of something before it.
_STATUSES = {
    400: "FAILED_PRECONDITION",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "CANCELLED",
    413: "RESOURCE_EXHAUSTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
#: Arguments that are not keywords: by their names, or the one of a tool that takes bytes or an array.
Given: TypeAlias = "Mapping[str, Any] | bytes | bytearray | _arrays.Given | None"

_CLASSES: Mapping[str, type[CallFailed]] = {
    "DEADLINE_EXCEEDED": CallTimeout,
    "INVALID_ARGUMENT": CallInvalid,
    "RESOURCE_EXHAUSTED": CallRefused,
    "UNAVAILABLE": CallUnavailable,
}


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What a server says of a tool."""

    #: Its name.
    name: str
    #: What it does, for people and for models.
    description: str
    #: The JSON Schema of its arguments, an object.
    input_schema: dict[str, Any]
    #: The JSON Schema of its result, or of each item of a stream.
    output_schema: dict[str, Any]
    #: Whether its result is a stream of items.
    streams: bool
    #: Whether it changes nothing.
    read_only: bool = False
    #: Whether running it twice does no harm.
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What every call of a client has, unless it says otherwise."""

    #: Never shown.
    token: str | None
    timeout: float | None
    metadata: Mapping[str, str]
    retries: int


def settings(
    token: str | None, timeout: float | None, metadata: Mapping[str, str] | None, retries: int
) -> Settings:
    """Checks the settings of a client.

    Raises:
        TypeError, ValueError: one is invalid.
    """
    token = os.environ.get(VARIABLE) if token is None else token
    if token is not None and not isinstance(cast("object", token), str):
        # Not shown, as below.
        raise TypeError(f"token must be a text or None, not one of type {type(token).__name__}")
    if token is not None and (not token or not is_header_value(token) or " " in token):
        # Not shown: it is a secret.
        raise ValueError(f"token, or {VARIABLE} of the environment, must be ASCII without spaces")
    return Settings(
        token or None,
        checked_timeout(timeout),
        checked_metadata(metadata),
        checked_count("retries", retries, 0, 1000),
    )


def checked_timeout(timeout: float | None) -> float | None:
    """Checks how long a call may take; infinity is no limit.

    Raises:
        TypeError, ValueError: it is no time, or none at all.
    """
    limit = checked_span("timeout", timeout)
    return None if limit is None or limit > LONGEST else limit


def checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """Checks what is sent beside the arguments: a server would drop what a header cannot carry.

    Raises:
        TypeError: it is no mapping of texts.
        ValueError: a name or a text is none that a header can carry.
    """
    if metadata is not None and not isinstance(cast("object", metadata), Mapping):
        raise TypeError(f"metadata must be a mapping of texts or None, not {metadata!r}")
    for name, value in (metadata or {}).items():
        if not (isinstance(cast("object", name), str) and isinstance(cast("object", value), str)):
            raise TypeError(f"metadata must have texts for names and values, not {name!r}: {value!r}")
        if not _METADATA.fullmatch(name):
            raise ValueError(f"a name in metadata must be of the characters a-z 0-9 _ . - and not {name!r}")
        if not is_header_value(value):
            raise ValueError(f"metadata[{name!r}] must be printable ASCII, not {value!r}")
    return metadata or {}


def of_tool(tool: str) -> str:
    """Returns the path at which a tool is called.

    Raises:
        TypeError, ValueError: no tool has such a name.
    """
    return f"{_TOOLS}{_named('tool', tool)}"


def of_session(name: str) -> str:
    """Returns the path at which a session is opened.

    Raises:
        TypeError, ValueError: no session has such a name.
    """
    return f"/v1/sessions/{_named('session', name)}"


def of_method(path: str, method: str) -> str:
    """Returns the path at which a method of an open session is called.

    Raises:
        TypeError, ValueError: no method has such a name.
    """
    return f"{path}/{_named('method', method)}"


def _named(what: str, name: str) -> str:
    if not isinstance(cast("object", name), str):
        raise TypeError(f"the name of a {what} must be a text, not {name!r}")
    if not _TOOL.fullmatch(name):
        raise ValueError(f"there can be no {what} named {name!r}")
    return name


#: What a caller reads: JSON, the events of a stream, or an array if there is one.
JSON, EVENTS = "application/json", "text/event-stream"
#: The items of a stream for a caller that asked for no events.
_LINES = "application/jsonl"
_ARRAYS = f"{_arrays.MEDIA_TYPE}, {JSON}"


class Try:
    """One call: its request, its deadline, and its tries."""

    def __init__(
        self,
        settings: Settings,
        path: str,
        arguments: Given,
        named: Mapping[str, Any],
        *,
        accept: str = JSON,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        arrays: bool = False,
    ) -> None:
        self.method = "POST"
        self.path = path
        given = merged(arguments, named)
        media_type, self.body = _written(given)
        if arrays:
            _arrays.check_numpy()
        if accept == JSON and (arrays or _arrays.is_of_numpy(given)):
            accept = _ARRAYS
        self._headers = {
            "Content-Type": media_type,
            "Accept": accept,
            **_common(settings),
            **{f"X-Ropewalk-Meta-{name}": text for name, text in settings.metadata.items()},
            **{f"X-Ropewalk-Meta-{name}": text for name, text in checked_metadata(metadata).items()},
        }
        timeout = settings.timeout if timeout is None else checked_timeout(timeout)
        self._end = None if timeout is None else time.monotonic() + timeout
        self._left = settings.retries if retries is None else checked_count("retries", retries, 0, 1000)
        self._idempotent = idempotent
        #: Those beyond the first.
        self._tries = 0
        #: Why the try before failed.
        self._before: CallFailed | None = None
        #: Whether it is a call of a session, which is gone with its worker.
        self.is_of_session = False

    def headers(self) -> dict[str, str]:
        """Returns the headers of the next try.

        Raises:
            CallTimeout: its time is over.
        """
        left = self.left()
        return self._headers if left is None else self._headers | {"X-Ropewalk-Timeout": f"{left:.6f}"}

    def left(self) -> float | None:
        """Returns the seconds until the deadline.

        Raises:
            CallTimeout: it has passed.
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise late()
        return left

    def until(self) -> float | None:
        """Returns the time of the monotonic clock at which the client gives up."""
        return None if self._end is None else self._end + LATER

    def pause(self, failure: CallFailed, *, sent: bool) -> float:
        """Returns the seconds after which a failed call is tried again; one that was not sent has not run.

        Raises:
            CallFailed: the failure itself, if it is not.
        """
        if failure.status == "RESOURCE_EXHAUSTED":
            again = failure.retry_after is not None
        else:
            again = failure.status == "UNAVAILABLE" and (self._idempotent or not sent)
        if self.is_of_session and failure.status == "NOT_FOUND" and self._before is not None:
            # The try before has found the session lost, and nobody finds it any more.
            raise self._before
        if not again or self._tries == self._left:
            raise failure
        self._tries += 1
        self._before = failure
        backoff = min(BACKOFF * 2.0 ** (self._tries - 1), _MOST_BACKOFF)
        # Callers who were refused together do not come back together.
        pause = _RANDOM.uniform(0.5, 1.0) * backoff + (failure.retry_after or 0.0)
        if self._end is not None and time.monotonic() + pause >= self._end:
            raise failure
        return pause

    def check_plain(self, answer: Answer) -> None:
        """Refuses an answer that is a stream, which may have no end.

        Raises:
            CallFailed: it is one.
        """
        if answer.status == 200 and _media_type(answer) in (_LINES, EVENTS):
            what, by, name = self._called()
            raise CallFailed(
                f"{what} streams its items: read them by {by}.stream({name!r}, ...)", "FAILED_PRECONDITION"
            )

    def check_streams(self, answer: Answer) -> None:
        """Refuses an answer that is no stream.

        Raises:
            CallFailed: it is none.
        """
        if _media_type(answer) != EVENTS:
            what, by, name = self._called()
            raise CallFailed(
                f"{what} gives one result, and no stream: call it by {by}.call({name!r}, ...)",
                "FAILED_PRECONDITION",
            )

    def _called(self) -> tuple[str, str, str]:
        """Returns what is called, the object of the program that calls it, and its name."""
        name = self.path.rpartition("/")[2]
        if self.path.startswith(_TOOLS):
            return f"the tool {name!r}", "client", name
        return f"the method {name!r} of the session", "session", name


def late() -> CallTimeout:
    """Returns the failure of a call that has no answer in time."""
    return CallTimeout("the call was not answered within its timeout", "DEADLINE_EXCEEDED")


def lost(error: Exception) -> CallUnavailable:
    """Returns the failure of a call whose connection was lost."""
    return CallUnavailable(f"the connection to the server was lost: {error}", "UNAVAILABLE")


def unreached(place: Place, error: object) -> CallUnavailable:
    """Returns the failure of a call for which no connection was made."""
    text = f"the server at {place.url} cannot be reached: {error}"
    if is_of_unknown_authority(error):
        text += ". Trust the authority of its certificate by tls=ssl.create_default_context(cafile=...)"
    return CallUnavailable(text, "UNAVAILABLE")


def _common(settings: Settings) -> dict[str, str]:
    headers = context()
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {settings.token}"
    return headers


def listing(settings: Settings) -> dict[str, str]:
    """Returns the headers of the request that lists the tools."""
    return {"Accept": JSON, **_common(settings)}


def context() -> dict[str, str]:
    """Returns the headers that make the call a child of the caller's span.

    That is OpenTelemetry's current one if the program uses that, else the one for which a tool runs that calls another.
    """
    found: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate

        propagate.inject(found)
    if "traceparent" not in found and "ropewalk._current" in sys.modules:
        from ropewalk._current import current_task

        task = current_task()
        given: Mapping[str, str] = {} if task is None else task.metadata
        found |= {name: given[name] for name in ("traceparent", "tracestate") if name in given}
    return {name: text for name, text in found.items() if is_header_value(text)}


def merged(arguments: Given, named: Mapping[str, Any]) -> Mapping[str, Any] | bytes | _arrays.Given:
    """Returns arguments that were given in two ways as one mapping, or bytes, or an array.

    Raises:
        TypeError: they cannot be arguments.
    """
    if isinstance(arguments, Mapping) or arguments is None:
        return {**(arguments or {}), **named}
    if named:
        raise TypeError("a call has bytes or an array, or arguments by their names, and not both")
    if _arrays.is_array(arguments):
        return arguments
    if not isinstance(arguments, (bytes, bytearray, memoryview)):
        raise TypeError(f"the arguments must be a mapping of names, bytes or an array, not {arguments!r}")
    return bytes(arguments)


def _written(given: Mapping[str, Any] | bytes | _arrays.Given) -> tuple[str, bytes]:
    if isinstance(given, bytes):
        return "application/octet-stream", given
    if _arrays.is_array(given):
        return _arrays.MEDIA_TYPE, _arrays.written(given)
    text = json.dumps(given, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return JSON, text.encode()


def _plain(value: Any) -> Any:
    """Returns what JSON can say of a value, as servers read it.

    Raises:
        TypeError: nothing.
    """
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, memoryview):
        return base64.b64encode(value.tobytes()).decode()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, (set, frozenset)):
        return list(cast("set[Any]", value))
    if isinstance(value, Enum):
        return value.value
    # Models of pydantic; dates and times; NumPy's scalars and arrays.
    for name in ("model_dump", "isoformat", "tolist"):
        method: Callable[..., Any] | None = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method(mode="json") if name == "model_dump" else method()
    raise TypeError(f"an argument of type {type(value).__name__!r} cannot be written as JSON")


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def result(answer: Answer, body: bytes) -> Any:
    """Returns the result that an answer has.

    Raises:
        CallFailed: it has a failure.
    """
    if answer.status not in (200, 201, 204):
        raise failure_of(answer, body)
    if answer.status == 204:
        return None
    media_type = _media_type(answer)
    if media_type == "application/octet-stream":
        return body
    if media_type == _arrays.MEDIA_TYPE:
        return _arrays.read(body)
    if media_type != JSON:
        raise CallFailed(f"the server answered with {media_type or 'no media type'}, not with a result")
    return read(body)


def tools(answer: Answer, body: bytes) -> list[ToolInfo]:
    """Returns the tools that an answer lists.

    Raises:
        CallFailed: it has a failure.
    """
    try:
        return [
            ToolInfo(
                one["name"],
                one["description"],
                one["input_schema"] or {},
                one["output_schema"] or {},
                one["streams"],
                one.get("read_only", False),
                one.get("idempotent", False),
            )
            for one in result(answer, body)["tools"]
        ]
    except (KeyError, TypeError) as error:
        raise CallFailed("the server does not list tools: it may be another server") from error


def one_of(known: list[ToolInfo], name: str) -> ToolInfo:
    """Returns the tool of a name.

    Raises:
        CallFailed: there is none.
    """
    for one in known:
        if one.name == name:
            return one
    raise CallFailed(f"there is no tool named {name!r}", "NOT_FOUND")


def read(text: bytes) -> Any:
    """Reads JSON.

    Raises:
        CallFailed: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallFailed(f"the answer is no JSON: {error}") from error


def failure_of(answer: Answer, body: bytes) -> CallFailed:
    """Returns the failure that an answer has."""
    given = answer.headers.get("retry-after", "")
    # A date, which proxies may send, is as good as none here.
    after = float(given) if given.isascii() and given.isdecimal() and len(given) < 10 else None
    try:
        return failure(json.loads(body), after)
    except (ValueError, RecursionError):
        status = _STATUSES.get(answer.status, "UNKNOWN")
        said = said_in_text(answer.headers.get("content-type"), body)
        if said:
            text = f"the answer has the status {answer.status}, and is none of a tool: {said}"
        else:
            text = f"what answered with {answer.status} is no server of tools, but something before it"
        return _CLASSES.get(status, CallFailed)(text, status, (), after)


def failure(said: Any, after: float | None = None) -> CallFailed:
    """Returns the failure that a server describes.

    Raises:
        ValueError: it is no description of one.
    """
    try:
        error = said["error"]
        status, message = error["code"], error["message"]
        violations = tuple((one["field"], one["description"]) for one in error.get("violations", ()))
    except (AttributeError, KeyError, TypeError) as wrong:
        raise ValueError("this is no failure of a server of tools") from wrong
    kind = _CLASSES.get(status, CallFailed)
    return kind(str(message), str(status), violations, after)


def item(name: str, text: bytes) -> Any:
    """Returns the item that an event of a stream has.

    Raises:
        CallFailed: it has a failure.
    """
    said = read(text)
    if name != "error":
        return said
    try:
        raise failure(said)
    except ValueError as error:
        raise CallFailed("the stream ended with an error that cannot be read") from error
