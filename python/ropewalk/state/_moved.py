"""What classes were when a journal was written: fields that they have no more, other names, and the main module's."""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

#: Where a class says which names its fields had: a `dict` from old names to those of now.
_RENAMED = "__ropewalk_renamed__"


class _Reading(threading.local):
    """What this thread is reading."""

    #: The fields that were met and that their classes do not have.
    lost: dict[Any, set[str]] | None = None
    #: Names of modules, and the modules whose classes are meant.
    modules: dict[str, str] | None = None


_reading = _Reading()


@contextmanager
def reading(root: Any, lost: dict[Any, set[str]]) -> Generator[None, None, None]:
    """What is read in the block is of a state of class `root`; `lost` gets the lost fields of each class.

    A file that is run is the module `__main__`, and has another name when it is imported. A journal that was written by
    one of them is read by the other.
    """
    # An interpreter that cannot load the journal has no use for it either.
    from ropewalk._keys import main_name

    before = _reading.lost, _reading.modules
    _reading.lost, own = lost, root.__module__
    main = main_name()
    _reading.modules = {main: "__main__"} if own == "__main__" else {"__main__": own}
    try:
        yield
    finally:
        _reading.lost, _reading.modules = before


def note_lost(kind: Any, name: str) -> None:
    """Notes that a field was met that its class does not have."""
    if _reading.lost is not None:
        _reading.lost.setdefault(kind, set()).add(name)


def renamed(kind: Any) -> dict[str, str]:
    """Returns the names of now by the names that fields had earlier."""
    return cast("dict[str, str]", getattr(kind, _RENAMED, {}))


def unpickled(data: Any, buffers: Iterable[Any] = ()) -> Any:
    """Unpickles a record of a journal, or what another process sends."""
    modules = _reading.modules
    if not modules or not any(name.encode() in bytes(data) for name in modules):
        return pickle.loads(data, buffers=buffers)
    return _Unpickler(io.BytesIO(data), modules, buffers).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, modules: dict[str, str], buffers: Iterable[Any]) -> None:
        super().__init__(data, buffers=buffers)
        self._modules = modules

    def find_class(self, module: str, name: str, /) -> Any:
        """Finds a class or a function in the module that is meant, if that is there and has it."""
        meant: Any = sys.modules.get(self._modules.get(module, module))
        for part in name.split("."):
            meant = getattr(meant, part, None)
        return super().find_class(module, name) if meant is None else meant
