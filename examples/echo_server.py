"""An echo server, and clients that keep it busy, on Ropewalk's event loop.

    python examples/echo_server.py                  32 connections of 200 requests each; then it ends
    python examples/echo_server.py --loop asyncio   the same on the standard library's loop
    python examples/echo_server.py --serve 7000     serves on that port until Ctrl-C: try `nc localhost 7000`

Nothing in it knows the loop but the last lines of `main`, and that is the point.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time


class Echo(asyncio.Protocol):
    """Sends back what comes. A peer that does not read its echo is not read either, so nothing piles up here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


async def serve(port: int) -> None:
    """Serves until it is cancelled."""
    server = await asyncio.get_running_loop().create_server(Echo, port=port)
    async with server:
        print(f"echoing on port {port}; Ctrl-C ends it", flush=True)
        await server.serve_forever()


async def talk(address: tuple[str, int], requests: int, size: int) -> int:
    """One client: how many answers were what it had sent."""
    reader, writer = await asyncio.open_connection(*address)
    right = 0
    try:
        for _ in range(requests):
            message = os.urandom(size)
            writer.write(message)
            await writer.drain()
            right += await reader.readexactly(size) == message
    finally:
        writer.close()
        await writer.wait_closed()
    return right


async def load(connections: int, requests: int, size: int) -> None:
    """Server and clients in one loop, and what came of it."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as clients:
            tasks = [clients.create_task(talk((host, port), requests, size)) for _ in range(connections)]
        wall = time.perf_counter() - start
    right, total = sum(task.result() for task in tasks), connections * requests
    loop = type(asyncio.get_running_loop())
    print(
        f"{loop.__module__}.{loop.__qualname__}: {total:,} requests of {size:,} bytes, {connections} connections"
    )
    print(f"{right:,} right answers in {wall:.2f} s, {total / wall:,.0f} a second")


def main() -> None:
    """Serves, or runs a load and ends."""
    parser = argparse.ArgumentParser(description="An echo server, and clients that keep it busy.")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve on this port until Ctrl-C")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--requests", type=int, default=200, help="for each connection")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a request")
    parser.add_argument("--loop", choices=["ropewalk", "asyncio"], default="ropewalk")
    options = parser.parse_args()
    if options.serve is not None:
        what = serve(options.serve)
    else:
        what = load(options.connections, options.requests, options.size)
    if options.loop == "ropewalk":
        import ropewalk

        run = ropewalk.run
    else:
        run = asyncio.run
    with contextlib.suppress(KeyboardInterrupt):
        run(what)


if __name__ == "__main__":
    main()
