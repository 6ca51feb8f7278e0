"""Values in the journal: pickled, and in files beside it if they are large.

A packed value is a byte that says where it is, and then the pickle, or the name of a file. The name is the digest of
what the file holds, so a file that was changed is no result, and equal results share one. Buffers of arrays lie in the
file as they are, and an array that comes from there is a read-only view of the mapped file.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import stat
import struct
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

from ropewalk._errors import JournalCorrupt, JournalError, JournalUnsafe
from ropewalk._keys import key_of

_PROTOCOL = 5
#: Bytes from which a value goes into a file of its own.
LARGE = 64 << 10

_INLINE, _FILE = b"\0", b"\1"
_BUFFERS = b"\1"
_MAGIC = b"ropewalk result 1\n"
_COUNT = struct.Struct("<Q")
#: Arrays want their memory so.
_ALIGNED = 64


def pickled(value: Any) -> bytes:
    """Returns a small value, packed."""
    return _INLINE + pickle.dumps(value, _PROTOCOL)


def is_large(packed: bytes) -> bool:
    """Whether a packed value is in a file."""
    return packed[:1] == _FILE


def has_buffers(packed: bytes) -> bool:
    """Whether a packed value is in a file with buffers of their own, those of arrays for instance."""
    return packed[:1] == _FILE and packed[25:26] == _BUFFERS


def file_of(packed: bytes) -> str:
    """Returns the name of the file of a large packed value."""
    return packed[1:17].hex()


def size_of(packed: bytes) -> int:
    """Returns how many bytes a packed value has."""
    return int(_COUNT.unpack(packed[17:25])[0]) if is_large(packed) else len(packed) - 1


class Packer:
    """Packs and unpacks the values of one journal; `folder` is where its large ones are."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        #: The files that were written, or found, and whose records are perhaps not in the journal yet.
        self._unrecorded: set[str] = set()
        #: While runs are forgotten: those files, and all that come meanwhile.
        self._fresh: set[str] | None = None

    def pack(self, value: Any) -> bytes:
        """Packs a value. When it returns, a large one is on the disk.

        Raises:
            JournalError: its file could not be written.
            Exception: it cannot be pickled.
        """
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(value, _PROTOCOL, buffer_callback=buffers.append)
        try:
            raw = [buffer.raw() for buffer in buffers]
        except BufferError:  # A buffer that is not contiguous has to be copied.
            data, raw = pickle.dumps(value, _PROTOCOL), []
        if len(data) + sum(view.nbytes for view in raw) >= LARGE:
            return self._keep([memoryview(data), *raw])
        return _INLINE + (pickle.dumps(value, _PROTOCOL) if raw else data)

    def unpack(self, packed: bytes) -> Any:
        """Unpacks a value.

        Raises:
            JournalError: its file is missing or damaged, or other users may write it.
            Exception: it cannot be unpickled.
        """
        if not is_large(packed):
            return pickle.loads(memoryview(packed)[1:])
        views = self._mapped(packed)
        return pickle.loads(views[0], buffers=views[1:])

    @contextmanager
    def fresh(self) -> Generator[set[str]]:
        """Yields the names of files that no record may name yet; those that are written inside are added."""
        with self._lock:
            names = self._fresh = set(self._unrecorded)
        try:
            yield names
        finally:
            with self._lock:
                self._fresh = None

    def recorded(self, names: Iterable[str]) -> None:
        """Notes that records name these files."""
        with self._lock:
            self._unrecorded.difference_update(names)

    def remove_all_but(self, names: set[str]) -> None:
        """Removes the files that no record refers to."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                # Under the lock: `_keep` finds the file, or writes it again. A draft begins with the file's name.
                with self._lock, suppress(OSError):
                    if name.partition(".")[0] not in names:
                        os.unlink(os.path.join(self._folder, name))

    def _keep(self, parts: list[memoryview]) -> bytes:
        name: bytes = key_of(tuple(parts))
        head = _MAGIC + b"".join(_COUNT.pack(size) for size in (len(parts), *(part.nbytes for part in parts)))
        size = sum(part.nbytes for part in parts)
        path = os.path.join(self._folder, name.hex())
        with self._lock:
            self._unrecorded.add(name.hex())
            if self._fresh is not None:
                self._fresh.add(name.hex())
        try:
            self._make_folder()
            if not self._has(name, size):
                draft = f"{path}.{os.getpid()}.{id(parts):x}"
                try:
                    _write(draft, [head, *parts])
                    os.rename(draft, path)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(draft)
                    raise
            # Also if the file is there: the writer that made it may have died before this.
            _sync_folder(self._folder)
        except OSError as error:
            raise _of(error, path) from error
        return _FILE + name + _COUNT.pack(size) + (_BUFFERS if len(parts) > 1 else b"")

    def _has(self, name: bytes, size: int) -> bool:
        """Whether a value's file is there already, and is what its name says."""
        try:
            self._mapped(_FILE + name + _COUNT.pack(size))
        except JournalUnsafe:
            raise
        except JournalError:
            return False
        return True

    def _make_folder(self) -> None:
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            _check_owner(os.lstat(self._folder), self._folder)
        else:
            _sync_folder(os.path.dirname(self._folder))

    def _mapped(self, packed: bytes) -> list[memoryview]:
        path = os.path.join(self._folder, file_of(packed))
        try:
            _check_owner(os.lstat(self._folder), self._folder)
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _check_owner(os.fstat(handle), path)
                mapped = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
            finally:
                os.close(handle)
        except JournalError:
            raise
        except (OSError, ValueError) as error:
            raise JournalError(f"a result's file {path} cannot be read: {error}") from error
        views = _parts(memoryview(mapped))
        if views is None or key_of(tuple(views)) != packed[1:17]:
            raise JournalCorrupt(f"a result's file is damaged: {path}")
        return views


def _write(path: str, parts: list[Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(handle, view[: 1 << 30]) :]
            os.write(handle, bytes(-memoryview(part).nbytes % _ALIGNED))
        os.fsync(handle)
    finally:
        os.close(handle)


def _parts(whole: memoryview) -> list[memoryview] | None:
    """Returns the parts of a file, or `None` if they do not fill it exactly."""
    offset = len(_MAGIC)
    if len(whole) < offset + _COUNT.size or bytes(whole[:offset]) != _MAGIC:
        return None
    (count,) = _COUNT.unpack_from(whole, offset)
    offset += _COUNT.size
    if count > (len(whole) - offset) // _COUNT.size:
        return None
    sizes = [_COUNT.unpack_from(whole, offset + index * _COUNT.size)[0] for index in range(count)]
    offset += count * _COUNT.size
    offset += -offset % _ALIGNED
    parts: list[memoryview] = []
    for size in sizes:
        if size > len(whole) - offset:
            return None
        parts.append(whole[offset : offset + size])
        offset += size + -size % _ALIGNED
    return parts if offset == len(whole) and parts else None


def _check_owner(status: os.stat_result, path: str) -> None:
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JournalUnsafe(f"other users may write {path}, and what it holds would be run as this user")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _of(error: OSError, path: str) -> JournalError:
    from ropewalk._errors import OutOfDisk

    if isinstance(error, JournalError):
        return error
    kind = OutOfDisk if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else JournalError
    return kind(f"a large result could not be written to {path}: {error.strerror}")
