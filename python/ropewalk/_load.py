"""Loads the extension modules that are in the shared object of `ropewalk._core`, without that module itself."""

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
    # The file is looked for without importing `_core`, because only the parent may import that.
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
    from ropewalk import (
        _bus as bus,
        _gateway as gateway,
        _journal as journal,
        _loop as loop,
        _results as results,
        _state as state,
        _worker as worker,
        _zmq as zmq,
    )
else:
    worker = _open("ropewalk._worker")

    def __getattr__(name: str) -> ModuleType:
        # Opened at first use: a worker does not pay for modules that it does not use, the loop's module needs asyncio,
        # and the journal's and messaging's need the main interpreter.
        if name in ("bus", "gateway", "journal", "loop", "results", "state", "zmq"):
            return _open(f"ropewalk._{name}")
        raise AttributeError(name)


__all__ = ["bus", "gateway", "journal", "loop", "results", "state", "worker", "zmq"]
