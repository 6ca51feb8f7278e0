"""Classes made by `ctypes` or derived from its classes: they travel as the definition of their layout."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from typing import Any

#: Attributes that the metaclass needs when it makes such a class.
_NEEDED = ("_type_", "_length_", "_flags_", "_restype_", "_argtypes_")
_SWAPPED = ("__ctype_be__", "__ctype_le__")
FIELDS = "_fields_"


def is_of_ctypes(kind: type) -> bool:
    """Whether a class has its layout from `ctypes`."""
    return "_ctypes" in sys.modules and any(base.__module__ == "_ctypes" for base in kind.__mro__[-3:])


def reduce_derived(kind: Any) -> Any:
    """Returns how a worker derives a class as ``c_int * 4`` does; `None` for a class that the program defines."""
    if not is_of_ctypes(kind):
        return None
    import ctypes

    library: Any = ctypes
    if issubclass(kind, type):
        # Such classes are in no module, or not under their names.
        found = next((base for base in _bases(library) if type(base) is kind), None)
        return None if found is None else (type, (found,))
    if kind.__bases__ == (ctypes.Array,) and _times(kind._type_, kind._length_) is kind:
        return _times, (kind._type_, kind._length_)
    if kind.__bases__ == (library._Pointer,) and library.POINTER(kind._type_) is kind:
        return library.POINTER, (kind._type_,)
    if issubclass(kind, library._CFuncPtr) and FIELDS not in vars(kind):
        parts = (vars(kind).get("_restype_"), *(vars(kind).get("_argtypes_") or ()))
        return (library.CFUNCTYPE, parts) if library.CFUNCTYPE(*parts) is kind else None
    native = getattr(kind, f"__ctype_{sys.byteorder[0]}e__", None)
    if native is not None and native is not kind:
        for name in _SWAPPED:
            if getattr(native, name, None) is kind:
                return getattr, (native, name)
    return None


def _bases(library: Any) -> tuple[Any, ...]:
    names = ("Structure", "Union", "Array", "_Pointer", "_SimpleCData", "_CFuncPtr")
    return tuple(getattr(library, name) for name in names)


def is_metaclass(kind: type) -> bool:
    """Whether a class is a metaclass of `ctypes`."""
    return "_ctypes" in sys.modules and kind.__module__ == "_ctypes"


def _times(kind: Any, length: int) -> Any:
    return kind * length


def prepare(kind: type, given: dict[str, Any], state: dict[str, Any]) -> None:
    """Removes derived attributes from a class's state, and moves those that the metaclass needs at once to `given`."""
    for name in _SWAPPED:
        state.pop(name, None)
    for name, value in list(state.items()):
        if type(value).__name__ == "CField" and type(value).__module__ in ("_ctypes", "ctypes"):
            del state[name]
    for name in _NEEDED:
        if name in state:
            given[name] = state.pop(name)
