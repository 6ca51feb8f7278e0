"""Weather for whoever wants it: PUB and SUB, each subscriber with the topics it asked for.

A publisher drops what nobody has asked for, so this one waits until all have: XPUB is a PUB that hears of
subscriptions.
"""

from __future__ import annotations

import threading

import ropewalk.zmq as zmq

Socket = zmq.Socket[bytes]


def listen(socket: Socket, heard: list[str]) -> None:
    """Until the end of the broadcast."""
    while (message := socket.recv_multipart()) != [b"end", b""]:
        topic, text = message
        heard.append(f"{topic.decode()}: {text.decode()}")


def main() -> None:
    wishes = {"ann": ["paris"], "bob": ["rome", "oslo"], "cleo": [""]}
    heard: dict[str, list[str]] = {name: [] for name in wishes}
    threads = []
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.bind("tcp://127.0.0.1:*")
        # XPUB then reports each subscription, also a second one to the same topic.
        publisher.xpub_verbose = 1
        for name, topics in wishes.items():
            subscriber = context.socket(zmq.SUB)
            subscriber.connect(publisher.last_endpoint)
            for topic in [*topics, "end"]:
                subscriber.subscribe(topic)
            threads.append((threading.Thread(target=listen, args=(subscriber, heard[name])), subscriber))
        for _ in range(sum(len(topics) + 1 for topics in wishes.values())):
            publisher.recv()
        for thread, _ in threads:
            thread.start()
        for topic, text in (("rome", "sunny"), ("paris", "rain"), ("oslo", "snow"), ("lima", "fog")):
            publisher.send_multipart([topic.encode(), text.encode()])
        publisher.send_multipart([b"end", b""])
        for thread, subscriber in threads:
            thread.join()
            subscriber.close()
    for name, texts in heard.items():
        print(name, texts)


if __name__ == "__main__":
    main()
