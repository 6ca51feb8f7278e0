"""Proxies that send a third socket a copy of each message."""

from __future__ import annotations

from typing import Any

import ropewalk.zmq as _zmq
from ropewalk.zmq.constants import PUB
from ropewalk.zmq.devices.basedevice import Device, Plan, ProcessDevice, ThreadDevice


class ProxyBase(Device):
    """What proxies have beyond a device: a socket that is sent a copy of each message."""

    def __init__(self, in_type: int, out_type: int, mon_type: int = PUB) -> None:
        super().__init__(in_type=in_type, out_type=out_type)
        self.mon_type = mon_type
        self._mon = Plan()

    def bind_mon(self, addr: str) -> None:
        """Have the monitoring socket bound."""
        self._mon.binds.append(addr)

    def bind_mon_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Have the monitoring socket bound to a port that is free now, and return that."""
        return self._at_random_port(self._mon, addr, *args, **kwargs)

    def connect_mon(self, addr: str) -> None:
        """Have the monitoring socket connected."""
        self._mon.connects.append(addr)

    def setsockopt_mon(self, opt: int, value: Any) -> None:
        """Have an option of the monitoring socket set, before it is bound or connected."""
        self._mon.options.append((opt, value))

    def _setup_sockets(self) -> Any:
        ins, outs = super()._setup_sockets()
        mons = self._socket(self.mon_type)
        self._mon.set_options(mons)
        self._mon.attach(mons)
        return ins, outs, mons

    def run_device(self) -> None:
        """Pass messages on, and copies of them to the monitoring socket."""
        _zmq.proxy(*self._setup_sockets())


class Proxy(ProxyBase):
    """A proxy that runs where it is started."""


class ThreadProxy(ProxyBase, ThreadDevice):
    """A proxy in a thread."""


class ProcessProxy(ProxyBase, ProcessDevice):
    """A proxy in a process of its own."""


__all__ = ["ProcessProxy", "Proxy", "ThreadProxy"]
