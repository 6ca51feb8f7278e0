"""The process pool behind a pool of interpreters, for functions that an interpreter cannot load.

A compiled module may refuse to load in an interpreter other than the main one; NumPy does. Whether a function needs
such a module is tried before its first task, in an interpreter that runs no tasks. So no task begins in one kind of
worker and is run again in another. What the function's code imports, and the modules of its arguments, are read without
running them (`_needed`), and are tried in the same way.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, Any

import ropewalk
from ropewalk._errors import FunctionLoadError
from ropewalk.pool.parent import _needed
from ropewalk.pool.parent._exit import LAST
from ropewalk.pool.parent._options import outside
from ropewalk.pool.wire import _functions

if TYPE_CHECKING:
    from ropewalk.pool.parent._pool import Pool

#: What a trial runs first. Python raises an ImportError without a name and a path where a module refuses: a file that
#: is missing or broken has both. Other code may catch that error and raise its own, so it is noted where it is raised.
_NOTE = r"""
import sys
sys.path[:] = globals().pop("SYS_PATH").split("\n")
def start():
    globals().pop("start")
    from _frozen_importlib_external import ExtensionFileLoader
    refused = sys._ropewalk_refused = []
    def noting(load):
        def noted(loader, *arguments):
            try:
                return load(loader, *arguments)
            except ImportError as error:
                if error.name is None and error.path is None:
                    refused.append(loader.name)
                raise
        return noted
    for name in ("create_module", "exec_module"):
        setattr(ExtensionFileLoader, name, noting(getattr(ExtensionFileLoader, name)))
start()
"""
#: One trial: it raises the name of the module that refused.
_TRY = """
def start():
    globals().pop("start")
    import sys
    sys._ropewalk_refused.clear()
    what = globals().pop("WHAT")
    try:
        if isinstance(what, str):
            __import__(what)
        elif b"ropewalk" in what:
            from ropewalk.pool.wire._functions import load
            load(what, False)
        else:
            from pickle import loads
            loads(what)
    except BaseException:
        # Any other failure is reported by its task. And a package may do without the module that refuses.
        if sys._ropewalk_refused:
            raise LookupError(sys._ropewalk_refused[0]) from None
start()
"""


class Trials:
    """The interpreter in which functions and modules are tried; one for the process, made when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interpreter: Any = None

    def refused_by(self, what: bytes | str) -> str | None:
        """Returns the module that refuses when a pickle is loaded, or a module imported; `None` if none does."""
        interpreters: Any = importlib.import_module("_interpreters")
        with self._lock:
            if self._interpreter is None:
                made = interpreters.create()
                home = os.path.dirname(os.path.dirname(os.path.abspath(str(ropewalk.__file__))))
                interpreters.exec(made, _NOTE, {"SYS_PATH": "\n".join([*sys.path, home])})
                self._interpreter = made
                LAST.append(self._end)
            raised = interpreters.exec(self._interpreter, _TRY, {"WHAT": what})
        return None if raised is None or raised.type.__name__ != "LookupError" else str(raised.msg)

    def _end(self) -> None:
        interpreters: Any = importlib.import_module("_interpreters")
        interpreter, self._interpreter = self._interpreter, None
        if interpreter is not None:
            interpreters.destroy(interpreter)


TRIALS = Trials()


class Fallback:
    """Chooses where the calls of a pool of interpreters run; the pool behind it is made for the first that needs it."""

    def __init__(self, name: str, make: Callable[[], Pool]) -> None:
        """Prepares for the pool of this name; `make` makes the one behind it."""
        self._name = name
        self._make = make
        self._making = threading.Lock()
        #: The module that refuses, by the number of a function and by the name of a class's module.
        self._functions: dict[int, str | None] = {}
        self._modules: dict[str, str | None] = {}
        self._warned: set[str] = set()
        #: Whether the program has imported a module that refuses, and how many modules it had imported then.
        self._any_refuses = False
        self._seen = 0
        #: Functions that run in processes, with the module that each needs.
        self.moved: dict[str, str] = {}
        self.pool: Pool | None = None
        self._is_closed = False

    def choose(
        self, function: Callable[..., Any], number: int, values: Iterable[object], stays: bool
    ) -> Pool | None:
        """Returns the pool that runs a call, if that is the one behind; the compiled part calls this.

        Args:
            function: the function.
            number: its number in its pool.
            values: the arguments that are not plain.
            stays: it needs the state of a session, which is in an interpreter.

        Raises:
            FunctionLoadError: the call stays, and an interpreter cannot load what it needs.
        """
        if self._is_closed:
            return None if stays else self.pool
        module = self._of_function(function, number) or self._of_values(values)
        if module is None:
            return None
        name = _functions.name_of(function)
        if stays:
            raise self._refusal(name, module)
        self.moved.setdefault(name, module)
        if module not in self._warned:
            self._warned.add(module)
            warnings.warn(
                f"{module} does not load in an interpreter: {self._name} runs {name}, and whatever else needs that "
                'module, in worker processes. Use kind="process", or fallback=None for an error instead.',
                RuntimeWarning,
                stacklevel=outside(),
            )
        with self._making:
            if self.pool is None and not self._is_closed:
                self.pool = self._make()
        return self.pool

    def check_state(
        self, make: Callable[..., Any] | None, args: Iterable[object], kwargs: dict[str, Any]
    ) -> None:
        """Checks that interpreters can load what makes a session's state, and its arguments.

        Raises:
            FunctionLoadError: they cannot.
        """
        module = None if make is None else self._of_modules(_needed.imported_by(make))
        module = module or self._of_values([make, *args, *kwargs.values()])
        if module is not None:
            raise self._refusal(_functions.name_of(make) if make is not None else "init", module)

    def _refusal(self, name: str, module: str) -> FunctionLoadError:
        return FunctionLoadError(
            f"{module} does not load in an interpreter, and {name} needs it. The state of a session, or of an actor, "
            f'stays in the interpreter that made it. Use kind="process" for {name}.'
        )

    def _of_function(self, function: Callable[..., Any], number: int) -> str | None:
        if number not in self._functions:
            # A program without compiled modules has none that refuses before it runs.
            found = TRIALS.refused_by(_functions.encode_whole(function)) if any(compiled()) else None
            self._functions[number] = found or self._of_modules(_needed.imported_by(function))
        return self._functions[number]

    def _of_values(self, values: Iterable[object]) -> str | None:
        if not values or not self._refuses():
            return None
        return self._of_modules(_needed.named_by(values))

    def _of_modules(self, names: Iterable[str]) -> str | None:
        """Returns the module that refuses when one of these is imported."""
        for name in names:
            if name not in self._modules:
                self._modules[name] = TRIALS.refused_by(name)
            if self._modules[name] is not None:
                return self._modules[name]
        return None

    def _refuses(self) -> bool:
        """Whether the program has imported a module that refuses; without one, no value needs any."""
        if not self._any_refuses and len(sys.modules) != self._seen:
            self._seen = len(sys.modules)
            self._any_refuses = self._of_modules(compiled()) is not None
        return self._any_refuses

    def end(self, how: Callable[[Pool], object]) -> None:
        """Makes no pool any more, and ends the one that there is."""
        with self._making:
            self._is_closed = True
        if self.pool is not None:
            how(self.pool)

    def explain(self) -> list[str]:
        """Returns sentences about the functions that run in processes."""
        return [
            f"{name} runs in worker processes, because {module} does not load in an interpreter."
            for name, module in sorted(self.moved.items())
        ]


def compiled() -> Iterator[str]:
    """Yields the compiled modules that the program has imported, without the standard library's and ours."""
    own = tuple({sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep})
    site = tuple({sysconfig.get_path("purelib") + os.sep, sysconfig.get_path("platlib") + os.sep})
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or not isinstance(spec.loader, ExtensionFileLoader) or name.startswith("ropewalk."):
            continue
        path = str(spec.origin)
        if path.startswith(site) or not path.startswith(own):
            yield name
