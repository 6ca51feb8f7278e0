"""What the compiled half asks about classes: whether their objects never change, and how a changed copy is made."""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import inspect
import numbers
import reprlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from ropewalk._errors import ContractViolation, NotFrozen, StateError, WrongType
from ropewalk._load import state as _native
from ropewalk.result import Err, Ok
from ropewalk.state import _models
from ropewalk.state._arrays import is_array_class, is_part_of_array, know
from ropewalk.state._contract import violation
from ropewalk.state._later import check_effect, dropped
from ropewalk.state._records import fields_of, frozen_fields, is_dataclass, is_model, is_record
from ropewalk.state._values import instead_of, is_leaf
from ropewalk.state._zones import Zone

T = TypeVar("T")

#: Where a class keeps what is known of it.
_NAME = "__ropewalk_record__"
#: Where it keeps the names of its fields. To find them means to evaluate annotations, which takes longer than to read a
#: record from a journal.
_NAMES = "__ropewalk_fields__"
#: Where a class keeps whether its objects may have attributes that are no fields.
_BESIDE = "__ropewalk_beside__"
#: A class that can change is garbage like any other, so that only classes that stay are listed.
_HEAP_TYPE = 1 << 9
#: Leaves that hold others.
_WITH_PARTS: tuple[type, ...] = (frozenset, slice, tuple)


def kind_of(kind: type) -> _native.Record | bool | None:
    """Returns what is known of a class of records, `None` for a class whose objects are leaves, and `True` for arrays.

    Raises:
        NotFrozen: its objects can be changed in place.
    """
    if is_record(kind):
        return _record(kind)
    if is_leaf(kind):
        is_known = not kind.__flags__ & _HEAP_TYPE or kind.__module__ in sys.stdlib_module_names
        # The parts of those that hold others are looked at each time.
        if is_known and not issubclass(kind, _WITH_PARTS):
            _native.add_leaf(kind)
        return None
    above = {base.__name__ for base in kind.__mro__ if base.__module__ == "numpy"}
    if "generic" in above and "void" not in above:
        # A number of NumPy's.
        return None
    if is_array_class(kind):
        know()
        return True
    if is_part_of_array(kind):
        raise NotFrozen(
            "a part of an array in a transaction, such as a row, goes with the transaction, and an array is no leaf of "
            "a tuple or another value. Put its copy, `.copy()`, at a place of its own that is annotated with Shm[...]; "
            "or store its numbers, as in tuple(row.tolist())"
        )
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
    others = None if not has_beside(kind) else _models.beside if is_model(kind) else beside
    made = _native.Record(kind, names, rebuild, check, others)
    type.__setattr__(kind, _NAME, made)
    return made


def has_beside(kind: Any) -> bool:
    """Whether objects of a class may have more than fields: attributes of `__post_init__`, or what models have."""
    known: bool | None = kind.__dict__.get(_BESIDE)
    if known is None:
        known = is_model(kind) or (
            is_dataclass(kind)
            and kind.__new__ is object.__new__
            and hasattr(kind, "__post_init__")
            and bool(kind.__dictoffset__)
        )
        type.__setattr__(kind, _BESIDE, known)
    return known


def beside(record: Any) -> dict[str, Any]:
    """Returns the attributes of a record that are no fields; what a cached property has kept is none."""
    kind = cast("Any", type(record))
    if is_model(kind):
        return _models.beside(record)
    held, names = record.__dict__, names_of(kind)
    if len(held) == len(names) and all(name in held for name in names):
        return {}
    return {name: held[name] for name in list(held) if name not in names and not _is_cached(kind, name)}


def _is_cached(kind: Any, name: str) -> bool:
    found: object = inspect.getattr_static(kind, name, None)
    how = type(found)
    # A descriptor that lets the object's own attribute go first, as `functools.cached_property` is.
    is_descriptor = hasattr(how, "__get__") and not hasattr(how, "__set__")
    return is_descriptor and not isinstance(found, FunctionType)


def _rebuild_of(kind: Any) -> Callable[[Any, dict[str, Any]], Any]:
    if is_dataclass(kind):
        return _replaced
    if issubclass(kind, tuple):
        return _replaced_tuple
    return _replaced_struct if hasattr(kind, "__struct_fields__") else _models.replaced


def _has_init_vars(kind: Any) -> bool:
    kinds = [getattr(field, "_field_type", None) for field in kind.__dataclass_fields__.values()]
    return getattr(dataclasses, "_FIELD_INITVAR", object()) in kinds


def replaced(old: Any, changes: dict[str, Any], others: dict[str, Any] | None = None) -> Any:
    """Returns a copy of a record with other values in some fields, all at once: a class may check that they fit.

    No `__post_init__` runs: what it has made of the fields is among the changes. Attributes that are no fields stay,
    but for `others`: they get these values, and `MISSING` takes them away.
    """
    kind = cast("Any", type(old))
    if is_dataclass(kind) and kind.__new__ is object.__new__:
        made = old
        for name, value in changes.items():
            made = _native.replaced(made, name, value)
        if not has_beside(kind):
            return made
        if made is old and others:
            first = names_of(kind)[0]
            made = _native.replaced(old, first, getattr(old, first))
        for name, value in {**beside(old), **(others or {})}.items():
            if value is not _native.MISSING:
                object.__setattr__(made, name, value)
        return made
    if is_model(kind):
        return _models.with_values(old, changes, others or {})
    return _rebuild_of(kind)(old, changes)


def _replaced(old: Any, changes: dict[str, Any]) -> Any:
    return dataclasses.replace(old, **changes)


def _replaced_tuple(old: Any, changes: dict[str, Any]) -> Any:
    return old._replace(**changes)


def _replaced_struct(old: Any, changes: dict[str, Any]) -> Any:
    msgspec: Any = sys.modules["msgspec"]
    return msgspec.structs.replace(old, **changes)


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
    if access == "replace":
        kept = {
            Zone.CONST: f"which is Const{by}: it stays as it is",
            Zone.APPEND_ONLY: f"which is append-only{by}: it keeps its items",
        }.get(zone, f"which is a counter{by}: it keeps its number")
        what = (
            f"{name} replaces what is above {where}, {kept} when a new value takes the place of an old one. Write the "
            f"fields that change, or delete the old value in a transaction of its own"
        )
    elif access != "read" and zone is Zone.CONST:
        what = f"{name} changes {where}, which is Const{by}, or in a place that is, and is never written"
    elif access == "write" and zone is Zone.APPEND_ONLY:
        what = f"{name} changes {where}, which is append-only{by}: append to it, and leave what is there"
    elif access == "write" and zone is Zone.COUNTER:
        what = f"{name} assigns to {where}, which is a counter{by}: count with += and -="
    else:
        verb = {"read": "reads", "append": "appends to", "count": "counts"}.get(access, "writes")
        declared = "reads" if access == "read" else "writes"
        if access == "read" and not zone.commutes and zone is not Zone.CONST:
            # The draft of what a task changes is read first: `s.weights[0] = 1` has no right to `s.weights`.
            declared = "reads, or to writes if the task changes it"
        what = f"{name} {verb} {where}, which its contract does not declare. Add the place to {declared}"
    error = violation(what, where, "read" if access == "read" else "write", task)
    if "declare" not in what:
        # That of the class is to declare the place, which does not help against a zone.
        vars(error)["remedy"] = (
            "Do what the zone allows, or take the place out of the zone: in the annotation of its field, or in the "
            "policy of the store."
        )
    return error


def text_in(state: Any, steps: tuple[Any, ...]) -> str:
    """Returns the text of a path whose steps are names of fields, keys and indices: `accounts['ann'].balance`."""
    return _text_below("", state, steps) or "the state"


def _text_below(found: str, at: Any, steps: tuple[Any, ...]) -> str:
    """Returns the text of a path, with that of the steps behind it, which begin at a value."""
    for step in steps:
        if step is ...:
            found, at = f"{found}[...]", None
        elif isinstance(step, str) and at is not None and is_record(type(at)):
            found += f".{step}" if found else step
            at = getattr(at, step, None)
        else:
            found += f"[{step!r}]"
            try:
                at = None if at is None else at[step]
            except Exception:
                at = None
    return found


def misplaced(
    transaction: _native.Transaction | None,
    path: tuple[Any, ...],
    value: Any,
    steps: tuple[Any, ...],
    declared: str | None,
    part: Any,
    is_key: bool,
    error: Exception | None,
) -> Exception:
    """Returns the error for a value that cannot be stored.

    `path` leads to the place, and `steps` on to the part of the value that is wrong. `error` says that it can be
    changed; else it is none of what is `declared` there.
    """
    above = _text_below("", None if transaction is None else transaction.base, path)
    where = _text_below(above, value, steps)
    if error is not None:
        # Others are of the machine, a lack of memory for instance.
        is_named = bool(where) and isinstance(error, StateError)
        return type(error)(f"{where} cannot be stored: {error}") if is_named else error
    where = where or "the state"
    shown = reprlib.repr(part)
    given = f"{'None' if part is None else _article(type(part))}{'' if part is None else ', ' + shown}"
    what = f"the keys of {where} are" if is_key else f"{where} is"
    verb = "were" if is_key else "was"
    made = WrongType(f"{what} declared as {declared}, and {verb} given {given}{_hint(declared, part)}")
    made.path = where
    return made


def absent(kind: Any, name: str) -> AttributeError:
    """Returns the error for a field that a record has not, in a draft."""
    names = names_of(kind)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    shown = kind.__qualname__.rpartition("<locals>.")[2]
    fields = f"Its fields are {', '.join(names)}." if names else "It has no fields."
    # Without its `name` and `obj`, or the interpreter would add a second hint.
    return AttributeError(f"{shown} has no field {name!r}.{hint} {fields}")


def current(draft: T) -> T:
    """Returns the value that a draft's place has now, with the changes of this transaction; it never changes.

    It costs what was changed below, and nothing if nothing was. The whole place counts as read. What is no draft is
    returned as it is.

    Raises:
        ContractViolation: the contract does not let the whole place be read.
        TransactionEnded: the transaction has ended.
    """
    value: Any = draft
    return cast("T", _native.transaction_of(value).value(value) if _is_draft(value) else value)


def _article(kind: Any) -> str:
    name = kind.__qualname__.rpartition("<locals>.")[2]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _hint(declared: str | None, part: Any) -> str:
    if str(declared).startswith("PVector") and isinstance(part, (tuple, frozenset)):
        return ". Give a list, or a PVector"
    if type(part).__qualname__.rpartition("<locals>.")[2] == str(declared).removesuffix(" | None"):
        return (
            ". The class was defined again since the state's class was, as a notebook does when its cell runs again: "
            "define both again, and open the store again"
        )
    if isinstance(part, (dict, _native.PMap)):
        return f". Make the object, such as {str(declared).partition('[')[0].partition(' ')[0]}(...), and store that"
    return ""


_DRAFTS = (
    *(_native.RecordDraft, _native.MapDraft, _native.VectorDraft),
    *(_native.CounterDraft, _native.ArrayDraft),
)


def _is_one_of(kind: object, *others: object) -> bool:
    return kind in others


def _is_draft(value: object) -> bool:
    return type(value) in _DRAFTS


def plain(result: Any) -> Any:
    """Returns a result with values in the place of drafts, which are of no use once the transaction has ended.

    Raises:
        TypeError: the function has returned what runs later.
    """
    later = dropped(result)
    if later:
        raise TypeError(
            f"a transaction takes a plain function, and one has returned a {later}, which would run when the "
            f"transaction has ended"
        )
    return _with_values(result)


def _effect(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns a function and its arguments as they are kept until the commit: with values in the place of drafts.

    Raises:
        TypeError: a call of the function would not run it.
    """
    check_effect(call[0])
    return cast("tuple[Any, ...]", _with_values(call))


def _with_values(found: Any) -> Any:
    """Returns values in the place of drafts, in tuples, lists, dicts and frozen records; the same if there are none."""
    kind = cast("Any", type(found))
    if _is_draft(found):
        return current(found)
    if is_part_of_array(kind):
        return found.copy()
    if _is_one_of(kind, Ok, Err):
        inner = found.value if kind is Ok else found.error
        value = _with_values(inner)
        return cast("Any", found if value is inner else kind(value))
    if _is_one_of(kind, tuple, list):
        parts = [_with_values(part) for part in found]
        is_same = all(one is other for one, other in zip(parts, found, strict=True))
        return found if is_same else kind(parts)
    if kind is dict:
        items = {key: _with_values(part) for key, part in found.items()}
        return found if all(items[key] is part for key, part in found.items()) else items
    changes: dict[str, Any] = {}
    for name in frozen_fields(kind):
        part = getattr(found, name, None)
        value = _with_values(part)
        if value is not part:
            changes[name] = value
    return replaced(found, changes) if changes else found


_native.set_hooks(kind_of, violated, plain, misplaced, absent, _effect, Err)
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


def _deep_copy(self: Any, _memo: Any) -> Any:
    return current(self)


def _no_pickle(self: Any, _protocol: Any) -> Any:
    raise TypeError(
        "a draft cannot be pickled: it is of no use outside of its transaction. Give ropewalk.state.current(draft), "
        "which is the value"
    )


def _dataclass_fields(self: Any) -> Any:
    # `dataclasses.replace` and `asdict` look for them.
    return self.__class__.__dataclass_fields__


def _complete_drafts() -> None:
    """Gives the drafts of collections what `collections.abc` has for every mutable mapping and sequence.

    A counter's draft gets the arithmetic of the number that it stands for, which reads it.
    """
    mapping: Any = collections.abc.MutableMapping
    for name in ("keys", "items", "values", "pop", "update"):
        setattr(_native.MapDraft, name, getattr(mapping, name))
    # `pop` compares its default with this.
    marker = "_MutableMapping__marker"
    setattr(_native.MapDraft, marker, getattr(mapping, marker))
    setattr(_native.MapDraft, "setdefault", _set_default)  # noqa: B010 - the stub has no such attribute.
    setattr(_native.MapDraft, "__ior__", _update_in_place)  # noqa: B010 - as above.
    sequence: Any = collections.abc.MutableSequence
    for name in ("index", "count", "remove", "__contains__"):
        setattr(_native.VectorDraft, name, getattr(sequence, name))
    mapping.register(_native.MapDraft)
    sequence.register(_native.VectorDraft)
    for name in _ARITHMETIC:
        setattr(_native.CounterDraft, name, _of_number(getattr(int, name)))
    numbers.Integral.register(_native.CounterDraft)
    for kind in _DRAFTS:
        setattr(kind, "__copy__", current)  # noqa: B010 - the stub has no such attribute.
        setattr(kind, "__deepcopy__", _deep_copy)  # noqa: B010 - as above.
        setattr(kind, "__reduce_ex__", _no_pickle)  # noqa: B010 - as above.
    setattr(_native.RecordDraft, "__dataclass_fields__", property(_dataclass_fields))  # noqa: B010 - as above.


_complete_drafts()
