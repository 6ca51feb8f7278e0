"""Sockets joined by a proxy that runs in the background: devices, proxies, steerable ones, monitored queues."""

from windlass.zmq.constants import DeviceType as DeviceType
from windlass.zmq.devices.basedevice import Device as Device
from windlass.zmq.devices.basedevice import ProcessDevice as ProcessDevice
from windlass.zmq.devices.basedevice import ThreadDevice as ThreadDevice
from windlass.zmq.devices.monitoredqueue import monitored_queue as monitored_queue
from windlass.zmq.devices.monitoredqueuedevice import MonitoredQueue as MonitoredQueue
from windlass.zmq.devices.monitoredqueuedevice import ProcessMonitoredQueue as ProcessMonitoredQueue
from windlass.zmq.devices.monitoredqueuedevice import ThreadMonitoredQueue as ThreadMonitoredQueue
from windlass.zmq.devices.proxydevice import ProcessProxy as ProcessProxy
from windlass.zmq.devices.proxydevice import Proxy as Proxy
from windlass.zmq.devices.proxydevice import ThreadProxy as ThreadProxy
from windlass.zmq.devices.proxysteerabledevice import ProcessProxySteerable as ProcessProxySteerable
from windlass.zmq.devices.proxysteerabledevice import ProxySteerable as ProxySteerable
from windlass.zmq.devices.proxysteerabledevice import ThreadProxySteerable as ThreadProxySteerable

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
