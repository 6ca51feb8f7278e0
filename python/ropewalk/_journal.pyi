"""The extension module of the journal."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
    def _handle(self) -> object:
        """Returns the journal in a capsule, for another extension module of this shared object."""
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
    def take(
        self,
        inputs: Iterator[Any],
        most: int,
        line: deque[Any],
        calls: tuple[bytes, bool, Callable[[Any], object], Callable[[int, Exception], object]],
    ) -> tuple[tuple[Any, ...], bytes] | Exception | None:
        """Takes inputs of a map, at most so many, and appends the pickles of their results to `line`.

        It ends with an input that has not finished, and returns its arguments and its key; or with the exception of the
        iterator, a `StopIteration` too, and returns that; or with an input that has no key. In place of an input that
        has no key, or whose result cannot be read, an entry is appended. It returns `None` if there may be more inputs.

        `calls` says what the inputs are: the digest of the function; whether an input is the tuple of all arguments;
        the function that makes plain values of others; the one that makes an entry of an input's number and its error.
        """
    def finish(self, key: bytes, result: ReadableBuffer) -> int:
        """Records the result of a call. The end of the process costs nothing from then on; see `sync`."""
    def sync(self) -> int:
        """Waits until every result that was recorded is on the disk; gives the number of the last one."""
    def close(self) -> None:
        """Waits until everything is on the disk, and lets the file go."""
    @property
    def known(self) -> int:
        """How many finished calls the journal had when it was opened."""
    @property
    def taken(self) -> int:
        """How many inputs `take` has taken, without those that it is taking just now."""

def lay_out(
    line: deque[Any], laid: deque[Any], loads: Callable[[bytes], Any], made: Callable[[Any], object] | None
) -> None:
    """Unpickles the results at the head of a map's line, and moves them to `laid`, as `made` makes them.

    It ends at an entry that is no pickle, and leaves a pickle there that raises.
    """

def digest(value: object, parts: Callable[[Any], object]) -> bytes:
    """The name of a value that another process gives to an equal one; `parts` makes plain values of the others."""
