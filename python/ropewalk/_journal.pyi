"""The extension module of the journal."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, final

from _typeshed import ReadableBuffer

class JournalBase:
    """The compiled base of `Journal`."""

    def __new__(cls, path: str, sync: str, seconds: float, max_bytes: int | None) -> Self: ...
    def append(self, record: ReadableBuffer) -> int:
        """Appends a record, and returns its number when it is as durable as the journal's ``sync`` says."""
    def append_nowait(self, record: ReadableBuffer) -> int:
        """Puts a record into the next batch, and returns its number without waiting for the disk."""
    def append_all(self, records: Sequence[ReadableBuffer]) -> int:
        """Appends records that share one sync, and returns the number of the last one."""
    def sync(self) -> None:
        """Waits until all that was appended is on the disk, whatever the journal's ``sync`` says."""
    def compact(self, snapshot: Sequence[ReadableBuffer], upto: int) -> None:
        """Puts a snapshot into the place of all records up to that number."""
    def close(self) -> None:
        """Waits until everything is on the disk, marks the end, and lets the file go."""
    @property
    def last(self) -> int:
        """The number of the last record that was appended; 0 if there was none."""
    @property
    def size(self) -> int:
        """The bytes that records take in the file, those included that are on their way."""
    @property
    def closed(self) -> bool:
        """Whether nobody can append any more: it was closed, its disk has failed, or this is a forked child."""
    @property
    def _path(self) -> Path: ...
    @property
    def _recovered(self) -> tuple[int, bool, int, int | None]: ...

@final
class RecordReader:
    """Reads a journal's records, as tuples."""

    def __new__(cls, path: str) -> Self: ...
    def read(self, most: int) -> list[tuple[int, bool, bytes]]:
        """The next records: about so many bytes of them."""

@final
class CallLog:
    """The results of finished calls in a journal, by the digests of the calls."""

    def __new__(cls, path: str) -> Self: ...
    def begin(
        self, function: bytes, arguments: object, parts: Callable[[Any], object]
    ) -> tuple[bytes, bytes | None]:
        """Begins a call: its key, and the pickle of its result if it has finished before."""
    def finish(self, key: bytes, result: ReadableBuffer) -> int:
        """Records the result of a call. The end of the process costs nothing from then on; see `sync`."""
    def sync(self) -> int:
        """Waits until every result that was recorded is on the disk; gives the number of the last one."""
    def close(self) -> None:
        """Waits until everything is on the disk, and lets the file go."""
    @property
    def known(self) -> int:
        """How many finished calls the journal had when it was opened."""

def digest(value: object, parts: Callable[[Any], object]) -> bytes:
    """The name of a value that another process gives to an equal one; `parts` makes plain values of the others."""
