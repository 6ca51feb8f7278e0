"""`python -m asyncio ps` and `pstree` show the tasks of a process, whatever they run."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.unit.loop.loops import ROOT

PROGRAM = """
import asyncio, importlib, socket, sys
from tests.unit.loop.loops import new_event_loop

async def main():
    loop = asyncio.get_running_loop()
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=pair[0])
    others = socket.socketpair()
    others[0].setblocking(False)
    bus = importlib.import_module("ropewalk").Bus()
    subscription = bus.subscribe("topic")
    awaitables = {
        "reads": reader.readexactly(5),
        "receives": loop.sock_recv(others[0], 5),
        "sleeps": asyncio.sleep(1000),
        "subscribes": subscription.recv_async(),
    }
    tasks = [loop.create_task(awaitable, name=name) for name, awaitable in awaitables.items()]
    await asyncio.sleep(0)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)

new_event_loop().run_until_complete(main())
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="new in 3.14")
@pytest.mark.parametrize("command", ["ps", "pstree"])
def test_tasks_are_shown(command: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        shown = subprocess.run(
            [sys.executable, "-m", "asyncio", command, str(process.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        process.kill()
    if "ermission" in shown.stderr or "not permitted" in shown.stderr or "not supported" in shown.stderr:
        pytest.skip("this system lets no process read another one's memory")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for name in ("reads", "receives", "sleeps", "subscribes"):
        assert name in shown.stdout
