"""A server that answers, and clients that ask: REQ and REP.

python examples/messaging/request_reply.py                              server and clients in one process
python examples/messaging/request_reply.py --serve tcp://127.0.0.1:5555   only the server, until Ctrl-C
python examples/messaging/request_reply.py --ask tcp://127.0.0.1:5555     only a client
"""

from __future__ import annotations

import argparse
import threading

import ropewalk.zmq as zmq


def serve(socket: zmq.Socket[bytes], requests: int | None) -> None:
    """Answers so many requests, or all there will ever be."""
    while requests is None or requests > 0:
        question = socket.recv_string()
        socket.send_string(question[::-1])
        requests = None if requests is None else requests - 1


def ask(context: zmq.Context[zmq.Socket[bytes]], address: str, questions: list[str]) -> list[str]:
    """What the server answers."""
    answers = []
    with context.socket(zmq.REQ) as socket:
        socket.connect(address)
        for question in questions:
            socket.send_string(question)
            answers.append(socket.recv_string())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description="REQ and REP.")
    parser.add_argument("--serve", metavar="ADDRESS")
    parser.add_argument("--ask", metavar="ADDRESS")
    options = parser.parse_args()
    questions = ["hello", "world", "step on no pets"]
    with zmq.Context() as context:
        if options.ask:
            print(ask(context, options.ask, questions))
            return
        with context.socket(zmq.REP) as server:
            server.bind(options.serve or "tcp://127.0.0.1:*")
            if options.serve:
                serve(server, None)
                return
            # A socket belongs to one thread at a time: this one has bound it, and that one has it from here on.
            address = server.last_endpoint.decode()
            thread = threading.Thread(target=serve, args=(server, 2 * len(questions)))
            thread.start()
            for _ in range(2):
                print(ask(context, address, questions))
            thread.join()


if __name__ == "__main__":
    main()
