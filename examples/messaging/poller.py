"""One thread that waits for two sockets and a pipe at once."""

from __future__ import annotations

import os
import threading

import ropewalk.zmq as zmq


def main() -> None:
    reading, writing = os.pipe()
    with (
        zmq.Context() as context,
        context.socket(zmq.PULL) as tasks,
        context.socket(zmq.SUB) as news,
        context.socket(zmq.PUSH) as boss,
        context.socket(zmq.XPUB) as press,
    ):
        for sender in (boss, press):
            sender.bind("tcp://127.0.0.1:*")
        tasks.connect(boss.last_endpoint)
        news.connect(press.last_endpoint)
        news.subscribe(b"")
        press.recv()

        def send() -> None:
            boss.send(b"a task")
            press.send(b"the news")
            os.write(writing, b"bytes in a pipe")

        sending = threading.Thread(target=send)
        sending.start()
        poller = zmq.Poller()
        for source in (tasks, news, reading):
            poller.register(source, zmq.POLLIN)
        heard = set()
        while len(heard) < 3:
            for source, _ in poller.poll():
                heard.add(os.read(source, 100) if source == reading else source.recv())
        sending.join()
    os.close(reading)
    os.close(writing)
    for message in sorted(heard):
        print(message.decode())


if __name__ == "__main__":
    main()
