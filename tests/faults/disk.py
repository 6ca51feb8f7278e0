"""A disk that loses power: what a program has done to a folder is noted, and what a crash may leave is made of it."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).parent / "recorder.rs"
_HOOK = ctypes.CFUNCTYPE(None)
_FOLDER = 0
#: What is written at once on the disk, if anything of it is: real sectors are larger than the first of these numbers.
#: A write has so many parts at most.
_SECTOR, _PARTS = 16, 64


def compiler() -> str | None:
    """Rust's compiler, if there is one."""
    return shutil.which("rustc")


def build(folder: Path) -> Path:
    """Builds the library that a program is started with."""
    library = folder / "recorder.so"
    command = [compiler() or "rustc", "--edition", "2024", "--crate-type", "cdylib", "-C", "opt-level=1"]
    subprocess.run([*command, "-o", str(library), str(_SOURCE)], check=True)
    return library


class Plan(ctypes.Structure):
    """What goes wrong; `recorder.rs` says what the fields are."""

    _fields_ = (
        ("fail_at", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("short", ctypes.c_uint8),
        ("bare", ctypes.c_uint8),
    )


class Note(NamedTuple):
    """What a program has done; a mark, `m`, is one of its own."""

    kind: str
    file: int
    at: int
    bytes: bytes


class Recorder:
    """The library in this process, which was started with it."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        begin, mark, end = (getattr(self._library, f"recorder_{name}") for name in ("begin", "mark", "end"))
        begin.argtypes = (ctypes.c_char_p, ctypes.c_char_p, Plan, ctypes.c_uint64, _HOOK)
        mark.argtypes = (ctypes.c_uint32, ctypes.c_uint64)
        end.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64))
        end.restype = ctypes.c_size_t
        self._begin, self._end, self.mark = begin, end, mark
        self._hook: object = None

    def begin(self, folder: Path, file: str, plan: Plan, seed: int, hook: Callable[[], None]) -> None:
        """Notes from now on what is done in the folder, which has no file, or this one."""
        self._hook = _HOOK(hook)
        self._begin(f"{folder}/".encode(), file.encode(), plan, seed, self._hook)

    def end(self) -> tuple[list[Note], int]:
        """Ends the notes, and returns them and the number of steps."""
        log, steps = ctypes.c_void_p(), ctypes.c_uint64()
        size = self._end(ctypes.byref(log), ctypes.byref(steps))
        return list(_notes(ctypes.string_at(log.value or 0, size) if size else b"")), steps.value


def _notes(log: bytes) -> Iterator[Note]:
    at = 0
    while at < len(log):
        size = int.from_bytes(log[at + 13 : at + 17], "little")
        end = at + 17 + size
        file, where = (int.from_bytes(log[at + a : at + b], "little") for a, b in ((1, 5), (5, 13)))
        yield Note(chr(log[at]), file, where, log[at + 17 : end])
        at = end


class Disk:
    """The disk as notes leave it: what is on it for certain, and what was done since."""

    def __init__(self, files: dict[str, bytes], *, lies: bool) -> None:
        #: What a program sees under each name.
        self._names = {name: number for number, name in enumerate(files, 1)}
        self._seen = {self._names[name]: bytearray(content) for name, content in files.items()}
        self._kept = {number: bytes(content) for number, content in self._seen.items()}
        self._kept_names = dict(self._names)
        #: What changed since the last sync, for each file, and the names as each change left them.
        self._pending: dict[int, list[Note]] = {number: [] for number in self._seen}
        self._name_changes: list[dict[str, int]] = []
        self._lies = lies

    def apply(self, note: Note) -> None:
        """Does what a program has done."""
        if note.kind in "wta":
            _change(self._seen[note.file], note)
            self._pending[note.file].append(note)
        elif note.kind == "s" and not self._lies:
            if note.file == _FOLDER:
                self._kept_names = dict(self._names)
                self._name_changes.clear()
            elif note.file in self._seen:
                self._kept[note.file] = bytes(self._seen[note.file])
                self._pending[note.file].clear()
        elif note.kind in "cru":
            if note.kind == "c":
                self._names[note.bytes.decode()] = note.file
                self._seen[note.file], self._kept[note.file] = bytearray(), b""
                self._pending[note.file] = []
            elif note.kind == "r":
                source, target = note.bytes[: note.at].decode(), note.bytes[note.at :].decode()
                self._names[target] = self._names.pop(source)
            else:
                del self._names[note.bytes.decode()]
            self._name_changes.append(dict(self._names))

    def after_kill(self) -> dict[str, bytes]:
        """The files if the program ends here: the kernel has all that it did."""
        return {name: bytes(self._seen[number]) for name, number in self._names.items()}

    def after_crash(self, chance: random.Random) -> dict[str, bytes]:
        """Files that a loss of power may leave: what was not synced is there in parts, or not, in any order."""
        found = {}
        kept = chance.randrange(len(self._name_changes) + 1)
        names = self._name_changes[kept - 1] if kept else self._kept_names
        for name, number in names.items():
            # Nothing, a little, half, most, all.
            share = chance.choice((0, 1, 4, 7, 8))
            content = bytearray(self._kept[number])
            for note in self._pending[number]:
                if note.kind != "w":
                    if chance.randrange(8) < share:
                        _change(content, note)
                    continue
                size = max(_SECTOR, len(note.bytes) // _PARTS)
                for offset in range(0, len(note.bytes), size):
                    if chance.randrange(8) < share:
                        part = note.bytes[offset : offset + size]
                        _change(content, note._replace(at=note.at + offset, bytes=part))
            found[name] = bytes(content)
        return found


def _change(content: bytearray, note: Note) -> None:
    end = note.at + len(note.bytes)
    if note.kind == "t":
        del content[end:]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if note.kind == "w":
        content[note.at : end] = note.bytes
