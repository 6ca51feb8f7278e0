"""Keys of calls: equal for the same function and equal arguments, in every process.

`digest` writes the usual types itself. `parts` gives it plain values for all others: those by which pickle would make
an equal object.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from os.path import basename, splitext
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from ropewalk._load import journal as _compiled

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    import numpy as np

#: The protocol in which arrays give their memory instead of a copy.
_PROTOCOL = 5


def key_of_function(function: Callable[..., Any]) -> bytes:
    """Returns the digest of a function, which stands for the first part of the keys of its calls.

    A function that a module has under its name is known by the two names, so that its calls are the same ones after its
    code was changed. A lambda, or a function made in another, is known by its code too, and by the values that it has
    taken from there.

    Raises:
        TypeError: it is bound to something that has no key.
    """
    try:
        return key_of(("call", function))
    except Exception as error:
        raise _without_key(function, error) from error


def key_of(value: object) -> bytes:
    """Returns the digest of a value."""
    return _compiled.digest(value, parts)


def open_calls(path: str) -> _compiled.CallLog:
    """Opens the journal of finished calls at a path without symbolic links.

    Raises:
        JournalError: it cannot be opened.
    """
    return _compiled.CallLog(path)


def lay_out(
    line: deque[Any], laid: deque[Any], loads: Callable[..., Any], made: Callable[..., Any] | None
) -> None:
    """Unpickles the results at the head of a line; see `ropewalk._journal`."""
    _compiled.lay_out(line, laid, loads, made)


def error_of_input(index: int, error: Exception) -> TypeError:
    """Returns the error for an input of a map that has no key."""
    made = TypeError(
        f"input {index} of the map has no key for the journal: {error}. A key needs inputs that can be pickled; "
        "pass what they are made from, for instance a path instead of an open file"
    )
    # Without a traceback, whose frames would keep the map for as long as the map keeps the error.
    made.__cause__ = error.with_traceback(None)
    return made


def _without_key(function: Callable[..., Any], error: Exception) -> TypeError:
    return TypeError(
        f"{function!r} has no key for the journal: {error}. Use a function of a module, and pass it what it needs"
    )


def parts(value: Any) -> object:
    """Returns plain values that tell a value from others of its type and of all other types.

    Raises:
        TypeError: pickle cannot take it apart either.
    """
    kind = cast("Any", type(value))
    if issubclass(kind, type):
        return "class", _module_of(value), value.__qualname__
    if kind is FunctionType:
        return _parts_of_function(value)
    if kind is CodeType:
        return "code", value.co_code, value.co_consts, value.co_names, value.co_argcount
    if kind is ModuleType:
        return "module", value.__name__
    if kind is pickle.PickleBuffer:
        return value.raw()
    if kind.__module__ == "numpy" and kind.__qualname__ == "ndarray" and not value.dtype.hasobject:
        return _parts_of_array(value)
    if kind in (bytearray, complex, range, slice):
        # Each has a `repr` that says everything, but for bytes, which are many.
        return kind.__name__, bytes(value) if kind is bytearray else repr(value)
    reduce = copyreg.dispatch_table.get(kind)
    reduced: Any = value.__reduce_ex__(_PROTOCOL) if reduce is None else reduce(value)
    if isinstance(reduced, str):
        return "global", _module_of(value), reduced
    made, arguments, state, items, pairs, *rest = (*reduced, None, None, None, None)[:6]
    return (
        made,
        arguments,
        state,
        None if items is None else list(items),
        None if pairs is None else list(pairs),
        rest,
    )


def main_name() -> str:
    """Returns the name under which the program's main file could be imported."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return splitext(basename(getattr(main, "__file__", None) or "__main__"))[0]


def _module_of(value: Any) -> object:
    # The same one whether its file is run or imported.
    name = getattr(value, "__module__", None)
    return main_name() if name == "__main__" else name


def _parts_of_function(function: FunctionType) -> object:
    names = "function", _module_of(function), function.__qualname__
    if "<" not in function.__qualname__:
        return names
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return *names, function.__code__, function.__defaults__, function.__kwdefaults__, cells


def _parts_of_array(array: np.ndarray[Any, Any]) -> object:
    # The names by which NumPy's reduction makes it change from one version to the next.
    flat: Any = array.reshape(-1).view("u1") if array.flags.c_contiguous else None
    memory = memoryview(array.tobytes() if flat is None else flat)
    return "array", str(array.dtype.descr), array.shape, memory
