"""Sockets joined by a proxy that runs in the background: devices, proxies, steerable ones, monitored queues."""

from ropewalk.zmq.constants import DeviceType as DeviceType
from ropewalk.zmq.devices.basedevice import Device as Device
from ropewalk.zmq.devices.basedevice import ProcessDevice as ProcessDevice
from ropewalk.zmq.devices.basedevice import ThreadDevice as ThreadDevice
from ropewalk.zmq.devices.monitoredqueue import monitored_queue as monitored_queue
from ropewalk.zmq.devices.monitoredqueuedevice import MonitoredQueue as MonitoredQueue
from ropewalk.zmq.devices.monitoredqueuedevice import ProcessMonitoredQueue as ProcessMonitoredQueue
from ropewalk.zmq.devices.monitoredqueuedevice import ThreadMonitoredQueue as ThreadMonitoredQueue
from ropewalk.zmq.devices.proxydevice import ProcessProxy as ProcessProxy
from ropewalk.zmq.devices.proxydevice import Proxy as Proxy
from ropewalk.zmq.devices.proxydevice import ThreadProxy as ThreadProxy
from ropewalk.zmq.devices.proxysteerabledevice import ProcessProxySteerable as ProcessProxySteerable
from ropewalk.zmq.devices.proxysteerabledevice import ProxySteerable as ProxySteerable
from ropewalk.zmq.devices.proxysteerabledevice import ThreadProxySteerable as ThreadProxySteerable

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
