"""Child processes: the loop watches each through a pidfd, without signals, and without threads where pidfds work."""

from __future__ import annotations

import os
import threading
from asyncio import unix_events
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Future, SubprocessProtocol
    from collections.abc import Callable

#: Type checkers do not know asyncio's private names.
_unix: Any = unix_events


class ChildWatching:
    """The part of a loop that notices when a child process ends.

    Source: pidfd_open(2).
    """

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
        transport = _unix._UnixSubprocessTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        self._watch_child(transport.get_pid(), transport._process_exited)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport

    def _watch_child(self, pid: int, ended: Callable[[int], object]) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # A sandbox refuses pidfds, or no descriptor is left; a thread waits for the child instead.
            threading.Thread(
                target=self._wait_in_thread, args=(pid, ended), name=f"waitpid-{pid}", daemon=True
            ).start()
            return
        self._add_reader(pidfd, self._child_ended, pid, pidfd, ended)

    def _child_ended(self, pid: int, pidfd: int, ended: Callable[[int], object]) -> None:
        self._remove_reader(pidfd)
        os.close(pidfd)
        # The protocol receives the child's last output before it learns of the exit.
        self.call_soon(ended, _wait(pid))

    def _wait_in_thread(self, pid: int, ended: Callable[[int], object]) -> None:
        code = _wait(pid)
        if self.is_closed():
            logger.warning("Loop %r that handles pid %r is closed", self, pid)
        else:
            self.call_soon_threadsafe(ended, code)


def _wait(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        logger.warning(
            "child process pid %d exit status already read:  will report returncode 255",
            pid,
        )
        return 255
    code: int = _unix.waitstatus_to_exitcode(status)
    return code
