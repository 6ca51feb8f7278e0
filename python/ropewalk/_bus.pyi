"""The extension module of the message bus."""

from collections.abc import Awaitable, Callable, Iterable
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, final, type_check_only

from ropewalk.bus._statistics import SubscriptionStatistics

_T_co = TypeVar("_T_co", covariant=True)

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
        """Delivers a message to every listener to its topic.

        When it returns, handlers have been called and subscriptions have the message. If a subscription with
        ``overflow="block"`` has no room, it waits at most `timeout` seconds; other listeners are served first.

        Raises:
            BusFull: there was no room in time, or waiting would block this thread's event loop, or a full
                subscription's overflow is ``"error"``.
            BusClosed: the bus was closed.
            InvalidTopic: `topic` is malformed.
            PublishTooDeep: handlers publish to handlers deeper than `max_depth`.
        """

    def publish_many(self, topic: str, messages: Iterable[object], /) -> int:
        """Publishes the messages in order, and returns their number."""

    @property
    def closed(self) -> bool:
        """Whether the bus was closed."""

    def _carry(self, make: Callable[..., object], start: Callable[[], None], /) -> None: ...
    def _serve(self) -> None: ...
    def _stop(self) -> None: ...
    def _restart(self) -> None: ...
    def _orphan(self) -> None: ...
    def _check_open(self) -> None: ...
    @property
    def _orphaned(self) -> bool: ...
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

    It is an iterator and an asynchronous iterator over the messages published since. Any number of threads and
    coroutines may receive from it; each message goes to one of them. It ends when it or its bus is closed and all its
    messages have been received. A subscription that nothing refers to any more is closed.
    """

    def recv(self, timeout: float | None = None) -> _T_co:
        """Returns the next message; waits for it at most `timeout` seconds. Its asynchronous twin is `recv_async`.

        Raises:
            BusEmpty: no message arrived in time; the error is a `TimeoutError`.
            Lagged: messages were dropped before the next one.
            BusClosed: the subscription has ended.
        """

    def recv_nowait(self) -> _T_co:
        """Returns the next message if there is one, else raises `BusEmpty`; other errors as in `recv`."""

    def recv_many(self, n: int, timeout: float | None = None) -> list[_T_co]:
        """Returns up to `n` messages; waits for the first, as `recv` does. Its async twin is `recv_many_async`."""

    def recv_many_nowait(self, n: int, /) -> list[_T_co]:
        """Up to `n` messages that are there; if there is none `BusEmpty`, as `recv_nowait`."""

    def recv_async(self) -> _Waiting[_T_co]:
        """Returns an awaitable of the next message, which can be awaited once. Errors are those of `recv`.

        Cancel safety: a cancelled receive loses no message.
        """

    def recv_many_async(self, n: int, /) -> _Waiting[list[_T_co]]:
        """Returns an awaitable of up to `n` messages, which awaits the first only."""

    def close(self) -> None:
        """Ends the subscription: it gets no more messages, and those that wait can still be received."""

    def statistics(self) -> SubscriptionStatistics:
        """Returns a snapshot of the counters."""

    @property
    def closed(self) -> bool:
        """Whether the subscription or its bus was closed."""

    @property
    def capacity(self) -> int:
        """How many messages may wait."""

    @property
    def overflow(self) -> Literal["block", "drop_oldest", "drop_newest", "error"]:
        """What happens to a message for which there is no room."""

    @property
    def pattern(self) -> str:
        """The pattern of its topics."""

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
    """An awaitable that can be awaited once."""
