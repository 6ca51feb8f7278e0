"""Devices: a proxy between two sockets, in this thread, another thread or a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import Process
from threading import Thread
from typing import Any, ClassVar, cast

import ropewalk.zmq as _zmq
from ropewalk.zmq._context import Context
from ropewalk.zmq._socket import Socket
from ropewalk.zmq.constants import ENOTSOCK, ETERM, QUEUE
from ropewalk.zmq.error import ZMQBindError, ZMQError


class Device:
    """Runs a proxy between two sockets, which it makes in the thread in which it runs.

    It is made with the sockets' types. Its methods `bind_in`, `connect_out`, `setsockopt_in` and so on record what to
    do with the sockets when it runs. With an `out_type` below 0, one socket serves as both. `start` runs the device in
    the calling thread, and returns when its context is terminated.
    """

    #: The function that returns the sockets' context.
    context_factory: ClassVar[Any] = Context.instance

    def __init__(
        self, device_type: int = QUEUE, in_type: int | None = None, out_type: int | None = None
    ) -> None:
        if in_type is None or out_type is None:
            raise TypeError("a device needs in_type and out_type")
        self.device_type = device_type
        self.in_type: int = in_type
        self.out_type: int = out_type
        #: Whether the device's thread or process ends with the program.
        self.daemon = True
        #: Whether the device has ended.
        self.done = False
        self._in = Plan()
        self._out = Plan()
        self._random_addrs: set[str] = set()
        self._context: Context[Any] | None = None
        self._sockets: list[Socket[Any]] = []

    def bind_in(self, addr: str) -> None:
        """Bind the first socket when the device runs."""
        self._in.binds.append(addr)

    def bind_in_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Bind the first socket, when the device runs, to a port that is free now; return the port."""
        return self._at_random_port(self._in, addr, *args, **kwargs)

    def connect_in(self, addr: str) -> None:
        """Connect the first socket when the device runs."""
        self._in.connects.append(addr)

    def setsockopt_in(self, opt: int, value: Any) -> None:
        """Set an option of the first socket when the device runs, before binding and connecting."""
        self._in.options.append((opt, value))

    def bind_out(self, addr: str) -> None:
        """Bind the second socket when the device runs."""
        self._out.binds.append(addr)

    def bind_out_to_random_port(self, addr: str, *args: int, **kwargs: int) -> int:
        """Bind the second socket, when the device runs, to a port that is free now; return the port."""
        return self._at_random_port(self._out, addr, *args, **kwargs)

    def connect_out(self, addr: str) -> None:
        """Connect the second socket when the device runs."""
        self._out.connects.append(addr)

    def setsockopt_out(self, opt: int, value: Any) -> None:
        """Set an option of the second socket when the device runs, before binding and connecting."""
        self._out.options.append((opt, value))

    def _at_random_port(self, plan: Plan, addr: str, *args: int, **kwargs: int) -> int:
        # The device makes its socket later and in another thread, so this finds a free port with a temporary socket.
        with Context() as context, context.socket(_zmq.PUSH) as probe:
            for _ in range(5):
                port = probe.bind_to_random_port(addr, *args, **kwargs)
                where = f"{addr}:{port}"
                if where not in self._random_addrs:
                    self._random_addrs.add(where)
                    plan.binds.append(where)
                    return port
        raise ZMQBindError("no random port is free")

    def _socket(self, socket_type: int) -> Socket[Any]:
        context = self._context
        if context is None:
            context = self._context = cast("Context[Any]", type(self).context_factory())
        socket: Socket[Any] = context.socket(socket_type, socket_class=Socket)
        self._sockets.append(socket)
        return socket

    def _setup_sockets(self) -> Any:
        ins = self._socket(self.in_type)
        outs = ins if self.out_type < 0 else self._socket(self.out_type)
        self._in.set_options(ins)
        self._out.set_options(outs)
        self._in.attach(ins)
        self._out.attach(outs)
        return ins, outs

    def run_device(self) -> None:
        """Pass messages on until the context or a socket ends; `run` calls this."""
        ins, outs = self._setup_sockets()
        _zmq.proxy(ins, outs)

    def run(self) -> None:
        """Run the device in this thread. The end of its context or sockets is its normal end."""
        try:
            self.run_device()
        except ZMQError as error:
            if error.errno not in (ETERM, ENOTSOCK):
                raise
        finally:
            self.done = True
            for socket in self._sockets:
                socket.close()

    def start(self) -> None:
        """Run the device in this thread."""
        self.run()

    def join(self, timeout: float | None = None) -> None:
        """Do nothing: a device that runs in the calling thread has ended when `start` returns."""


class Plan:
    """The options, binds and connects that a device applies to a socket when it makes it."""

    def __init__(self) -> None:
        self.binds: list[str] = []
        self.connects: list[str] = []
        self.options: list[tuple[int, Any]] = []

    def set_options(self, socket: Socket[Any]) -> None:
        """Set the options."""
        for option, value in self.options:
            socket.setsockopt(option, value)

    def attach(self, socket: Socket[Any]) -> None:
        """Bind, and connect."""
        for address in self.binds:
            socket.bind(address)
        for address in self.connects:
            socket.connect(address)


class BackgroundDevice(Device):
    """A device that a thread or a process runs."""

    #: The thread or the process, once started.
    launcher: Any = None
    _launch_class: ClassVar[Callable[..., Thread | Process]]

    def start(self) -> None:
        """Start the thread or process, and return."""
        self.launcher = type(self)._launch_class(target=self.run)
        self.launcher.daemon = self.daemon
        self.launcher.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the device has ended, at most `timeout` seconds."""
        self.launcher.join(timeout=timeout)


class ThreadDevice(BackgroundDevice):
    """A device in a thread, on the context that `Context.instance` returns."""

    _launch_class = threading.Thread


class ProcessDevice(BackgroundDevice):
    """A device in a process of its own, with a context of its own."""

    _launch_class = Process
    context_factory = Context


__all__ = ["Device", "ProcessDevice", "ThreadDevice"]
