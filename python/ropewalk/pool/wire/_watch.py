"""The objects on which a function's pickle depends: code, defaults, closure, and values of names that it refers to.

The compiled part compares the objects listed here before each submission, by identity and without calling Python. A
function whose pickle may change without such a sign, because it refers to a list for instance, is pickled each time.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

from ropewalk.pool.wire import _ctyped

#: Values that cannot change.
ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented))
_CACHED: type = type(functools.lru_cache(lambda: None))

#: The module of collections that never change.
_COLLECTIONS = "ropewalk.state"
_CONTAINERS = (list, dict, set, tuple, frozenset)
#: How a value is recognised: by itself if it cannot change, a weak reference, or a snapshot of its content; `None` for
#: a name without a value.
Seen: TypeAlias = "tuple[bool, object] | None"
_Names: TypeAlias = "list[tuple[str, Seen]]"
#: A weak reference to a function, its code, and its defaults, keyword defaults, attributes, cells and globals as seen.
FunctionEntry: TypeAlias = (
    "tuple[object, object, list[Seen] | None, _Names | None, _Names, list[Seen], _Names]"
)
#: Types of attributes that C code puts into a class: they cannot change, and pickle by name.
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    type(cast("Any", functools)._CacheInfo.hits),
)
#: Modules whose wrappers keep nothing in their cells but the functions that they wrap.
_GENERATORS = ("dataclasses", "reprlib")
#: Names through which code reaches globals that it does not name as such.
_REACHING = frozenset(("globals", "modules", "__main__"))


class Watch:
    """Walks through everything that a function refers to, and lists what its pickle depends on."""

    def __init__(self, visit_name: Callable[[types.FunctionType, str], None]) -> None:
        self._visit_name = visit_name
        self._seen: dict[int, object] = {}
        self.functions: list[FunctionEntry] = []
        #: Weak references to classes that are sent by value.
        self.classes: list[object] = []
        #: Modules that the code imports by name, and that workers get from the program.
        self.imported: list[types.ModuleType] = []
        #: Whether every change would be noticed.
        self.complete = True

    def visit(self, value: object) -> None:
        """Lists a function or a class, and whatever they refer to, unless it is listed or can be imported."""
        if id(value) in self._seen or not is_definition(value):
            return
        self._seen[id(value)] = value
        if isinstance(value, types.FunctionType):
            if not is_importable(value):
                self._function(value)
        elif isinstance(value, type):
            if not is_importable(value):
                self._class(value)
        else:
            self.visit(getattr(value, "__wrapped__", None))

    def _function(self, function: types.FunctionType) -> None:
        # Globals first, because the objects that the function refers to may lead back to it.
        names = function.__globals__
        # Functions that the standard library makes, a dataclass's methods for instance, refer to nothing that changes.
        foreign = names.get("__name__") in sys.stdlib_module_names
        used = [] if foreign else [name for name in global_names(function.__code__) if name != "__builtins__"]
        used += [name for name in spelled_names(function.__code__) if name not in used]
        for name in used:
            # Names without a value too: a worker may have a value that the program has deleted.
            self._visit_name(function, name)
        if not foreign:
            self.imported += [one for one in carried_imports(function.__code__) if one not in self.imported]
        defaults, keywords = function.__defaults__, function.__kwdefaults__
        generated = foreign and names.get("__name__") in _GENERATORS
        cells: list[Seen] = []
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
                if not generated or is_definition(content):
                    cells.append(self._see(content))
                else:
                    cells.append((False, content))
            except ValueError:  # An empty cell, which may be filled at any time.
                self.complete = False
                return
        self.functions.append(
            (
                weakref.ref(function),
                function.__code__,
                None if defaults is None else [self._see(value) for value in defaults],
                None if keywords is None else self._see_all(keywords),
                self._see_all(function.__dict__),
                cells,
                [(name, self._see(names[name]) if name in names else None) for name in used],
            )
        )

    def _class(self, kind: type) -> None:
        self.classes.append(weakref.ref(kind))
        for base in (type(kind), *kind.__bases__):
            self.visit(base)
        members: list[object] = list(kind) if isinstance(kind, enum.EnumMeta) else []
        starts = any("__init__" in vars(base) or "__new_member__" in vars(base) for base in _own_bases(kind))
        for member in members:
            for name, value in list(vars(member).items()):
                if name == "_value_" or not name.startswith("_"):
                    self._see(value, is_compared=False)
                if not (starts or name.startswith("_")):
                    self.complete = False  # Other code has set it, and may set it again.
        of_ctypes = _ctyped.is_of_ctypes(kind)
        for name, value in list(vars(kind).items()):
            if of_ctypes and (name == _ctyped.FIELDS or type(value).__name__ == "CField"):
                # The fields of a ctypes class: its layout, which is set once and refers to other classes.
                for field in cast("Iterable[Any]", value) if name == _ctyped.FIELDS else ():
                    self.visit(field[1])
                continue
            # The class's version changes when an attribute is replaced, but not when the attribute's value changes.
            for part in _functions_of(value):
                known = isinstance(part, _DESCRIPTORS) or any(part is member for member in members)
                if not known and not _is_reserved(kind, name, part):
                    self._see(part, is_compared=False)

    def _see_all(self, values: dict[str, Any]) -> list[tuple[str, Seen]]:
        return [(name, self._see(value)) for name, value in list(values.items())]

    def _see(self, value: object, is_compared: bool = True) -> Seen:
        if is_atomic(value):
            return False, value
        if isinstance(value, types.BuiltinFunctionType):
            if isinstance(value.__self__, type):
                self.visit(value.__self__)
            elif not isinstance(value.__self__, (types.ModuleType, type(None))):
                self.complete = False  # For instance a method of a list.
                return None
        elif is_definition(value):
            self.visit(value)
        elif isinstance(value, types.ModuleType):
            if is_carried(value):
                self.complete = False
        elif type(value) in _CONTAINERS and is_compared:
            snapshot = _snapshot(value)
            self.complete = self.complete and snapshot is not None
            return None if snapshot is None else (False, snapshot)
        elif type(value).__module__ != "dataclasses":  # Its sentinels for missing values.
            self.complete = False
            return None
        try:
            return True, weakref.ref(value)
        except TypeError:
            self.complete = False
            return None


def _own_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base is not object and base.__module__ != "enum"]


def is_atomic(value: object) -> bool:
    """Whether a value is immutable, with all its content."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(is_atomic(item) for item in cast("Iterable[object]", value))
    if kind.__module__ == _COLLECTIONS and kind.__name__ in ("PMap", "PVector"):
        # Such as the default of a state's field.
        parts: Any = value
        return all(map(is_atomic, parts.items() if kind.__name__ == "PMap" else parts))
    return kind in ATOMS


def _snapshot(value: object) -> object:
    """Returns a container's content for comparison; `None` if something in it may change unnoticed."""
    core: Any = sys.modules.get("ropewalk._core")
    return None if core is None else core.Snapshot.of(value)


def _functions_of(value: Any) -> list[object]:
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, (property, types.DynamicClassAttribute)):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [value]


def _is_reserved(kind: type, name: str, value: object) -> bool:
    """Whether the interpreter or the standard library made an attribute together with its class."""
    if name in ("__annotate__", "__annotate_func__"):
        return True
    if is_definition(value):
        return False
    if name.startswith("__") and name.endswith("__"):
        return True
    if isinstance(kind, enum.EnumMeta) or (issubclass(kind, tuple) and name == "_field_defaults"):
        return name.startswith("_")
    return name in ("_abc_impl", "_parameters_")


def is_definition(value: object) -> bool:
    """Whether a value is a function, a cached function or a class."""
    return isinstance(value, (types.FunctionType, type, _CACHED))


def global_names(code: types.CodeType) -> Iterable[str]:
    """Returns the global names in a function's code and in the code inside it."""
    import cloudpickle as untyped

    names: Iterable[str] = cast("Any", untyped.cloudpickle)._extract_code_globals(code)
    return names


def carried_imports(code: types.CodeType) -> list[types.ModuleType]:
    """Returns the modules that a function's code imports and that no import in a worker finds."""
    found: list[types.ModuleType] = []
    todo = [code]
    for one in todo:
        todo += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
        for name in one.co_names:
            module = sys.modules.get(name)
            if isinstance(module, types.ModuleType) and is_carried(module):
                import dis

                if any(
                    step.opname == "IMPORT_NAME" and step.argval == name for step in dis.get_instructions(one)
                ):
                    found.append(module)
    return found


def spelled_names(code: types.CodeType) -> list[str]:
    """Returns names and strings by which code may read or set globals, as in ``globals()["name"]``."""
    names: list[str] = []
    todo = [code]
    for one in todo:
        constants: list[object] = list(one.co_consts)
        for constant in constants:
            if isinstance(constant, types.CodeType):
                todo.append(constant)
            elif isinstance(constant, tuple):
                constants += cast("tuple[object, ...]", constant)
        names += one.co_names
        names += [constant for constant in constants if isinstance(constant, str)]
    return [] if _REACHING.isdisjoint(names) else list(dict.fromkeys(names))


# --- what workers can import ----------------------------------------------------------------------------------------

_MOST_FINDABLE = 4096
_FINDABLE: dict[str, tuple[object, bool]] = {}


def is_importable(value: object) -> bool:
    """Whether a worker finds this very function or class in its module by importing that."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<locals>" in name:
        return False
    found: Any = sys.modules.get(module)
    if found is None:
        return False
    if not is_findable(module, found):
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return False
    return found is value


def is_findable(name: str, module: Any) -> bool:
    """Whether an import of this name in a new worker finds the same module.

    It does not find a module that the program made by hand, or loaded from a file outside of ``sys.path``.
    """
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    known = _FINDABLE.get(name)
    if known is None or known[0] is not spec:
        if len(_FINDABLE) >= _MOST_FINDABLE:
            _FINDABLE.clear()
        known = _FINDABLE[name] = (spec, _finds(name, spec))
    return known[1]


def is_carried(module: types.ModuleType) -> bool:
    """Whether a worker gets a module's content from the program, because no import finds the module."""
    name = module.__name__
    if sys.modules.get(name) is not module:
        return True
    root = name.partition(".")[0]
    return (
        name != "__main__"
        and not is_findable(name, module)
        and not (
            # An imported package may make such modules itself.
            root != name and root in sys.modules and is_findable(root, sys.modules[root])
        )
    )


def _finds(name: str, spec: Any) -> bool:
    path = None
    package, _, _ = name.rpartition(".")
    if package:
        parent = sys.modules.get(package)
        if parent is None or not is_findable(package, parent):
            return False
        path = getattr(parent, "__path__", None)
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # Some old finders have no find_spec.
            found = finder.find_spec(name, path)
            if found is not None:
                return bool(found.origin == spec.origin)
    return False
