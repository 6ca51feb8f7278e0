"""A bus in more than one process: the link between the one that made it and a pool's workers.

A bus that is sent to a worker arrives as the worker's own `Bus`, linked to the first. The process that made it is the
hub: it owns a segment of shared memory with a pair of rings for each worker (`crates/shm`, `switchboard`). What a
worker publishes goes to its own listeners at once and up to the hub, always; the hub publishes it to its listeners and
passes it on to the other workers. A worker tells the hub what its listeners want, and gets nothing else; the hub
acknowledges, so that `subscribe` in a worker returns when nothing published after it can be missed.

Rings hold bytes, so messages between processes are pickled, by plain pickle or else by cloudpickle.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windlass import _serialize
from windlass._errors import BusClosed, BusError
from windlass._load import foundation, worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass._bus import Bus
    from windlass._foundation import Subscription
    from windlass._worker import Port, SharedBuffer, Switchboard

#: Workers that may share one bus, and bytes of each ring.
_PORTS = 256
_RING = 64 * 1024
#: Messages that may wait for the thread that sends them.
_CAPACITY = 10_000
#: How often the hub looks for workers that are gone, and for its own end.
_TICK = 0.2
#: How long a worker waits for the hub to know what it listens to.
_SETTLE = 30.0
_FAREWELL = 5.0

#: What a worker says: patterns that it listens to, or a message.
_PATTERNS = b"p"
_MESSAGE = b"m"
#: What the hub says last.
_END = b"e"


def _encode(topic: str, message: object) -> bytes:
    return _MESSAGE + _serialize.encode_object((topic, message), None)


class Hub:
    """The end of the process that made the bus."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.key = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._stopping = False
        self.memory: SharedBuffer = worker.shared_new(worker.switchboard_required(_PORTS, _RING), True)
        self._board: Switchboard = worker.switchboard(self.memory, _PORTS, _RING)
        #: What local publishers say, and what one worker says to the others.
        self._outgoing: Subscription[Any] = bus._subscribe("**", _CAPACITY, 0, None, 0, True)
        self._outgoing._set_patterns(())
        self._patterns: dict[int, tuple[str, ...]] = {}
        #: The ports that want a topic; made anew whenever the patterns change.
        self._wanted: dict[str, tuple[int, ...]] = {}
        self._threads = [
            threading.Thread(target=run, name=f"windlass-bus-{name}", daemon=True)
            for name, run in (("hear", self._hear), ("send", self._send))
        ]
        for thread in self._threads:
            thread.start()

    def _hear(self) -> None:
        """Takes what the workers say, until the bus is closed."""
        with suppress(BusClosed):
            while True:
                heard = self._board.hear(_TICK)
                for port, said in heard:
                    self._take(port, said)
                if not heard:
                    if self._stopping:
                        return
                    self._bury()

    def _take(self, port: int, said: int | bytes | None) -> None:
        if isinstance(said, int):
            self._patterns[port] = ()  # It joined.
            return
        if said is None:
            # What it wrote makes no sense. It gets nothing more, and its port is freed when it is gone.
            self._patterns[port] = ()
            self._listen()
            self.bus._report(BusError(f"the shared memory of worker port {port} is corrupt"), None, "")
            return
        if said[:1] == _PATTERNS:
            number, patterns = pickle.loads(said[1:])
            self._patterns[port] = patterns
            self._listen()
            self._board.acknowledge(port, number)
            return
        try:
            topic, message = pickle.loads(said[1:])
        except Exception as error:
            self.bus._report(error, None, "")
            return
        self.bus._publish_except(self._outgoing, topic, message)
        if any(other != port for other in self._ports(topic)):
            self._outgoing._put((topic, said, port))

    def _bury(self) -> None:
        """Frees the ports of workers that are gone, once everything that they said was heard."""
        gone = [port for port in self._patterns if not self._board.is_alive(port)]
        last = self._board.hear(0) if gone else []
        for port, said in last:
            self._take(port, said)
        for port in gone:
            if not any(port == other for other, _ in last):
                self._forget(port)

    def _forget(self, port: int) -> None:
        self._patterns.pop(port, None)
        self._listen()
        self._board.clear(port)

    def _listen(self) -> None:
        self._wanted = {}
        self._outgoing._set_patterns(tuple(set(itertools.chain.from_iterable(self._patterns.values()))))

    def _ports(self, topic: str) -> tuple[int, ...]:
        wanted = self._wanted
        ports = wanted.get(topic)
        if ports is None:
            if len(wanted) > 4096:
                wanted.clear()
            ports = wanted[topic] = tuple(
                port
                for port, patterns in list(self._patterns.items())
                if any(foundation.matches(pattern, topic) for pattern in patterns)
            )
        return ports

    def _send(self) -> None:
        """Gives the workers what they want, until the bus is closed and everything was sent."""
        for item in self._outgoing:
            topic, message, *origin = item
            if origin:
                encoded: bytes = message
            else:
                try:
                    encoded = _encode(topic, message)
                except Exception as error:
                    self.bus._report(error, None, topic)
                    continue
            for port in self._ports(topic):
                if port not in origin:
                    self._board.send(port, encoded)
        for port in list(self._patterns):
            self._board.send(port, _END)

    def changed(self) -> None:
        """Somebody listens, or listens no more: the hub gets everything anyway."""

    def close(self) -> None:
        """Ends the link, once everything was sent; the workers' ends are closed with it."""
        self._outgoing.close()
        self._threads[1].join(_FAREWELL)
        self._stopping = True
        self._board.stop()

    def join(self) -> None:
        """Waits for its threads, before the interpreter takes itself apart."""
        self.close()
        for thread in self._threads:
            thread.join(_FAREWELL)

    def orphan(self) -> None:
        """In a forked child: there are no threads here, and the workers are the parent's."""
        self._outgoing.close()
        self.bus._link = None


class Uplink:
    """The end of a worker."""

    def __init__(self, bus: Bus, key: str, memory: SharedBuffer) -> None:
        self.bus = bus
        self.key = key
        self.memory = memory
        self._port: Port = worker.switchboard_port(memory)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._told: tuple[str, ...] = ()
        self._outgoing: Subscription[Any] = self.bus._subscribe("**", _CAPACITY, 0, None, 0, True)
        # Behind everybody else, as at the hub.
        self._outgoing._set_patterns(("**",))
        self._sender = threading.Thread(target=self._send, name="windlass-bus-send", daemon=True)
        self._receiver = threading.Thread(target=self._receive, name="windlass-bus-hear", daemon=True)
        self._sender.start()
        self._receiver.start()

    def changed(self) -> None:
        """Tells the hub what is listened to here, and waits until it knows.

        Raises:
            BusError: the hub does not answer.
        """
        with self._lock:
            number = self._tell()
            deadline = time.monotonic() + _SETTLE
            while number and not self._port.wait_acknowledged(number, _TICK):
                if self.bus.closed:
                    return  # The hub has said goodbye; what was subscribed to is closed.
                if time.monotonic() > deadline:
                    raise BusError(
                        f"the process that made the bus has not answered for {_SETTLE:.0f} s; it may be stopped, or "
                        "one of its subscriptions is full and nobody receives from it"
                    )

    def _tell(self) -> int:
        patterns = tuple(dict.fromkeys(self._outgoing._others()))
        if patterns == self._told:
            return 0
        self._told = patterns
        number = next(self._numbers) & 0xFFFFFFFF
        self._port.send(_PATTERNS + pickle.dumps((number, patterns)))
        return number

    def _send(self) -> None:
        for topic, message in self._outgoing:
            try:
                encoded = _encode(topic, message)
            except Exception as error:
                self.bus._report(error, None, topic)
                continue
            self._port.send(encoded)

    def _receive(self) -> None:
        while not self.bus.closed:
            said = self._port.receive(_TICK)
            if said is None:
                continue
            if said == _END:
                self.bus.close()
                return
            try:
                topic, message = pickle.loads(said[1:])
            except Exception as error:
                self.bus._report(error, None, "")
                continue
            try:
                reach = self.bus._publish_except(self._outgoing, topic, message)
            except BusClosed:
                return
            # Only the link itself: a subscription has ended without telling anybody.
            if reach <= 1 and self._lock.acquire(blocking=False):
                try:
                    self._tell()
                finally:
                    self._lock.release()

    def close(self) -> None:
        """Ends the link, once everything was sent."""
        self._outgoing.close()
        if threading.current_thread() is not self._sender:
            self._sender.join(_FAREWELL)
        self._port.stop()

    def join(self) -> None:
        """Sends what was published before the worker leaves."""
        self.close()

    def orphan(self) -> None:
        """In a forked child: the port is its parent's."""
        self._outgoing.close()
        self.bus._link = None


_links: dict[str, Hub | Uplink] = {}
_lock = threading.Lock()


def _leave() -> None:
    for link in list(_links.values()):
        link.join()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for link in _links.values():
        link.orphan()
    _links.clear()


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)


def handle(bus: Bus) -> tuple[str, SharedBuffer]:
    """What stands for a bus in a task's arguments: its name, and the memory of its switchboard.

    Raises:
        TypeError: this is no encoding of Windlass's; it is what a pickler expects of something that cannot be pickled.
    """
    with _lock:
        link = bus._link
        if link is None:
            if bus.closed:
                raise BusClosed("a bus that is closed cannot be sent to a worker")
            link = Hub(bus)
            bus._link = link
            _links[link.key] = link
    if link.memory._lend() is None:
        raise TypeError(
            "a Bus is shared with the workers of a pool, as an argument of a task: `pool.submit(function, bus)`. It "
            "cannot be pickled for anything else"
        )
    return link.key, link.memory


def attach(key: str, memory: SharedBuffer, make: Callable[[], Bus]) -> Bus:
    """The bus behind a handle: this process's own end of it."""
    with _lock:
        link = _links.get(key)
        if link is None:
            bus = make()
            link = _links[key] = Uplink(bus, key, memory)
            bus._link = link
        return link.bus
