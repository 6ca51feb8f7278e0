"""Pydantic's models as records: what is known of their classes, and how changed copies are validated."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from ropewalk._load import state as _native
from ropewalk.state._pydantic import validated_again
from ropewalk.state._records import is_model

#: Where a class keeps what is known of it.
_NAME = "__ropewalk_model__"
#: What stands before the names of what a model has beside its fields: extra values, and private attributes.
_EXTRA, _PRIVATE = "extra:", "private:"
#: The name for the set of the fields that were given.
GIVEN = "given"
_COLLECTIONS = (_native.PMap, _native.PVector)


class Model:
    """What is known of a class of models: to ask the class each time takes as long as the validation."""

    __slots__ = ("aliases", "all_given", "fields", "keeps_private", "validate")

    def __init__(self, kind: Any) -> None:
        #: Its fields by their names; only the names count.
        self.fields: dict[str, Any] = kind.model_fields
        #: The names under which the class takes its fields, if they are others.
        self.aliases = _aliases(kind)
        #: Whether private attributes stay those of the object before: no code of the class makes them.
        self.keeps_private: bool = kind.model_post_init.__name__ == "init_private_attributes"
        #: What stands for the names of all fields.
        self.all_given = _joined(self.fields)
        #: Validates a model's fields, and makes it.
        self.validate: Callable[[Any], Any] = kind.model_validate


def model_of(kind: Any) -> Model:
    """Returns what is known of a class of models."""
    found: Model | None = kind.__dict__.get(_NAME)
    if found is None:
        found = Model(kind)
        type.__setattr__(kind, _NAME, found)
    return found


def _aliases(kind: Any) -> dict[str, str] | None:
    if kind.model_config.get("populate_by_name"):
        return None
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias or field.alias
        for one in getattr(alias, "choices", [alias]):
            if isinstance(one, str):
                found[name] = one
                break
    return found or None


def made_of_fields(kind: Any, fields: dict[str, Any]) -> Any:
    """Calls the class of a record with its fields, by their names; a model may ask for others, which are aliases."""
    if not is_model(kind):
        return kind(**fields)
    model = model_of(kind)
    return model.validate(_as_input(model, fields))


def _as_input(model: Model, fields: dict[str, Any]) -> dict[str, Any]:
    aliases = model.aliases
    return fields if aliases is None else {aliases.get(name, name): value for name, value in fields.items()}


def _joined(names: Any) -> str:
    # One object for equal sets, because what is compared is the identity.
    return sys.intern("\0".join(sorted(names)))


def beside(model: Any) -> dict[str, Any]:
    """Returns what a model has beside its fields, by names for them: extra values, private attributes, the given."""
    known, given = model_of(type(model)), model.__pydantic_fields_set__
    extra: dict[str, Any] | None = model.__pydantic_extra__
    private: dict[str, Any] | None = model.__pydantic_private__
    if not extra and not private:
        is_whole = len(given) == len(known.fields) and given == known.fields.keys()
        return {GIVEN: known.all_given if is_whole else _joined(given)}
    found = {f"{_EXTRA}{name}": value for name, value in (extra or {}).items()}
    for name, value in (private or {}).items():
        found[f"{_PRIVATE}{name}"] = value
    found[GIVEN] = _joined(given)
    return found


def replaced(old: Any, changes: dict[str, Any]) -> Any:
    """Returns a copy of a model with other values in some fields, which its class validates.

    One node is validated; the models in it are instances, which pydantic takes as they are. Private attributes stay,
    unless a `model_post_init` of the class makes them.
    """
    kind = cast("Any", type(old))
    model = model_of(kind)
    values: dict[str, Any] = old.__dict__
    if values.keys() != model.fields.keys():
        # A cached property is in the same dict, and may be unknown to the validation.
        values = {name: getattr(old, name) for name in model.fields}
    new = {**values, **changes}
    given = {*old.__pydantic_fields_set__, *changes}
    extra, private = old.__pydantic_extra__, old.__pydantic_private__
    before = _collections_before(values, new)
    validate = partial(validated_again, model.validate, before=before) if before else model.validate
    made = validate({**extra, **_as_input(model, new)} if extra else _as_input(model, new))
    object.__setattr__(made, "__pydantic_fields_set__", given)
    if private and model.keeps_private:
        object.__setattr__(made, "__pydantic_private__", dict(private))
    return made


def _collections_before(old: dict[str, Any], new: dict[str, Any]) -> dict[int, Any]:
    """Returns, by the identity of each collection, the one before it in the same field."""
    held = [name for name, value in new.items() if type(value) in _COLLECTIONS]
    before = {id(new[name]): old[name] for name in held if type(old[name]) is type(new[name])}
    if len(held) > 1:
        # One object in two fields has two that were before it, and may fit only one of them: it is validated whole.
        for identity, count in Counter(id(new[name]) for name in held).items():
            if count > 1:
                before.pop(identity, None)
    return before


def with_values(old: Any, changes: dict[str, Any], others: dict[str, Any]) -> Any:
    """Returns a copy with other values in some fields, and others beside them; `MISSING` takes these away."""
    kind = cast("Any", type(old))
    held = {
        **beside(old),
        GIVEN: "\0".join({**dict.fromkeys(old.__pydantic_fields_set__), **changes}),
        **others,
    }
    parts: dict[str, dict[str, Any]] = {_EXTRA: {}, _PRIVATE: {}}
    for name, value in held.items():
        for start, part in parts.items():
            if name.startswith(start) and value is not _native.MISSING:
                part[name.removeprefix(start)] = value
    fields = {
        name: changes[name] if name in changes else getattr(old, name) for name in model_of(kind).fields
    }
    given = set(filter(None, held[GIVEN].split("\0")))
    extra = None if old.__pydantic_extra__ is None else parts[_EXTRA]
    private = None if old.__pydantic_private__ is None else parts[_PRIVATE]
    return raw(kind, fields, extra, private, given)


def raw(
    kind: Any,
    fields: dict[str, Any],
    extra: dict[str, Any] | None,
    private: dict[str, Any] | None,
    given: set[str],
) -> Any:
    """Returns a model with these fields as they are: they were validated when they were committed."""
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", given)
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(made, "__pydantic_private__", private)
    return made
