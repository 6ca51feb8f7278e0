"""A server and its clients as tasks of one event loop: ROUTER, DEALER and `await`."""

from __future__ import annotations

import asyncio

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Socket

CLIENTS, REQUESTS = 5, 100


async def serve(server: Socket) -> None:
    """Echoes until it is cancelled."""
    while True:
        identity, message = await server.recv_multipart()
        await server.send_multipart([identity, message.upper()])


async def ask(context: Context, address: bytes, name: str) -> int:
    """How many answers were right."""
    right = 0
    with context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        for number in range(REQUESTS):
            await socket.send_string(f"{name} asks {number}")
            right += await socket.recv_string() == f"{name} ASKS {number}".upper()
    return right


async def main() -> None:
    with Context() as context, context.socket(zmq.ROUTER) as server:
        server.bind("tcp://127.0.0.1:*")
        serving = asyncio.create_task(serve(server))
        names = [f"client {number}" for number in range(CLIENTS)]
        right = await asyncio.gather(*(ask(context, server.last_endpoint, name) for name in names))
        print(f"{sum(right)} right answers of {CLIENTS * REQUESTS}")
        serving.cancel()


if __name__ == "__main__":
    # Any loop serves; `ropewalk.run(main())` is the faster one.
    asyncio.run(main())
