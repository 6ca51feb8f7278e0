"""`Watch`: who waits for a socket in an event loop, and the one descriptor that they wait behind.

A socket's descriptor (`FD`) becomes readable when the socket may have changed. What a firing means is known only after
the socket has been asked, and asking takes the signal away: so does every operation on the socket, also one that
somebody else waits for nothing of. Two rules follow, and hold for a descriptor that tells each change only once too:

- who is to wait has just seen that there is nothing for it, and then watches: what comes after that is told;
- after an operation that did not wait, those who do are looked at again in the loop's next turn.

A watch belongs to the thread that runs its loop. The loop keeps it, and it keeps the blocking socket whose operations
it tries, but not the asynchronous one before that: one that nobody has any more is closed. Closing detaches first,
before the descriptor's number can be given to somebody else.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, get_running_loop
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windlass.zmq._wait import Wait
from windlass.zmq.constants import FD, POLLIN, POLLOUT
from windlass.zmq.error import Again, ZMQError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.zmq._socket import Socket

_FD, _POLLIN, _POLLOUT = int(FD), int(POLLIN), int(POLLOUT)
#: After so many operations in a row that were done at once, one lets the loop turn.
AT_ONCE = 128


#: An operation that did not succeed at once: the future of its result; what tries it without waiting, with the socket;
#: that call's other arguments; what ends it after the socket's timeout. The call raises `Again` if it still cannot be
#: done. One without arguments (None, and not an empty tuple) returns None instead, which is cheaper.
Waiter = tuple[Wait, "Callable[..., Any]", "tuple[Any, ...] | None", "asyncio.TimerHandle | None"]


class Watch:
    """The waiters of one socket. Receivers are served in their order, and so are senders."""

    __slots__ = (
        "_fd",
        "_loop",
        "_scheduled",
        "_unheard",
        "events",
        "left",
        "receivers",
        "senders",
        "socket",
    )

    def __init__(self, socket: Socket[Any]) -> None:
        #: The blocking socket, whose operations are tried.
        self.socket = socket
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        # A call of `_look` is in the loop's queue.
        self._scheduled = False
        # How often in a row the descriptor was readable while nobody waited.
        self._unheard = 0
        self.receivers: deque[Waiter] = deque()
        self.senders: deque[Waiter] = deque()
        #: Who waits for a state: the events, any of which will do, and the future that is told which of them came.
        self.events: list[tuple[int, Future[int]]] = []
        #: How many operations may still succeed at once, until one lets the loop turn.
        self.left = AT_ONCE

    def add(
        self,
        queue: deque[Waiter],
        timeout: int,
        call: Callable[..., Any],
        arguments: tuple[Any, ...] | None = None,
    ) -> Future[Any]:
        """A future for what `call(self.socket, *arguments)` will return (see `Waiter`).

        It fails with `Again` after `timeout` milliseconds, unless that is negative.
        """
        loop = get_running_loop()
        if self._loop is not loop:
            self._attach(loop)
        # Cancelled waiters are let go here: a loop that receives with a deadline would pile them up otherwise.
        while queue and queue[0][0].done():
            _let_go(queue.popleft())
        while queue and queue[-1][0].done():
            _let_go(queue.pop())
        future = Wait(loop=loop)
        timer = loop.call_later(timeout / 1000, _expire, future) if timeout >= 0 else None
        queue.append((future, call, arguments, timer))
        return future

    def add_event(self, events: int) -> Future[int]:
        """A future for those of `events` that come first."""
        loop = get_running_loop()
        if self._loop is not loop:
            self._attach(loop)
        self.events = [waiting for waiting in self.events if not waiting[1].done()]
        future: Future[int] = Future(loop=loop)
        self.events.append((events, future))
        return future

    def look_again(self) -> None:
        """Look at the waiters in the next turn: an operation may have taken the signal that was meant for them."""
        waited_for = self.receivers or self.senders or self.events
        if waited_for and not self._scheduled and self._loop is not None and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon(self._look)

    def close(self) -> None:
        """Cancel whoever waits, and leave the loop."""
        waiting = [waiter[0] for queue in (self.receivers, self.senders) for waiter in queue]
        for future in (*waiting, *(future for _, future in self.events)):
            # A future of a loop that was closed meanwhile cannot tell its callbacks.
            with suppress(RuntimeError):
                future.cancel()
        self._clear()
        self.detach()

    def detach(self) -> None:
        """Leave the loop; the next who waits comes back to it."""
        loop, self._loop = self._loop, None
        self._unheard = 0
        self._scheduled = False
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._fd)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None:
            # Another loop's waiters have nobody left who would run them.
            self.close()
        self._fd = self.socket.get(_FD)
        loop.add_reader(self._fd, self._readable)
        self._loop = loop

    def _clear(self) -> None:
        for queue in (self.receivers, self.senders):
            while queue:
                _let_go(queue.popleft())
        self.events.clear()

    def _readable(self) -> None:
        if self.receivers or self.senders or self.events:
            self._unheard = 0
            self._serve()
        elif self._unheard:
            # It stays readable although nobody wants anything of it: do not let the loop turn for it.
            self.detach()
        else:
            self._unheard = 1
            with suppress(ZMQError):
                self.socket.poll_state()

    def _look(self) -> None:
        self._scheduled = False
        if self.receivers or self.senders or self.events:
            self._serve()

    def _serve(self) -> None:
        """Do what can be done now. What is left has seen that there is nothing for it, or is looked at again."""
        receivers, senders = self.receivers, self.senders
        received = sent = 0
        try:
            # One that only receivers wait for is not asked first: it is readable because something has come.
            state = self.socket.poll_state() if senders or self.events else _POLLIN
            if state & _POLLIN and receivers:
                received = self._work(receivers)
            if state & _POLLOUT and senders:
                sent = self._work(senders)
            if self.events:
                self._tell(self.socket.poll_state() if received or sent else state)
        except ZMQError as error:
            # Closed, or its context is terminated: nothing will ever come.
            self._fail(error)
        except BaseException:
            # A task that was run wants to end the program; the others still wait.
            self.look_again()
            raise
        else:
            # Each operation may have taken the signal of whoever looked before it: a request can be sent after an
            # answer, say. Who came last has looked last.
            if received + sent > 1 or (received and senders) or (sent and receivers):
                self.look_again()

    def _work(self, queue: deque[Waiter]) -> int:
        """Try the operations of those who wait now: tasks that run meanwhile try for themselves before they wait."""
        done = 0
        for _ in range(len(queue)):
            if not queue:
                break  # A task has closed the socket.
            # Taken out first: what runs here may be a caller's own function.
            waiter = queue.popleft()
            future, call, arguments, timer = waiter
            if future.done():
                _let_go(waiter)
                continue
            try:
                if arguments is not None:
                    result = call(self.socket, *arguments)
                elif (result := call(self.socket)) is None:
                    queue.appendleft(waiter)
                    return done
            except Again:
                queue.appendleft(waiter)
                return done
            except BaseException as error:
                _let_go(waiter)
                if not future.done():
                    future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                if timer is not None:
                    timer.cancel()
                done += 1
                if not future.done():
                    future.finish(result)
        return done

    def _tell(self, state: int) -> None:
        waiting, self.events = self.events, []
        for events, future in waiting:
            if not future.done():
                if state & events:
                    future.set_result(state & events)
                else:
                    self.events.append((events, future))

    def _fail(self, error: ZMQError) -> None:
        waiting = [waiter[0] for queue in (self.receivers, self.senders) for waiter in queue]
        for future in (*waiting, *(future for _, future in self.events)):
            if not future.done():
                future.set_exception(error)
        self._clear()
        self.detach()


def _let_go(waiter: Waiter) -> None:
    timer = waiter[3]
    if timer is not None:
        timer.cancel()


def _expire(future: Future[Any]) -> None:
    if not future.done():
        future.set_exception(Again())
