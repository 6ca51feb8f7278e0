"""The output of results: `--out`, standard output, and the state of `--out` that `--resume` continues.

All lines that are ready are written by one system call, on a descriptor in append mode. This module buffers nothing and
rewrites nothing. So a killed run leaves at most one incomplete line, the last. If the disk is full, the run truncates a
line that was written in part. Lines are not synced to the disk, so a power failure may lose some.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import json
import os
import select
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.cli._errors import CommandError, OutputClosed, OutputError
from ropewalk.cli._record import CSV_COLUMNS, Format, cell_of


def key_of(value: Any, format: Format) -> bytes:
    """Return a key that is equal for equal inputs: those with equal JSON, or the same cell of a table.

    The key is a digest, so that a million of them take little memory.
    """
    text = cell_of(value) if format == "csv" else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(slots=True)
class Earlier:
    """The inputs that are done in a resumed file: how often each occurs, and their total."""

    done: Counter[bytes]
    format: Format
    total: int = 0

    def has(self, value: Any) -> bool:
        """Whether the file has a result of this input."""
        return key_of(value, self.format) in self.done

    def take(self, value: Any) -> bool:
        """Whether this occurrence of the input is done already; each call that returns True uses up one occurrence."""
        if not self.done:
            return False
        key = key_of(value, self.format)
        left = self.done[key]
        if left > 1:
            self.done[key] = left - 1
        else:
            del self.done[key]
        return left > 0

    @property
    def unused(self) -> int:
        """Return how many results of the file belong to inputs that were not given this time."""
        return sum(self.done.values())


class ResultFile:
    """The file of `--out`, locked against a second run.

    `earlier` has the results of earlier runs; it is empty unless the file was opened with `resume`.
    """

    def __init__(
        self, path: str, function: str, format: Format, header: bytes, *, resume: bool, overwrite: bool
    ) -> None:
        """Open or make the file.

        Raises:
            CommandError: the file cannot be opened; another run has locked it; it is not empty, and neither `resume`
                nor `overwrite` is given; with `resume`, it is not a result file or has another function's results.
        """
        self.path = path
        self.earlier = Earlier(Counter(), format)
        self._format: Format = format
        try:
            # Write-only, because a pipe that this process also reads would never report that its reader is gone.
            plain = not os.path.exists(path) or os.path.isfile(path)
            access = os.O_RDWR | os.O_CREAT if plain else os.O_WRONLY
            self._fd = os.open(path, access | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno != errno.EACCES and error.errno != errno.ENXIO:
                raise CommandError(f"--out {path!r} cannot be opened: {error.strerror}") from None
            self._fd = self._open_write_only(path)
        try:
            self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
            self._length = 0
            if self._regular:
                self._lock()
                self._prepare(function, resume=resume, overwrite=overwrite)
            elif resume:
                raise CommandError(f"--resume needs a regular file, and --out {path!r} is not one")
            if header and not self._length:
                self.write([header])
        except BaseException:
            os.close(self._fd)
            raise

    @staticmethod
    def _open_write_only(path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise CommandError(f"--out {path!r} cannot be opened: {error.strerror}") from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another run is writing to --out {self.path!r}", "wait for it, or give another file"
            ) from None
        except OSError:
            pass  # some network file systems have no locks; there the user must not start two runs at once

    def _prepare(self, function: str, *, resume: bool, overwrite: bool) -> None:
        self._length = os.fstat(self._fd).st_size
        if overwrite:
            self._cut(0)
        elif resume:
            self._read_earlier(function)
        elif self._length:
            raise CommandError(
                f"--out {self.path!r} is not empty",
                "--resume to go on with it, --overwrite to start anew, or another file",
            )

    def _read_earlier(self, function: str) -> None:
        good = 0
        for number, line, whole in self._lines():
            record = _record(line, self._format)
            if record is None:
                if not whole:
                    break
                raise CommandError(
                    f"line {number} of --out {self.path!r} is not a result, so the file cannot be resumed",
                    "another file, or --overwrite to delete its content",
                )
            if record["function"] is not None and record["function"] != function:
                raise CommandError(
                    f"--out {self.path!r} holds results of {record['function']}, not of {function}",
                    "another file for this function, or --overwrite to delete those results",
                )
            good += len(line)
            if record["ok"]:
                self.earlier.done[key_of(record["input"], self._format)] += 1
                self.earlier.total += 1
            if not whole:  # only the newline is missing
                self._cut(good)
                self.write([b"\n"])
                return
        self._cut(good)

    def _lines(self) -> Iterator[tuple[int, bytes, bool]]:
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            pending = b""
            for number, line in enumerate(file, 1):
                pending += line
                # A quoted cell of a table may contain newlines.
                if self._format == "csv" and pending.count(b'"') % 2:
                    continue
                yield number, pending, pending.endswith(b"\n")
                pending = b""
            if pending:
                yield 0, pending, False

    def _cut(self, length: int) -> None:
        if self._length != length:
            os.ftruncate(self._fd, length)
            self._length = length

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, each of them completely or not at all.

        Raises:
            OutputError: not all of them can be written.
        """
        data = b"".join(lines)
        try:
            _write_all(self._fd, data)
        except OSError as error:
            if self._regular:
                self._keep_whole(lines)
            hint = "make room"
            if error.errno == errno.EFBIG:
                hint = "raise the limit on file sizes (ulimit -f)"
            raise OutputError(
                f"--out {self.path!r} cannot be written any more: {error.strerror}",
                f"{hint}, then run the same command with --resume" if self._regular else "another file",
            ) from None
        self._length += len(data)

    def _keep_whole(self, lines: Sequence[bytes]) -> None:
        there = os.fstat(self._fd).st_size
        for line in lines:
            if self._length + len(line) > there:
                break
            self._length += len(line)
        os.ftruncate(self._fd, self._length)

    def close(self) -> None:
        """Close the file and thereby unlock it."""
        os.close(self._fd)


def _record(line: bytes, format: Format) -> dict[str, Any] | None:
    if format == "csv":
        return _table_row(line)
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not {"input", "function", "ok"} <= record.keys():
        return None
    return record  # pyright: ignore[reportUnknownVariableType]


def _table_row(line: bytes) -> dict[str, Any] | None:
    try:
        rows = list(
            csv.reader(line.decode("utf-8", "surrogateescape").splitlines(keepends=True), strict=True)
        )
    except csv.Error:
        return None
    if len(rows) != 1 or len(rows[0]) != len(CSV_COLUMNS):
        return None
    row: dict[str, Any] = dict(zip(CSV_COLUMNS, rows[0], strict=True))
    if rows[0] == list(CSV_COLUMNS):
        row["function"] = None
    row["ok"] = row["ok"] == "true"
    return row


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


class StandardOutput:
    """Result lines on standard output, which this object takes over.

    Until `close`, other output of this process and of workers that inherit the descriptor, such as the user's function
    prints, goes to standard error, so that it does not mix with the results.
    """

    def __init__(self) -> None:
        """Take over the descriptor.

        Raises:
            CommandError: there is no standard output.
        """
        try:
            self._fd = os.dup(1)
        except OSError:
            raise CommandError(
                "there is no standard output to print results on", "--out FILE, or --no-print"
            ) from None
        self.is_terminal = os.isatty(self._fd)
        os.dup2(2, 1)

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines.

        Raises:
            OutputClosed: the reader has closed it.
            OutputError: the lines cannot be written for another reason.
        """
        try:
            _write_all(self._fd, b"".join(lines))
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise OutputError(f"standard output cannot be written any more: {error.strerror}") from None

    def close(self) -> None:
        """Restore the descriptor of standard output."""
        os.dup2(self._fd, 1)
        os.close(self._fd)
