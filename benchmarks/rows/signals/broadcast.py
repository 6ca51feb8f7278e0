"""Table: one message to many handlers in the same thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.measure import Size
from harness.table import Contest, Line, Row, times_better, times_the_peer

if TYPE_CHECKING:
    from collections.abc import Callable


def _per_message(call: Callable[[int], object], calls: int) -> dict[str, float]:
    """Nanoseconds of a call that takes the message, after a tenth as many to warm up."""
    for number in range(calls // 10):
        call(number)
    began = time.perf_counter_ns()
    for number in range(calls):
        call(number)
    return {"ns": (time.perf_counter_ns() - began) / calls}


def _handlers(count: int) -> list[Callable[[int], None]]:
    """Functions of their own, which do nothing."""

    def make() -> Callable[[int], None]:
        def handler(_: int) -> None:
            return None

        return handler

    return [make() for _ in range(count)]


def broadcast(peer: str, handlers: int, calls: int) -> dict[str, float]:
    """One message to so many handlers that do nothing; nanoseconds for the message."""
    functions = _handlers(handlers)
    call: Callable[[int], object]
    if peer == "Bus":
        import ropewalk

        bus = ropewalk.Bus()
        for function in functions:
            bus.on("numbers.*")(function)
        publish = bus.publish

        def call(number: int) -> None:
            publish("numbers.new", number)

    elif peer == "loop":

        def call(number: int) -> None:
            for function in functions:
                function(number)

    elif peer == "psygnal":
        import psygnal

        signal = psygnal.SignalInstance((int,))
        for function in functions:
            signal.connect(function, check_nargs=False)
        emit = signal.emit

        def call(number: int) -> None:
            emit(number)

    elif peer == "blinker":
        import blinker

        named = blinker.Signal()
        for function in functions:
            named.connect(function)
        send = named.send

        def call(number: int) -> None:
            send(number)

    else:
        nothing = [].__len__

        def call(_: int) -> None:
            nothing()

    return _per_message(call, calls)


PLAYERS: dict[str, tuple[str, ...]] = {
    "Bus": ("ropewalk",),
    "loop": (),
    "psygnal": ("psygnal",),
    "blinker": ("blinker",),
}
FLOOR = Contest(broadcast, peer="floor", handlers=0, calls=Size(400_000, 20))


def _line(handlers: int) -> Line:
    calls = Size(400_000 // (handlers + 19), 20)
    contest = Contest(broadcast, f"{handlers} handlers", PLAYERS, handlers=handlers, calls=calls)
    peers = {"loop": times_the_peer(1.3), "psygnal": times_better(5), "blinker": times_better(35)}
    return Line(f"to {handlers} handler{'s' * (handlers > 1)}", "ns", contest, "ns", None, peers, "Bus")


ROW = Row(
    "broadcast",
    "one message to many handlers in the same thread, ns a message",
    "The call that publishes, from a Python function around it (the floor shows what that costs); handlers are Python "
    "functions that do nothing. The loop is the same function around a for loop over them.",
    (
        Line("the floor: a frame that calls an empty method", "ns", FLOOR, "ns", ours="an empty call"),
        _line(1),
        _line(100),
    ),
)
