"""Signals: publish and subscribe between threads, event loops and processes.

The compiled part is in `ropewalk._bus`. This module checks arguments, runs asynchronous handlers and makes statistics.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ropewalk._checked import checked_choice, checked_count, checked_seconds, unknown_argument
from ropewalk._errors import BusClosed, BusError, BusFull, Lagged, failed
from ropewalk._load import bus as _compiled

if TYPE_CHECKING:
    from asyncio import Task
    from types import TracebackType
    from typing import Never, Self

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

#: How many messages may wait in a subscription by default.
DEFAULT_CAPACITY = 10_000

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def subscription_statistics(subscription: Subscription[Any]) -> SubscriptionStatistics:
    """Makes the record that `Subscription.statistics` returns; the compiled class calls this."""
    from ropewalk.bus._statistics import SubscriptionStatistics

    return SubscriptionStatistics(*subscription._counters())


def _dispatch(handlers: list[Callable[[Any], object]], message: object, bus: Bus, topic: str) -> None:
    """Calls many handlers; after one that raises, it goes on with the next.

    It is written in Python because a call from Python to Python costs half as much as a call from C.
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
    """Replaces a handler that was removed while a message was being delivered."""


def _log_failure(error: BaseException, handler: object, topic: str) -> None:
    # One that a handler raised has frames of that handler's.
    if type(error) is Lagged and error.__traceback__ is None:
        _log.warning("%r missed %d messages of %r", handler or "a worker", error.count, topic)
    elif handler is not None:
        _log.error("a handler of %r failed: %r", topic, handler, exc_info=error)
    else:
        # Between processes. An error of the bus's own says everything; another one came from somewhere.
        what = (
            f"a message of {topic!r} was not delivered" if topic else "a bus's link to another process failed"
        )
        _log.error("%s: %s", what, error, exc_info=None if isinstance(error, BusError) else error)


class Bus(_compiled.Bus):
    """Publish and subscribe by topic.

    A topic is a string of segments that are separated by dots: ``"orders.new.eu"``. A pattern may have ``*`` for
    exactly one segment and ``**`` for any number of them, none included: ``"orders.*"``, ``"orders.**"``.

    A message is any object; the bus passes it on as it is. The thread that publishes calls the handlers (`on`).
    Subscriptions (`subscribe`) are queues, from which other threads and coroutines receive. By default no message is
    lost: a publisher waits for a subscription that has no room.

    Given to a pool's task as an argument, a bus arrives in the worker process as that process's end of the same bus.
    Any other process joins it by `bind` and `connect`. Listeners in other processes receive copies of the messages.
    A child made by `fork` has not joined: there a bus that other processes share raises `BusError`, and one that none
    shares is a copy.

    Args:
        on_error: called with the exception, the handler (or filter) and the topic when a handler raises. By default
            the bus logs the exception to the logger ``ropewalk.bus``. The other handlers are called in either case.
            For a message between processes that could not be delivered, the handler is None.
        max_depth: how many levels deep handlers may publish to handlers, 1 to 1000.

    >>> import ropewalk
    >>> bus = ropewalk.Bus()
    >>> with bus.subscribe("orders.*") as orders:
    ...     bus.publish("orders.new", {"id": 1})
    ...     orders.recv()
    {'id': 1}
    """

    __slots__ = ("__weakref__", "_link_end", "_tasks")

    #: Asynchronous handlers: for the subscription of each, the function and the task that runs it.
    _tasks: dict[Subscription[Any], tuple[Callable[..., Any], Task[None]]]
    #: The link to other processes, if the bus has one.
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
        **unknown: object,
    ) -> Subscription[Any]:
        """Makes a subscription: a queue of the messages whose topics match `pattern`.

        The subscription ends when it or the bus is closed, and when nothing refers to it any more.

        Args:
            pattern: the topics; see the class.
            capacity: how many messages may wait.
            overflow: what happens to one more. ``"block"`` makes the publisher wait; ``"drop_oldest"`` and
                ``"drop_newest"`` drop one, and the receiver gets a `Lagged`; ``"error"`` raises `BusFull` in the
                publisher, after every other listener has got the message.
            where: called with each message, in the publisher's thread; a false answer keeps the message out.
            priority: listeners of a greater priority are served first.
            topics: receive pairs ``(topic, message)``.

        Raises:
            InvalidTopic: `pattern` is malformed.
            BusClosed: the bus was closed.
        """
        if unknown:
            _refuse_unknown("subscribe", unknown)
        checked_choice("overflow", overflow, _OVERFLOWS)
        capacity = checked_count("capacity", capacity, 1)
        _check_filter(where)
        subscription = self._subscribe(pattern, capacity, _OVERFLOWS.index(overflow), where, priority, topics)
        self._listening_changed(wait=True)
        return subscription

    def on(
        self,
        pattern: str,
        *handlers: Never,
        where: Callable[[Any], object] | None = None,
        priority: int = 0,
        topics: bool = False,
        capacity: int = DEFAULT_CAPACITY,
        overflow: Overflow = "block",
        **unknown: Never,
    ) -> Callable[[_Handler], _Handler]:
        """Returns a decorator that adds a handler for the topics that match `pattern`.

        Use it as ``bus.on("orders.*")(handler)`` or with ``@``.

        The publisher's thread calls a plain function before `publish` returns. A coroutine function runs in the event
        loop in which `on` was called, one message after another, from a queue with this `capacity` and `overflow`.

        The handler stays until `off` removes it. `where`, `priority` and `topics` are those of `subscribe`; with
        ``topics=True`` the handler is called with the topic and the message.

        Raises:
            InvalidTopic: `pattern` is malformed.
            BusClosed: the bus was closed.
            RuntimeError: the handler is a coroutine function, and no loop runs in this thread.
        """
        if unknown:
            _refuse_unknown("on", unknown)
        if handlers:
            raise TypeError(f"on() takes no handler: use bus.on({pattern!r})(handler)")
        if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f'on() takes a pattern of topics, not {pattern!r}: use @bus.on("orders.*")')
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
        """Removes a handler from every pattern that it was added for, and returns how many those were.

        After that this thread does not call the handler, not even for a message that it is delivering. `off` does not
        wait for a call that has begun in another thread. An asynchronous handler finishes the call that runs, and gets
        none of the messages that wait.
        """
        gone = sum(self._off(number) for number, known in self._handlers() if known == handler)
        self._listening_changed()
        for subscription, (known, task) in list(self._tasks.items()):
            if known == handler and not subscription.closed:
                # A call that runs goes on: a handler may remove itself and finish its work.
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
                    # This task was not cancelled, but something that the handler waited for was.
                    self._report(error, handler, topic)
                except Exception as error:
                    self._report(error, handler, topic)

        # The bus refers to the task, because a loop does so only weakly.
        task = loop.create_task(serve())
        self._tasks[subscription] = (handler, task)
        task.add_done_callback(lambda _: self._end_task(subscription))
        self._listening_changed()

    def _end_task(self, subscription: Subscription[Any]) -> None:
        self._tasks.pop(subscription, None)
        self._listening_changed()

    def _listening_changed(self, wait: bool = False) -> None:
        """Tells the link that the patterns have changed; with `wait`, returns when the hub has acknowledged them."""
        link = self._link_end
        if link is not None:
            link.changed(wait)

    def publish_nowait(self, topic: str, message: object) -> None:
        """Publishes as `publish` does, but never waits.

        Raises:
            BusFull: a subscription has no room; every other listener has got the message.
            BusClosed: the bus was closed.
            InvalidTopic: `topic` is malformed.
        """
        self.publish(topic, message, 0)

    async def publish_async(self, topic: str, message: object) -> None:
        """Publishes, and awaits room in full subscriptions without blocking the event loop.

        Listeners that have room get the message at once.

        Raises:
            BusFull: a subscription has no room, and its overflow is ``"error"``; every other listener has got the
                message.
            BusClosed: the bus was closed, before or during the wait.
            InvalidTopic: `topic` is malformed.
        """
        full, refused = self._begin(topic, message)
        for room in full:
            await room
        if refused:
            raise failed(BusFull, 'a subscription has no room, and its overflow is "error"')

    def bind(self, endpoint: str) -> str:
        """Lets other processes join the bus, and returns the endpoint at which they `connect`.

        They are processes of the same user on this host. The endpoint ends with the bus. A bus may have several.

        Args:
            endpoint: ``shm://`` and a path, ``@`` and a name, or ``*`` for a path that nobody uses.

        Raises:
            BusClosed: the bus was closed.
            BusError: another process listens there, the path cannot be made, or the bus is another process's.
            ValueError: `endpoint` is malformed.
        """
        self._check_open()
        from ropewalk.bus import _link

        return _link.bind(self, endpoint)

    def connect(self, endpoint: str, *, timeout: float = 5.0) -> None:
        """Joins the bus of another process: a message that one of them publishes reaches the others.

        What listens here already hears the other processes when this returns. The bus ends with that of the process
        that made it.

        Args:
            endpoint: what `bind` has returned there.
            timeout: seconds to wait for the endpoint and its answer.

        Raises:
            BusClosed: the bus was closed.
            BusError: no process has answered in time, the other one is another user's or in another PID namespace,
                or this bus has other processes already.
            OutOfPorts: too many processes share the other bus.
            TypeError: `timeout` is no number.
            ValueError: `endpoint` is malformed, or `timeout` is negative or not a number.
        """
        self._check_open()
        seconds = checked_seconds("timeout", timeout)
        from ropewalk.bus import _link

        _link.connect(self, endpoint, seconds)

    def close(self) -> None:
        """Closes the bus: publishing raises `BusClosed`, and subscriptions end when their messages have been read."""
        self._close()
        link = self._link_end
        if link is not None:
            link.close()
            self._link_end = None

    def statistics(self) -> BusStatistics:
        """Returns a snapshot of the counters."""
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
        if self._orphaned:
            self._check_open()
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
    """Drops the messages that wait in a closed subscription."""
    while True:
        try:
            subscription.recv_many(sys.maxsize)
        except Lagged:
            continue
        except BusClosed:
            return


#: Arguments of queues, and what a subscription has instead.
_SPELLINGS = {
    "maxsize": "capacity=",
    "max_queue": "capacity=",
    "queue_size": "capacity=",
    "on_full": "overflow=",
    "filter": "where=",
}


def _refuse_unknown(call: str, unknown: Mapping[str, object]) -> Never:
    name = next(iter(unknown))
    known = ("capacity", "overflow", "where", "priority", "topics")
    raise unknown_argument(call, name, known, _SPELLINGS.get(name))


def _check_filter(where: object) -> None:
    if where is not None and not callable(where):
        raise TypeError(f"where must be a function of a message, not {where!r}")


def _is_async(handler: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
