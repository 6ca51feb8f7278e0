"""Endpoints at which a process joins another's bus: the two meet at a Unix socket, where the memory changes hands.

The hub sends each process that connects one message, with the descriptor of its shared memory, and hangs up: it waits
for nobody. What follows goes through that memory, as between a program and its pool's workers (`bus/_link.py`).

Messages between processes are pickled, and a pickle can run code. So each side asks the kernel who the other is, and
only processes of one user share a bus.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import socket
import stat
import struct
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from ropewalk._errors import BusError, LimitReached, OutOfDescriptors, SystemCallFailed, failed, of_system
from ropewalk._load import worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ropewalk._worker import SharedBuffer

_SCHEME = "shm://"
#: Bytes of a Unix socket's name.
_LONGEST = 107
#: The hub's message: a name, a version, its segment, and the process id of the one that connects, as the hub sees it.
_OFFER = struct.Struct("<12sHQI")
_NAME, _VERSION = b"ropewalk\0bus", 1
_CREDENTIALS = struct.Struct("3i")
#: Seconds between two attempts to connect, and to accept when there is no descriptor left.
_AGAIN = 0.02
_PAUSE = 0.1
_CLOSE_TIMEOUT = 5.0


def _address(endpoint: str) -> str:
    """Returns the part of an endpoint that names a socket: a path, ``@`` and a name, or ``*``."""
    if not isinstance(endpoint, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'an endpoint is text such as "shm://path", not {endpoint!r}')
    name = endpoint.removeprefix(_SCHEME)
    if name == endpoint or name in ("", "@") or "\0" in name:
        raise ValueError(
            f"{endpoint!r} is no endpoint of a bus: write shm:// and a path, shm://@ and a name, or shm://*"
        )
    if len(os.fsencode(name)) > _LONGEST:
        raise ValueError(
            f"{endpoint!r} is longer than {_LONGEST} bytes: use a shorter path, or a relative one"
        )
    return name


def _socket_name(address: str) -> str | bytes:
    return b"\0" + os.fsencode(address[1:]) if address.startswith("@") else address


def _unix_socket(endpoint: str) -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise of_system(f"no socket for a bus's endpoint {endpoint!r} can be made", error) from error


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The process id and the user of the other side, which the kernel vouches for."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user


def _is_trusted(user: int) -> bool:
    return user == os.geteuid()


class Endpoint:
    """A listening socket of a hub, and the thread that serves it."""

    def __init__(
        self,
        endpoint: str,
        memory: Callable[[], SharedBuffer | None],
        report: Callable[[BaseException, str], None],
    ) -> None:
        address = _address(endpoint)
        self._memory = memory
        self._report = report
        self._ended = threading.Event()
        self._folder: str | None = None
        #: The device and number of the file that this endpoint has made.
        self._file: tuple[int, int] | None = None
        self._socket = _unix_socket(endpoint)
        try:
            if address == "*":
                self._folder = tempfile.mkdtemp(prefix="ropewalk-bus-")
                address = f"{self._folder}/socket"
            self._path = None if address.startswith("@") else address
            self.name = _SCHEME + address
            if self._path is not None:
                _remove_abandoned(self._path)
            self._socket.bind(_socket_name(address))
            if self._path is not None:
                found = os.stat(self._path)
                self._file = found.st_dev, found.st_ino
            self._socket.listen(128)
            self._thread = threading.Thread(target=self._serve, name="ropewalk-bus-listen", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self._socket.close()
            self._remove()
            raise BusError(f"a bus cannot listen at {endpoint!r}: {error}") from error

    def _serve(self) -> None:
        is_told = False
        with self._socket:
            while not self._ended.is_set():
                try:
                    connection, _ = self._socket.accept()
                except OSError as error:
                    if self._ended.is_set():
                        return
                    if not is_told:
                        self._report(BusError(f"a bus cannot accept a process at {self.name!r}: {error}"), "")
                    is_told = True
                    self._ended.wait(_PAUSE)
                    continue
                is_told = False
                with connection:
                    try:
                        self._welcome(connection)
                    except Exception as error:
                        self._report(error, "")

    def _welcome(self, connection: socket.socket) -> None:
        pid, user = _peer(connection)
        if not _is_trusted(user):
            raise BusError(f"user {user} was refused at {self.name!r}: a bus is for processes of one user")
        memory = self._memory()
        if memory is None:
            return
        descriptor, segment = worker.shared_descriptor(memory)
        try:
            # A fresh connection has room for one message: this waits for nobody.
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                socket.send_fds(connection, [_OFFER.pack(_NAME, _VERSION, segment, pid)], [descriptor])
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Stops listening, and removes the file."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._remove()
        # The thread closes the socket: its number must not go to another file while the thread accepts.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_TIMEOUT)

    def _remove(self) -> None:
        if self._file is not None and self._path is not None:
            with contextlib.suppress(OSError):
                found = os.stat(self._path)
                # Another process may listen there by now.
                if self._file == (found.st_dev, found.st_ino):
                    os.unlink(self._path)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def orphan(self) -> None:
        """Gives the endpoint up in a forked child: it is its parent's."""
        self._ended.set()
        self._socket.close()


def _remove_abandoned(path: str) -> None:
    """Removes a socket at which nobody listens any more."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            pass


class Maker:
    """The process that has made a bus, for one that has connected to it."""

    def __init__(self, pid: int) -> None:
        self._file = io.FileIO(os.pidfd_open(pid))

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        look = select.poll()
        look.register(self._file, select.POLLIN)
        return bool(look.poll(0))

    def close(self) -> None:
        """Closes the descriptor."""
        self._file.close()


def join(endpoint: str, timeout: float) -> tuple[SharedBuffer, Maker]:
    """Asks at an endpoint for its bus, and returns the memory of its switchboard, and the process that made it.

    Raises:
        BusError: no process has answered in time, or one that is another user's or no bus.
        ValueError: `endpoint` is malformed.
    """
    address = _address(endpoint)
    if address == "*":
        raise ValueError("shm://* is for bind, which returns the endpoint to connect to")
    deadline = time.monotonic() + timeout
    with _connected(endpoint, _socket_name(address), deadline) as connection:
        try:
            pid, user = _peer(connection)
            if not _is_trusted(user):
                raise BusError(f"{endpoint!r} belongs to user {user}: a bus is for processes of one user")
            # Before the offer is read: the process that sends it lives now, so the id cannot be another's.
            maker = Maker(pid)
        except OSError as error:
            raise _unjoined(endpoint, error) from error
        try:
            return _taken(endpoint, connection, deadline), maker
        except BaseException:
            maker.close()
            raise


def _connected(endpoint: str, name: str | bytes, deadline: float) -> socket.socket:
    while True:
        connection = _unix_socket(endpoint)
        try:
            connection.setblocking(False)
            connection.connect(name)
            return connection
        except OSError as error:
            connection.close()
            # Not there yet, or so many others are waiting that the kernel takes no more.
            is_temporary = isinstance(error, FileNotFoundError | ConnectionRefusedError | BlockingIOError)
            if not is_temporary or time.monotonic() >= deadline:
                raise _unjoined(endpoint, error) from error
        except BaseException:
            connection.close()
            raise
        time.sleep(_AGAIN)


def _taken(endpoint: str, connection: socket.socket, deadline: float) -> SharedBuffer:
    """Takes the hub's offer."""
    descriptors: list[int] = []
    try:
        connection.settimeout(max(deadline - time.monotonic(), _AGAIN))
        # One more byte than the offer has, so that a longer message is seen.
        said, descriptors, flags, _ = socket.recv_fds(connection, _OFFER.size + 1, 1, socket.MSG_CMSG_CLOEXEC)
        if flags & socket.MSG_CTRUNC and not descriptors:
            raise failed(OutOfDescriptors, f"no descriptor is left for the memory of the bus at {endpoint!r}")
        if len(said) != _OFFER.size or len(descriptors) != 1:
            raise BusError(f"what listens at {endpoint!r} is no bus, or has closed it")
        name, version, segment, pid = _OFFER.unpack(said)
        if (name, version) != (_NAME, _VERSION):
            raise BusError(f"what listens at {endpoint!r} is no bus of this version of Ropewalk")
        if pid != os.getpid():
            raise BusError(
                f"the bus at {endpoint!r} is in another PID namespace, where it cannot see this process"
            )
        return worker.shared_open(descriptors.pop(), segment)
    except OSError as error:
        raise _unjoined(endpoint, error) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _unjoined(endpoint: str, error: OSError) -> Exception:
    what = f"cannot join the bus at {endpoint!r}"
    if isinstance(error, SystemCallFailed):
        return error
    if isinstance(error, TimeoutError):
        return BusError(f"{what}: the process that made it has not answered in time")
    limit = of_system(what, error)
    return limit if isinstance(limit, LimitReached) else BusError(f"{what}: {error}")
