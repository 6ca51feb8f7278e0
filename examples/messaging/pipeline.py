"""Work for many hands: a ventilator deals out tasks, workers do them, a sink gathers the results. PUSH and PULL."""

from __future__ import annotations

import threading

import ropewalk.zmq as zmq

TASKS, WORKERS = 1000, 4


def work(context: zmq.Context[zmq.Socket[bytes]], tasks_at: str, results_at: str, stop_at: str) -> None:
    """Squares numbers until the message to stop arrives."""
    with (
        context.socket(zmq.PULL) as tasks,
        context.socket(zmq.PUSH) as results,
        context.socket(zmq.SUB) as stop,
    ):
        tasks.connect(tasks_at)
        results.connect(results_at)
        stop.connect(stop_at)
        stop.subscribe(b"")
        results.send(b"ready")
        poller = zmq.Poller()
        poller.register(tasks, zmq.POLLIN)
        poller.register(stop, zmq.POLLIN)
        while stop not in (ready := dict(poller.poll())):
            if tasks in ready:
                number = int(tasks.recv())
                results.send(b"%d" % number**2)


def main() -> None:
    with (
        zmq.Context() as context,
        context.socket(zmq.PUSH) as ventilator,
        context.socket(zmq.PULL) as sink,
        context.socket(zmq.XPUB) as stop,
    ):
        for socket in (ventilator, sink, stop):
            socket.bind("tcp://127.0.0.1:*")
        addresses = [socket.last_endpoint.decode() for socket in (ventilator, sink, stop)]
        workers = [threading.Thread(target=work, args=(context, *addresses)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        # Who starts dealing before all are there deals everything to the first.
        for _ in workers:
            assert sink.recv() == b"ready"
        for number in range(TASKS):
            ventilator.send(b"%d" % number)
        total = sum(int(sink.recv()) for _ in range(TASKS))
        # XPUB reports only the first subscription to a topic, so the message is repeated until all workers have it.
        stop.recv()
        while any(worker.is_alive() for worker in workers):
            stop.send(b"stop")
            for worker in workers:
                worker.join(0.01)
    print(f"{TASKS} tasks by {WORKERS} workers: {total}")
    print("right" if total == sum(number**2 for number in range(TASKS)) else "wrong")


if __name__ == "__main__":
    main()
