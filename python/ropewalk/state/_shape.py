"""Shapes: what a state's annotations say of its records, maps and vectors, as a graph.

A shape is made once for each class; a class that contains itself is a cycle of the graph. The compiled drafts, the
typed paths and the contracts all read the same graph.
"""

from __future__ import annotations

import difflib
import weakref
from enum import IntEnum
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from ropewalk._errors import NoSuchPath, StateError
from ropewalk._load import state as _native
from ropewalk.state._records import Fields, fields_of, filled, is_record, parameters_of
from ropewalk.state._values import is_class, is_collection, is_leaf, refuse_mutable
from ropewalk.state._zones import ArrayShape, Zone, zone_of

#: Levels of one generic class within itself with other arguments; with other ones each time it has no end.
_DEEPEST = 8


class Kind(IntEnum):
    """What a place of the state is; the numbers are those of the compiled part."""

    #: A value that is replaced as a whole: a number, text, a date, a tuple.
    LEAF = 0
    #: A frozen dataclass, a msgspec struct, a pydantic model, a named tuple.
    RECORD = 1
    #: A `PMap`.
    MAP = 2
    #: A `PVector`.
    VECTOR = 3
    #: Whatever the value is: a union of records, or a class that is not known.
    ANY = 4


class Shape:
    """A place of the state; read-only, and equal to itself alone.

    `record` is the class of a record, and `fields` has the shape of each of its `names`. `items` is the shape of what
    a map or a vector holds, and `key` the class of a map's keys, if that is one class. `annotation` is what the place
    was annotated with. The map of a dict-shaped state has `names` and `fields` for keys that a policy names.
    """

    __slots__ = (
        "__weakref__",
        "_forms",
        "_has_arrays",
        "_places",
        "annotation",
        "array",
        "declared",
        "fields",
        "items",
        "key",
        "kind",
        "names",
        "of_policy",
        "record",
        "zone",
    )

    def __init__(
        self, kind: Kind, annotation: Any, zone: Zone = Zone.PLAIN, record: type | None = None
    ) -> None:
        self.kind = kind
        self.zone = zone
        self.record = record
        self.names: tuple[str, ...] = ()
        self.fields: tuple[Shape, ...] = ()
        self.items: Shape | None = None
        self.key: type | None = None
        #: The annotations of the fields, or of a map's keys and values, or of a vector's items.
        self.declared: tuple[Any, ...] = ()
        self.annotation = annotation
        #: The dimensions of an array in shared memory.
        self.array: ArrayShape | None = None
        #: Whether it is a map of a dict-shaped state, made by `policy_shape`.
        self.of_policy = False
        #: The numbered places below, which `_slots` makes when a contract asks.
        self._places: Any = None
        #: What `has_arrays` has found; `None` before it was asked.
        self._has_arrays: bool | None = None
        #: The forms of the places below, which `_form` makes when a store asks.
        self._forms: Any = None

    def field(self, name: str) -> Shape:
        """Returns the shape of a field.

        Raises:
            NoSuchPath: the record has no such field.
        """
        try:
            return self.fields[self.names.index(name)]
        except ValueError:
            raise no_such_field(self, name) from None

    def in_zone(self, zone: Zone, array: ArrayShape | None) -> Shape:
        """Returns this shape in another zone; what is below is shared."""
        made = Shape(self.kind, self.annotation, zone, self.record)
        made.names, made.fields, made.items, made.key, made.array = (
            self.names,
            self.fields,
            self.items,
            self.key,
            array,
        )
        made.declared = self.declared
        return made

    def __repr__(self) -> str:
        zone = "" if self.zone is Zone.PLAIN else f", {self.zone.name}"
        return f"<Shape {self.kind.name} {name_of(self.annotation)}{zone}>"


def has_arrays(shape: Shape) -> bool:
    """Whether an array is declared at a place or somewhere below it."""
    if shape._has_arrays is None:
        seen: set[int] = set()
        rest = [shape]
        found = False
        while rest and not found:
            one = rest.pop()
            found = one.array is not None
            if id(one) not in seen:
                seen.add(id(one))
                rest += [*one.fields, *([] if one.items is None else [one.items])]
        shape._has_arrays = found
    return shape._has_arrays


def no_such_field(shape: Shape, name: str) -> NoSuchPath:
    """Makes the error for a field that a record has not: it names near matches, and all fields."""
    near = difflib.get_close_matches(name, shape.names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    fields = f"Its fields are {', '.join(shape.names)}." if shape.names else "It has no fields."
    return NoSuchPath(f"{name_of(shape.annotation)} has no field {name!r}.{hint} {fields}")


def name_of(annotation: Any) -> str:
    """Returns how an annotation is written, without its module."""
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    origin = get_origin(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]"
    if isinstance(origin, type):
        if origin is UnionType:
            return " | ".join(map(name_of, get_args(annotation)))
        return f"{name_of(origin)}[{', '.join(map(name_of, get_args(annotation)))}]"
    if origin is Union:
        return " | ".join(map(name_of, get_args(annotation)))
    return (
        "..."
        if annotation is ...
        else str(getattr(annotation, "__name__", annotation)).replace("typing.", "")
    )


#: Weak, because a shape has its class: a strong one would keep classes that were made in a function for ever.
_SHAPES: weakref.WeakValueDictionary[Any, Shape] = weakref.WeakValueDictionary()


def shape_of(cls: Any) -> Shape:
    """Returns the shape of a class, or of a generic class with its arguments, from its annotations.

    The same class gives the same shape, for as long as the shape is held.

    Raises:
        NotFrozen: a class of it is not frozen, or a field is annotated with a type that changes in place.
        StateError: an annotation cannot be read.
    """
    if isinstance(cls, Shape):
        return cls
    known = _known(cls)
    if known is not None:
        return known
    building = _Building()
    shape = building.of(cls, name_of(cls), {})
    building.settle()
    for record, made in building.plain.items():
        _SHAPES.setdefault(record, made)
    try:
        return _SHAPES.setdefault(cls, shape)
    except TypeError:  # An annotation that cannot be hashed, such as one with a list beside the type.
        return shape


def _known(cls: Any) -> Shape | None:
    try:
        return _SHAPES.get(cls)
    except TypeError:
        return None


class _Building:
    """One reading of annotations: the records that it has met, so that a cycle is closed."""

    def __init__(self) -> None:
        #: By annotation with all type variables filled in, because `Page[int]` and `Page[str]` are two shapes.
        self._records: dict[Any, Shape] = {}
        #: Those of classes without arguments.
        self.plain: dict[type, Shape] = {}
        #: The classes whose fields are being read.
        self._within: list[type] = []
        #: A record that is being read has no fields yet, so that a shape in a zone gets them when all are read.
        self._waiting: list[tuple[Shape, Shape]] = []

    def settle(self) -> None:
        """Completes the shapes in zones."""
        for made, shape in self._waiting:
            made.names, made.fields, made.items, made.key = shape.names, shape.fields, shape.items, shape.key
            made.declared = shape.declared

    def of(self, annotation: Any, where: str, bound: dict[Any, Any]) -> Shape:
        """Returns the shape of an annotation; `bound` has the values of type variables."""
        origin = get_origin(annotation)
        if origin is Annotated:
            zone, array = zone_of(annotation.__metadata__, where)
            return self._in_zone(annotation, zone, array, where, bound)
        if isinstance(annotation, TypeVar):
            if annotation in bound:
                return self.of(bound[annotation], where, {})
            limit = annotation.__bound__
            return Shape(Kind.ANY, annotation) if limit is None else self.of(limit, where, bound)
        if isinstance(annotation, NewType):
            return self.of(annotation.__supertype__, where, bound)
        if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
            return self.of(annotation.__value__, where, bound)
        if type(origin).__name__ == "TypeAliasType":
            arguments = dict(zip(origin.__type_params__, get_args(annotation), strict=False))
            return self.of(origin.__value__, where, arguments)
        if isinstance(annotation, (str, ForwardRef)):
            raise StateError(
                f"{where} is annotated with {annotation!r}, which names nothing that can be found. Define the class "
                f"at the top of a module, or before the state"
            )
        if annotation is None:
            annotation = type(None)
        if origin in (Union, UnionType):
            return self._union(annotation, where, bound)
        if origin is Literal:
            return Shape(Kind.LEAF, annotation)
        if origin is Final:
            return self.of(get_args(annotation)[0], where, bound)
        kind: Any = annotation if origin is None else origin
        if kind is _native.PMap or kind is _native.PVector:
            return self._container(kind, annotation, where, bound)
        refuse_mutable(kind, annotation, where)
        if isinstance(kind, type):
            if is_record(kind):
                return self._record(kind, get_args(annotation), annotation, where, bound)
            if is_collection(kind):
                # They are replaced as a whole; what they hold must not change either.
                for inner in get_args(annotation):
                    if inner is not ...:
                        self.of(inner, where, bound)
            if is_leaf(kind):
                return Shape(Kind.LEAF, annotation)
        return Shape(Kind.ANY, annotation)

    def _in_zone(
        self, annotation: Any, zone: Zone, array: ArrayShape | None, where: str, bound: dict[Any, Any]
    ) -> Shape:
        inner = annotation.__origin__
        if array is not None:
            made = Shape(Kind.LEAF, annotation, Zone.ARRAY)
            made.array = array
            return made
        shape = self.of(inner, where, bound)
        if zone is Zone.PLAIN or shape.zone is zone:
            return shape
        if shape.zone is not Zone.PLAIN:
            raise StateError(
                f"{where} is in the zones {shape.zone.name} and {zone.name}. Give it one of them"
            )
        if zone is Zone.COUNTER and inner is not int:
            raise StateError(f"{where} is a counter of {name_of(inner)}; a counter is an int")
        if zone is Zone.APPEND_ONLY and shape.kind is not Kind.VECTOR:
            raise StateError(f"{where} is append-only and no vector. Annotate it with AppendOnly[T]")
        made = shape.in_zone(zone, None)
        self._waiting.append((made, shape))
        return made

    def _union(self, annotation: Any, where: str, bound: dict[Any, Any]) -> Shape:
        arms = [self.of(arm, where, bound) for arm in get_args(annotation) if arm is not type(None)]
        if len(arms) == 1:
            if arms[0].array is None:
                return arms[0]
            made = arms[0].in_zone(Zone.ARRAY, arms[0].array)
            # It says that the place may be without an array.
            made.annotation = annotation
            return made
        if all(arm.kind is Kind.LEAF and arm.zone is Zone.PLAIN for arm in arms):
            return Shape(Kind.LEAF, annotation)
        for arm in arms:
            if arm.zone is not Zone.PLAIN:
                raise StateError(f"{where} has a zone in one arm of a union; put the zone around the union")
        return Shape(Kind.ANY, annotation)

    def _container(self, kind: type, annotation: Any, where: str, bound: dict[Any, Any]) -> Shape:
        is_map = kind is _native.PMap
        arguments: tuple[Any, ...] = get_args(annotation) or ((Any, Any) if is_map else (Any,))
        if len(arguments) != (2 if is_map else 1):
            wanted = "PMap[KEY, VALUE]" if is_map else "PVector[ITEM]"
            raise StateError(f"{where} is annotated with {name_of(annotation)}; write {wanted}")
        made = Shape(Kind.MAP if is_map else Kind.VECTOR, annotation)
        made.items = self.of(arguments[-1], f"{where}[...]", bound)
        made.declared = tuple(filled(one, bound) for one in arguments)
        if is_map:
            key = bound.get(arguments[0], arguments[0]) if isinstance(arguments[0], TypeVar) else arguments[0]
            while isinstance(key, NewType):
                key = key.__supertype__
            made.key = key if is_class(key) else None
            self.of(key, f"a key of {where}", bound)
        return made

    def _record(
        self, kind: type, arguments: tuple[Any, ...], annotation: Any, where: str, bound: dict[Any, Any]
    ) -> Shape:
        given = tuple(filled(one, bound) for one in arguments)
        whole: Any = (kind, given) if given else kind
        known = self._records.get(whole) or (None if given else _known(kind))
        if known is not None:
            return known
        if self._within.count(kind) >= _DEEPEST:
            raise StateError(
                f"{where} is {name_of(kind)} in itself with other arguments, more than {_DEEPEST} levels deep. Give it "
                f"the same arguments, or annotate the field with Any"
            )
        made = Shape(Kind.RECORD, filled(annotation, bound), Zone.PLAIN, kind)
        self._records[whole] = made
        if not given:
            self.plain[kind] = made
        fields: Fields = fields_of(kind, where)
        own = parameters_of(kind, given)
        made.names = tuple(fields)
        made.declared = tuple(filled(one, own) for one in fields.values())
        owner = name_of(kind)
        self._within.append(kind)
        made.fields = tuple(self.of(one, f"{owner}.{name}", own) for name, one in fields.items())
        self._within.pop()
        return made
