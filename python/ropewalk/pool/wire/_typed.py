"""Objects of `typing` that pickle knows only by name, and the annotations of classes and functions."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable
from typing import Any

#: The formats in which an annotate function returns values, and text; from Python 3.14 on (PEP 649).
_VALUE, _FORWARD, _TEXT = 1, 3, 4


def annotations_of(owner: Any, annotate: Any) -> dict[str, Any]:
    """Returns the annotations of a class or a function; as text, where a name in one has no value yet.

    It bypasses the owner's cache, so that sending a class does not fix its annotations in the program.
    """
    try:
        found: dict[str, Any] = annotate(_VALUE)
    except Exception:
        return _unsettled(owner, annotate)
    return found


def _unsettled(owner: Any, annotate: Any) -> dict[str, Any]:
    """Returns annotations in which a name has no value yet, or never gets one in this process."""
    import annotationlib  # type: ignore[import-not-found, unused-ignore]

    library: Any = annotationlib
    try:
        texts: dict[str, Any] = library.call_annotate_function(annotate, _TEXT, owner=owner)
        values: dict[str, Any] = library.call_annotate_function(annotate, _FORWARD, owner=owner)
    except Exception:
        return {}
    return {
        name: texts.get(name, "") if _has_forward(value, library.ForwardRef) else value
        for name, value in values.items()
    }


def _has_forward(value: Any, forward: type) -> bool:
    if isinstance(value, forward):
        return True
    parts: Any = value if isinstance(value, (list, tuple)) else getattr(value, "__args__", ())
    return isinstance(parts, (list, tuple)) and any(_has_forward(part, forward) for part in parts)


class Settled:
    """Stands for a function whose annotations refer to names without a value, while the pickler reads its parts."""

    def __init__(self, function: types.FunctionType, annotations: dict[str, Any]) -> None:
        self._function = function
        self.__annotations__ = annotations

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name == "__annotations__":
            return own[name]
        return getattr(own["_function"], name)


def settled(function: types.FunctionType) -> Any:
    """Returns the function, or a stand-in whose annotations can be read."""
    try:
        function.__annotations__  # noqa: B018
    except Exception:
        annotate: Any = getattr(function, "__annotate__", None)
        return Settled(function, {} if annotate is None else annotations_of(function, annotate))
    return function


# --- objects that have a name in a module, but do not know it -------------------------------------------------------

_LIBRARIES = ("typing", "typing_extensions")
_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")
_ALIAS = "TypeAliasType"


def _is_of_typing(kind: type) -> bool:
    """Whether instances of this class have names in modules; those of other classes of `typing` are made of parts."""
    return kind.__module__ in _LIBRARIES and (
        kind.__name__ in ("NewType", _ALIAS) or kind.__name__ in _PARAMETERS
    )


def may_go_by_name(kind: type) -> bool:
    """Whether instances of a class may pickle by a name."""
    if _is_of_typing(kind):
        return True
    if kind in copyreg.dispatch_table:
        return False
    for base in kind.__mro__:
        own = vars(base)
        for method in ("__reduce_ex__", "__reduce__"):
            if method in own:
                # The standard library's, of paths and members of enumerations for instance, do not pickle by a name.
                standard = base.__module__.partition(".")[0] in sys.stdlib_module_names
                return isinstance(own[method], types.FunctionType) and not standard
    return False


def reduce_by_name(
    value: Any, protocol: int, find: Callable[[object, str, str], tuple[Callable[..., Any], Any] | bool]
) -> Any:
    """Returns how a worker finds or makes such an object.

    `find` is called with the object, a module's name and the name in it. It returns what finds the object in the
    worker; or True if that name is being defined, and the object must be made of its parts.
    """
    reduced = value.__reduce_ex__(protocol)
    if not isinstance(reduced, str):
        return reduced
    module: Any = getattr(value, "__module__", None)
    if not isinstance(module, str):
        return reduced  # Pickle searches all modules for it.
    found = find(value, module, reduced)
    if not isinstance(found, bool):
        return found
    if not _is_of_typing(type(value)):
        return _reduce_single(value) if found else reduced
    if not found and _is_there(module, reduced, value):
        return reduced
    return _reduce_of_typing(value, type(value).__name__, module)


def _is_there(module: str, path: str, value: object) -> bool:
    """Whether pickle finds the object by its name in a module that workers import."""
    found: Any = None if module == "__main__" else sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is value


def _reduce_single(value: Any) -> Any:
    """Returns how a worker makes a sentinel; the class's own ``__new__`` is bypassed, because it may return another."""
    from ropewalk.pool.wire import _watch

    kind = type(value)
    base: Any = next(base for base in kind.__mro__ if base is object or _watch.is_importable(base))
    parts: Any = getattr(base, "__getnewargs__", None)
    arguments = () if parts is None else parts(value)
    return _make_single, (kind, base, arguments), value.__getstate__()


def _make_single(kind: type, base: Any, arguments: tuple[Any, ...]) -> Any:
    return base.__new__(kind, *arguments)


def _reduce_of_typing(value: Any, kind: str, module: str) -> Any:
    if kind == _ALIAS:
        try:
            meant = [value.__value__]
        except Exception:  # A name in the value has no value yet.
            meant = []
        if value.__type_params__:
            return _make_generic_alias, (type(value), value.__name__, meant, value.__type_params__, module)
        holder: list[Any] = []
        return _make_alias, (value.__name__, holder, module), (holder, meant), None, None, _fill_alias
    import cloudpickle

    details: Any = cloudpickle.cloudpickle
    tracker: str = details._get_or_create_tracker_id(value)
    if kind == "NewType":
        settings: dict[str, Any] = {"name": value.__qualname__, "tp": value.__supertype__}
        return _make_parameter, (type(value), (), settings, module, tracker)
    settings = {"name": value.__name__}
    for name in ("bound", "covariant", "contravariant", "infer_variance"):
        given = getattr(value, f"__{name}__", None)
        if given is not None and given is not False and kind != "TypeVarTuple":
            settings[name] = given
    if hasattr(value, "has_default") and value.has_default():
        settings["default"] = value.__default__
    constraints: tuple[Any, ...] = getattr(value, "__constraints__", ()) if kind == "TypeVar" else ()
    return _make_parameter, (type(value), constraints, settings, module, tracker)


def _make_parameter(
    kind: Any, constraints: tuple[Any, ...], settings: dict[str, Any], module: str, tracker: str
) -> Any:
    import cloudpickle

    details: Any = cloudpickle.cloudpickle
    known = details._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    if known is not None:
        return known
    settings = dict(settings)
    made = kind(settings.pop("name"), *constraints, **settings)
    made.__module__ = module
    return details._lookup_class_or_track(tracker, made)


def _make_alias(name: str, holder: list[Any], module: str) -> Any:
    """Makes an alias whose value is set later, because the value may contain the alias."""
    names: dict[str, Any] = {"__name__": module, "_ropewalk_value": lambda: _value_of(name, holder)}
    exec(f"type {name} = _ropewalk_value()", names)  # noqa: S102 -- Only the statement makes a lazy alias.
    return names[name]


def _value_of(name: str, holder: list[Any]) -> Any:
    if not holder:
        raise NameError(f"a name in the type alias {name} had no value when the program sent it")
    return holder[0]


def _fill_alias(alias: Any, state: tuple[list[Any], list[Any]]) -> None:
    del alias
    holder, meant = state
    holder[:] = meant


def _make_generic_alias(
    kind: Any, name: str, meant: list[Any], parameters: tuple[Any, ...], module: str
) -> Any:
    del module  # `TypeAliasType` reads it from the caller's globals, and it cannot be set.
    return kind(name, _value_of(name, meant), type_params=parameters)
