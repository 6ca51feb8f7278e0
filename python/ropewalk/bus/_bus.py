"""Signals: publish and subscribe between threads, event loops and worker processes.

The compiled part is in `ropewalk._bus`; here are the arguments' checks, asynchronous handlers and statistics.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ropewalk._checked import checked_choice, checked_count
from ropewalk._errors import BusClosed, BusFull, Lagged, failed
from ropewalk._load import bus as _compiled

if TYPE_CHECKING:
    from asyncio import Task
    from types import TracebackType
    from typing import Self

    from ropewalk._bus import Subscription as Subscription
    from ropewalk._worker import SharedBuffer
    from ropewalk.bus._link import Hub, Uplink
    from ropewalk.bus._statistics import BusStatistics, SubscriptionStatistics
else:
    Subscription = _compiled.Subscription

_log = logging.getLogger("ropewalk.bus")

#: What happens to a message for which a subscription has no room.
Overflow = Literal["block", "drop_oldest", "drop_newest", "error"]

_OVERFLOWS = ("block", "drop_oldest", "drop_newest", "error")

#: How many messages may wait in a subscription, unless it is said.
DEFAULT_CAPACITY = 10_000

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def subscription_statistics(subscription: Subscription[Any]) -> SubscriptionStatistics:
    """What `Subscription.statistics` gives."""
    from ropewalk.bus._statistics import SubscriptionStatistics

    return SubscriptionStatistics(*subscription._counters())


def _dispatch(handlers: list[Callable[[Any], object]], message: object, bus: Bus, topic: str) -> None:
    """Calls many handlers.

    It is written here because a call from Python to Python costs half of one from C. The iterator goes on behind the
    handler that raised.
    """
    rest = iter(handlers)
    handler: Any = None
    while True:
        try:
            for handler in rest:
                handler(message)
        except Exception as error:
            bus._report(error, handler, topic)
        else:
            return


def _nothing(_message: object) -> None:
    """Takes the place of a handler that was taken away while a message was on its way."""


def _log_failure(error: BaseException, handler: object, topic: str) -> None:
    _log.error("a handler of %r failed: %r", topic, handler, exc_info=error)


class Bus(_compiled.Bus):
    """Publish and subscribe by topic.

    A topic is a string of segments that are separated by dots: ``"orders.new.eu"``. A pattern may have ``*`` for
    exactly one segment and ``**`` for any number of them, none included: ``"orders.*"``, ``"orders.**"``.

    Messages are any objects; they are passed on as they are. Handlers (`on`) are called in the thread that publishes.
    Subscriptions (`subscribe`) are queues, from which other threads and coroutines receive. By default nothing is ever
    lost: a publisher waits for a subscription without room.

    Given to a pool's task as an argument, a bus arrives in the worker process as its end of the same bus: what one
    process publishes, listeners in all of them get, as copies.

    `on_error` is called with the exception, the handler (or filter) and the topic for whatever a handler raises;
    without it that is logged to the logger ``ropewalk.bus``. The other handlers are called all the same. `max_depth` is
    how deep handlers may publish to handlers.

    >>> import ropewalk
    >>> bus = ropewalk.Bus()
    >>> with bus.subscribe("orders.*") as orders:
    ...     bus.publish("orders.new", {"id": 1})
    ...     orders.recv()
    {'id': 1}
    """

    __module__ = "ropewalk"

    __slots__ = ("__weakref__", "_link_end", "_tasks")

    #: Asynchronous handlers: by their subscriptions, the function and the task that runs it.
    _tasks: dict[Subscription[Any], tuple[Callable[..., Any], Task[None]]]
    #: What connects it with other processes, if anything does.
    _link_end: Hub | Uplink | None

    def __new__(
        cls,
        *,
        on_error: Callable[[BaseException, Any, str], object] | None = None,
        max_depth: int = 64,
    ) -> Self:
        if on_error is not None and not callable(on_error):
            raise TypeError(
                f"on_error must be a function of an exception, a handler and a topic, not {on_error!r}"
            )
        if not 1 <= max_depth <= 1000:
            raise ValueError(f"max_depth must be between 1 and 1000, not {max_depth}")
        bus = super().__new__(cls, _dispatch, _nothing, on_error or _log_failure, max_depth)
        bus._tasks = {}
        bus._link_end = None
        return bus

    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        where: Callable[[Any], object] | None = ...,
        priority: int = ...,
        topics: Literal[False] = ...,
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        where: Callable[[Any], object] | None = ...,
        priority: int = ...,
        topics: Literal[True],
    ) -> Subscription[tuple[str, Any]]: ...
    def subscribe(
        self,
        pattern: str,
        *,
        capacity: int = DEFAULT_CAPACITY,
        overflow: Overflow = "block",
        where: Callable[[Any], object] | None = None,
        priority: int = 0,
        topics: bool = False,
    ) -> Subscription[Any]:
        """Listens to the topics that match `pattern` with a queue of its own.

        At most `capacity` messages wait. For one more, `overflow` says: ``"block"`` has the publisher wait;
        ``"drop_oldest"`` and ``"drop_newest"`` drop one, which the receiver is told by `Lagged`; ``"error"`` raises
        `BusFull` in the publisher, once everybody else has got the message.

        `where` is called with each message, in the publisher's thread; a false answer keeps it away. Those of a greater
        `priority` are served first. With ``topics=True`` what is received are pairs ``(topic, message)``.

        The subscription ends when it is closed, when the bus is, and when nothing refers to it any more.

        Raises:
            InvalidTopic: `pattern` is malformed.
            BusClosed: the bus was closed.
        """
        checked_choice("overflow", overflow, _OVERFLOWS)
        capacity = checked_count("capacity", capacity, 1)
        _check_filter(where)
        subscription = self._subscribe(pattern, capacity, _OVERFLOWS.index(overflow), where, priority, topics)
        self._listening_changed(wait=True)
        return subscription

    def on(
        self,
        pattern: str,
        *,
        where: Callable[[Any], object] | None = None,
        priority: int = 0,
        topics: bool = False,
        capacity: int = DEFAULT_CAPACITY,
        overflow: Overflow = "block",
    ) -> Callable[[_Handler], _Handler]:
        """Has a function called for each message of the topics that match `pattern`.

        To be used as ``bus.on("orders.*")(handler)`` or as a decorator.

        A plain function is called in the publisher's thread, before `publish` returns. A coroutine function runs in the
        event loop in which `on` was called, one message after another, from a queue with this `capacity` and
        `overflow`; in a thread without a running loop it cannot be added.

        The handler stays until `off` takes it away. `where`, `priority` and `topics` are those of `subscribe`; with
        ``topics=True`` it is called with the topic and the message.

        Raises:
            InvalidTopic: `pattern` is malformed.
            BusClosed: the bus was closed.
            RuntimeError: the handler is a coroutine function, and no loop runs in this thread.
        """
        _check_filter(where)

        def add(handler: _Handler) -> _Handler:
            if not callable(handler):
                raise TypeError(f"a handler must be a function, not {handler!r}")
            if _is_async(handler):
                self._on_async(pattern, handler, where, priority, topics, capacity, overflow)
            else:
                self._on(pattern, handler, where, priority, topics)
                self._listening_changed(wait=True)
            return handler

        return add

    def off(self, handler: Callable[..., Any]) -> int:
        """Takes a handler away from every pattern that it was given; how many those were.

        Once it returns, the handler is not called any more by this thread, also not for a message that is on its way;
        in other threads a call that has begun is not waited for. An asynchronous handler finishes the call that it is
        in, and gets none of the messages that wait.
        """
        gone = sum(self._off(number) for number, known in self._handlers() if known == handler)
        self._listening_changed()
        for subscription, (known, task) in list(self._tasks.items()):
            if known == handler and not subscription.closed:
                # A call under way goes on: a handler may take itself away and finish its work.
                subscription.close()
                _discard(subscription)
                if task.get_loop().is_closed():
                    self._tasks.pop(subscription, None)
                gone += 1
        return gone

    def _on_async(
        self,
        pattern: str,
        handler: Callable[..., Any],
        where: Callable[[Any], object] | None,
        priority: int,
        topics: bool,
        capacity: int,
        overflow: Overflow,
    ) -> None:
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                f"{handler!r} is a coroutine function, and no event loop runs in this thread. Call `on` from a "
                "coroutine."
            ) from None
        subscription = self.subscribe(
            pattern, capacity=capacity, overflow=overflow, where=where, priority=priority, topics=True
        )

        async def serve() -> None:
            this = asyncio.current_task()
            while True:
                try:
                    topic, message = await subscription.recv_async()
                except Lagged as error:
                    self._report(error, handler, pattern)
                    continue
                except BusClosed:
                    return
                try:
                    await (handler(topic, message) if topics else handler(message))
                except asyncio.CancelledError as error:
                    if this is None or this.cancelling():
                        raise
                    # Not this task was cancelled, but something that the handler waited for.
                    self._report(error, handler, topic)
                except Exception as error:
                    self._report(error, handler, topic)

        # The bus holds the task: a loop alone would let it be collected.
        task = loop.create_task(serve())
        self._tasks[subscription] = (handler, task)
        task.add_done_callback(lambda _: self._end_task(subscription))
        self._listening_changed()

    def _end_task(self, subscription: Subscription[Any]) -> None:
        self._tasks.pop(subscription, None)
        self._listening_changed()

    def _listening_changed(self, wait: bool = False) -> None:
        """Tells the link that somebody listens, or listens no more; perhaps waits until the other side knows."""
        link = self._link_end
        if link is not None:
            link.changed(wait)

    def publish_nowait(self, topic: str, message: object) -> None:
        """Publishes as `publish` does, but waits for no subscription: one without room makes it raise `BusFull`.

        Everybody else has got the message then.
        """
        self.publish(topic, message, 0)

    async def publish_async(self, topic: str, message: object) -> None:
        """Publishes, and waits without stopping the event loop for subscriptions that have no room.

        Everybody who has room is served at once.

        Raises:
            BusFull: a subscription has no room, and its overflow is ``"error"``; everybody else has got the message.
            BusClosed: the bus was closed, perhaps while this waited.
            InvalidTopic: `topic` is malformed.
        """
        full, refused = self._begin(topic, message)
        for room in full:
            await room
        if refused:
            raise failed(BusFull, 'a subscription has no room, and its overflow is "error"')

    def close(self) -> None:
        """Ends every subscription, once what is in it was received; publishing raises `BusClosed` from here on."""
        self._close()
        link = self._link_end
        if link is not None:
            link.close()
            self._link_end = None

    def statistics(self) -> BusStatistics:
        """The counters, as they are now."""
        from ropewalk.bus._statistics import BusStatistics

        return BusStatistics(*self._counters())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ropewalk.Bus {'closed' if self.closed else 'open'} at {id(self):#x}>"

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        if self.closed:
            return _make_closed, ()
        from ropewalk.bus._link import handle

        return _attach, handle(self)


def _attach(key: str, memory: SharedBuffer) -> Bus:
    from ropewalk.bus._link import attach

    return attach(key, memory, Bus)


def _make_closed() -> Bus:
    bus = Bus()
    bus.close()
    return bus


def _discard(subscription: Subscription[Any]) -> None:
    """Takes out what waits in a subscription that is closed."""
    while True:
        try:
            subscription.recv_many(sys.maxsize)
        except Lagged:
            continue
        except BusClosed:
            return


def _check_filter(where: object) -> None:
    if where is not None and not callable(where):
        raise TypeError(f"where must be a function of a message, not {where!r}")


def _is_async(handler: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
