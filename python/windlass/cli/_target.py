"""Finding the function that `FILE.py:FUNCTION` or `package.module:FUNCTION` names.

A function travels to the workers by reference if its file can be imported there under one clear name: the folder
goes on `sys.path`, as `python FILE.py` does it, and a file inside a package is imported as part of that package.
If the name is taken (a file `random.py`, say), the file is loaded under no name at all, and the function then
travels by value.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from windlass.cli._errors import CommandError

_FORMS = "name it as FILE.py:FUNCTION or as package.module:FUNCTION"


@dataclass(frozen=True, slots=True)
class Target:
    """The function to run, and the name by which a result file knows it: file name and function, no folders."""

    function: Callable[[Any], Any]
    name: str


def load_target(text: str) -> Target:
    """Load the function that `text` names.

    Raises:
        CommandError: no such file, module or function; the file fails when it is imported; not a function.
    """
    where, colon, attribute = text.rpartition(":")
    if not colon or not where or not attribute:
        raise CommandError(f"{text!r} does not name a function", _FORMS)
    if where.endswith(".py") or os.sep in where:
        path = Path(where).expanduser().resolve()
        if not path.is_file():
            raise CommandError(f"there is no file {where!r}", _FORMS)
        module, name = _import_file(path, where), path.name
    else:
        module, name = _import_module(where), where
    return Target(_attribute(module, attribute, where), f"{name}:{attribute}")


def _import_module(name: str) -> ModuleType:
    # As `python -m` does: the console script's own folder is of no use to the user, the current one is.
    _put_on_path(Path.cwd())
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        found = None
    if found is None:
        hint = (
            f"give its file, {name}.py:FUNCTION"
            if Path(f"{name}.py").is_file()
            else "check the name, or PYTHONPATH"
        )
        raise CommandError(f"there is no module {name!r}", hint)
    return _loaded(lambda: importlib.import_module(name), name)


def _import_file(path: Path, shown: str) -> ModuleType:
    root, dotted = _dotted_name(path)
    _put_on_path(root)
    if dotted is not None and _means(dotted, path):
        return _loaded(lambda: importlib.import_module(dotted), shown)
    return _loaded(lambda: _load_nameless(path), shown)


def _dotted_name(path: Path) -> tuple[Path, str | None]:
    """The folder to put on the path and the name to import the file by; no name if it cannot be one."""
    root = path.parent
    parts = [] if path.name == "__init__.py" else [path.stem]
    while (root / "__init__.py").is_file() and root.parent != root:
        parts.insert(0, root.name)
        root = root.parent
    if path.suffix != ".py" or not parts or not all(part.isidentifier() for part in parts):
        return path.parent, None
    return root, ".".join(parts)


def _means(dotted: str, path: Path) -> bool:
    """Whether a worker that imports `dotted` would get this very file."""
    first = dotted.partition(".")[0]
    if first in sys.stdlib_module_names or first in ("windlass", "__main__"):
        return False
    try:
        found = importlib.util.find_spec(dotted)
    except (ImportError, ValueError, AttributeError):
        return False
    except Exception:
        return True  # a package on the way fails when it is imported; importing it again will tell how
    return found is not None and found.origin is not None and Path(found.origin).resolve() == path


def _load_nameless(path: Path) -> ModuleType:
    name = f"windlass target {path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path.name!r} is not a Python file", _FORMS)
    module = importlib.util.module_from_spec(spec)
    # The name is known only while the file runs, for the likes of dataclasses. Afterwards pickle has to find that
    # it is not importable, or it would send a reference that no worker can follow.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _loaded(load: Callable[[], ModuleType], shown: str) -> ModuleType:
    try:
        return load()
    except (CommandError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a script may well call sys.exit() when it is imported
        text = "".join(traceback.format_exception(error)).rstrip()
        raise CommandError(
            f"{shown!r} fails when it is imported:\n{text}",
            'put what must not run on import under `if __name__ == "__main__":`'
            if isinstance(error, SystemExit)
            else "import it in a Python shell to see the same",
        ) from None


def _attribute(module: ModuleType, attribute: str, shown: str) -> Callable[[Any], Any]:
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise CommandError(f"{shown!r} has no function {attribute!r}", _offer(module)) from None
    if not callable(value):
        raise CommandError(
            f"{attribute!r} in {shown!r} is not a function but {type(value).__name__}", _offer(module)
        )
    if inspect.iscoroutinefunction(value):
        raise CommandError(
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
