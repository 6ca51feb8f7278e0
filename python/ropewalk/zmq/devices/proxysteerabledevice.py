"""Proxies that are controlled through a fourth socket."""

from __future__ import annotations

from typing import Any

import ropewalk.zmq as _zmq
from ropewalk.zmq.constants import PUB
from ropewalk.zmq.devices.basedevice import Plan, ProcessDevice, ThreadDevice
from ropewalk.zmq.devices.proxydevice import ProxyBase


class ProxySteerableBase(ProxyBase):
    """A proxy with a steering socket, whose messages are commands.

    ``PAUSE`` stops the flow, ``RESUME`` continues it, ``TERMINATE`` ends the proxy, and ``STATISTICS`` returns the
    numbers of messages and bytes that have passed.
    """

    def __init__(
        self, in_type: int, out_type: int, mon_type: int = PUB, ctrl_type: int | None = None
    ) -> None:
        super().__init__(in_type=in_type, out_type=out_type, mon_type=mon_type)
        if ctrl_type is None:
            raise TypeError("a steerable proxy needs ctrl_type")
        self.ctrl_type: int = ctrl_type
        self._ctrl = Plan()

    def bind_ctrl(self, addr: str) -> None:
        """Bind the steering socket when the device runs."""
        self._ctrl.binds.append(addr)

    def bind_ctrl_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Bind the steering socket, when the device runs, to a port that is free now; return the port."""
        return self._at_random_port(self._ctrl, addr, *args, **kwargs)

    def connect_ctrl(self, addr: str) -> None:
        """Connect the steering socket when the device runs."""
        self._ctrl.connects.append(addr)

    def setsockopt_ctrl(self, opt: int, value: Any) -> None:
        """Set an option of the steering socket when the device runs, before binding and connecting."""
        self._ctrl.options.append((opt, value))

    def _setup_sockets(self) -> Any:
        sockets = super()._setup_sockets()
        ctrls = self._socket(self.ctrl_type)
        self._ctrl.set_options(ctrls)
        self._ctrl.attach(ctrls)
        return *sockets, ctrls

    def run_device(self) -> None:
        """Pass messages on, and obey the steering socket's commands."""
        _zmq.proxy_steerable(*self._setup_sockets())


class ProxySteerable(ProxySteerableBase):
    """A steerable proxy that runs in the thread that starts it."""


class ThreadProxySteerable(ProxySteerableBase, ThreadDevice):
    """A steerable proxy in a thread."""


class ProcessProxySteerable(ProxySteerableBase, ProcessDevice):
    """A steerable proxy in a process of its own."""


__all__ = ["ProcessProxySteerable", "ProxySteerable", "ThreadProxySteerable"]
