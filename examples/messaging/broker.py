"""Clients and workers that do not know each other: a ROUTER for the ones, a DEALER for the others, and a proxy between.

The same proxy in the background is `ropewalk.zmq.devices.ThreadProxy`.
"""

from __future__ import annotations

import threading

import ropewalk.zmq as zmq

CLIENTS, WORKERS, REQUESTS = 3, 2, 20


def work(context: zmq.Context[zmq.Socket[bytes]], address: str, name: str) -> None:
    """Answers until the context is terminated."""
    socket = context.socket(zmq.REP)
    socket.connect(address)
    try:
        while True:
            socket.send_multipart([*socket.recv_multipart(), name.encode()])
    except zmq.ContextTerminated:
        socket.close(linger=0)


def ask(context: zmq.Context[zmq.Socket[bytes]], address: str, name: str, answers: list[list[bytes]]) -> None:
    """Asks, and keeps what it is answered."""
    with context.socket(zmq.REQ) as socket:
        socket.connect(address)
        for number in range(REQUESTS):
            socket.send_multipart([name.encode(), b"%d" % number])
            answers.append(socket.recv_multipart())


def broke(front: zmq.Socket[bytes], back: zmq.Socket[bytes]) -> None:
    """Passes messages on until the context is terminated."""
    try:
        zmq.proxy(front, back)
    except zmq.ContextTerminated:
        front.close(linger=0)
        back.close(linger=0)


def main() -> None:
    context = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    front.bind("tcp://127.0.0.1:*")
    back.bind("inproc://workers")
    address = front.last_endpoint.decode()
    threads = [
        threading.Thread(target=broke, args=(front, back)),
        *(
            threading.Thread(target=work, args=(context, "inproc://workers", f"worker {number}"))
            for number in range(WORKERS)
        ),
    ]
    answers: list[list[bytes]] = []
    clients = [
        threading.Thread(target=ask, args=(context, address, f"client {number}", answers))
        for number in range(CLIENTS)
    ]
    for thread in (*threads, *clients):
        thread.start()
    for thread in clients:
        thread.join()
    context.term()
    for thread in threads:
        thread.join()
    right = sum(answer[2].startswith(b"worker") for answer in answers)
    print(f"{right} answers by workers whom no client knows")


if __name__ == "__main__":
    main()
