"""Work on a module of another library that is put off until the program imports that module.

Importing the module for this work alone would cost too much.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


class _Awaiting:
    """A finder for one module: it delegates to the path finder, and calls `then` when the module has been executed."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name = name
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            # Not sooner: a caller may ask for a spec and import nothing, or the module may fail.
            self.has(module)

        loader.exec_module = exec_module
        return spec

    def has(self, module: ModuleType) -> None:
        """Calls `then`, unless another thread has done that, or `forget`."""
        try:
            sys.meta_path.remove(self)
        except ValueError:
            return
        self._then(module)


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Calls `then` with a module: now if it is loaded, else when it is imported.

    Waits for a thread that is importing the module. A later call for the same module replaces the `then` of an earlier
    one.
    """
    forget(name)
    awaiting = _Awaiting(name, then)
    # Before the look, so that no import begins unseen between the two.
    sys.meta_path.insert(0, awaiting)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded.__spec__, "_initializing", False):
        try:
            loaded = importlib.import_module(name)
        except ImportError:
            # It failed in its thread, and may be imported again.
            return
    if loaded is not None:
        awaiting.has(loaded)


def forget(name: str) -> None:
    """Takes an earlier `when_imported` for this module back, if the module has not been imported since."""
    sys.meta_path[:] = [one for one in sys.meta_path if not (isinstance(one, _Awaiting) and one.name == name)]
