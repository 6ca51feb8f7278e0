"""`run_in_executor`, `getaddrinfo` and `getnameinfo`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import socket
import threading
from typing import Any

import pytest
from tests import tasks

Loop = asyncio.AbstractEventLoop


async def test_the_default_executor(loop: Loop) -> None:
    main = threading.get_ident()
    results = await asyncio.gather(*(loop.run_in_executor(None, pow, number, 2) for number in range(100)))
    assert results == [number**2 for number in range(100)]
    assert await loop.run_in_executor(None, threading.get_ident) != main


async def test_errors_come_back(loop: Loop) -> None:
    with pytest.raises(ValueError, match="from the thread"):
        await loop.run_in_executor(None, tasks.fail, "from the thread")


async def test_to_thread_takes_the_context_along(loop: Loop) -> None:
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("set")
    assert await asyncio.to_thread(variable.get) == "set"


async def test_a_cancelled_call(loop: Loop) -> None:
    release = threading.Event()
    call = loop.run_in_executor(None, release.wait, 30)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    release.set()
    assert await loop.run_in_executor(None, int) == 0


def test_an_executor_of_one_s_own(loop: Loop) -> None:
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="own") as executor:
        loop.set_default_executor(executor)
        name = loop.run_until_complete(loop.run_in_executor(None, lambda: threading.current_thread().name))
        assert name.startswith("own")
    with pytest.raises(TypeError):
        loop.set_default_executor("no executor")  # type: ignore[arg-type]


def test_shutdown_of_the_default_executor(loop: Loop) -> None:
    loop.run_until_complete(loop.run_in_executor(None, int))
    loop.run_until_complete(loop.shutdown_default_executor())
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_until_complete(_call(loop))


async def _call(loop: Loop) -> Any:
    return await loop.run_in_executor(None, int)


async def test_a_coroutine_is_refused_in_debug_mode(loop: Loop) -> None:
    loop.set_debug(True)

    async def coroutine() -> None:
        pass

    with pytest.raises(TypeError, match="coroutine"):
        loop.run_in_executor(None, coroutine)


@pytest.fixture(scope="module")
def warm_pools() -> None:
    """What the first pool of a process opens once for all is not a test's to close."""
    import ropewalk

    for kind in ("thread", "process"):
        with ropewalk.Pool(1, kind=kind) as pool:
            assert pool.submit(int).result(60) == 0


@pytest.mark.usefixtures("warm_pools")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_pool_of_ropewalk(loop: Loop, kind: str) -> None:
    import ropewalk

    async def main(pool: ropewalk.Pool) -> list[int]:
        calls = [loop.run_in_executor(pool, tasks.square, number) for number in range(50)]
        with pytest.raises(ValueError, match="from the pool"):
            await loop.run_in_executor(pool, tasks.fail, "from the pool")
        return await asyncio.gather(*calls)

    with ropewalk.Pool(2, kind=kind) as pool:
        assert loop.run_until_complete(main(pool)) == [number**2 for number in range(50)]


async def test_names_are_resolved(loop: Loop) -> None:
    found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert found == socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert await loop.getaddrinfo("localhost", None) == socket.getaddrinfo("localhost", None)
    host, port = await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    assert (host, port) == ("127.0.0.1", "80")
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("127.0.0.1", 80, family=socket.AF_INET6, flags=socket.AI_NUMERICHOST)
