"""`AsyncioAuthenticator`: ZAP in the running loop."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

from ropewalk.zmq.asyncio import Poller
from ropewalk.zmq.auth.base import Authenticator
from ropewalk.zmq.constants import ENOTSOCK, ETERM, POLLIN
from ropewalk.zmq.error import ZMQError

if TYPE_CHECKING:
    from ropewalk.zmq._context import Context


class AsyncioAuthenticator(Authenticator):
    """An `Authenticator` that answers in the loop in which `start` was called."""

    def __init__(
        self, context: Context[Any] | None = None, loop: Any = None, encoding: str = "utf-8", log: Any = None
    ) -> None:
        super().__init__(context, encoding, log)
        if loop is not None:
            warnings.warn("loop is ignored: the running loop is used", DeprecationWarning, stacklevel=2)
        self._task: asyncio.Task[None] | None = None

    async def _answer(self) -> None:
        poller = Poller()
        poller.register(self.zap_socket, POLLIN)
        try:
            while True:
                await poller.poll()
                await self.answer_requests()
        except ZMQError as error:
            if error.errno not in (ETERM, ENOTSOCK):
                raise

    def start(self) -> None:
        """Start answering requests, in the running loop."""
        super().start()
        self._task = asyncio.get_running_loop().create_task(self._answer())

    def stop(self) -> None:
        """Stop answering requests."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        super().stop()


__all__ = ["AsyncioAuthenticator"]
