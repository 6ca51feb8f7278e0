"""Loops that a program leaves open: the interpreter's exit prints no error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.unit.loop.loops import ROOT

PROGRAM = """
import asyncio, socket, sys, threading
from tests.unit.loop.loops import new_event_loop

class Keep:
    pass

async def serve(reader, writer):
    await reader.read(100)

async def main():
    keep.server = await asyncio.start_server(serve, "127.0.0.1", 0)
    keep.stream = await asyncio.open_connection(*keep.server.sockets[0].getsockname())
    keep.pair = socket.socketpair()
    loop.add_reader(keep.pair[0], print)
    keep.datagrams = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    keep.child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    keep.timer = loop.call_later(1000, print, loop)
    await asyncio.sleep(0.01)

keep = Keep()
keep.cycle = keep
keep.loop = loop = new_event_loop()
loop.run_until_complete(main())
keep.handle = loop.call_soon(print, loop)
if "kept" in sys.argv:
    sys.keep = keep
elif "runs" in sys.argv:
    threading.Thread(target=loop.run_forever, daemon=True).start()
"""


@pytest.mark.parametrize("how", ["global", "kept", "runs"])
def test_the_exit_prints_no_error(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        env=os.environ | {"PYTHONASYNCIODEBUG": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    # asyncio reports tasks that were pending; nothing else is of interest to anybody.
    assert "Exception ignored" not in done.stderr
    assert "Error" not in done.stderr
