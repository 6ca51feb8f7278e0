"""anyio on the loop, by its own pytest plugin: task groups, sockets, TLS, processes, threads, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Contexts
from tests.integration.event_loops import is_under_test, new_event_loop

anyio = pytest.importorskip("anyio")
from anyio import from_thread, to_process, to_thread  # noqa: E402
from anyio.streams.buffered import BufferedByteReceiveStream  # noqa: E402
from anyio.streams.tls import TLSListener, TLSStream  # noqa: E402

pytestmark = pytest.mark.anyio


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"loop_factory": new_event_loop}, id="usual"),
        pytest.param({"loop_factory": new_event_loop, "debug": True}, id="debug"),
    ],
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", request.param


@pytest.fixture
async def greeting() -> Any:
    """A fixture of the plugin's, before and after its test in the same loop."""
    loop = asyncio.get_running_loop()
    assert is_under_test(loop)
    yield "hello"
    assert asyncio.get_running_loop() is loop


async def echo(stream: Any) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


async def test_the_plugin_runs_tests_and_fixtures_in_the_loop(greeting: str, anyio_backend: Any) -> None:
    loop = asyncio.get_running_loop()
    assert is_under_test(loop)
    assert loop.get_debug() == anyio_backend[1].get("debug", False)
    assert greeting == "hello"


async def test_task_groups_and_cancel_scopes() -> None:
    events: list[str] = []

    async def fail_after(event: Any) -> None:
        await event.wait()
        raise ValueError("told")

    async def wait_for_ever(event: Any, *, task_status: Any) -> None:
        task_status.started("ready")
        event.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                events.append("cleaned up")

    async def both() -> None:
        async with anyio.create_task_group() as group:
            event = anyio.Event()
            group.start_soon(fail_after, event)
            events.append(await group.start(wait_for_ever, event))

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    assert [str(error) for error in caught.value.exceptions] == ["told"]
    assert events == ["ready", "cleaned up"]


async def test_timeouts() -> None:
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()
    with anyio.fail_after(60):
        await anyio.sleep(0)


async def test_memory_streams_and_limits() -> None:
    send, receive = anyio.create_memory_object_stream[int](5)
    limiter, most = anyio.CapacityLimiter(3), 0

    async def produce(stream: Any, start: int) -> None:
        nonlocal most
        async with stream, limiter:
            most = max(most, limiter.borrowed_tokens)
            for number in range(start, start + 100):
                await stream.send(number)

    async with anyio.create_task_group() as group:
        async with send:
            for name in range(8):
                group.start_soon(produce, send.clone(), 100 * name)
        async with receive:
            received = [number async for number in receive]
    assert sorted(received) == list(range(800))
    assert 1 <= most <= 3


@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_streams(family: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    if family == "unix":
        listener = await anyio.create_unix_listener(path)
    else:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    data = os.urandom(1 << 20)
    # A wait that is cancelled in the turn in which it ends is more than anyio takes.
    answered, left = anyio.Event(), 10

    async def serve(stream: anyio.abc.ByteStream) -> None:
        nonlocal left
        await echo(stream)
        left -= 1
        if not left:
            answered.set()

    async def client() -> None:
        if family == "unix":
            stream = await anyio.connect_unix(path)
        else:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            stream = await anyio.connect_tcp("127.0.0.1", port)
        async with stream, anyio.create_task_group() as talking:
            talking.start_soon(stream.send, data)
            assert await BufferedByteReceiveStream(stream).receive_exactly(len(data)) == data

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        async with anyio.create_task_group() as clients:
            for _ in range(10):
                clients.start_soon(client)
        await answered.wait()
        group.cancel_scope.cancel()


async def test_end_of_stream_one_way() -> None:
    async def count(stream: Any) -> None:
        async with stream:
            size = 0
            async for data in stream:
                size += len(data)
            await stream.send(b"%d" % size)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, count)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(bytes(300_000))
            await stream.send_eof()
            assert await stream.receive() == b"300000"
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        group.cancel_scope.cancel()


async def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    left, right = socket.socketpair()
    async with (
        await anyio.abc.SocketStream.from_socket(left) as one,
        await anyio.abc.SocketStream.from_socket(right) as other,
    ):
        for number in range(20):
            with anyio.move_on_after(0):
                await one.receive()
            with anyio.move_on_after(0.001) as scope:
                await one.receive()
            assert scope.cancelled_caught
            await other.send(b"%d" % number)
            assert await one.receive() == b"%d" % number


async def test_tls(tls: Contexts) -> None:
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = plain.extra(anyio.abc.SocketAttribute.local_port)
    listener = TLSListener(plain, tls.server)
    data = os.urandom(300_000)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, echo)
        async with await anyio.connect_tcp(
            "127.0.0.1", port, ssl_context=tls.client, tls_hostname="localhost"
        ) as stream:
            assert isinstance(stream, TLSStream)
            async with anyio.create_task_group() as talking:
                talking.start_soon(stream.send, data)
                assert await BufferedByteReceiveStream(stream).receive_exactly(len(data)) == data
        group.cancel_scope.cancel()


async def test_datagrams() -> None:
    async with await anyio.create_udp_socket(local_host="127.0.0.1") as server:
        port = server.extra(anyio.abc.SocketAttribute.local_port)
        async with await anyio.create_connected_udp_socket("127.0.0.1", port) as client:
            for number in range(100):
                await client.send(b"%d" % number)
                data, address = await server.receive()
                await server.sendto(data * 2, *address)
                assert await client.receive() == b"%d" % number * 2


async def test_waiting_for_descriptors() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        await anyio.wait_writable(left)
        with anyio.move_on_after(0.01) as scope:
            await anyio.wait_readable(left)
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.wait_readable, left)
            await anyio.wait_all_tasks_blocked()
            right.send(b"x")
        assert left.recv(10) == b"x"


async def test_processes() -> None:
    done = await anyio.run_process(
        [sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1]); print('told', file=sys.stderr)"],
        input=b"abc" * 50_000,
    )
    assert (done.stdout, done.stderr) == (b"cba" * 50_000 + b"\n", b"told\n")
    async with await anyio.open_process(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"], stdin=None
    ) as process:
        assert process.stdout is not None
        assert await BufferedByteReceiveStream(process.stdout).receive_exactly(3) == b"up\n"
        process.terminate()
        assert await process.wait() == -signal.SIGTERM


async def test_many_processes_at_once() -> None:
    codes: list[int] = []

    async def end_with(code: int) -> None:
        done = await anyio.run_process(["sh", "-c", f"exit {code}"], check=False)
        codes.append(done.returncode)

    async with anyio.create_task_group() as group:
        for code in range(30):
            group.start_soon(end_with, code)
    assert sorted(codes) == list(range(30))


async def test_threads_call_back() -> None:
    results: list[int] = []

    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        return 2 * number

    def work(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        from_thread.check_cancelled()
        from_thread.run_sync(results.append, number)
        return from_thread.run(double, number)

    async def ask(number: int) -> None:
        assert await to_thread.run_sync(work, number) == 2 * number

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(ask, number)
    assert sorted(results) == list(range(200))


async def test_a_worker_process() -> None:
    assert await to_process.run_sync(os.getpid) != os.getpid()
    assert await to_process.run_sync(sum, [1, 2, 3]) == 6
    with pytest.raises(ZeroDivisionError):
        await to_process.run_sync(divmod, 1, 0)


async def test_signals() -> None:
    with anyio.open_signal_receiver(signal.SIGUSR1, signal.SIGUSR2) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            os.kill(os.getpid(), number)
            with anyio.fail_after(60):
                assert await anext(signals) == number
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.fixture(params=["usual", "debug"])
def portal(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A loop in a thread of its own, reached through a portal."""
    options = {"loop_factory": new_event_loop, "debug": request.param == "debug"}
    with from_thread.start_blocking_portal("asyncio", options) as portal:
        yield portal


def test_portal_calls(portal: Any) -> None:
    async def where() -> int:
        assert is_under_test(asyncio.get_running_loop())
        await anyio.sleep(0)
        return threading.get_ident()

    assert portal.call(where) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        portal.call(divmod, 1, 0)


def test_portal_calls_from_many_threads(portal: Any) -> None:
    seen: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 200):
            portal.call(seen.append, number)

    threads = [threading.Thread(target=work, args=(200 * name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1600))


def test_portal_tasks_and_their_cancellation(portal: Any) -> None:
    future = portal.start_task_soon(anyio.sleep_forever)
    assert future.cancel()
    assert portal.start_task_soon(pow, 2, 5).result(60) == 32


def test_portal_wraps_an_async_context_manager(portal: Any) -> None:
    with portal.wrap_async_context_manager(portal.call(anyio.create_tcp_listener)) as listener:
        assert listener.extra(anyio.abc.SocketAttribute.local_port) > 0
