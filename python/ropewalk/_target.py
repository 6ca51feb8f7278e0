"""Finds the function that `FILE.py:FUNCTION` or `package.module:FUNCTION` names.

The command only finds the file; the zygote imports it, once for all workers, and the workers look the function up. A
server imports it itself, too, because it reads the schemas of its tools. A file is imported by name if that is
unambiguous: its folder is put on `sys.path`, as `python FILE.py` does, and a file
inside a package is imported as part of that package. If another module has the name (for a file `wave.py`, for
instance), each worker loads the file itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

_FORMS = "name it as FILE.py:FUNCTION or as package.module:FUNCTION"


class TargetError(Exception):
    """There is no such file, module or function, or it cannot be loaded.

    `problem` says what failed and `hint` what to try.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Place:
    """The location of the function.

    `module` is the name of its module, or None for a file at `path` that cannot be imported by name. `shown` is the
    user's text, and `name` is the function's name in result files: file name and function, without folders.
    """

    module: str | None
    path: str | None
    attribute: str
    shown: str
    name: str


def find_target(text: str) -> Place:
    """Find the file or module that `text` names, and put its folder on `sys.path`; nothing is imported.

    Raises:
        TargetError: no such file or module.
    """
    where, colon, attribute = text.rpartition(":")
    if not colon or not where or not attribute:
        raise TargetError(f"{text!r} does not name a function", _FORMS)
    if where.endswith(".py") or os.sep in where:
        path = Path(where).expanduser().resolve()
        if not path.is_file():
            raise TargetError(f"there is no file {where!r}", _FORMS)
        root, dotted = _dotted_name(path)
        before = list(sys.path)
        _put_on_path(root)
        known = dotted if dotted is not None and _means(dotted, path) else None
        if known is None:
            # The file can import its neighbours, but must not replace the module whose name it has.
            sys.path[:] = [*before, str(root)]
        return Place(known, str(path), attribute, where, f"{path.name}:{attribute}")
    # As in `python -m`: the current folder in place of the console script's own.
    _put_on_path(Path.cwd())
    try:
        found = importlib.util.find_spec(where)
    except (ImportError, ValueError, AttributeError):
        found = None
    except Exception:
        found = True  # type: ignore[assignment]  # A package on the way fails; importing it tells how.
    if found is None:
        hint = (
            f"give its file, {where}.py:FUNCTION"
            if Path(f"{where}.py").is_file()
            else "check the name, or PYTHONPATH"
        )
        raise TargetError(f"there is no module {where!r}", hint)
    return Place(where, None, attribute, where, text)


def find_module(text: str) -> Place:
    """Find the file or module that `text` names, and put its folder on `sys.path`; nothing is imported.

    Raises:
        TargetError: no such file or module.
    """
    try:
        return find_target(f"{text}:*")
    except TargetError as error:
        hint = "name it as FILE.py or as package.module" if error.hint == _FORMS else error.hint
        raise TargetError(error.problem, hint.replace(":FUNCTION", "")) from None


def load_module(text: str) -> ModuleType:
    """Import the file or module that `text` names, in this process.

    Raises:
        TargetError: no such file or module; it fails when it is imported.
    """
    return module_at(find_module(text))


_LOADED: dict[Place, Callable[..., Any]] = {}
_LOADING = threading.Lock()


def loaded(place: Place) -> Callable[..., Any]:
    """Return the function in the process that runs it; its file is executed at most once.

    Raises:
        TargetError: there is no such function; its file fails when it is imported; the object is not a function.
    """
    function = _LOADED.get(place)
    if function is None:
        with _LOADING:
            function = _LOADED.get(place)
            if function is None:
                function = _LOADED[place] = _attribute(module_at(place), place.attribute, place.shown)
    return function


def check(place: Place) -> tuple[str, str] | None:
    """Load the function in a worker; return None, or what failed and what to try."""
    try:
        loaded(place)
    except TargetError as error:
        return error.problem, error.hint
    return None


def module_at(place: Place) -> ModuleType:
    """Import the file or module at a place.

    Raises:
        TargetError: it fails when it is imported.
    """
    if place.module is not None:
        name = place.module
        return _loaded(lambda: importlib.import_module(name), place.shown)
    assert place.path is not None
    path = Path(place.path)
    return _loaded(lambda: _load_nameless(path, name_of(place)), place.shown)


def name_of(place: Place) -> str:
    """Return the name that the module at a place has in `sys.modules`."""
    return place.module or f"ropewalk target {Path(place.path or '').stem}"


def _dotted_name(path: Path) -> tuple[Path, str | None]:
    """Return the folder for the path, and the name by which to import the file, or no name if it cannot have one."""
    root = path.parent
    parts = [] if path.name == "__init__.py" else [path.stem]
    while (root / "__init__.py").is_file() and root.parent != root:
        parts.insert(0, root.name)
        root = root.parent
    if path.suffix != ".py" or not parts or not all(part.isidentifier() for part in parts):
        return path.parent, None
    return root, ".".join(parts)


def _means(dotted: str, path: Path) -> bool:
    """Whether a worker that imports `dotted` gets this very file."""
    first = dotted.partition(".")[0]
    if first in sys.stdlib_module_names or first in ("ropewalk", "__main__"):
        return False
    try:
        found = importlib.util.find_spec(dotted)
    except (ImportError, ValueError, AttributeError):
        return False
    except Exception:
        return True  # a parent package fails when it is imported; the worker's import reports how
    return found is not None and found.origin is not None and Path(found.origin).resolve() == path


def _load_nameless(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path.name!r} is not a Python file", _FORMS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, for instance, look their module up.
    spec.loader.exec_module(module)
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _loaded(load: Callable[[], ModuleType], shown: str) -> ModuleType:
    try:
        return load()
    except (TargetError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a script may call sys.exit() when it is imported
        text = "".join(traceback.format_exception(type(error), error, _users(error.__traceback__))).rstrip()
        raise TargetError(
            f"{shown!r} fails when it is imported:\n{text}",
            'put what must not run on import under `if __name__ == "__main__":`'
            if isinstance(error, SystemExit)
            else "import it in a Python shell to see the same",
        ) from None


def _users(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's first frame on, without those of Ropewalk and of the import system."""
    ours = os.path.dirname(os.path.abspath(__file__))
    while trace is not None and trace.tb_next is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith((ours, "<frozen importlib")) or file == importlib.__file__):
            break
        trace = trace.tb_next
    return trace


def _attribute(module: ModuleType, attribute: str, shown: str) -> Callable[[Any], Any]:
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise TargetError(f"{shown!r} has no function {attribute!r}", _offer(module)) from None
    if not callable(value):
        raise TargetError(
            f"{attribute!r} in {shown!r} is not a function but {type(value).__name__}", _offer(module)
        )
    if inspect.iscoroutinefunction(value):
        raise TargetError(
            f"{attribute!r} in {shown!r} is a coroutine function",
            "wrap it: def run(value): return asyncio.run(" + attribute + "(value))",
        )
    return value  # type: ignore[no-any-return]


def _offer(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    return (
        f"one of {', '.join(own[:12])}" if own else "a function that is defined at the top level of the file"
    )
