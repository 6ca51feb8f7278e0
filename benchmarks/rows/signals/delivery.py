"""Table: what share of the messages arrives."""

from __future__ import annotations

import threading

from harness.measure import Size
from harness.table import Contest, Line, Row, at_least


def delivery(messages: int, overflow: str) -> dict[str, float]:
    """Two threads publish, two receive from a queue of a hundred; the share that arrives, and the reported loss."""
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("numbers", capacity=100, overflow=overflow)  # type: ignore[arg-type]
    counts = {"received": 0, "told": 0}
    lock = threading.Lock()

    def receive() -> None:
        received = told = 0
        while True:
            try:
                for _ in subscription:
                    received += 1
                break
            except ropewalk.Lagged as lag:
                told += lag.count
        with lock:
            counts["received"] += received
            counts["told"] += told

    receivers = [threading.Thread(target=receive) for _ in range(2)]
    publishers = [
        threading.Thread(target=bus.publish_many, args=("numbers", range(messages // 2))) for _ in range(2)
    ]
    for thread in (*receivers, *publishers):
        thread.start()
    for thread in publishers:
        thread.join()
    bus.close()
    for thread in receivers:
        thread.join()
    known = counts["received"] + counts["told"]
    return {"arrived": 100 * counts["received"] / messages, "accounted": 100 * known / messages}


def _line(what: str, overflow: str, metric: str) -> Line:
    contest = Contest(delivery, needs=("ropewalk",), messages=Size(200_000, 2000), overflow=overflow)
    return Line(what, "%", contest, metric, at_least(100), ours=overflow, more_is_better=True)


ROW = Row(
    "delivery",
    "what arrives",
    "Two publishers, two receivers, 200,000 messages through a subscription with room for 100.",
    (
        _line("arrived, by default", "block", "arrived"),
        _line("drop_oldest: arrived or reported by Lagged", "drop_oldest", "accounted"),
        _line("drop_newest: arrived or reported by Lagged", "drop_newest", "accounted"),
    ),
)
