"""A proxy that can be paused, resumed and ended, in a thread."""

from __future__ import annotations

import ropewalk.zmq as zmq
from ropewalk.zmq.devices import ThreadProxySteerable

LOCAL = "tcp://127.0.0.1"


def main() -> None:
    proxy = ThreadProxySteerable(zmq.PULL, zmq.PUSH, zmq.PUB, zmq.PAIR)
    front = proxy.bind_in_to_random_port(LOCAL)
    back = proxy.bind_out_to_random_port(LOCAL)
    copies = proxy.bind_mon_to_random_port(LOCAL)
    control = proxy.bind_ctrl_to_random_port(LOCAL)
    print(len({front, back, copies, control}), "ports")
    proxy.start()
    with (
        zmq.Context() as context,
        context.socket(zmq.PUSH) as push,
        context.socket(zmq.PULL) as pull,
        context.socket(zmq.PAIR) as steer,
    ):
        push.connect(f"{LOCAL}:{front}")
        pull.connect(f"{LOCAL}:{back}")
        steer.connect(f"{LOCAL}:{control}")
        push.send(b"before")
        print(pull.recv().decode())
        steer.send(b"PAUSE")
        steer.send(b"RESUME")
        push.send(b"after")
        print(pull.recv().decode())
        steer.send(b"TERMINATE")
        proxy.join()
        print("ended" if proxy.done else "running")
    # The proxy's sockets belonged to this context.
    zmq.Context.instance().term()


if __name__ == "__main__":
    main()
