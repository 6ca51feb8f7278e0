"""Loads the doors of the one extension module that every worker may open: all but `ropewalk._core`."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from os.path import dirname, exists, join
from types import ModuleType
from typing import TYPE_CHECKING


def _open(name: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None:
        return known
    # The file is found without importing `_core`, whose own door is for the parent alone.
    home = dirname(__file__)
    for suffix in EXTENSION_SUFFIXES:
        path = join(home, f"_core{suffix}")
        if exists(path):
            break
    else:
        raise ImportError(
            f"the compiled part of ropewalk is missing beside {home}. Build it with `make build`, or install ropewalk "
            f"for this version of Python."
        )
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


if TYPE_CHECKING:
    from ropewalk import _foundation as foundation, _loop as loop, _worker as worker, _zmq as zmq
else:
    worker = _open("ropewalk._worker")
    foundation = _open("ropewalk._foundation")

    def __getattr__(name: str) -> ModuleType:
        # Opened when they are first asked for: one needs asyncio, the other is for the main interpreter alone.
        if name in ("loop", "zmq"):
            return _open(f"ropewalk._{name}")
        raise AttributeError(name)


__all__ = ["foundation", "loop", "worker", "zmq"]
