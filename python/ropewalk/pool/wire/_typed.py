"""What `typing` makes and pickle knows by its name only, and the annotations of classes and functions."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable
from typing import Any

#: How an annotate function is asked for values, and for text; from Python 3.14 on.
_VALUE, _FORWARD, _TEXT = 1, 3, 4


def annotations_of(owner: Any, annotate: Any) -> dict[str, Any]:
    """What the annotations of a class or a function mean by now: as text, where that cannot be said yet.

    It is found without the owner's memory of it: sending a class settles nothing in the program.
    """
    try:
        found: dict[str, Any] = annotate(_VALUE)
    except Exception:
        return _unsettled(owner, annotate)
    return found


def _unsettled(owner: Any, annotate: Any) -> dict[str, Any]:
    """Annotations with a name that has no value yet, or in this process never."""
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
    """Stands for a function of which annotations refer to names without a value, where its parts are taken."""

    def __init__(self, function: types.FunctionType, annotations: dict[str, Any]) -> None:
        self._function = function
        self.__annotations__ = annotations

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name == "__annotations__":
            return own[name]
        return getattr(own["_function"], name)


def settled(function: types.FunctionType) -> Any:
    """A function whose annotations can be read."""
    try:
        function.__annotations__  # noqa: B018
    except Exception:
        annotate: Any = getattr(function, "__annotate__", None)
        return Settled(function, {} if annotate is None else annotations_of(function, annotate))
    return function


# --- what has a name in a module, and cannot be told from it ------------------------------------------------------

_LIBRARIES = ("typing", "typing_extensions")
_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")
_ALIAS = "TypeAliasType"


def _is_of_typing(kind: type) -> bool:
    """Whether its objects have names in modules; those of other classes of `typing` consist of their parts."""
    return kind.__module__ in _LIBRARIES and (
        kind.__name__ in ("NewType", _ALIAS) or kind.__name__ in _PARAMETERS
    )


def may_go_by_name(kind: type) -> bool:
    """Whether an object of a class may tell pickle a name, by which it is to be found."""
    if _is_of_typing(kind):
        return True
    if kind in copyreg.dispatch_table:
        return False
    for base in kind.__mro__:
        own = vars(base)
        for method in ("__reduce_ex__", "__reduce__"):
            if method in own:
                # The standard library's own, of paths and members of enumerations for instance, say what they are.
                standard = base.__module__.partition(".")[0] in sys.stdlib_module_names
                return isinstance(own[method], types.FunctionType) and not standard
    return False


def reduce_by_name(
    value: Any, protocol: int, find: Callable[[object, str, str], tuple[Callable[..., Any], Any] | bool]
) -> Any:
    """How such an object is found, or made, in a worker.

    `find` is asked by the object, a module's name and the name in it. It gives what finds the object there; or whether
    that very name is being defined, so that the object has to be made of what it consists of.
    """
    reduced = value.__reduce_ex__(protocol)
    if not isinstance(reduced, str):
        return reduced
    module: Any = getattr(value, "__module__", None)
    if not isinstance(module, str):
        return reduced  # Pickle looks for it in all modules.
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
    """An object that stands for itself: its class's own ``__new__`` may be what makes it the only one."""
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
        except Exception:  # A name in it has no value yet.
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
    """An alias whose value comes later, for it may have the alias in it."""
    names: dict[str, Any] = {"__name__": module, "_ropewalk_value": lambda: _value_of(name, holder)}
    exec(f"type {name} = _ropewalk_value()", names)  # noqa: S102 -- The statement alone makes a lazy one.
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
    del module  # It is read from the caller's globals, and cannot be set.
    return kind(name, _value_of(name, meant), type_params=parameters)
