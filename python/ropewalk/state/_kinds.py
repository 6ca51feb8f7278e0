"""What the compiled half asks about classes: whether their objects never change, and how a changed copy is made."""

from __future__ import annotations

import collections.abc
import dataclasses
import numbers
import sys
from collections.abc import Callable
from typing import Any, cast

from ropewalk._errors import ContractViolation, NotFrozen, StateError
from ropewalk._load import state as _native
from ropewalk.result import Err, Ok
from ropewalk.state._arrays import is_array_class, know
from ropewalk.state._contract import violation
from ropewalk.state._later import check_effect, dropped
from ropewalk.state._records import fields_of, is_dataclass, is_record
from ropewalk.state._values import instead_of, is_leaf
from ropewalk.state._zones import Zone

#: Where a class keeps what is known of it.
_NAME = "__ropewalk_record__"
#: Where it keeps the names of its fields. To find them means to evaluate annotations, which takes longer than to read a
#: record from a journal.
_NAMES = "__ropewalk_fields__"
#: A class that can change is garbage like any other, so that only classes that stay are listed.
_HEAP_TYPE = 1 << 9


def kind_of(kind: type) -> _native.Record | bool | None:
    """Returns what is known of a class of records, `None` for a class whose objects are leaves, and `True` for arrays.

    Raises:
        NotFrozen: its objects can be changed in place.
    """
    if is_record(kind):
        return _record(kind)
    if is_leaf(kind):
        if not kind.__flags__ & _HEAP_TYPE or kind.__module__ in sys.stdlib_module_names:
            _native.add_leaf(kind)
        return None
    above = {base.__name__ for base in kind.__mro__ if base.__module__ == "numpy"}
    if "generic" in above and "void" not in above:
        # A number of NumPy's.
        return None
    if is_array_class(kind):
        know()
        return True
    if hasattr(kind, "__array_interface__"):
        raise NotFrozen(
            f"a value of class {kind.__qualname__} is an array, which changes in place, so that a snapshot would "
            f'change too. Annotate its place with Shm[float32, "n 256"], where names may stand for lengths, and the '
            f"state keeps a copy; or keep the array outside of the state, in shared memory with ropewalk.share for "
            f"instance"
        )
    instead = instead_of(kind)
    if instead:
        raise NotFrozen(
            f"a value of class {kind.__qualname__} changes in place, so that a snapshot would change too. Use {instead}"
        )
    raise NotFrozen(
        f"a value of class {kind.__qualname__} may change in place, so it cannot be a part of a state. Use a frozen "
        f"dataclass, or a value of the standard library such as a tuple; `ropewalk.state.leaf(cls)` says of a class of "
        f"your own that its objects never change"
    )


def leaf(kind: type) -> type:
    """Says that objects of a class never change and have no parts of interest; it can be used as a decorator.

    A transaction replaces such objects whole. Nothing checks the promise.

    Raises:
        TypeError: it is no class.
    """
    if not isinstance(cast("object", kind), type):
        raise TypeError(f"leaf takes a class, not {kind!r}")
    _native.add_leaf(kind)
    return kind


def names_of(kind: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a class of records, in order."""
    names: tuple[str, ...] | None = kind.__dict__.get(_NAMES)
    if names is None:
        names = tuple(fields_of(kind, kind.__qualname__))
        type.__setattr__(kind, _NAMES, names)
    return names


def _record(kind: type) -> _native.Record:
    # A base class may have one of its own, which does not count here.
    found: _native.Record | None = kind.__dict__.get(_NAME)
    if found is not None:
        return found
    names = names_of(kind)
    known: Any = kind
    rebuild: Callable[[Any, dict[str, Any]], Any] | None = None
    check: Callable[[Any], object] | None = None
    if not is_dataclass(kind) or known.__new__ is not object.__new__:
        rebuild = _rebuild_of(kind)
    else:
        check = getattr(kind, "__post_init__", None)
        if check is not None and _has_init_vars(kind):
            raise StateError(
                f"{kind.__qualname__} has an InitVar, which its objects do not keep, so that no changed copy of one "
                f"can be made. Use a field"
            )
    made = _native.Record(kind, names, rebuild, check)
    type.__setattr__(kind, _NAME, made)
    return made


def _rebuild_of(kind: Any) -> Callable[[Any, dict[str, Any]], Any]:
    if is_dataclass(kind):
        return _replaced
    if issubclass(kind, tuple):
        return _replaced_tuple
    return _replaced_struct if hasattr(kind, "__struct_fields__") else _replaced_model


def _has_init_vars(kind: Any) -> bool:
    kinds = [getattr(field, "_field_type", None) for field in kind.__dataclass_fields__.values()]
    return getattr(dataclasses, "_FIELD_INITVAR", object()) in kinds


def replaced(old: Any, changes: dict[str, Any]) -> Any:
    """Returns a copy of a record with other values in some fields, all at once: a class may check that they fit."""
    kind = cast("Any", type(old))
    if is_dataclass(kind) and kind.__new__ is object.__new__:
        for name, value in changes.items():
            old = _native.replaced(old, name, value)
        return old
    return _rebuild_of(kind)(old, changes)


def _replaced(old: Any, changes: dict[str, Any]) -> Any:
    return dataclasses.replace(old, **changes)


def _replaced_tuple(old: Any, changes: dict[str, Any]) -> Any:
    return old._replace(**changes)


def _replaced_struct(old: Any, changes: dict[str, Any]) -> Any:
    msgspec: Any = sys.modules["msgspec"]
    return msgspec.structs.replace(old, **changes)


def _replaced_model(old: Any, changes: dict[str, Any]) -> Any:
    # One node is validated; the models in it are instances, which pydantic takes as they are.
    kind = cast("Any", type(old))
    # `model_fields` is a property of the class that takes as long as the validation.
    fields = kind.__dict__.get("__pydantic_fields__") or kind.model_fields
    values = old.__dict__
    if values.keys() != fields.keys():
        # A cached property is in the same dict, and may be unknown to the validation.
        values = {name: getattr(old, name) for name in fields}
    return kind.model_validate({**values, **changes})


def violated(transaction: _native.Transaction, path: tuple[Any, ...], access: str) -> ContractViolation:
    """Returns the error for an access that the contract, or the zone of the place, does not allow."""
    from ropewalk.state._places import zone_of

    where = text_in(transaction.base, path)
    label: Any = transaction.label
    task = getattr(label, "task", None) or getattr(label, "label", None)
    name = f"the task {task}" if task else "the transaction"
    # That of a dict-shaped state has the zones of the policy.
    shape = getattr(transaction.store, "_shape", None)
    by = ", by the policy of the store" if shape is not None and shape.of_policy else ""
    zone = zone_of(type(transaction.base) if shape is None else shape, transaction.base, path)
    if access != "read" and zone is Zone.CONST:
        what = f"{name} changes {where}, which is Const{by}, or in a place that is, and is never written"
    elif access == "write" and zone is Zone.APPEND_ONLY:
        what = f"{name} changes {where}, which is append-only{by}: append to it, and leave what is there"
    elif access == "write" and zone is Zone.COUNTER:
        what = f"{name} assigns to {where}, which is a counter{by}: count with += and -="
    else:
        verb = {"read": "reads", "append": "appends to"}.get(access, "writes")
        declared = "reads" if access == "read" else "writes"
        what = f"{name} {verb} {where}, which its contract does not declare. Add the place to {declared}"
    return violation(what, where, "read" if access == "read" else "write", task)


def text_in(state: Any, steps: tuple[Any, ...]) -> str:
    """Returns the text of a path whose steps are names of fields, keys and indices: `accounts['ann'].balance`."""
    found, at = "", state
    for step in steps:
        if isinstance(step, str) and at is not None and is_record(type(at)):
            found += f".{step}" if found else step
            at = getattr(at, step, None)
        elif step is ...:
            found, at = f"{found}[...]", None
        else:
            found += f"[{step!r}]"
            try:
                at = None if at is None else at[step]
            except Exception:
                at = None
    return found or "the state"


_DRAFTS = (
    *(_native.RecordDraft, _native.MapDraft, _native.VectorDraft),
    *(_native.CounterDraft, _native.ArrayDraft),
)


def _is_one_of(kind: object, *others: object) -> bool:
    return kind in others


def _is_draft(value: object) -> bool:
    return type(value) in _DRAFTS


def plain(transaction: _native.Transaction, result: Any) -> Any:
    """Returns a result with values in the place of drafts, which are of no use once the transaction has ended.

    Raises:
        TypeError: the function has returned what runs later.
    """
    kind = cast("Any", type(result))
    later = dropped(result)
    if later:
        raise TypeError(
            f"a transaction takes a plain function, and one has returned a {later}, which would run when the "
            f"transaction has ended"
        )
    if _is_draft(result):
        return transaction.value(result)
    if getattr(kind, "_is_part_of_array", False):
        return result.copy()
    if _is_one_of(kind, Ok, Err):
        inner = result.value if kind is Ok else result.error
        value = plain(transaction, inner)
        return cast("Any", result if value is inner else kind(value))
    if _is_one_of(kind, tuple, list):
        parts = [plain(transaction, part) for part in result]
        is_same = all(one is other for one, other in zip(parts, result, strict=True))
        return result if is_same else kind(parts)
    if kind is dict:
        items = {key: plain(transaction, part) for key, part in result.items()}
        return result if all(items[key] is part for key, part in result.items()) else items
    return result


_native.set_hooks(kind_of, violated, plain, check_effect, Err)
cast("Any", collections.abc.Mapping).register(_native.PMap)
cast("Any", collections.abc.Sequence).register(_native.PVector)


#: What the draft of a counter does as the number does.
_ARITHMETIC = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__rfloordiv__"),
    *(
        "__mod__",
        "__rmod__",
        "__truediv__",
        "__rtruediv__",
        "__divmod__",
        "__rdivmod__",
        "__pow__",
        "__rpow__",
    ),
    *("__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__"),
    *("__lshift__", "__rlshift__", "__rshift__", "__rrshift__", "__format__", "__round__"),
    *("__bool__", "__neg__", "__pos__", "__abs__", "__invert__", "__float__", "__str__"),
)


def _of_number(function: Callable[..., Any]) -> Any:
    def method(self: Any, *others: Any) -> Any:
        return function(self.value, *(_number(other) for other in others))

    return method


def _number(other: Any) -> Any:
    return other.value if type(other) is _native.CounterDraft else other


def _set_default(self: Any, key: Any, default: Any = None) -> Any:
    # That of `collections.abc` returns the default as it was given, and what is done to that would be lost.
    if key not in self:
        self[key] = default
    return self[key]


def _update_in_place(self: Any, other: Any) -> Any:
    self.update(other)
    return self


def _complete_drafts() -> None:
    """Gives the drafts of collections what `collections.abc` has for every mutable mapping and sequence.

    A counter's draft gets the arithmetic of the number that it stands for, which reads it.
    """
    mapping: Any = collections.abc.MutableMapping
    for name in ("keys", "items", "values", "pop", "popitem", "clear", "update"):
        setattr(_native.MapDraft, name, getattr(mapping, name))
    # `pop` compares its default with this.
    marker = "_MutableMapping__marker"
    setattr(_native.MapDraft, marker, getattr(mapping, marker))
    setattr(_native.MapDraft, "setdefault", _set_default)  # noqa: B010 - the stub has no such attribute.
    setattr(_native.MapDraft, "__ior__", _update_in_place)  # noqa: B010 - as above.
    sequence: Any = collections.abc.MutableSequence
    for name in ("index", "count", "reverse", "remove", "clear", "__contains__"):
        setattr(_native.VectorDraft, name, getattr(sequence, name))
    mapping.register(_native.MapDraft)
    sequence.register(_native.VectorDraft)
    for name in _ARITHMETIC:
        setattr(_native.CounterDraft, name, _of_number(getattr(int, name)))
    numbers.Integral.register(_native.CounterDraft)


_complete_drafts()
