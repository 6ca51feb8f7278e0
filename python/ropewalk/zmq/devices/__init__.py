"""Devices: a proxy between two sockets that runs in the background; also steerable proxies and monitored queues."""

from ropewalk.zmq.constants import DeviceType as DeviceType
from ropewalk.zmq.devices.basedevice import (
    Device as Device,
    ProcessDevice as ProcessDevice,
    ThreadDevice as ThreadDevice,
)
from ropewalk.zmq.devices.monitoredqueue import monitored_queue as monitored_queue
from ropewalk.zmq.devices.monitoredqueuedevice import (
    MonitoredQueue as MonitoredQueue,
    ProcessMonitoredQueue as ProcessMonitoredQueue,
    ThreadMonitoredQueue as ThreadMonitoredQueue,
)
from ropewalk.zmq.devices.proxydevice import (
    ProcessProxy as ProcessProxy,
    Proxy as Proxy,
    ThreadProxy as ThreadProxy,
)
from ropewalk.zmq.devices.proxysteerabledevice import (
    ProcessProxySteerable as ProcessProxySteerable,
    ProxySteerable as ProxySteerable,
    ThreadProxySteerable as ThreadProxySteerable,
)

__all__ = [
    "Device",
    "DeviceType",
    "MonitoredQueue",
    "ProcessDevice",
    "ProcessMonitoredQueue",
    "ProcessProxy",
    "ProcessProxySteerable",
    "Proxy",
    "ProxySteerable",
    "ThreadDevice",
    "ThreadMonitoredQueue",
    "ThreadProxy",
    "ThreadProxySteerable",
    "monitored_queue",
]
