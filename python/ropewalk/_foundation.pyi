"""Results and the event bus: the compiled part."""

from collections.abc import Awaitable, Callable, Iterable
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, NoReturn, Protocol, Self, TypeVar, final, type_check_only

from ropewalk.bus._statistics import SubscriptionStatistics

_T_co = TypeVar("_T_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)
_U = TypeVar("_U")
_R = TypeVar("_R", bound=Ok[Any] | Err[Any])

# --- results -----------------------------------------------------------------

@final
class Ok(Generic[_T_co]):
    """A call that came to a value.

    >>> import ropewalk
    >>> ropewalk.Ok(3).map(lambda number: number + 1)
    Ok(4)
    """

    __match_args__ = ("value",)

    def __new__(cls, value: _T_co, /) -> Self: ...
    @property
    def value(self) -> _T_co:
        """What it holds."""
    def is_ok(self) -> Literal[True]:
        """Whether it is an `Ok`."""
    def is_err(self) -> Literal[False]:
        """Whether it is an `Err`."""
    def ok(self) -> _T_co:
        """The value, or `None` for an `Err`."""
    def err(self) -> None:
        """The error, or `None` for an `Ok`."""
    def map(self, function: Callable[[_T_co], _U], /) -> Ok[_U]:
        """``Ok(function(value))``; an `Err` stays as it is."""
    def map_err(self, function: Callable[[Any], object], /) -> Self:
        """``Err(function(error))``; an `Ok` stays as it is."""
    def and_then(self, function: Callable[[_T_co], _R], /) -> _R:
        """``function(value)``, which gives a result; an `Err` stays as it is."""
    def or_else(self, function: Callable[[Any], object], /) -> Self:
        """``function(error)``, which gives a result; an `Ok` stays as it is."""
    def inspect(self, function: Callable[[_T_co], object], /) -> Self:
        """Calls ``function(value)`` for an `Ok`; gives itself."""
    def inspect_err(self, function: Callable[[Any], object], /) -> Self:
        """Calls ``function(error)`` for an `Err`; gives itself."""
    def unwrap(self) -> _T_co:
        """The value. An `Err` raises: its error if that is an exception, else `UnwrapError`."""
    def unwrap_err(self) -> NoReturn:
        """The error. An `Ok` raises `UnwrapError`."""
    def unwrap_or(self, default: object, /) -> _T_co:
        """The value, or `default` for an `Err`."""
    def unwrap_or_else(self, function: Callable[[Any], object], /) -> _T_co:
        """The value, or ``function(error)`` for an `Err`."""
    def expect(self, message: str, /) -> _T_co:
        """The value. An `Err` raises `UnwrapError` with the message; its error is the cause if it is an exception."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> NoReturn:
        """Raises `TypeError`: that an `Err` should be true would mislead, that an ``Ok(0)`` should be false as well."""
    def __reduce__(self) -> tuple[type[Self], tuple[_T_co]]: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class Err(Generic[_E_co]):
    """A call that came to an error: an exception, or anything that says what was wrong. It has the methods of `Ok`."""

    __match_args__ = ("error",)

    def __new__(cls, error: _E_co, /) -> Self: ...
    @property
    def error(self) -> _E_co:
        """What it holds."""
    def is_ok(self) -> Literal[False]: ...
    def is_err(self) -> Literal[True]: ...
    def ok(self) -> None: ...
    def err(self) -> _E_co: ...
    def map(self, function: Callable[[Any], object], /) -> Self: ...
    def map_err(self, function: Callable[[_E_co], _U], /) -> Err[_U]: ...
    def and_then(self, function: Callable[[Any], object], /) -> Self: ...
    def or_else(self, function: Callable[[_E_co], _R], /) -> _R: ...
    def inspect(self, function: Callable[[Any], object], /) -> Self: ...
    def inspect_err(self, function: Callable[[_E_co], object], /) -> Self: ...
    def unwrap(self) -> NoReturn: ...
    def unwrap_err(self) -> _E_co: ...
    def unwrap_or(self, default: _U, /) -> _U: ...
    def unwrap_or_else(self, function: Callable[[_E_co], _U], /) -> _U: ...
    def expect(self, message: str, /) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> NoReturn: ...
    def __reduce__(self) -> tuple[type[Self], tuple[_E_co]]: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

# --- signals -----------------------------------------------------------------

def matches(pattern: str, topic: str, /) -> bool:
    """Whether a topic matches a pattern."""

class Bus:
    """The compiled part of `ropewalk.Bus`."""

    def __new__(
        cls,
        dispatch: Callable[[list[Callable[[Any], object]], object, Any, str], None],
        nothing: Callable[[Any], None],
        report: Callable[[BaseException, Any, str], object],
        depth: int,
        /,
    ) -> Self: ...
    def publish(self, topic: str, message: object, timeout: float | None = None) -> None:
        """Gives a message to everybody who listens to its topic.

        Handlers have been called and queues filled when it returns. Where a subscription with ``overflow="block"`` has
        no room it waits, at most `timeout` seconds; everybody else is served first.

        Raises:
            BusFull: there was no room in time, or waiting for it would stop this thread's event loop, or a
                subscription's overflow is ``"error"``.
            BusClosed: the bus was closed.
            InvalidTopic: the topic is malformed.
            PublishTooDeep: handlers publish to handlers without end.
        """

    def publish_many(self, topic: str, messages: Iterable[object], /) -> int:
        """Publishes each of the messages, in order; how many there were."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def _begin(self, topic: str, message: object, /) -> tuple[list[Awaitable[None]], bool]: ...
    def _on(self, pattern: str, handler: object, where: object, priority: int, topics: bool, /) -> int: ...
    def _subscribe(
        self, pattern: str, capacity: int, overflow: int, where: object, priority: int, topics: bool, /
    ) -> Subscription[Any]: ...
    def _off(self, number: int, /) -> bool: ...
    def _handlers(self) -> list[tuple[int, Any]]: ...
    def _counters(self) -> tuple[int, int, int, int, int, int, int, int]: ...
    def _close(self) -> None: ...
    def _receive(self, link: Subscription[Any], topic: str, message: object, /) -> int: ...
    def _forward(
        self, link: Subscription[Any], topic: str, message: object, encoded: bytes, /
    ) -> tuple[list[Any], bool]: ...
    def _lag(self, topic: str, count: int, /) -> None: ...
    def _link(
        self,
        capacity: int,
        encode: Callable[[str, object], bytes | None],
        write: Callable[[bytes], bool],
        /,
    ) -> Subscription[Any]: ...
    def _patterns(self) -> list[tuple[str, int]]: ...
    def _report(self, error: BaseException, handler: object, topic: str, /) -> None: ...

@final
class Subscription(Generic[_T_co]):
    """The receiving end of a subscription, made by `Bus.subscribe`.

    An iterator and an asynchronous iterator over what was published since. Any number of threads and coroutines may
    receive from it; each message goes to one of them. It ends when it, or its bus, is closed and everything in it was
    received. A subscription that nothing refers to any more is closed.
    """

    def recv(self, timeout: float | None = None) -> _T_co:
        """The next message, waited for at most `timeout` seconds. Its asynchronous twin is `recv_async`.

        Raises:
            BusEmpty: there was none in time; it is a `TimeoutError`.
            Lagged: messages were dropped before the next one.
            BusClosed: the subscription has ended.
        """

    def recv_nowait(self) -> _T_co:
        """The next message if there is one; else `BusEmpty`, as `recv`."""

    def recv_many(self, n: int, timeout: float | None = None) -> list[_T_co]:
        """Up to `n` messages; waits for the first only, as `recv` does. Its asynchronous twin is `recv_many_async`."""

    def recv_async(self) -> _Waiting[_T_co]:
        """The next message, awaited. Cancelling it loses no message.

        Raises: as `recv`.
        """

    def recv_many_async(self, n: int, /) -> _Waiting[list[_T_co]]:
        """Up to `n` messages; awaits the first only."""

    def close(self) -> None:
        """Ends it: no more messages come, and what is there can still be received."""

    def statistics(self) -> SubscriptionStatistics:
        """Its counters, as they are now."""

    @property
    def closed(self) -> bool:
        """Whether it, or its bus, was closed."""

    @property
    def capacity(self) -> int:
        """How many messages may wait in it."""

    @property
    def overflow(self) -> Literal["block", "drop_oldest", "drop_newest", "error"]:
        """What happens to a message for which there is no room."""

    @property
    def pattern(self) -> str:
        """The topics that it listens to."""

    def _counters(self) -> tuple[int, int, int, int, int, int]: ...
    def _set_patterns(self, pairs: Iterable[tuple[str, int]], /) -> None: ...
    def _hold(self) -> tuple[str, bytes] | None: ...
    def _release(self) -> None: ...
    def _lost(self) -> dict[str, int]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T_co: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> _Waiting[_T_co]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@type_check_only
class _Waiting(Awaitable[_T_co], Protocol[_T_co]):
    """To be awaited, once."""
