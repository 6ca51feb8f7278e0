"""Forms: what the annotations of a state say of the values at its places, for the compiled comparison."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin

from ropewalk._load import state as _native
from ropewalk.state._contract import Contract
from ropewalk.state._records import is_model
from ropewalk.state._rule import compile_rule
from ropewalk.state._shape import Kind, Shape, name_of
from ropewalk.state._zones import Zone

#: What typing lets stand for a number of another kind.
_PROMOTED: dict[Any, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}
_NUMBERS: dict[Any, type] = {int: numbers.Integral, float: numbers.Real, complex: numbers.Complex}

#: Classes whose objects and those of whose subclasses fit, and a function to ask about others.
_Accepted = tuple[tuple[type, ...], Callable[[Any], bool] | None]


def native_rule(shape: Shape, contract: Contract | None) -> _native.Rule:
    """Returns the compiled rule of a whole state, as `compile_rule` makes it, with the forms of the places."""
    forms = _forms_of(shape)
    return compile_rule(
        shape, contract, _native.Rule, _native.Rule.link, lambda rule, place: forms.settle(rule, place)
    )


def form_of(shape: Shape) -> _native.Form:
    """Returns the form of a whole state."""
    return _forms_of(shape).of(shape)


def _forms_of(shape: Shape) -> _Forms:
    if shape._forms is None:
        shape._forms = _Forms()
    forms: _Forms = shape._forms
    return forms


class _Forms:
    """The forms of one state's places."""

    def __init__(self) -> None:
        #: By shape, which the state's shape keeps alive, and by what is declared of the place.
        self._made: dict[tuple[int, Any, str, bool], _native.Form] = {}
        #: One of those of a shape: the forms below it are the same for all.
        self._one: dict[int, _native.Form] = {}

    def settle(self, rule: _native.Rule, shape: Shape) -> None:
        """Gives a rule the form of its place."""
        if shape.kind not in (Kind.ANY, Kind.LEAF):
            rule.form(self._one.get(id(shape)) or self.of(shape))

    def of(self, shape: Shape, annotation: Any = None, *, is_loose: bool = False) -> _native.Form:
        """Returns the form of a place with this shape and annotation."""
        declared = _own_annotation(shape) if annotation is None else annotation
        accepted = None if shape.zone is Zone.ARRAY or shape.of_policy else accepted_by(declared)
        classes, fits = accepted or ((), None)
        text = name_of(_without_zone(declared))
        key = (id(shape), classes, text if accepted else "", is_loose)
        known = self._made.get(key)
        if known is not None:
            return known
        made = _native.Form(classes, fits, text, is_loose, shape.record, shape.names)
        self._made[key] = made
        self._one.setdefault(id(shape), made)
        fields: list[_native.Form | None] = []
        if shape.kind is Kind.RECORD:
            checks_itself = shape.record is not None and is_model(shape.record)
            fields = [
                self.of(part, one, is_loose=checks_itself)
                for part, one in zip(shape.fields, shape.declared, strict=True)
            ]
        elif shape.of_policy:
            fields = [self.of(part) for part in shape.fields]
        items = key_form = None
        if shape.kind in (Kind.MAP, Kind.VECTOR) and shape.items is not None:
            items = self.of(shape.items, shape.declared[-1] if shape.declared else None)
            if shape.kind is Kind.MAP and shape.declared:
                key_form = _of_key(shape.declared[0])
        made.link(tuple(fields), items, key_form)
        return made


def _own_annotation(shape: Shape) -> Any:
    if shape.kind is Kind.RECORD:
        return shape.record
    return Any if shape.of_policy else shape.annotation


def _of_key(annotation: Any) -> _native.Form | None:
    accepted = accepted_by(annotation)
    if accepted is None:
        return None
    form = _native.Form(*accepted, name_of(_without_zone(annotation)), False, None, ())
    form.link((), None, None)
    return form


def _without_zone(annotation: Any) -> Any:
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def accepted_by(annotation: Any) -> _Accepted | None:
    """Returns what an annotation says of values; `None` if it says nothing of them that can be checked."""
    if annotation is None:
        return (type(None),), None
    origin = get_origin(annotation)
    if origin is Annotated or origin is Final:
        return accepted_by(get_args(annotation)[0])
    if isinstance(annotation, NewType):
        return accepted_by(annotation.__supertype__)
    for alias in (annotation, origin):
        if type(alias).__name__ == "TypeAliasType":
            return accepted_by(alias.__value__)
    if origin in (Union, UnionType):
        return _any_of(get_args(annotation))
    if origin is Literal:
        known: set[tuple[Any, Any]] = {(type(one), one) for one in get_args(annotation)}
        return (), lambda value: (type(value), value) in known
    kind: Any = annotation if origin is None else origin
    if not isinstance(kind, type) or kind is object or kind is Any:
        return None
    return _of_class(kind)


def _any_of(arms: tuple[Any, ...]) -> _Accepted | None:
    found = [accepted_by(arm) for arm in arms]
    parts = [one for one in found if one is not None]
    if len(parts) < len(found):
        return None
    classes = tuple(dict.fromkeys(kind for kinds, _ in parts for kind in kinds))
    asked = [fits for _, fits in parts if fits is not None]
    return classes, (lambda value: any(fits(value) for fits in asked)) if asked else None


def _of_class(kind: type) -> _Accepted | None:
    number = _NUMBERS.get(kind)
    if number is not None:
        # Numbers of NumPy's are none of Python's, and as good.
        return _PROMOTED.get(
            kind, (kind,)
        ), lambda value: type(value).__module__ == "numpy" and isinstance(value, number)
    if type(kind).__instancecheck__ is type.__instancecheck__:
        return (kind,), None

    def fits(value: Any) -> bool:
        try:
            return isinstance(value, kind)
        except TypeError:
            # A protocol that cannot be asked.
            return True

    return (kind,), fits
