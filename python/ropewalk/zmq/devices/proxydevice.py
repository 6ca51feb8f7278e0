"""Proxies that send a third socket a copy of each message."""

from __future__ import annotations

from typing import Any

import ropewalk.zmq as _zmq
from ropewalk.zmq.constants import PUB
from ropewalk.zmq.devices.basedevice import Device, Plan, ProcessDevice, ThreadDevice


class ProxyBase(Device):
    """A device with a monitoring socket, which gets a copy of each message."""

    def __init__(self, in_type: int, out_type: int, mon_type: int = PUB) -> None:
        super().__init__(in_type=in_type, out_type=out_type)
        self.mon_type = mon_type
        self._mon = Plan()

    def bind_mon(self, addr: str) -> None:
        """Bind the monitoring socket when the device runs."""
        self._mon.binds.append(addr)

    def bind_mon_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Bind the monitoring socket, when the device runs, to a port that is free now; return the port."""
        return self._at_random_port(self._mon, addr, *args, **kwargs)

    def connect_mon(self, addr: str) -> None:
        """Connect the monitoring socket when the device runs."""
        self._mon.connects.append(addr)

    def setsockopt_mon(self, opt: int, value: Any) -> None:
        """Set an option of the monitoring socket when the device runs, before binding and connecting."""
        self._mon.options.append((opt, value))

    def _setup_sockets(self) -> Any:
        ins, outs = super()._setup_sockets()
        mons = self._socket(self.mon_type)
        self._mon.set_options(mons)
        self._mon.attach(mons)
        return ins, outs, mons

    def run_device(self) -> None:
        """Pass messages on, and send copies to the monitoring socket."""
        _zmq.proxy(*self._setup_sockets())


class Proxy(ProxyBase):
    """A proxy that runs in the thread that starts it."""


class ThreadProxy(ProxyBase, ThreadDevice):
    """A proxy in a thread."""


class ProcessProxy(ProxyBase, ProcessDevice):
    """A proxy in a process of its own."""


__all__ = ["ProcessProxy", "Proxy", "ThreadProxy"]
