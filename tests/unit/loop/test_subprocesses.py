"""Child processes: pipes, ends, many at once, and from a thread other than the main one."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from asyncio import subprocess
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.loops import fresh_loop
from tests.unit.loop.recording import until

Loop = asyncio.AbstractEventLoop


async def test_exec_with_pipes(loop: Loop) -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.returncode is None
    assert process.pid > 0
    output, errors = await process.communicate(b"through a pipe")
    assert (output, errors, process.returncode) == (b"through a pipe", None, 0)


async def test_shell(loop: Loop) -> None:
    process = await asyncio.create_subprocess_shell(
        "echo out; echo err >&2; exit 7", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert await process.communicate() == (b"out\n", b"err\n")
    assert process.returncode == 7


async def test_a_lot_of_data_both_ways(loop: Loop) -> None:
    data = os.urandom(3 << 20)
    process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = await process.communicate(data)
    assert output == data


@pytest.mark.parametrize(
    ("method", "number"),
    [("kill", signal.SIGKILL), ("terminate", signal.SIGTERM), ("send_signal", signal.SIGUSR1)],
)
async def test_signals_to_a_child(loop: Loop, method: str, number: int) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "100")
    getattr(process, method)(*([number] if method == "send_signal" else []))
    assert await process.wait() == -number
    assert await process.wait() == -number
    assert process.returncode == -number
    if method != "kill":
        with pytest.raises(ProcessLookupError):
            getattr(process, method)(*([number] if method == "send_signal" else []))


async def test_a_program_that_is_not_there(loop: Loop) -> None:
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nowhere/to/be/found", stdout=subprocess.PIPE)


async def test_a_cancelled_wait_can_be_repeated(loop: Loop) -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.002)
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


async def test_many_at_once(loop: Loop) -> None:
    async def run(number: int) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f"echo {number}; exit {number}", stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output

    results = await asyncio.gather(*map(run, range(25)))
    assert results == [(number, b"%d\n" % number) for number in range(25)]


async def test_waits_for_many_ends(loop: Loop) -> None:
    # They end all at one moment; not one end may be missed.
    reader, writer = os.pipe()
    processes = [await asyncio.create_subprocess_exec("cat", stdin=reader) for _ in range(15)]
    os.close(reader)
    os.close(writer)
    assert await asyncio.gather(*(process.wait() for process in processes)) == [0] * 15


def test_in_a_thread_s_loop(reports: list[dict[str, Any]]) -> None:
    results: list[Any] = []

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        results.append(await process.communicate(b"from a thread"))
        results.append(process.returncode)

    def work() -> None:
        with fresh_loop(reports) as loop:
            loop.run_until_complete(main())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [(b"from a thread", None), 0]


async def test_the_transport_s_protocol(loop: Loop) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.data: dict[int, bytes] = {}
            self.calls: list[str] = []

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.calls.append("connection_made")

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            self.data[fd] = self.data.get(fd, b"") + data

        def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
            self.calls.append(f"pipe {fd}")

        def process_exited(self) -> None:
            self.calls.append("process_exited")

        def connection_lost(self, exc: Exception | None) -> None:
            self.calls.append("connection_lost")

    transport, protocol = await loop.subprocess_exec(
        Protocol, "sh", "-c", "echo out; echo err >&2; cat >/dev/null"
    )
    assert transport.get_pid() > 0
    assert transport.get_returncode() is None
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(b"goes nowhere")
    stdin.close()
    await until(lambda: "connection_lost" in protocol.calls)
    assert protocol.data == {1: b"out\n", 2: b"err\n"}
    assert sorted(protocol.calls[1:-1]) == ["pipe 0", "pipe 1", "pipe 2", "process_exited"]
    assert (protocol.calls[0], protocol.calls[-1]) == ("connection_made", "connection_lost")
    assert transport.get_returncode() == 0
    transport.close()


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio promises no order")
@pytest.mark.parametrize("when", ["never", "before its pipes are connected", "afterwards"])
@pytest.mark.parametrize("watcher", ["pidfd", "thread"])
async def test_the_last_output_comes_before_the_exit(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, when: str, watcher: str
) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.calls: list[str] = []
            self.received = {1: 0, 2: 0}

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            self.calls.append("data")
            self.received[fd] += len(data)

        def process_exited(self) -> None:
            self.calls.append("exit")

        def connection_lost(self, exc: Exception | None) -> None:
            self.calls.append("end")

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if watcher == "thread":
        monkeypatch.setattr(os, "pidfd_open", refuse)

    def until_it_has_ended(pid: int) -> None:
        # Blocks the loop, so that it finds the child's end and all of its output at once.
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    if when == "before its pipes are connected":
        watch: Any = loop._watch_child  # type: ignore[attr-defined]
        monkeypatch.setattr(
            loop,
            "_watch_child",
            lambda transport: (watch(transport), until_it_has_ended(transport.get_pid())),
        )
    for _ in range(5):
        transport, protocol = await loop.subprocess_exec(
            Protocol, "sh", "-c", "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2", stdin=None
        )
        if when == "afterwards":
            until_it_has_ended(transport.get_pid())
        await until(lambda protocol=protocol: "end" in protocol.calls)
        assert protocol.received == {1: 60000, 2: 60000}
        assert "data" not in protocol.calls[protocol.calls.index("exit") :]
        assert protocol.calls[-1] == "end"
        transport.close()


async def test_close_kills_a_child_that_runs(loop: Loop) -> None:
    transport, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "100", stdin=None)
    transport.close()
    await until(lambda: transport.get_returncode() == -signal.SIGKILL)


async def test_its_environment_directory_and_session(loop: Loop, tmp_path: Any) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import os; print(os.getcwd(), os.environ['NAME'], os.getsid(0) == os.getpid())",
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"NAME": "value"},
        start_new_session=True,
    )
    output, _ = await process.communicate()
    assert output.decode().split() == [str(tmp_path), "value", "True"]


def test_a_loop_closed_before_its_children_end_keeps_no_descriptor() -> None:
    before = loops.descriptors()
    children = []
    for _ in range(3):
        with fresh_loop([]) as loop:
            process = loop.run_until_complete(asyncio.create_subprocess_exec("sleep", "100"))
            children.append(process._transport)  # type: ignore[attr-defined]
    try:
        assert loops.left_open(before, 1) == {}
    finally:
        for child in children:
            popen = child.get_extra_info("subprocess")
            # Kills it.
            child.close()
            popen.wait()


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio reports 255 where it uses pidfds")
async def test_the_status_of_a_child_that_popen_has_taken(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
    # Blocks the loop until the child has ended.
    assert process._transport.get_extra_info("subprocess").wait() == 7  # type: ignore[attr-defined]
    assert await process.wait() == 7
    assert caplog.messages == []
