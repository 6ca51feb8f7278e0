"""The workers of tools that a reload has replaced, for as long as what has begun on them goes on."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING

from ropewalk import _load

if TYPE_CHECKING:
    from ropewalk.runtime._runtime import Runtime
    from ropewalk.serving._server import Server

#: Generations that may end what has begun on them, beside the one that serves: each has processes.
MOST = 2


class Replaced:
    """Workers that end what has begun on them, and then themselves."""

    def __init__(self, runtime: Runtime, limit: float) -> None:
        """From now on they have so many seconds."""
        self._runtime: Runtime | None = runtime
        self._end = time.monotonic() + limit
        self._is_found = True
        #: Set when they are gone.
        self.gone = threading.Event()

    def seconds(self) -> float:
        """Returns how much time they have left."""
        return max(0.0, self._end - time.monotonic())

    def is_busy(self) -> bool:
        """Whether calls or sessions go on there: workers without any may take a moment to be gone."""
        runtime = self._runtime
        if runtime is None:
            return False
        pools = runtime.statistics().pools.values()
        return self._is_found or any(pool.queued + pool.running + pool.delayed > 0 for pool in pools)

    def terminate(self) -> None:
        """Ends them now."""
        if (runtime := self._runtime) is not None:
            runtime.terminate()

    def end(self, server: Server, number: int) -> None:
        """Ends them in a thread of its own, which takes them from the server's list at last.

        Args:
            server: it forgets them.
            number: the gateway's for their tools.
        """
        try:
            threading.Thread(
                target=self._wait, args=(server, number), name="ropewalk-retiring", daemon=True
            ).start()
        except RuntimeError:
            # The machine has no thread left, and the tools that serve now must not pay for that.
            self._wait(server, number)

    def _wait(self, server: Server, number: int) -> None:
        try:
            server._gateway.retire(number, self.seconds())
            self._is_found = False
            if (runtime := self._runtime) is not None:
                runtime.shutdown(timeout=0.0 if server._is_closed else self.seconds())
            del runtime
        finally:
            server._replaced.remove(self)
            self._runtime = None
            end_zygotes()
            self.gone.set()


def end_zygotes() -> None:
    """Ends the zygotes of pools that are gone: what a file had made is garbage with cycles, and has such pools."""
    gc.collect()
    _load.gateway.Gateway.end_idle_zygotes()
