"""Classes that travel by value: the worker assembles a class as the program has it, and does not define it anew.

No metaclass, ``__init_subclass__`` or ``__set_name__`` of the program runs for it in the worker. Their effects in the
program are in the class or in globals, and are sent as they are; a second run would register a class twice.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import abc
import enum
import functools
import importlib
import operator
import sys
import threading
import types
import weakref
from typing import Any

import cloudpickle as untyped

from ropewalk.pool.wire import _ctyped, _typed, _watch

_details: Any = untyped.cloudpickle

#: Attributes that the interpreter adds to a class when it first needs them; the program has not changed the class then.
_LAZY = ("__slotnames__", "__annotations_cache__", "__annotate__", "__annotate_func__")
#: Names that a class statement passes to `type`; hooks of imported base classes read them.
_GIVEN = ("__module__", "__qualname__", "__orig_bases__", "__doc__")
#: Attributes that an enumeration's member gets when it is made.
_OF_MEMBERS = ("_value_", "_name_", "__objclass__", "_sort_order_")
_MAKING = threading.local()
#: Classes that this process made for a sender, and the attributes that the sender gave them: the name of a member of an
#: enumeration, else None, and the attribute's name. If the sender deletes an attribute, this process does too.
_FILLED: weakref.WeakKeyDictionary[type, set[tuple[str | None, str]]] = weakref.WeakKeyDictionary()


def at(namespace: dict[str, Any], path: str) -> Any:
    """Returns the value of a qualified name among these globals; `None` if it has none."""
    name, *inner = path.split(".")
    found = namespace.get(name)
    for part in inner:
        found = vars(found).get(part) if isinstance(found, type) else None
    return found


class Hook(classmethod):  # type: ignore[type-arg]
    """An ``__init_subclass__`` of the program: it runs for classes that are defined, not for classes that arrive."""

    def __get__(self, instance: Any, owner: Any = None, /) -> Any:
        if getattr(_MAKING, "depth", 0):
            return _ignore
        return super().__get__(instance, owner)


def _ignore(**settings: object) -> None:
    del settings


def reduce_part(value: Any) -> Any:
    """Returns how a worker makes a hook or a partial method; `None` for any other value."""
    if type(value) is Hook:
        return Hook, (value.__func__,)
    if type(value) is functools.partialmethod:
        # From Python 3.14 on its `__new__` needs the function, which pickle does not pass.
        return _make_partial_method, (value.func, value.args, value.keywords)
    return None


def reduce_elsewhere(value: Any) -> Any:
    """Returns how a worker finds a class whose `__module__` is not its module; `None` for any other value.

    pytest's ``Skipped``, for instance, names `builtins` as its module.
    """
    if not isinstance(value, type) or value.__module__ == "__main__":
        return None
    path = value.__qualname__
    said = sys.modules.get(value.__module__)
    if said is None or "<locals>" in path or at(vars(said), path) is value:
        return None
    for base in value.__mro__:
        own = [part.__module__ for part in vars(base).values() if isinstance(part, types.FunctionType)]
        for name in [base.__module__, *own]:
            module = sys.modules.get(name)
            if module is None or name == "__main__" or at(vars(module), path) is not value:
                continue
            if _watch.is_findable(name, module):
                return _find, (name, path)
    return None


def _find(module: str, path: str) -> Any:
    return at(vars(importlib.import_module(module)), path)


def _make_partial_method(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return functools.partialmethod(function, *arguments, **keywords)


def reduce_class(kind: Any, made: Any) -> Any:
    """Returns how a worker assembles a class, in place of cloudpickle's answer `made`; other values keep that."""
    if not isinstance(made, tuple) or made[0] not in (
        _details._make_skeleton_class,
        _details._make_skeleton_enum,
    ):
        return made
    state: dict[str, Any] = made[2][0]
    annotate: Any = vars(kind).get("__annotate_func__", vars(kind).get("__annotate__"))
    if "__annotations_cache__" in vars(kind):
        state["__annotations__"] = vars(kind)["__annotations_cache__"]
    elif annotate is not None and "__annotations__" not in vars(kind):
        # From Python 3.14 on these functions refer to the class's namespace, which is not sent.
        state["__annotations__"] = _typed.annotations_of(kind, annotate)
    for name in _LAZY:
        state.pop(name, None)
    for name, value in list(state.items()):
        if type(value) is types.MemberDescriptorType and value.__objclass__ is kind:
            del state[name]  # `type` makes the descriptor from the class's slots.
    hook = state.get("__init_subclass__")
    if type(hook) is classmethod:
        state["__init_subclass__"] = Hook(hook.__func__)
    tracker = _details._get_or_create_tracker_id(kind)
    if made[0] is _details._make_skeleton_enum:
        members: dict[str, Any] = kind.__members__
        for name in members:
            state.pop(name, None)
        attributes = {
            name: {
                key: value
                for key, value in vars(member).items()
                # The program may have changed the value in place, and the worker may have the class already.
                if key not in _OF_MEMBERS or (key == "_value_" and not _watch.is_atomic(value))
            }
            for name, member in members.items()
        }
        values = _member_values(kind, members)
        arguments = (kind.__bases__, kind.__name__, kind.__qualname__, *values, kind.__module__, tracker)
        return _make_enum, arguments, (state, attributes), None, None, _fill
    given: dict[str, Any] = {name: vars(kind)[name] for name in _GIVEN if name in vars(kind)}
    if "__qualname__" not in given:
        given["__qualname__"] = kind.__qualname__
    if "__slots__" in vars(kind):
        given["__slots__"] = _slots(kind)
    inherited: Any = vars(kind).get("__dict__")
    if isinstance(inherited, property):
        given["__dict__"] = inherited
    if _ctyped.is_of_ctypes(kind):
        _ctyped.prepare(kind, given, state)
    maker = next(
        base
        for base in type(kind).__mro__
        if base is type or _ctyped.is_metaclass(base) or _watch.is_importable(base)
    )
    return (
        _make_class,
        (type(kind), maker, kind.__name__, kind.__bases__, given, tracker),
        (state, {}),
        None,
        None,
        _fill,
    )


def _slots(kind: type) -> Any:
    slots: Any = vars(kind)["__slots__"]
    if isinstance(slots, (str, tuple, list, dict)):
        return slots if isinstance(slots, str) else tuple(slots)
    # `__slots__` may have been an iterator, which is exhausted.
    own = vars(kind).items()
    return tuple(name for name, value in own if type(value) is types.MemberDescriptorType) + tuple(
        name
        for name in ("__dict__", "__weakref__")
        if type(vars(kind).get(name)) is types.GetSetDescriptorType
    )


def _member_values(kind: Any, members: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns the members' values, and the type that makes them, if the class's own ``__new__`` need not run."""
    plain: Any = kind._member_type_
    make: Any = getattr(kind, "_new_member_", None)
    if plain is not object and plain.__new__ is object.__new__ and issubclass(type(plain), type):
        plain = object  # A mixed-in class; the members have its attributes.
    elif not isinstance(make, types.FunctionType):
        return {name: member.value for name, member in members.items()}, None
    if plain is not object and not hasattr(plain, "__getnewargs__"):
        return {name: member.value for name, member in members.items()}, None
    parts: Any = getattr(plain, "__getnewargs__", None)
    made = {name: (() if parts is None else parts(member), member.value) for name, member in members.items()}
    return made, plain


def _known(tracker: str) -> Any:
    return _details._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)


def _track(tracker: str, made: Any) -> Any:
    tracked = _details._lookup_class_or_track(tracker, made)
    _FILLED.setdefault(tracked, set())
    return tracked


_BASES: Any = vars(type)["__bases__"]
_is_not = operator.is_not


def _make_class(
    metaclass: type, maker: Any, name: str, bases: tuple[type, ...], given: dict[str, Any], tracker: str
) -> Any:
    """Makes an empty class with the first of its metaclasses that can be imported."""
    known = _known(tracker)
    if known is not None:
        if known in _FILLED and (
            len(bases) != len(known.__bases__) or any(map(_is_not, bases, known.__bases__))
        ):
            _BASES.__set__(known, bases)
        return known
    given = {sys.intern(key): value for key, value in given.items()}
    _MAKING.depth = getattr(_MAKING, "depth", 0) + 1
    try:
        if metaclass.__name__ == "_TypedDictMeta":
            # The metaclass refuses bases that it has added itself; its other effects are in the class's state.
            made: Any = type.__new__(metaclass, name, bases, given)
        else:
            made = maker.__new__(metaclass, name, bases, given)
            maker.__init__(made, name, bases, given)
    finally:
        _MAKING.depth -= 1
    return _track(tracker, made)


def _make_enum(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    values: dict[str, Any],
    plain: Any,
    module: str,
    tracker: str,
) -> Any:
    """Makes an enumeration with its members, without running ``__new__`` and ``__init__`` of the program."""
    known = _known(tracker)
    if known is not None:
        return known

    def make(kind: type, *parts: Any) -> Any:
        arguments, value = parts if len(parts) == 2 else parts[0]
        made: Any = plain.__new__(kind, *arguments)
        made._value_ = value
        return made

    metaclass: Any = type(bases[-1])
    maker: Any = next(base for base in metaclass.__mro__ if base is type or _watch.is_importable(base))
    namespace = maker.__prepare__(name, bases)
    namespace["__module__"], namespace["__qualname__"] = module, qualname
    namespace["__init__"] = _start_member
    if plain is not None:
        namespace["__new__"] = make
    for member, value in values.items():
        namespace[member] = value
    _MAKING.depth = getattr(_MAKING, "depth", 0) + 1
    try:
        made = maker.__new__(metaclass, name, bases, namespace)
    finally:
        _MAKING.depth -= 1
    return _track(tracker, made)


def _start_member(*arguments: object) -> None:
    del arguments


def _slot(made: Any, method: str) -> Any:
    """Returns the slot that sets or deletes a class's attribute, without running Python code of its metaclass."""
    for base in type(made).__mro__:
        found = vars(base).get(method)
        if isinstance(found, types.WrapperDescriptorType):
            return found
    return getattr(type, method)


def _fill(made: Any, state: Any) -> None:
    attributes, of_members = state
    registered = attributes.pop("_abc_impl", ())
    setter, deleter = _slot(made, "__setattr__"), _slot(made, "__delattr__")
    # `_fields_` of ctypes sets the layout, once; it needs the other attributes to be set first.
    fields = attributes.pop(_ctyped.FIELDS, None) if _ctyped.is_of_ctypes(made) else None
    for name, value in attributes.items():
        setter(made, name, value)
    if fields is not None and _ctyped.FIELDS not in vars(made):
        setter(made, _ctyped.FIELDS, fields)
    if "__firstlineno__" in attributes:
        # From Python 3.13 on setting `__module__` deletes it.
        setter(made, "__firstlineno__", attributes["__firstlineno__"])
    for other in registered:
        abc.ABCMeta.register(made, other)
    if issubclass(made, enum.Enum):
        for name in ("__init__", "__new_member__"):
            if name in vars(made) and name not in attributes:
                deleter(made, name)
        for name, values in of_members.items():
            member = made.__members__[name]
            if "_value_" in values:
                _forget_value(made, member._value_, values["_value_"])
            vars(member).update(values)
    before = _FILLED.get(made)
    if before is None:
        return  # The sender's own class, back from a worker.
    given: set[tuple[str | None, str]] = {(None, name) for name in attributes}
    given.update((member, name) for member, values in of_members.items() for name in values)
    for member, name in before - given:
        if member is None:
            if name in vars(made):
                deleter(made, name)
        elif name not in _OF_MEMBERS:
            vars(made.__members__[member]).pop(name, None)
    _FILLED[made] = given


def _forget_value(kind: Any, before: Any, now: Any) -> None:
    """Replaces a member's value in the table in which the enumeration looks values up."""
    lists: list[list[Any]] = [
        getattr(kind, name, []) for name in ("_unhashable_values_", "_hashable_values_")
    ]
    lists += getattr(kind, "_unhashable_values_map_", {}).values()
    for values in lists:
        values[:] = [now if value is before else value for value in values]
    by_value: dict[Any, Any] = kind._value2member_map_
    found = [(now if value is before else value, member) for value, member in by_value.items()]
    by_value.clear()
    by_value.update(found)
