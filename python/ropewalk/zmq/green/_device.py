"""Passing messages on, in a thread of gevent's, while other greenlets run."""

from __future__ import annotations

from typing import Any

from ropewalk.zmq import _compiled
from ropewalk.zmq.green import _hub


def proxy(frontend: Any, backend: Any, capture: Any = None) -> int:
    """As `ropewalk.zmq.proxy`."""
    result: int = _hub.in_thread(_compiled.proxy, frontend, backend, capture)
    return result


def device(type: int, frontend: Any, backend: Any) -> int:
    """As `ropewalk.zmq.device`."""
    result: int = _hub.in_thread(_compiled.device, type, frontend, backend)
    return result


__all__ = ["device", "proxy"]
