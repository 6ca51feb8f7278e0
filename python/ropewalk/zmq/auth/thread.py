"""`ThreadAuthenticator`: ZAP in a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ropewalk.zmq._poll import Poller
from ropewalk.zmq._socket import Socket
from ropewalk.zmq.auth.base import Authenticator
from ropewalk.zmq.constants import ENOTSOCK, ETERM, PAIR, POLLIN
from ropewalk.zmq.error import ZMQError

if TYPE_CHECKING:
    from ropewalk.zmq._context import Context


class ThreadAuthenticator(Authenticator):
    """An `Authenticator` whose own thread answers requests.

    Any thread may change the rules while it runs: each change is one assignment or one update.
    """

    def __init__(self, context: Context[Any] | None = None, encoding: str = "utf-8", log: Any = None) -> None:
        super().__init__(context, encoding, log)
        self.thread: threading.Thread | None = None
        self.pipe_endpoint = f"inproc://ropewalk-authenticator-{os.getpid()}-{id(self)}"
        # A message from the other end ends the thread, and so does the end of the context.
        self.pipe: Socket[Any] | None = None

    def start(self) -> None:
        """Start the thread; return when it answers requests."""
        super().start()
        self.pipe = self.context.socket(PAIR, socket_class=Socket)
        self.pipe.linger = 0
        self.pipe.bind(self.pipe_endpoint)
        end = self.context.socket(PAIR, socket_class=Socket)
        end.linger = 0
        end.connect(self.pipe_endpoint)
        self.thread = threading.Thread(target=self._run, args=(end,), name="ropewalk-zap", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        pipe, self.pipe = self.pipe, None
        thread, self.thread = self.thread, None
        if pipe is not None:
            with suppress(ZMQError):  # The context has ended, and so has the thread.
                pipe.send(b"TERMINATE")
            if thread is not None:
                thread.join()
            pipe.close()
        super().stop()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self.thread is not None and self.thread.is_alive()

    def _run(self, end: Socket[Any]) -> None:
        poller = Poller()
        poller.register(end, POLLIN)
        poller.register(self.zap_socket, POLLIN)
        # An event loop runs only while a callback awaits: it would not notice that the sockets were closed.
        with asyncio.Runner() as runner, end:
            try:
                while end not in dict(poller.poll()):
                    runner.run(self.answer_requests())
            except ZMQError as error:
                if error.errno not in (ETERM, ENOTSOCK):
                    raise

    def __del__(self) -> None:
        if getattr(self, "pipe", None) is not None:
            self.stop()


__all__ = ["ThreadAuthenticator"]
