"""The classes that can be records of a state, and their fields: frozen dataclasses, structs, models, named tuples."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from ropewalk._errors import NotFrozen, StateError
from ropewalk._load import state as _native
from ropewalk.state._zones import ArrayShape, Zone

#: The names of the fields, in order, and their annotations.
Fields: TypeAlias = "dict[str, Any]"


#: Where a class of the main module keeps its annotations as objects.
_HINTS = "__ropewalk_hints__"


def is_record(kind: Any) -> bool:
    """Whether a class is a record of one of the four kinds, frozen or not."""
    return is_dataclass(kind) or _is_struct(kind) or is_model(kind) or _is_named_tuple(kind)


def is_dataclass(kind: Any) -> bool:
    """Whether a class is a dataclass; to a type checker, a class that is `Any` stays that."""
    # A draft of one shows its fields, so that `dataclasses.asdict` takes it.
    return kind is not _native.RecordDraft and dataclasses.is_dataclass(kind)


def _is_struct(kind: type) -> bool:
    # The metaclass of structs has these names too, as descriptors.
    return isinstance(getattr(kind, "__struct_fields__", None), tuple) and hasattr(kind, "__struct_config__")


def is_model(kind: type) -> bool:
    # `BaseModel` itself has no fields, and a value of it is whatever it is.
    return isinstance(getattr(kind, "model_fields", None), dict) and hasattr(kind, "__pydantic_complete__")


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(getattr(kind, "_fields", None), tuple) and issubclass(kind, tuple)


def frozen_fields(kind: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a class of records that are frozen; none for any other class."""
    if is_dataclass(kind):
        is_frozen = kind.__dataclass_params__.frozen
        return tuple(one.name for one in dataclasses.fields(kind)) if is_frozen else ()
    if _is_struct(kind):
        return tuple(kind.__struct_fields__) if kind.__struct_config__.frozen else ()
    if is_model(kind):
        return tuple(kind.model_fields) if kind.model_config.get("frozen") else ()
    return tuple(kind._fields) if _is_named_tuple(kind) else ()


def fields_of(kind: type, where: str) -> Fields:
    """Returns the fields of a record.

    Raises:
        NotFrozen: the class is not frozen.
        StateError: an annotation names what cannot be found.
    """
    record: Any = kind
    if is_dataclass(kind):
        if not record.__dataclass_params__.frozen:
            raise _not_frozen(kind, where, "@dataclass(frozen=True, slots=True)")
        return _annotated([one.name for one in dataclasses.fields(record)], kind)
    if _is_struct(kind):
        if not record.__struct_config__.frozen:
            raise _not_frozen(kind, where, f"class {kind.__name__}(msgspec.Struct, frozen=True)")
        return _annotated(list(record.__struct_fields__), kind)
    if is_model(kind):
        if not record.model_config.get("frozen"):
            raise _not_frozen(kind, where, "model_config = ConfigDict(frozen=True)")
        if not record.__pydantic_complete__:
            record.model_rebuild(raise_errors=False, _types_namespace=_names_around(kind))
        return {name: _of_model(field) for name, field in record.model_fields.items()}
    return _annotated(list(record._fields), kind)


def _not_frozen(kind: type, where: str, how: str) -> NotFrozen:
    place = "" if where == kind.__qualname__ else f", of which {where} is one,"
    return NotFrozen(
        f"the class {kind.__qualname__}{place} is not frozen, so that a snapshot would change with it. Make it {how}"
    )


def _annotated(names: Iterable[str], kind: type) -> Fields:
    hints = _hints(kind)
    return {name: hints.get(name, Any) for name in names}


def _of_model(field: Any) -> Any:
    # Pydantic takes the outermost `Annotated` apart.
    zones = [one for one in field.metadata if isinstance(one, (Zone, ArrayShape))]
    return Annotated[(field.annotation, *zones)] if zones else field.annotation


def _hints(kind: type) -> dict[str, Any]:
    known: dict[str, Any] | None = kind.__dict__.get(_HINTS)
    if known is not None:
        return known
    hints = _read_hints(kind)
    if kind.__module__ == "__main__":
        # A worker gets the class by value, and not the names that its annotations use.
        type.__setattr__(kind, _HINTS, hints)
    return hints


def _read_hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError:
        pass
    except TypeError as error:
        raise _unreadable(kind, error) from error
    try:
        # The class is not yet a name where it was made, if a decorator asks.
        return get_type_hints(kind, localns={kind.__name__: kind, **_names_around(kind)}, include_extras=True)
    except (NameError, TypeError) as error:
        raise _unreadable(kind, error) from error


def _unreadable(kind: type, error: Exception) -> StateError:
    reason = (
        "an import for type checkers only does not count" if isinstance(error, NameError) else "correct it"
    )
    return StateError(
        f"the annotations of {kind.__qualname__} cannot be read: {error}. Each name in them must be one that the "
        f"module has, or the function that makes the class and now runs; {reason}"
    )


def _names_around(kind: type) -> dict[str, Any]:
    """Returns the local names of the functions that are running and in which a class was made."""
    parts = kind.__qualname__.split(".<locals>.")[:-1]
    outer = {".<locals>.".join(parts[: end + 1]) for end in range(len(parts))}
    found: dict[str, Any] = {}
    frame = sys._getframe(1) if outer else None
    while frame is not None:
        if frame.f_code.co_qualname in outer and frame.f_globals.get("__name__") == kind.__module__:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def parameters_of(kind: type, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Returns the values of the type variables in a generic class and in the classes that it inherits from."""
    own: tuple[Any, ...] = getattr(kind, "__parameters__", ())
    found: dict[Any, Any] = dict(zip(own, arguments, strict=False))
    for base in cast("tuple[Any, ...]", getattr(kind, "__orig_bases__", ())):
        origin = get_origin(base)
        if isinstance(origin, type):
            inner = tuple(filled(one, found) for one in get_args(base))
            found = {**parameters_of(origin, inner), **found}
    return found


def filled(annotation: Any, bound: dict[Any, Any]) -> Any:
    """Returns an annotation with the values of its type variables in their places."""
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    free: tuple[Any, ...] = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not free:
        return annotation
    return annotation[tuple(bound.get(one, one) for one in free)]
