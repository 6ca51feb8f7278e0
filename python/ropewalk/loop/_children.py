"""Child processes: the loop watches each through a pidfd, without signals, and without threads where pidfds work."""

from __future__ import annotations

import os
import threading
from asyncio import unix_events
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

from ropewalk._load import loop as _core

if TYPE_CHECKING:
    from asyncio import Future, SubprocessProtocol, SubprocessTransport
    from collections.abc import Callable

    class _Base(SubprocessTransport):
        """For type checkers: private parts of asyncio's transport."""

        _finished: bool
        _pending_calls: Any
        _pipes: dict[int, Any]
        _proc: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def _call(self, callback: Callable[..., object], *data: Any) -> None: ...
        def _process_exited(self, returncode: int) -> None: ...
        def _try_finish(self) -> None: ...
        async def _connect_pipes(self, waiter: Future[None] | None) -> None: ...
        async def _wait(self) -> int: ...

else:
    _Base = unix_events._UnixSubprocessTransport

#: Type checkers do not know asyncio's private names.
_unix: Any = unix_events


class ChildTransport(_Base):
    """A child process: an `asyncio.SubprocessTransport`.

    The protocol receives what the child has written before it learns that the child has ended, unless it has paused
    reading. A child of the child may write afterwards.
    """

    #: `process_exited`, which waits for the pipes to be connected.
    _exit_call: Any = None

    def _process_exited(self, returncode: int) -> None:
        try:
            self._read_rest()
        finally:
            super()._process_exited(returncode)
        if self._pending_calls is not None and not self._finished:
            self._exit_call = self._pending_calls.pop()

    async def _connect_pipes(self, waiter: Future[None] | None) -> None:
        await super()._connect_pipes(waiter)
        if self._pending_calls is None and self._exit_call is not None:
            self._read_rest()
            (callback, arguments), self._exit_call = self._exit_call, None
            self._call(callback, *arguments)
            self._try_finish()

    def _try_finish(self) -> None:
        # The end of the transport comes after the child's.
        if self._exit_call is None:
            super()._try_finish()

    def _read_rest(self) -> None:
        for number, end in self._pipes.items():
            if number and end is not None and isinstance(end.pipe, _core.ReadPipe):
                end.pipe._read_rest()


class ChildWatching:
    """The part of a loop that notices when a child process ends.

    Source: pidfd_open(2).
    """

    #: Of the children that have not ended.
    _pidfds: set[int]

    if TYPE_CHECKING:

        def create_future(self) -> Future[Any]: ...
        def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...
        def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object: ...
        def _add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> object: ...
        def _remove_reader(self, fd: int, /) -> bool: ...
        def is_closed(self) -> bool: ...

    async def _make_subprocess_transport(
        self,
        protocol: SubprocessProtocol,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> Any:
        waiter = self.create_future()
        transport = ChildTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        self._watch_child(transport)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport

    def _watch_child(self, transport: ChildTransport) -> None:
        pid = transport.get_pid()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # A sandbox refuses pidfds, or no descriptor is left; a thread waits for the child instead.
            threading.Thread(
                target=self._wait_in_thread, args=(transport, pid), name=f"waitpid-{pid}", daemon=True
            ).start()
            return
        self._pidfds.add(pidfd)
        self._add_reader(pidfd, self._child_ended, transport, pid, pidfd)

    def _child_ended(self, transport: ChildTransport, pid: int, pidfd: int) -> None:
        self._remove_reader(pidfd)
        self._pidfds.remove(pidfd)
        os.close(pidfd)
        transport._process_exited(_wait(transport, pid))

    def _wait_in_thread(self, transport: ChildTransport, pid: int) -> None:
        code = _wait(transport, pid)
        if self.is_closed():
            logger.warning("Loop %r that handles pid %r is closed", self, pid)
        else:
            self.call_soon_threadsafe(transport._process_exited, code)

    def _forget_children(self) -> None:
        """Watch no child any more: the loop is closed."""
        while self._pidfds:
            os.close(self._pidfds.pop())


def _wait(transport: ChildTransport, pid: int) -> int:
    process = transport._proc
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        # Other code may have asked the `Popen` object, which then has the status: `close()` of the transport does.
        if process is not None and process.returncode is not None:
            return int(process.returncode)
        logger.warning(
            "child process pid %d exit status already read:  will report returncode 255",
            pid,
        )
        return 255
    code: int = _unix.waitstatus_to_exitcode(status)
    return code
