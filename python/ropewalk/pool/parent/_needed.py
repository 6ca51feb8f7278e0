"""The modules that a call needs beside that of its function: those that the function's code imports, and those of its
arguments' values.

Both are found without running any of it, within bounds: what lies beyond is found out by the call itself.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
)
from typing import Any, cast

#: Functions of one module that are read for one call.
_MOST_FUNCTIONS = 200
#: Values that are looked at for one call, items of each container, and containers and objects within each other.
_MOST_VALUES = 200
_MOST_ITEMS = 16
_DEEPEST = 8

_PLAIN = frozenset({int, float, complex, str, bytes, bytearray, bool, type(None), range, slice})
_SEQUENCES = frozenset({list, tuple, set, frozenset, deque})


def is_ours(module: object) -> bool:
    """Whether a module is the standard library's, this package's or the main one, or no module."""
    if not isinstance(module, str) or not module or module in ("__main__", "__mp_main__"):
        return True
    top = module.partition(".")[0]
    return top == "ropewalk" or top in sys.stdlib_module_names


def imported_by(call: object) -> list[str]:
    """Returns the modules that a function imports when it runs, and the functions of its module that it names."""
    found: dict[str, None] = {}
    waiting: deque[object] = deque([call])
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function = _function_of(waiting.popleft(), waiting)
        if function is None or id(function.__code__) in seen:
            continue
        space, module = function.__globals__, function.__module__
        for code in _codes_of(function.__code__):
            seen.add(id(code))
            for name in _imports_of(code, space):
                if not is_ours(name):
                    found[name] = None
            named = (space.get(name) for name in code.co_names)
            waiting.extend(value for value in named if _is_of(value, module))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # It is empty.
                if _is_of(cell.cell_contents, module):
                    waiting.append(cell.cell_contents)
    return list(found)


def _is_of(value: object, module: object) -> bool:
    return type(value) in (FunctionType, type, partial, MethodType) and (
        type(value) in (partial, MethodType) or cast("Any", value).__module__ == module
    )


def _function_of(call: object, waiting: deque[object]) -> FunctionType | None:
    """Returns the function behind a callable; of a class, all its functions wait to be read."""
    if isinstance(call, partial):
        waiting.extend(value for value in (call.func, *call.args[:_MOST_ITEMS]) if callable(value))
        return None
    if isinstance(call, type):
        for value in list(vars(call).values()):
            is_wrapped = isinstance(value, (staticmethod, classmethod))
            inner: Any = cast("Any", value).__func__ if is_wrapped else value
            waiting.extend([inner.fget, inner.fset] if isinstance(inner, property) else [inner])
        return None
    if isinstance(call, MethodType):
        return _function_of(call.__func__, waiting)
    if isinstance(call, FunctionType):
        return call
    made = vars(type(call)).get("__call__")
    return made if isinstance(made, FunctionType) else None


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_of(constant)


def _imports_of(code: CodeType, space: dict[str, Any]) -> Iterator[str]:
    import opcode

    # Most code imports nothing, and this costs next to nothing.
    if opcode.opmap["IMPORT_NAME"] not in code.co_code[::2]:
        return
    import dis

    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for at, step in enumerate(steps):
        if step.opname != "IMPORT_NAME" or at < 2:
            continue
        level, names = steps[at - 2].argval, steps[at - 1].argval
        name = str(step.argval)
        if isinstance(level, int) and level > 0:
            try:
                name = importlib.util.resolve_name("." * level + name, space.get("__package__"))
            except (ImportError, TypeError):
                continue
        yield name
        if isinstance(names, tuple):
            # Each may be a module of the package.
            yield from (f"{name}.{one}" for one in cast("tuple[str, ...]", names) if one != "*")


def named_by(values: Iterable[object]) -> list[str]:
    """Returns the modules of the classes and functions of these values, and of what they contain."""
    found: dict[str, None] = {}
    level, left = list(values), _MOST_VALUES
    for _ in range(_DEEPEST):
        deeper: list[object] = []
        for value in level[:left]:
            module = _look(value, deeper)
            if not is_ours(module):
                found[str(module)] = None
        left -= len(level)
        if left <= 0 or not deeper:
            break
        level = deeper
    return list(found)


def _look(value: object, deeper: list[object]) -> object:
    """Returns the module of a value, and adds what it contains."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    with suppress(RuntimeError):  # Another thread changes it.
        if kind in _SEQUENCES:
            deeper.extend(islice(cast("Iterable[object]", value), _MOST_ITEMS))
            return None
        if kind is dict:
            for pair in islice(cast("dict[object, object]", value).items(), _MOST_ITEMS):
                deeper.extend(pair)
            return None
    if issubclass(kind, type) or kind in (FunctionType, BuiltinFunctionType):
        return cast("Any", value).__module__
    if issubclass(kind, partial):
        bound = cast("partial[Any]", value)
        deeper.extend([bound.func, bound.args, bound.keywords])
        return None
    if kind is MethodType:
        method = cast("MethodType", value)
        deeper.extend([method.__self__, method.__func__])
        return None
    # Without the class's own access to attributes, which may run anything.
    with suppress(AttributeError):
        own: object = object.__getattribute__(value, "__dict__")
        if type(own) is dict:
            deeper.append(cast("object", own))
    for parent in kind.__mro__:
        if "__slots__" in vars(parent):
            for member in list(vars(parent).values())[: 4 * _MOST_ITEMS]:
                if type(member) is MemberDescriptorType:
                    with suppress(AttributeError):
                        deeper.append(member.__get__(value))
    return kind.__module__
