"""`monitored_queue` as a device."""

from __future__ import annotations

from ropewalk.zmq.constants import PUB
from ropewalk.zmq.devices.basedevice import ProcessDevice, ThreadDevice
from ropewalk.zmq.devices.monitoredqueue import monitored_queue
from ropewalk.zmq.devices.proxydevice import ProxyBase


class MonitoredQueueBase(ProxyBase):
    """A proxy whose copies begin with a part that names the direction; ROUTER may be on both sides."""

    def __init__(
        self,
        in_type: int,
        out_type: int,
        mon_type: int = PUB,
        in_prefix: bytes = b"in",
        out_prefix: bytes = b"out",
    ) -> None:
        super().__init__(in_type=in_type, out_type=out_type, mon_type=mon_type)
        self._in_prefix = in_prefix
        self._out_prefix = out_prefix

    def run_device(self) -> None:
        """Pass messages on, and send copies with their direction to the monitoring socket."""
        ins, outs, mons = self._setup_sockets()
        monitored_queue(ins, outs, mons, self._in_prefix, self._out_prefix)


class MonitoredQueue(MonitoredQueueBase):
    """A monitored queue that runs in the thread that starts it."""


class ThreadMonitoredQueue(MonitoredQueueBase, ThreadDevice):
    """A monitored queue in a thread."""


class ProcessMonitoredQueue(MonitoredQueueBase, ProcessDevice):
    """A monitored queue in a process of its own."""


__all__ = ["MonitoredQueue", "ProcessMonitoredQueue", "ThreadMonitoredQueue"]
