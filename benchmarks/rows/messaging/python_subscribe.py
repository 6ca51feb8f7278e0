"""Table: subscribing to many topics, in Python."""

from __future__ import annotations

import importlib
import threading
import time

from harness.measure import Size
from harness.messaging_ends import PACKAGES, PLAYERS
from harness.messaging_pace import endpoint
from harness.table import Contest, Line, Row, times_the_peer


def subscribe(peer: str, transport: str, count: int) -> dict[str, float]:
    """Microseconds of a topic: of the subscriber's call, and until the publisher has received all.

    Raises:
        RuntimeError: The publisher received other topics.
    """
    zmq = importlib.import_module(PACKAGES[peer])
    topics = [b"topic %d" % number for number in range(count)]
    # The peers' own threads do not share, unless they must.
    context = zmq.Context()
    other = context if transport == "inproc" else zmq.Context()
    publisher, subscriber = context.socket(zmq.XPUB), other.socket(zmq.SUB)
    publisher.rcvhwm = subscriber.sndhwm = 0
    address = endpoint(transport)
    publisher.bind(address)
    subscriber.connect(address)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"first")
    publisher.recv()
    told, over = list[bytes](), list[float]()

    def listen() -> None:
        told.extend(publisher.recv() for _ in topics)
        over.append(time.perf_counter())

    thread = threading.Thread(target=listen)
    thread.start()
    time.sleep(0.05)
    began = time.perf_counter()
    for topic in topics:
        subscriber.setsockopt(zmq.SUBSCRIBE, topic)
    called = time.perf_counter()
    thread.join()
    if told != [b"\x01" + topic for topic in topics]:
        raise RuntimeError("the publisher received other topics")
    for end in (publisher, subscriber):
        end.close(0)
    return {"call": (called - began) / count * 1e6, "told": (over[0] - began) / count * 1e6}


def _lines(transport: str) -> list[Line]:
    contest = Contest(subscribe, transport, PLAYERS, transport=transport, count=Size(10_000, 100))
    return [
        Line(f"{transport}, {what}", "µs", contest, metric, None, {contest.by("pyzmq"): times_the_peer(1)})
        for what, metric in (("the call", "call"), ("until the publisher has it", "told"))
    ]


ROW = Row(
    "python-subscribe",
    "10,000 topics, µs for each",
    "A SUB subscribes to one topic after another, in one thread; an XPUB in another receives the subscriptions. The "
    "second time of a transport runs from the first call until the XPUB has received the last topic, for each topic.",
    [line for transport in ("tcp", "ipc", "inproc") for line in _lines(transport)],
)
