"""The garbage collector sees what native objects hold: a cycle through each of them is collected.

A new native type that can hold a Python object gets its cycle here.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import socket
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ropewalk

#: Loops and sockets that are not closed say so; here that is the point.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CYCLES: dict[str, Callable[[Any], object]] = {}


class Link:
    """What closes the cycle, and is known to be gone."""

    held: Any = None

    def call(self, *_: object) -> None:
        """Holds the link as any bound method does."""


def through(name: str) -> Callable[[Callable[[Link], object]], Callable[[Link], object]]:
    """Registers a function that makes something native which holds the link; the link will hold that."""

    def register(function: Callable[[Link], object]) -> Callable[[Link], object]:
        CYCLES[name] = function
        return function

    return register


@pytest.fixture(autouse=True)
def no_collection_by_chance() -> Iterator[None]:
    """Nothing is collected before the test says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_is_collected(name: str) -> None:
    link = Link()
    link.held = CYCLES[name](link)
    gone = weakref.ref(link)
    del link
    if name not in LETS_GO_BY_ITSELF:
        assert gone() is not None, "there is no cycle: the test would pass with anything"
    for _ in range(3):
        gc.collect()
    assert gone() is None


#: What keeps nothing. On a free-threaded build a loop gives each callback a context of its own, and shares no values.
LETS_GO_BY_ITSELF = (
    {"Loop: the values that callbacks shared"} if sysconfig.get_config_var("Py_GIL_DISABLED") else set[str]()
)


# --- results and buses ------------------------------------------------------------------------------------------------


@through("Ok")
def _(link: Link) -> object:
    return ropewalk.Ok(link)


@through("Err")
def _(link: Link) -> object:
    return ropewalk.Err(ropewalk.Ok(link))


@through("Bus: a handler")
def _(link: Link) -> object:
    bus = ropewalk.Bus()
    bus.on("it")(link.call)
    return bus


@through("Bus: a handler and its route")
def _(link: Link) -> object:
    bus = ropewalk.Bus()
    bus.on("*")(link.call)
    bus.on("it", where=lambda _: bool(link.held))(link.call)
    bus.publish("it", 1)
    return bus


@through("Bus: on_error")
def _(link: Link) -> object:
    return ropewalk.Bus(on_error=link.call)


@through("Bus: a route with one handler")
def _(link: Link) -> object:
    bus = ropewalk.Bus()
    bus.on("it")(link.call)
    bus.publish("it", 1)
    return bus


@through("Subscription: its messages")
def _(link: Link) -> object:
    bus = ropewalk.Bus()
    subscription = bus.subscribe("it")
    bus.publish("it", link)
    return subscription


@through("Subscription: a filter")
def _(link: Link) -> object:
    return ropewalk.Bus().subscribe("it", where=link.call)


@through("a reception that waits")
def _(link: Link) -> object:
    async def wait() -> None:
        await subscription.recv_async()

    bus = ropewalk.Bus()
    subscription = bus.subscribe("it")
    loop: Any = asyncio.new_event_loop()
    loop.link = link
    task = loop.create_task(wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    return task, loop


@through("a reception that was not started")
def _(link: Link) -> object:
    bus = ropewalk.Bus()
    subscription = bus.subscribe("it")
    bus.publish("it", link)
    return subscription.recv_async()


@through("a publication that waits")
def _(link: Link) -> object:
    async def wait() -> None:
        await bus.publish_async("it", link)

    bus = ropewalk.Bus()
    subscription = bus.subscribe("it", capacity=1)
    bus.publish("it", 1)
    loop: Any = asyncio.new_event_loop()
    loop.link = link
    task = loop.create_task(wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    return task, loop, subscription


# --- event loops ------------------------------------------------------------------------------------------------------


def _turn(loop: Any) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


@through("Loop: a callback")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    loop.call_soon(link.call)
    return loop


@through("Loop: a callback from another thread, while it ran")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()

    def stop() -> None:
        # What arrives in the turn that is the last stays where it arrived.
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(link.call))
        thread.start()
        thread.join()
        loop.stop()

    loop.call_soon(stop)
    loop.run_forever()
    return loop


@through("Loop: a timer")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    loop.call_later(3600, link.call)
    return loop


@through("Loop: a reader and a writer")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    left, right = socket.socketpair()
    loop.add_reader(left, link.call)
    loop.add_writer(right, link.call)
    return loop, left, right


@through("Loop: a task factory")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    loop.set_task_factory(lambda *_, **__: link.call())  # type: ignore[arg-type,func-returns-value]
    return loop


@through("Loop: an exception handler")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    loop.set_exception_handler(link.call)
    return loop


@through("Loop: the values that callbacks shared")
def _(link: Link) -> object:
    variable: contextvars.ContextVar[Link] = contextvars.ContextVar("variable")
    loop = ropewalk.new_event_loop()

    def schedule() -> None:
        variable.set(link)
        for _ in range(3):
            loop.call_soon(int)
        loop.call_soon(loop.stop)

    contextvars.copy_context().run(schedule)
    loop.run_forever()
    return loop


@through("Handle")
def _(link: Link) -> object:
    return ropewalk.new_event_loop().call_soon(link.call)


@through("TimerHandle")
def _(link: Link) -> object:
    return ropewalk.new_event_loop().call_later(3600, link.call)


@through("a timer of a loop that ran")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    made: list[object] = []
    loop.call_soon(lambda: made.append(loop.call_later(3600, link.call)))
    _turn(loop)
    return made


@through("a handle of a loop that is closed")
def _(link: Link) -> object:
    loop = ropewalk.new_event_loop()
    handle = loop.call_soon(link.call, link)
    loop.close()
    return handle


class Buffer(bytearray):
    """Memory that can be part of a cycle."""

    link: Any


def _operation(start: Callable[[Any, socket.socket], Any], link: Link) -> object:
    loop: Any = ropewalk.new_event_loop()
    left, right = socket.socketpair()
    left.setblocking(False)

    async def wait() -> None:
        await start(loop, left)

    task = loop.create_task(wait())
    loop.link = link
    _turn(loop)
    return task, left, right


@through("sock_recv")
def _(link: Link) -> object:
    return _operation(lambda loop, file: loop.sock_recv(file, 10), link)


@through("sock_recv_into")
def _(link: Link) -> object:
    memory = Buffer(10)
    memory.link = link
    return _operation(lambda loop, file: loop.sock_recv_into(file, memory), Link()), memory


@through("sock_recv_into, whose memory holds it")
def _(link: Link) -> object:
    loop: Any = ropewalk.new_event_loop()
    left, right = socket.socketpair()
    left.setblocking(False)
    memory = Buffer(10)
    memory.link = link
    step = loop.sock_recv_into(left, memory).__await__()
    link.held = step
    next(step)
    return step, left, right, loop


@through("sock_sendall")
def _(link: Link) -> object:
    memory = Buffer(1 << 22)
    memory.link = link
    return _operation(lambda loop, file: loop.sock_sendall(file, memory), link)


@through("a transport and its protocol")
def _(link: Link) -> object:
    class Protocol(asyncio.Protocol):
        held: Any = None

    loop: Any = ropewalk.new_event_loop()
    left, right = socket.socketpair()
    protocol = Protocol()
    protocol.held = link
    transport, _ = loop.run_until_complete(loop.connect_accepted_socket(lambda: protocol, left))
    transport.write(b"x" * (1 << 22))
    return transport, right


@through("a stream reader that waits")
def _(link: Link) -> object:
    loop: Any = ropewalk.new_event_loop()
    left, right = socket.socketpair()

    async def wait() -> None:
        reader, writer = await asyncio.open_connection(sock=left)
        link.held = writer
        await reader.readexactly(10)

    task = loop.create_task(wait())
    loop.link = link
    for _ in range(5):
        _turn(loop)
    return task, right


# --- messaging --------------------------------------------------------------------------------------------------------


@through("zmq: a context")
def _(link: Link) -> object:
    import ropewalk.zmq as zmq

    class Context(zmq.Context):  # type: ignore[type-arg]
        link: Any

    context: Any = Context()
    context.link = link
    return context


@through("zmq: a socket")
def _(link: Link) -> object:
    import ropewalk.zmq as zmq

    class Context(zmq.Context):  # type: ignore[type-arg]
        link: Any

    context: Any = Context()
    context.link = link
    made = context.socket(zmq.PAIR)
    made.linger = 0
    return made


@through("zmq: a frame's tracker")
def _(link: Link) -> object:
    import ropewalk.zmq as zmq

    frame: Any = zmq.Frame(b"x")
    frame.tracker = link
    return frame


@through("zmq: an awaited reception")
def _(link: Link) -> object:
    import ropewalk.zmq as zmq
    import ropewalk.zmq.asyncio

    loop: Any = ropewalk.new_event_loop()
    context = ropewalk.zmq.asyncio.Context()

    async def wait() -> None:
        receiver = context.socket(zmq.PULL)
        receiver.bind("inproc://cycles")
        link.held = receiver
        await receiver.recv()

    task = loop.create_task(wait())
    loop.link = link
    for _ in range(3):
        _turn(loop)
    return task, context
