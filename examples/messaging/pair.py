"""Two threads that wait for each other's signals: PAIR over inproc."""

from __future__ import annotations

import threading

import ropewalk.zmq as zmq


def step_one(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """Tells the second that it is ready."""
    with context.socket(zmq.PAIR) as second:
        second.connect("inproc://step2")
        second.send(b"one is ready")


def step_two(context: zmq.Context[zmq.Socket[bytes]], ready: threading.Event) -> None:
    """Waits for the first, and tells the third."""
    with context.socket(zmq.PAIR) as first, context.socket(zmq.PAIR) as third:
        first.bind("inproc://step2")
        ready.set()
        print("two heard:", first.recv().decode())
        third.connect("inproc://step3")
        third.send(b"two is ready")


def main() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as third:
        third.bind("inproc://step3")
        bound = threading.Event()
        threads = [threading.Thread(target=step_two, args=(context, bound))]
        threads[0].start()
        bound.wait()
        threads.append(threading.Thread(target=step_one, args=(context,)))
        threads[1].start()
        print("three heard:", third.recv().decode())
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
