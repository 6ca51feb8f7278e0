"""The threads of a pool in this process: those that run tasks, and the one that publishes finished futures."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ropewalk.pool.parent._exit import start

if TYPE_CHECKING:
    from ropewalk import _core
    from ropewalk._current import Here
    from ropewalk.pool.parent._exit import Runner


class Collector:
    """Starts the thread that publishes finished futures; the engine calls `start` for the first observed future."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.threads: list[threading.Thread] = []

    def start(self, handle: _core.PoolHandle) -> None:
        thread = threading.Thread(target=handle.collect, name=f"{self._name}-collector", daemon=True)
        start(thread)
        self.threads.append(thread)


def serve_thread(
    here: Here,
    reason_of: Callable[[str, Callable[[], object]], str | None],
    engine: _core.PoolHandle,
    exposed: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
    checks: dict[str, Callable[[], object]],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    blas: int | None,
) -> None:
    """Runs a thread of a thread pool, from its initializer to its end."""
    if initializer is not None:
        try:
            initializer(*initargs)
        except BaseException:
            concurrent.futures._base.LOGGER.critical("Exception in initializer:", exc_info=True)
            engine.break_down("a thread initializer failed")
            return
    if blas is not None:
        from ropewalk.pool.wire._blas import limit_threads

        limit_threads(blas)
    for what, call in checks.items():
        why = reason_of(what, call)
        if why is not None:
            engine.break_down(f"a thread is not fit: {why}")
            return
    here.call = exposed
    cast("Runner", threading.current_thread()).serves = True
    engine.serve()
