"""Swaps the event loop in every process of a foreign suite; a `.pth` file of its environment imports this at start.

`FOREIGN_LOOP` names the loop that takes the place of asyncio's own in this process and in the children that inherit
the environment. With `FOREIGN_SWAP=uvloop` it takes the place of uvloop's loop instead, and asyncio keeps its own.
Nothing is imported before the program imports the module that is swapped, and nothing happens without the variable.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

#: The module with the loops, and with how one takes the place of asyncio's.
_LOOPS = Path(__file__).parents[2] / "conformance" / "asyncio_suite" / "loops.py"


def _loops() -> Any:
    # Loaded by its path: `tests` is a package of the foreign suite's own here.
    spec = importlib.util.spec_from_file_location("foreign_loops", _LOOPS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _swap_asyncio(asyncio: Any, loop: str) -> None:
    _loops().Replacement(loop).install()


def _swap_uvloop(uvloop: Any, loop: str) -> None:
    # `uvloop.new_event_loop`, its policy and `uvloop.run` look this name up at each call.
    uvloop.Loop = _loops().LOOPS[loop]()


_SWAPS = {"asyncio": _swap_asyncio, "uvloop": _swap_uvloop}


class _Finder:
    """Lets the other finders find the module, and swaps its loop once it has been executed."""

    def __init__(self, name: str, loop: str) -> None:
        self._name = name
        self._loop = loop

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                try:
                    _SWAPS[self._name](module, self._loop)
                except BaseException:
                    # The program would import the module once more, and run on the loop that is not tested.
                    traceback.print_exc()
                    os._exit(70)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _install() -> None:
    name, loop = os.environ.get("FOREIGN_SWAP", "asyncio"), os.environ.get("FOREIGN_LOOP", "")
    if loop and loop != name and name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, loop))  # type: ignore[arg-type]


_install()
