"""A bus in more than one process: the link between the one that made it and a pool's workers.

A bus that is sent to a worker arrives as the worker's own `Bus`, linked to the first. The process that made it is the
hub: it owns a segment of shared memory with a pair of rings for each worker (`crates/shm`, `switchboard`). What a
worker publishes goes to its own listeners at once and up to the hub, always; the hub publishes it to its listeners and
passes it on to the other workers. A worker tells the hub what its listeners want, and gets nothing else; the hub
acknowledges, so that `subscribe` in a worker returns when nothing published after it can be missed.

Each ring has a `_Line`. A publisher encodes its message and writes it to the lines of those who want it there and
then, so that it arrives even if the process ends at once. Where a ring is full, the message waits in the queue of the
line, which a thread of its own empties. A queue that is full treats a message as the process at the other end asked for
it, so one that receives nothing holds up only whoever publishes what it must not miss.

A link does not keep its bus. A worker's end goes when nothing there refers to it any more, unless handlers wait for
messages; the hub's goes when, besides, no worker has a port and no task on its way carries the bus.

Rings hold bytes, so messages between processes are pickled, by plain pickle or else by cloudpickle.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from ropewalk._errors import BusClosed, BusError, BusFull, failed, is_of_shutdown
from ropewalk._load import worker
from ropewalk.pool.wire import _serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ropewalk._bus import Subscription
    from ropewalk._worker import Port, SharedBuffer, Switchboard
    from ropewalk.bus._bus import Bus

#: Workers that may share one bus, and bytes of each ring.
_PORTS = 256
_RING = 64 * 1024
#: Messages that may wait for the thread of a line.
_CAPACITY = 10_000
#: How often the hub looks for workers that are gone, and for its own end.
_TICK = 0.2
#: How often a worker looks for its end; it is woken for whatever else there is.
_LOOK = 1.0
#: How long a worker waits for the hub to know what it listens to.
_SETTLE = 30.0
_FAREWELL = 5.0
#: How long a worker waits for a port while every one is taken; the hub frees those of workers that are gone.
_PATIENCE = 5.0

#: What a worker says: patterns that it listens to, or a message; and what the hub says: a message, or how many messages
#: of which topics were dropped.
_PATTERNS = b"p"
_MESSAGE = b"m"
_LOST = b"l"

#: The numbers of the overflow policies, the one that loses least first: of the patterns that match a topic, a process
#: is served by the first.
_BLOCK, _DROP_OLDEST, _DROP_NEWEST, _ERROR = range(4)
_STRICT = {_BLOCK: 0, _ERROR: 1, _DROP_OLDEST: 2, _DROP_NEWEST: 3}

_Pairs = tuple[tuple[str, int], ...]


def _strictest_first(pairs: Iterable[tuple[str, int]]) -> _Pairs:
    return tuple(sorted(set(pairs), key=lambda pair: (_STRICT[pair[1]], pair[0])))


def _reporter(bus: weakref.ref[Bus]) -> Callable[[BaseException, str], None]:
    """A function that reports to a bus without keeping it."""

    def report(error: BaseException, topic: str) -> None:
        there = bus()
        if there is not None:
            there._report(error, None, topic)

    return report


class _Line:
    """What is written to one ring: by publishers where there is room, else by a thread, in the order it came."""

    def __init__(
        self,
        bus: Bus,
        offer: Callable[[bytes], bool],
        send: Callable[[bytes], bool],
        report: Callable[[BaseException, str], None],
    ) -> None:
        self._offer = offer
        self._send = send
        self._report = report
        self._threads: dict[str, threading.Thread] = {}
        self.link: Subscription[Any] = bus._link(_CAPACITY, self._encode, self._write)

    def _encode(self, topic: str, message: object) -> bytes | None:
        try:
            return _MESSAGE + _serialize.encode_object((topic, message), None)
        except Exception as error:
            self._report(error, topic)
            return None

    def _write(self, encoded: bytes) -> bool:
        try:
            if self._offer(encoded):
                return True
        except Exception as error:
            self._report(error, "")
            return True
        thread = threading.Thread(target=self._drain, name="ropewalk-bus-send", daemon=True)
        if not self._threads and self._threads.setdefault("drain", thread) is thread:
            try:
                thread.start()
            except RuntimeError as error:
                self._threads.clear()
                if is_of_shutdown(error):
                    raise
                raise BusError(
                    f"could not start the thread that sends what a bus has no room for: {error}. Raise the limit of "
                    "threads and processes (`ulimit -u`, or the container's), or end some."
                ) from error
        return False

    def _drain(self) -> None:
        while (item := self.link._hold()) is not None:
            try:
                self._send_lost()
                self._send(item[1])
            except Exception as error:
                self._report(error, item[0])
            finally:
                self.link._release()
        self._send_lost()

    def _send_lost(self) -> None:
        lost = self.link._lost()
        if lost:
            self._send(_LOST + pickle.dumps(lost))

    def join(self, deadline: float) -> None:
        """Waits until what waits in the queue is sent, once the link is closed."""
        thread = self._threads.get("drain")
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(deadline - time.monotonic(), 0.0))


class Hub:
    """The end of the process that made the bus."""

    def __init__(self, bus: Bus) -> None:
        self.key = f"{os.getpid()}-{os.urandom(8).hex()}"
        self.memory: SharedBuffer | None
        self._board: Switchboard
        self.memory, self._board = worker.switchboard(_PORTS, _RING)
        #: References to the memory that the buffer has by itself; any more are those of tasks on their way.
        self._holders = next(count for count in itertools.count() if not self._board.is_held(count))
        #: Whoever gives the bus away, and whoever finds that nobody has it any more, take turns. A finalizer may come
        #: here from within.
        self._guard = threading.RLock()
        self._kept: Bus | None = bus
        # What belongs to a link refers to nothing that refers back to it, so that it goes at once.
        board = self._board
        self._bus = weakref.ref(bus, lambda _: board.wake())
        self._report = _reporter(self._bus)
        self._stopping = False
        self._lines: dict[int, _Line] = {}
        #: Ports that are not read for as long as something that they said waits for room, and what they said since.
        self._held_up: dict[int, deque[list[Any] | int | bytes | None]] = {}
        self._thread = threading.Thread(target=self._hear, name="ropewalk-bus-hear", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        """Takes what the workers say, until the bus is closed or gone."""
        look = 0.0
        while not self._stopping and self._bus() is not None:
            heard = self._board.hear(_TICK)
            late: list[int] = []
            for port, said in heard:
                if port in self._held_up:
                    self._held_up[port].append(said)
                    continue
                waits = self._take(port, said)
                if waits:
                    self._board.pause(port, True)
                    self._held_up[port] = deque([waits])
                    late.append(port)
            for port in late:
                threading.Thread(
                    target=self._catch_up, args=(port,), name="ropewalk-bus-wait", daemon=True
                ).start()
            now = time.monotonic()
            if not heard or now >= look:
                look = now + _TICK
                self._look_around()
        self.close()
        # A worker may have joined while the bus was closed.
        self._drop_lines()

    def _drop_lines(self) -> None:
        for line in list(self._lines.values()):
            line.link.close()
        self._lines.clear()

    def _take(self, port: int, said: int | bytes | None) -> list[Any]:
        """Deals with what a worker said; those who have no room for it, to be waited for."""
        bus = self._bus()
        if bus is None:
            return []
        if isinstance(said, int):
            self._join(bus, port)
            return []
        line = self._lines.get(port)
        if line is None:
            return []
        if said is None:
            self._give_up(
                port,
                BusError(
                    f"the shared memory of a worker's port ({port}) is corrupt: the worker is disconnected from the bus"
                ),
            )
            return []
        if said[:1] == _PATTERNS:
            try:
                number, pairs = pickle.loads(said[1:])
                line.link._set_patterns(_strictest_first(pairs))
                self._board.acknowledge(port, number)
            except Exception as error:
                self._give_up(port, error)
            return []
        try:
            topic, message = pickle.loads(said[1:])
            waits, refused = bus._forward(line.link, topic, message, said)
        except BusClosed:
            return []
        except BaseException as error:
            # Also what a handler may not raise, `SystemExit` say: there is nobody here whom it could end.
            bus._report(error, None, "")
            return []
        if refused:
            bus._report(_refused(), None, topic)
        return waits

    def _join(self, bus: Bus, port: int) -> None:
        def offer(message: bytes) -> bool:
            try:
                return self._board.offer(port, message)
            except Exception as error:
                self._give_up(port, error)
                return True

        def send(message: bytes) -> bool:
            return self._board.send(port, message)

        self._lines[port] = _Line(bus, offer, send, self._report)

    def _give_up(self, port: int, error: Exception) -> None:
        """Sends nothing more to a worker whose words make no sense; its port is freed when it is gone."""
        line = self._lines.get(port)
        if line is not None and not line.link.closed:
            line.link.close()
            self._report(error, "")

    def _catch_up(self, port: int) -> None:
        """Deals with what a worker said, waiting for whoever has no room, and then has the worker heard again."""
        backlog = self._held_up[port]
        while backlog:
            said = backlog.popleft()
            waits = said if isinstance(said, list) else self._take(port, said)
            for wait in waits:
                try:
                    wait.wait()
                except BaseException as error:
                    if not isinstance(error, BusClosed):
                        self._report(BusError(f"a message of a worker was not delivered: {error!r}"), "")
        del self._held_up[port]
        self._board.pause(port, False)

    def _look_around(self) -> None:
        """Frees the ports of workers that are gone, and lets go of a bus that nobody has."""
        for port in self._board.gone():
            line = self._lines.pop(port, None)
            if line is not None:
                line.link.close()
            self._board.clear(port)
        kept = None
        with self._guard:
            if self._kept is not None and not self._lines and not self._board.is_held(self._holders):
                # A worker takes its port before its task ends, and only then the task's hold of the memory ends.
                heard = self._board.hear(0)
                if not heard:
                    kept, self._kept = self._kept, None
                for port, said in heard:
                    self._take(port, said)
        del kept  # Here, where no lock is held, a bus that nobody else refers to goes.

    def hand_out(self, bus: Bus) -> SharedBuffer | None:
        """The memory, to be given to a worker; the bus is kept until nobody there has it."""
        with self._guard:
            self._kept = bus
            return self.memory

    def changed(self, wait: bool = True) -> None:
        """Somebody listens, or listens no more: the hub gets everything anyway."""

    def close(self) -> None:
        """Ends the link, once everything was sent; the workers' ends are closed with it."""
        if self._stopping:
            return
        lines = list(self._lines.values())
        for line in lines:
            line.link.close()
        deadline = time.monotonic() + _FAREWELL
        for line in lines:
            line.join(deadline)
        self._stopping = True
        self._board.stop()
        self._board.close()
        self._board.wake()
        self._drop_lines()
        self.memory = None
        self._kept = None
        _links.pop(self.key, None)

    def join(self) -> None:
        """Waits for its threads, before the interpreter takes itself apart."""
        self.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_FAREWELL)

    def orphan(self) -> None:
        """In a forked child: there are no threads here, and the workers are the parent's."""
        for line in self._lines.values():
            line.link.close()
        bus = self._bus()
        if bus is not None:
            bus._link_end = None
        self._kept = None


class Uplink:
    """The end of a worker."""

    def __init__(self, bus: Bus, key: str, memory: SharedBuffer) -> None:
        self.key = key
        self._port: Port = worker.switchboard_port(memory, _PATIENCE)
        self._memory: SharedBuffer | None = memory
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._told: _Pairs = ()
        self._ended = False
        #: The bus, while it has handlers: they are to be called also if nothing else here refers to it.
        self._kept: Bus | None = None
        port = self._port
        self._bus = weakref.ref(bus, lambda _: port.wake())  # The receiver does the rest.
        self._report = _reporter(self._bus)
        self._line = _Line(bus, self._port.offer, self._port.send, self._report)
        self._line.link._set_patterns((("**", _BLOCK),))
        self._receiver = threading.Thread(target=self._receive, name="ropewalk-bus-hear", daemon=True)
        self._receiver.start()

    def changed(self, wait: bool = True) -> None:
        """Tells the hub what is listened to here, and waits until it knows.

        Raises:
            BusError: the hub does not answer.
        """
        bus = self._bus()
        if bus is None:
            return
        with self._lock:
            deadline = time.monotonic() + _SETTLE
            while (number := self._tell(bus)) < 0 and wait and not bus.closed:
                self._check(deadline)
                time.sleep(0.002)  # The ring is full.
            while number > 0 and wait and not self._port.wait_acknowledged(number, _TICK):
                if bus.closed or self._ended:
                    return  # The hub has said goodbye; what was subscribed to is closed.
                self._check(deadline)

    @staticmethod
    def _check(deadline: float) -> None:
        if time.monotonic() > deadline:
            raise BusError(
                f"the process that made the bus has not answered for {_SETTLE:.0f} s. Look whether it is stopped, "
                "whether one of its handlers does not return, or whether one of its subscriptions is full and has no "
                "receiver."
            )

    def _tell(self, bus: Bus) -> int:
        """The number to be acknowledged; 0 if there is nothing new, -1 if there is no room to say it."""
        self._kept = bus if bus._handlers() or bus._tasks else None
        pairs = _strictest_first(bus._patterns())
        if pairs == self._told:
            return 0
        number = next(self._numbers) & 0xFFFFFFFF
        if not self._port.offer(_PATTERNS + pickle.dumps((number, pairs))):
            return -1
        self._told = pairs
        return number

    def _receive(self) -> None:
        while True:
            try:
                said = self._port.receive(_LOOK)
            except Exception as error:
                self._report(error, "")
                break
            if said is not None and (not said or not self._deliver(said)):
                break
            if said is None and self._bus() is None:
                break
        bus = self._bus()
        self._finish()
        if bus is not None:
            bus._close()

    def _deliver(self, said: bytes) -> bool:
        bus = self._bus()
        if bus is None:
            return False
        try:
            if said[:1] == _LOST:
                for topic, count in pickle.loads(said[1:]).items():
                    bus._lag(topic, count)
                return True
            topic, message = pickle.loads(said[1:])
            reach = bus._receive(self._line.link, topic, message)
        except BusClosed:
            return False
        except BaseException as error:
            # `BusFull`, what cannot be unpickled, and what a handler may not raise: the thread goes on.
            bus._report(error, None, "")
            return True
        # Only the link itself: a subscription has ended without telling anybody.
        if reach <= 1 and self._lock.acquire(blocking=False):
            try:
                self._tell(bus)
            finally:
                self._lock.release()
        return True

    def close(self) -> None:
        """Ends the link, once everything was sent."""
        self._finish()
        if threading.current_thread() is not self._receiver:
            self._receiver.join(_FAREWELL)

    def _finish(self) -> None:
        self._ended = True
        self._kept = None
        _ending.add(self)
        if _links.get(self.key) is self:
            _links.pop(self.key, None)
        self._line.link.close()
        self._line.join(time.monotonic() + _FAREWELL)
        self._port.leave()
        _ending.discard(self)
        self._memory = None
        bus = self._bus()
        if bus is not None and bus._link_end is self:
            bus._link_end = None

    def hand_out(self, _bus: Bus) -> SharedBuffer | None:
        """The memory, to be given on."""
        return self._memory

    def join(self) -> None:
        """Sends what was published before the worker leaves."""
        self.close()

    def orphan(self) -> None:
        """In a forked child: the port is its parent's."""
        self._line.link.close()
        self._kept = None
        bus = self._bus()
        if bus is not None:
            bus._link_end = None


def _refused() -> BusFull:
    what = 'a subscription has no room for what another process published, and its overflow is "error"'
    return failed(BusFull, what)


_links: dict[str, Hub | Uplink] = {}
#: Links that send the last of what was published. The same bus may come again meanwhile, by another link.
_ending: set[Uplink] = set()
#: Taken while a link is made. A finalizer that runs meanwhile may send a bus, too.
_lock = threading.RLock()


def _leave() -> None:
    for link in [*_links.values(), *_ending]:
        link.join()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for link in _links.values():
        link.orphan()
    _links.clear()
    _ending.clear()


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)


def handle(bus: Bus) -> tuple[str, SharedBuffer]:
    """What stands for a bus in a task's arguments: its name, and the memory of its switchboard.

    Raises:
        TypeError: this is no encoding of Ropewalk's; it is what a pickler expects of something that cannot be pickled.
    """
    with _lock:
        link = bus._link_end
        if link is None:
            link = Hub(bus)
            bus._link_end = link
            _links[link.key] = link
    memory = link.hand_out(bus)
    if memory is None:
        raise failed(BusClosed, "the bus was closed while it was sent to a worker")
    if memory._lend() is None:
        raise TypeError(
            "a Bus can be pickled only as an argument of a pool's task. Share it with workers by "
            "`pool.submit(function, bus)`."
        )
    return link.key, memory


def attach(key: str, memory: SharedBuffer, make: Callable[[], Bus]) -> Bus:
    """The bus behind a handle: this process's own end of it."""
    with _lock:
        link = _links.get(key)
        bus = None if link is None else link._bus()
        if bus is None:
            bus = make()
            link = _links[key] = Uplink(bus, key, memory)
            bus._link_end = link
        return bus
