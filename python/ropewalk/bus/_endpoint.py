"""Endpoints at which a process joins another's bus: the two meet at a Unix socket, where the memory changes hands.

The hub sends each process that connects one message, with the descriptor of its shared memory, and hangs up: it waits
for nobody. What follows goes through that memory, as between a program and its pool's workers (`bus/_link.py`).

Messages between processes are pickled, and a pickle can run code. So each side asks the kernel who the other is, and
only processes of one user share a bus.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
#: How the folder of ``shm://*`` begins, and the file in it.
_FOLDER, _FILE = "ropewalk-bus-", "socket"
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
#: Seconds that a socket can wait: the kernel takes milliseconds, of 31 bits.
_LONGEST_WAIT = 2_000_000.0


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
        self._folder: _Folder | None = None
        #: The device and number of the file that this endpoint has made.
        self._file: tuple[int, int] | None = None
        self._socket = _unix_socket(endpoint)
        try:
            if address == "*":
                _remove_abandoned_folders()
                self._folder = _Folder()
                address = f"{self._folder.path}/{_FILE}"
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
            raise _unbound(endpoint, error) from error

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
            self._folder.remove()

    def orphan(self) -> None:
        """Gives the endpoint up in a forked child: it is its parent's."""
        self._ended.set()
        self._socket.close()
        if self._folder is not None:
            self._folder.release()


class _Folder:
    """A new folder, locked for as long as its process lives: the folders of others that have ended can be removed."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix=_FOLDER)
        self._held: int | None = None
        try:
            self._held = _opened_folder(self.path)
            # A file system without locks gives them to nobody, so nobody removes the folder either.
            with contextlib.suppress(OSError):
                fcntl.flock(self._held, fcntl.LOCK_SH)
        except BaseException:
            self.remove()
            raise

    def release(self) -> None:
        """Closes the lock's descriptor, in a forked child: its parent's keeps the lock."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def remove(self) -> None:
        """Removes the folder, and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()


def _opened_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove_abandoned_folders() -> None:
    """Removes what processes of this user that were killed have left of their ``shm://*``."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for entry in found:
            if entry.name.startswith(_FOLDER):
                with contextlib.suppress(OSError):
                    _remove_abandoned_folder(entry.path)


def _remove_abandoned_folder(folder: str) -> None:
    path = f"{folder}/{_FILE}"
    held = _opened_folder(folder)
    try:
        if not _is_trusted(os.fstat(held).st_uid):
            return
        # Its process holds the lock before there is a file; until then the folder is empty, and stays.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.lstat(path)
        # A process that was given the path by name may listen there since.
        _remove_abandoned(path)
        os.rmdir(folder)
    finally:
        os.close(held)


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
    with _connected(endpoint, _socket_name(address), deadline, timeout) as connection:
        try:
            pid, user = _peer(connection)
            if not _is_trusted(user):
                raise BusError(f"{endpoint!r} belongs to user {user}: a bus is for processes of one user")
            if pid == 0:
                raise _unseen(endpoint, "this process cannot see the one that made the bus")
            # Before the offer is read: the process that sends it lives now, so the id cannot be another's.
            maker = Maker(pid)
        except OSError as error:
            raise _unjoined(endpoint, error) from error
        try:
            return _taken(endpoint, connection, deadline), maker
        except BaseException:
            maker.close()
            raise


def _connected(endpoint: str, name: str | bytes, deadline: float, timeout: float) -> socket.socket:
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
            if not is_temporary:
                raise _unjoined(endpoint, error) from error
            if time.monotonic() >= deadline:
                raise _nobody(endpoint, error, timeout) from error
        except BaseException:
            connection.close()
            raise
        time.sleep(_AGAIN)


def _taken(endpoint: str, connection: socket.socket, deadline: float) -> SharedBuffer:
    """Takes the hub's offer."""
    descriptors: list[int] = []
    try:
        connection.settimeout(min(max(deadline - time.monotonic(), _AGAIN), _LONGEST_WAIT))
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
            raise _unseen(endpoint, "the process that made the bus cannot see this one")
        return worker.shared_open(descriptors.pop(), segment)
    except OSError as error:
        raise _unjoined(endpoint, error) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _unseen(endpoint: str, who: str) -> BusError:
    """The error for two PID namespaces: each side looks by the other's process id whether it has ended."""
    return BusError(
        f"cannot join the bus at {endpoint!r}: {who}, because they are in different PID namespaces, those of two "
        "containers for instance. Run both in one PID namespace, or use sockets of `ropewalk.zmq` between them."
    )


def _nobody(endpoint: str, error: OSError, timeout: float) -> BusError:
    """The error for an endpoint at which nobody listens, or nobody accepts, until the time is up."""
    if isinstance(error, FileNotFoundError):
        found = "there is no such file"
    elif isinstance(error, BlockingIOError):
        found = "so many processes wait there already that the kernel takes no more"
    else:
        found = "nobody listens there"
    return BusError(
        f"cannot join the bus at {endpoint!r}: {found} ({os.strerror(error.errno or 0)}), after {timeout:g} s. Start "
        "the process that calls `bind` first, compare the endpoint with what `bind` returned there, or wait longer by "
        "`timeout=`."
    )


def _unbound(endpoint: str, error: Exception) -> Exception:
    advice = ""
    if isinstance(error, OSError):
        limit = of_system(f"a bus cannot listen at {endpoint!r}", error)
        if isinstance(limit, LimitReached):
            return limit
        if error.errno == errno.EADDRINUSE:
            advice = (
                ". Another process or bus listens there, or the file is no socket. Close that one, remove the file, or "
                "bind another endpoint; `connect` joins a bus that is there already."
            )
        elif error.errno == errno.ENOENT:
            advice = ". Make the folder first, or bind another path."
    return BusError(f"a bus cannot listen at {endpoint!r}: {error}{advice}")


def _unjoined(endpoint: str, error: OSError) -> Exception:
    what = f"cannot join the bus at {endpoint!r}"
    if isinstance(error, SystemCallFailed):
        return error
    if isinstance(error, TimeoutError):
        return BusError(f"{what}: the process that made it has not answered in time")
    limit = of_system(what, error)
    return limit if isinstance(limit, LimitReached) else BusError(f"{what}: {error}")
