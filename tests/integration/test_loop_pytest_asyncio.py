"""pytest-asyncio with our loop, as its documentation says, in a separate run with its own configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.event_loops import MODULE

pytest.importorskip("pytest_asyncio")

_CONFTEST = f"""
import {MODULE}

def pytest_asyncio_loop_factories(config, item):
    return {{"ours": {MODULE}.new_event_loop}}
"""

_TESTS = f"""
import asyncio
import pytest
import pytest_asyncio

def is_ours(loop):
    return type(loop).__module__.partition(".")[0] == {MODULE!r}

@pytest_asyncio.fixture
async def server():
    loop = asyncio.get_running_loop()
    assert is_ours(loop)
    async def echo(reader, writer):
        writer.write(await reader.read())
        writer.close()
        await writer.wait_closed()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()
    assert asyncio.get_running_loop() is loop

@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared():
    return asyncio.get_running_loop()

@pytest.mark.asyncio
async def test_with_a_fixture(server):
    reader, writer = await asyncio.open_connection(*server)
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"hello"
    writer.close()
    await writer.wait_closed()

@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("turn", range(3))
async def test_one_loop_for_the_module(shared, turn):
    assert is_ours(shared)
    assert asyncio.get_running_loop() is shared
    await asyncio.sleep(0.001)

@pytest.mark.asyncio
async def test_a_timeout():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.get_running_loop().create_future()

@pytest.mark.asyncio
async def test_that_fails():
    assert not is_ours(asyncio.get_running_loop()), "on purpose"
"""


@pytest.mark.parametrize("debug", ["", "1"], ids=["usual", "debug"])
def test_a_run(tmp_path: Path, debug: str) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_it.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONASYNCIODEBUG": debug},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert "on purpose" in done.stdout
