"""What happens to a socket's connections, as it tells a monitor."""

from __future__ import annotations

import threading

import ropewalk.zmq as zmq
from ropewalk.zmq.utils.monitor import recv_monitor_message


def watch(monitor: zmq.Socket[bytes], seen: list[str]) -> None:
    """Collects the events' names until the monitor stops."""
    while (event := recv_monitor_message(monitor)["event"]) != zmq.EVENT_MONITOR_STOPPED:
        seen.append(zmq.Event(event).name)
    monitor.close()


def main() -> None:
    seen: list[str] = []
    with zmq.Context() as context, context.socket(zmq.REP) as server, context.socket(zmq.REQ) as client:
        watching = threading.Thread(target=watch, args=(server.get_monitor_socket(), seen))
        watching.start()
        server.bind("tcp://127.0.0.1:*")
        client.connect(server.last_endpoint)
        client.send(b"hello")
        server.send(server.recv())
        client.recv()
        server.disable_monitor()
        watching.join()
    for name in seen:
        print(name)


if __name__ == "__main__":
    main()
