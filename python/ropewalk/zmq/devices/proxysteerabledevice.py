"""Proxies that a fourth socket steers."""

from __future__ import annotations

from typing import Any

import ropewalk.zmq as _zmq
from ropewalk.zmq.constants import PUB
from ropewalk.zmq.devices.basedevice import Plan, ProcessDevice, ThreadDevice
from ropewalk.zmq.devices.proxydevice import ProxyBase


class ProxySteerableBase(ProxyBase):
    """What steerable proxies have beyond a proxy: a socket whose messages are commands.

    ``PAUSE`` stops the flow, ``RESUME`` lets it go on, ``TERMINATE`` ends the proxy, and ``STATISTICS`` is answered
    with what has passed.
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
        """Have the steering socket bound."""
        self._ctrl.binds.append(addr)

    def bind_ctrl_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Have the steering socket bound to a port that is free now, and return that."""
        return self._at_random_port(self._ctrl, addr, *args, **kwargs)

    def connect_ctrl(self, addr: str) -> None:
        """Have the steering socket connected."""
        self._ctrl.connects.append(addr)

    def setsockopt_ctrl(self, opt: int, value: Any) -> None:
        """Have an option of the steering socket set, before it is bound or connected."""
        self._ctrl.options.append((opt, value))

    def _setup_sockets(self) -> Any:
        sockets = super()._setup_sockets()
        ctrls = self._socket(self.ctrl_type)
        self._ctrl.set_options(ctrls)
        self._ctrl.attach(ctrls)
        return *sockets, ctrls

    def run_device(self) -> None:
        """Pass messages on as the steering socket says."""
        _zmq.proxy_steerable(*self._setup_sockets())


class ProxySteerable(ProxySteerableBase):
    """A steerable proxy that runs where it is started."""


class ThreadProxySteerable(ProxySteerableBase, ThreadDevice):
    """A steerable proxy in a thread."""


class ProcessProxySteerable(ProxySteerableBase, ProcessDevice):
    """A steerable proxy in a process of its own."""


__all__ = ["ProcessProxySteerable", "ProxySteerable", "ThreadProxySteerable"]
