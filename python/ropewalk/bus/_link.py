"""A bus in several processes: the links between the process that made it and the others that have it.

A bus that is sent to a pool's worker arrives as the worker's own `Bus`, linked to the first; a process of its own links
a bus of its own to it by an endpoint (`bus/_endpoint.py`). "Worker" means both here. The process that made the bus is
the hub: it owns a segment of shared memory with a pair of rings for each worker (`crates/shm`, `switchboard`). A worker
delivers its messages to its own listeners at once, and always sends them to the hub. The hub delivers them to its own
listeners and forwards them to the other workers. A worker sends the hub the patterns of its listeners, and receives
only messages that match them. The hub acknowledges the patterns: when `subscribe` returns in a worker, the worker
misses no message that is published later.

Each ring has a `_Line`. The publisher's thread encodes a message and writes it to the rings of the processes that want
it, before `publish` returns, so that the message arrives even if the process ends at once. If a ring is full, the
message waits in the queue of the line, and a thread of the line sends it later. If that queue is full too, the line
applies the overflow policy that the other process subscribed with. So a process that receives nothing delays only
publishers of messages that it must not miss.

A link does not keep its bus alive. A worker's end is closed when nothing in the worker refers to the bus and it has no
handlers. The hub is closed when nothing in its process refers to the bus, no worker has a port, and no submitted task
carries the bus.

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
from ropewalk.bus import _endpoint
from ropewalk.pool.wire import _serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ropewalk._bus import Subscription
    from ropewalk._worker import Port, SharedBuffer, Switchboard
    from ropewalk.bus._bus import Bus

#: Workers that may share one bus, and the bytes of each ring.
_PORTS = 256
_RING = 64 * 1024
#: Messages that may wait in the queue of a line.
_CAPACITY = 10_000
#: Seconds between the hub's looks for workers that have ended, and for its own end.
_SWEEP_INTERVAL = 0.2
#: Seconds after which a worker's receiver looks whether the bus is gone; a wake-up reports everything else.
_RECEIVE_INTERVAL = 1.0
#: Seconds for which a worker waits until the hub acknowledges its patterns.
_ACKNOWLEDGE_TIMEOUT = 30.0
_CLOSE_TIMEOUT = 5.0
#: Seconds for which a worker waits for a free port; the hub frees the ports of workers that have ended.
_PORT_TIMEOUT = 5.0

#: The first byte of a record. A worker sends patterns that it listens to, or a message; both sides send messages, and
#: how many messages of which topics they dropped.
_PATTERNS = b"p"
_MESSAGE = b"m"
_LOST = b"l"

#: The numbers of the overflow policies, and their order, the one that loses least first. If several patterns of a
#: process match a topic, the first in this order decides.
_BLOCK, _DROP_OLDEST, _DROP_NEWEST, _ERROR = range(4)
_LOSS_ORDER = {_BLOCK: 0, _ERROR: 1, _DROP_OLDEST: 2, _DROP_NEWEST: 3}

_Pairs = tuple[tuple[str, int], ...]


def _least_loss_first(pairs: Iterable[tuple[str, int]]) -> _Pairs:
    return tuple(sorted(set(pairs), key=lambda pair: (_LOSS_ORDER[pair[1]], pair[0])))


def _reporter(bus: weakref.ref[Bus]) -> Callable[[BaseException, str], None]:
    """Makes a function that reports errors to a bus, and does not keep the bus alive."""

    def report(error: BaseException, topic: str) -> None:
        there = bus()
        if there is not None:
            there._report(error, None, topic)

    return report


class _Line:
    """The writing end of one ring: publishers write while it has room, else a thread writes, in order of arrival."""

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
                    f"could not start the thread that sends a bus's queued messages: {error}. Raise the limit of "
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
        """Waits, after the link was closed, until the queued messages are sent."""
        thread = self._threads.get("drain")
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(deadline - time.monotonic(), 0.0))


class Hub:
    """The link's end in the process that made the bus."""

    def __init__(self, bus: Bus) -> None:
        self.key = f"{os.getpid()}-{os.urandom(8).hex()}"
        self.memory: SharedBuffer | None
        self._board: Switchboard
        self.memory, self._board = worker.switchboard(_PORTS, _RING)
        #: References to the memory that the buffer itself holds; further ones belong to tasks that carry the bus.
        self._holders = next(count for count in itertools.count() if not self._board.is_held(count))
        #: Guards `_kept`: one thread gives the bus away while another may find that no process has it any more. It is
        #: reentrant because a finalizer may give a bus away too.
        self._guard = threading.RLock()
        self._kept: Bus | None = bus
        # The callback refers to the board and not to the link: a circle would keep the link until a collection.
        board = self._board
        self._bus = weakref.ref(bus, lambda _: board.wake())
        self._report = _reporter(self._bus)
        self._stopping = False
        self._lines: dict[int, _Line] = {}
        self._endpoints: list[_endpoint.Endpoint] = []
        #: Paused ports, whose last message waits for room, with the records that have arrived from them since.
        self._paused: dict[int, deque[list[Any] | int | bytes | None]] = {}
        self._thread = threading.Thread(target=self._serve, name="ropewalk-bus-receive", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Handles the workers' records until the bus is closed or gone."""
        next_sweep = 0.0
        while not self._stopping and self._bus() is not None:
            records = self._board.hear(_SWEEP_INTERVAL)
            late: list[int] = []
            for port, record in records:
                if port in self._paused:
                    self._paused[port].append(record)
                    continue
                waits = self._take(port, record)
                if waits:
                    self._board.pause(port, True)
                    self._paused[port] = deque([waits])
                    late.append(port)
            for port in late:
                threading.Thread(
                    target=self._catch_up, args=(port,), name="ropewalk-bus-wait", daemon=True
                ).start()
            now = time.monotonic()
            if not records or now >= next_sweep:
                next_sweep = now + _SWEEP_INTERVAL
                self._sweep()
        self.close()
        # A worker may have joined while the bus was closed.
        self._drop_lines()

    def _drop_lines(self) -> None:
        for line in list(self._lines.values()):
            line.link.close()
        self._lines.clear()

    def _drop_endpoints(self) -> None:
        while self._endpoints:
            self._endpoints.pop().close()

    def _take(self, port: int, record: int | bytes | None) -> list[Any]:
        """Handles a record of a worker, and returns the waits for listeners that have no room for its message."""
        bus = self._bus()
        if bus is None:
            return []
        if isinstance(record, int):
            self._join(bus, port)
            return []
        line = self._lines.get(port)
        if line is None:
            return []
        if record is None:
            self._disconnect(
                port,
                BusError(
                    f"the shared memory of a worker's port ({port}) is corrupt: the worker is disconnected from the bus"
                ),
            )
            return []
        if record[:1] == _PATTERNS:
            try:
                number, pairs = pickle.loads(record[1:])
                line.link._set_patterns(_least_loss_first(pairs))
                self._board.acknowledge(port, number)
            except Exception as error:
                self._disconnect(port, error)
            return []
        topic = ""
        try:
            topic, message = pickle.loads(record[1:])
            waits, refused = bus._forward(line.link, topic, message, record)
        except BusClosed:
            return []
        except BaseException as error:
            # `SystemExit` of a handler too: it must not end this thread.
            bus._report(error, None, topic)
            return []
        if refused:
            bus._report(_refused(), None, topic)
        return waits

    def _join(self, bus: Bus, port: int) -> None:
        def offer(message: bytes) -> bool:
            try:
                return self._board.offer(port, message)
            except Exception as error:
                self._disconnect(port, error)
                return True

        def send(message: bytes) -> bool:
            return self._board.send(port, message)

        self._lines[port] = _Line(bus, offer, send, self._report)

    def _disconnect(self, port: int, error: Exception) -> None:
        """Disconnects a worker that sends malformed records; its port is freed when the worker has ended."""
        line = self._lines.get(port)
        if line is not None and not line.link.closed:
            line.link.close()
            self._report(error, "")

    def _catch_up(self, port: int) -> None:
        """Handles the records of a paused port, waits for listeners that have no room, and then resumes the port."""
        backlog = self._paused[port]
        while backlog:
            record = backlog.popleft()
            waits = record if isinstance(record, list) else self._take(port, record)
            for wait in waits:
                try:
                    wait.wait()
                except BaseException as error:
                    if not isinstance(error, BusClosed):
                        self._report(BusError(f"a message of a worker was not delivered: {error!r}"), "")
        del self._paused[port]
        self._board.pause(port, False)

    def _sweep(self) -> None:
        """Frees the ports of workers that have ended, and drops a bus that no process has any more."""
        for port in self._board.gone():
            line = self._lines.pop(port, None)
            if line is not None:
                line.link.close()
            self._board.clear(port)
        kept = None
        with self._guard:
            if self._kept is not None and not self._lines and not self._board.is_held(self._holders):
                # A worker takes its port before its task ends, and the task's reference to the memory goes after that.
                records = self._board.hear(0)
                if not records:
                    kept, self._kept = self._kept, None
                for port, record in records:
                    self._take(port, record)
        del kept  # No lock is held here, so the bus may be finalized.

    def hand_out(self, bus: Bus) -> SharedBuffer | None:
        """Returns the memory to send to a worker, and keeps the bus until no worker has it."""
        with self._guard:
            self._kept = bus
            return self.memory

    def bind(self, endpoint: str) -> str:
        """Listens at an endpoint, and returns it with its name complete."""

        def memory() -> SharedBuffer | None:
            bus = self._bus()
            return None if bus is None or self._stopping else self.hand_out(bus)

        made = _endpoint.Endpoint(endpoint, memory, self._report)
        self._endpoints.append(made)
        if self._stopping:
            made.close()
            raise failed(BusClosed, "the bus was closed")
        return made.name

    def is_unused(self) -> bool:
        """Whether no other process has the bus, nor can get it."""
        return not (self._lines or self._endpoints or self._board.is_held(self._holders))

    def changed(self, wait: bool = True) -> None:
        """Does nothing: the workers send the hub every message, whatever its patterns."""

    def close(self) -> None:
        """Sends what is queued, then closes the link and the workers' ends."""
        if self._stopping:
            return
        self._drop_endpoints()
        lines = list(self._lines.values())
        for line in lines:
            line.link.close()
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for line in lines:
            line.join(deadline)
        self._stopping = True
        self._drop_endpoints()
        self._board.stop()
        self._board.close()
        self._board.wake()
        self._drop_lines()
        self.memory = None
        self._kept = None
        _links.pop(self.key, None)

    def join(self) -> None:
        """Closes the link and joins its thread, before the interpreter finalizes."""
        self.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_TIMEOUT)

    def orphan(self) -> None:
        """Gives the link up in a forked child, which has no threads, and whose parent has the workers."""
        for endpoint in self._endpoints:
            endpoint.orphan()
        for line in self._lines.values():
            line.link.close()
        bus = self._bus()
        if bus is not None:
            bus._link_end = None
            # Without a bound endpoint, once every pool's worker that had it has ended, nobody misses its messages.
            if self._lines or self._endpoints or self._kept is not None:
                bus._orphan()
        self._kept = None


class Uplink:
    """The link's end in a worker."""

    def __init__(
        self, bus: Bus, key: str, memory: SharedBuffer, maker: _endpoint.Maker | None = None
    ) -> None:
        self.key = key
        #: The hub's process, unless this one ends with it.
        self._maker = maker
        self._port: Port = worker.switchboard_port(memory, _PORT_TIMEOUT)
        self._memory: SharedBuffer | None = memory
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._sent_pairs: _Pairs = ()
        self._ended = False
        #: The bus, while it has handlers: they are called even if nothing else here refers to the bus.
        self._kept: Bus | None = None
        port = self._port
        self._bus = weakref.ref(bus, lambda _: port.wake())  # The receiver then finishes the link.
        self._report = _reporter(self._bus)
        self._line = _Line(bus, self._port.offer, self._port.send, self._report)
        self._line.link._set_patterns((("**", _BLOCK),))
        self._receiver = threading.Thread(target=self._receive, name="ropewalk-bus-receive", daemon=True)
        self._receiver.start()

    def changed(self, wait: bool = True) -> None:
        """Sends the patterns to the hub; with `wait`, returns when the hub has acknowledged them.

        Raises:
            BusError: the hub has not acknowledged them in time.
        """
        bus = self._bus()
        if bus is None:
            return
        with self._lock:
            deadline = time.monotonic() + _ACKNOWLEDGE_TIMEOUT
            while (number := self._send_patterns(bus)) < 0 and wait and not bus.closed:
                self._check(deadline)
                time.sleep(0.002)  # The ring is full.
            while number > 0 and wait and not self._port.wait_acknowledged(number, _SWEEP_INTERVAL):
                if bus.closed or self._ended:
                    return  # The hub has closed the link, and the subscriptions with it.
                self._check(deadline)

    @staticmethod
    def _check(deadline: float) -> None:
        if time.monotonic() > deadline:
            raise BusError(
                "the process that made the bus has not answered for "
                f"{_ACKNOWLEDGE_TIMEOUT:.0f} s. Look whether it is stopped, whether one of its handlers does not "
                "return, or whether one of its subscriptions is full and has no receiver."
            )

    def _send_patterns(self, bus: Bus) -> int:
        """Returns the number that the hub will acknowledge; 0 if nothing has changed, -1 if the ring has no room."""
        self._kept = bus if bus._handlers() or bus._tasks else None
        pairs = _least_loss_first(bus._patterns())
        if pairs == self._sent_pairs:
            return 0
        number = next(self._numbers) & 0xFFFFFFFF
        if not self._port.offer(_PATTERNS + pickle.dumps((number, pairs))):
            return -1
        self._sent_pairs = pairs
        return number

    def _receive(self) -> None:
        while True:
            try:
                record = self._port.receive(_RECEIVE_INTERVAL)
            except Exception as error:
                self._report(error, "")
                break
            if record is not None and (not record or not self._deliver(record)):
                break
            if record is None and self._bus() is None:
                break
            if record is None and self._maker is not None and self._maker.has_ended():
                self._report(
                    BusError("the process that made the bus has ended: the bus is closed here too"), ""
                )
                # What waits to be sent has no receiver.
                self._port.leave()
                break
        bus = self._bus()
        self._finish()
        if self._maker is not None:
            self._maker.close()
        if bus is not None:
            bus._close()

    def _deliver(self, record: bytes) -> bool:
        bus = self._bus()
        if bus is None:
            return False
        topic = ""
        try:
            if record[:1] == _LOST:
                for lost, count in pickle.loads(record[1:]).items():
                    bus._lag(lost, count)
                return True
            topic, message = pickle.loads(record[1:])
            reach = bus._receive(self._line.link, topic, message)
        except BusClosed:
            return False
        except BaseException as error:
            # `BusFull`, an unpickling error, `SystemExit` of a handler: none of them ends this thread.
            bus._report(error, None, topic)
            return True
        # Only the link itself got the message: the subscription that asked for it is gone.
        if reach <= 1 and self._lock.acquire(blocking=False):
            try:
                self._send_patterns(bus)
            finally:
                self._lock.release()
        return True

    def close(self) -> None:
        """Sends what is queued, then closes the link."""
        self._finish()
        if threading.current_thread() is not self._receiver:
            self._receiver.join(_CLOSE_TIMEOUT)

    def _finish(self) -> None:
        self._ended = True
        self._kept = None
        _ending.add(self)
        if _links.get(self.key) is self:
            _links.pop(self.key, None)
        self._line.link.close()
        self._line.join(time.monotonic() + _CLOSE_TIMEOUT)
        self._port.leave()
        _ending.discard(self)
        self._memory = None
        bus = self._bus()
        if bus is not None and bus._link_end is self:
            bus._link_end = None

    def hand_out(self, _bus: Bus) -> SharedBuffer | None:
        """Returns the memory, for the worker to send it on."""
        return self._memory

    def join(self) -> None:
        """Sends what was published, before the worker leaves."""
        self.close()

    def orphan(self) -> None:
        """Gives the link up in a forked child: the port belongs to its parent."""
        if self._maker is not None:
            self._maker.close()
        self._line.link.close()
        self._kept = None
        bus = self._bus()
        if bus is not None:
            bus._link_end = None
            bus._orphan()


def _refused() -> BusFull:
    what = 'a subscription has no room for what another process published, and its overflow is "error"'
    return failed(BusFull, what)


_links: dict[str, Hub | Uplink] = {}
#: Links that are sending their last messages. The same bus may arrive again meanwhile, by another link.
_ending: set[Uplink] = set()
#: Guards the making of links. It is reentrant because a finalizer that runs meanwhile may send a bus too.
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


def _link_of(bus: Bus) -> Hub | Uplink:
    """Returns the link of a bus, which becomes the hub of its own if it has none."""
    with _lock:
        link = bus._link_end
        if link is None:
            link = Hub(bus)
            bus._link_end = link
            _links[link.key] = link
        return link


def bind(bus: Bus, endpoint: str) -> str:
    """Lets other processes join a bus at an endpoint, and returns the endpoint to connect to."""
    was_alone = bus._link_end is None
    link = _link_of(bus)
    if isinstance(link, Uplink):
        raise BusError("only the process that made a bus can bind it: this one has joined another's")
    try:
        return link.bind(endpoint)
    except BaseException:
        if was_alone and link.is_unused():
            link.close()
            bus._link_end = None
        raise


def connect(bus: Bus, endpoint: str, timeout: float) -> None:
    """Joins the bus of another process at an endpoint."""
    memory, maker = _endpoint.join(endpoint, timeout)
    try:
        with _lock:
            if bus._link_end is not None:
                raise BusError("this bus has other processes already: connect a new one")
            # Each such link has a key of its own: several buses of one process may join the same.
            link = Uplink(bus, f"{os.getpid()}-{os.urandom(8).hex()}", memory, maker)
            bus._link_end = link
            _links[link.key] = link
    except BaseException:
        maker.close()
        raise
    link.changed()


def handle(bus: Bus) -> tuple[str, SharedBuffer]:
    """Returns what represents a bus in a task's arguments: its key, and the memory of its switchboard.

    Raises:
        BusClosed: the bus was closed meanwhile.
        TypeError: the bus is not being pickled for a task; picklers expect this class for an object they cannot pickle.
    """
    link = _link_of(bus)
    memory = link.hand_out(bus)
    if memory is None:
        raise failed(BusClosed, "the bus was closed while it was sent to a worker")
    if memory._lend() is None:
        raise TypeError(
            "a Bus can be pickled only as an argument of a pool's task. Share it with workers by "
            "`pool.submit(function, bus)`, and with other processes by `bus.bind` and `bus.connect`."
        )
    return link.key, memory


def attach(key: str, memory: SharedBuffer, make: Callable[[], Bus]) -> Bus:
    """Returns this process's end of the bus that `key` names, and makes it if there is none."""
    with _lock:
        link = _links.get(key)
        bus = None if link is None else link._bus()
        if bus is None:
            bus = make()
            link = _links[key] = Uplink(bus, key, memory)
            bus._link_end = link
        return bus
