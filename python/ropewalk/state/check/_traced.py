"""What an expression of a task's source may be: a place of the state, many of them, a function, or a plain value."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ropewalk.state._paths import EACH, Key, Step, text_of
from ropewalk.state._shape import Kind, Shape
from ropewalk.state.check._definitions import Definition

Access: TypeAlias = Literal["read", "write"]
#: To pass is to take the draft of a place, of which only parts may be read or written.
Way: TypeAlias = Literal["read", "write", "pass"]


@dataclass(frozen=True, slots=True)
class Place:
    """A draft, or a value of the state."""

    steps: tuple[Step, ...]
    shape: Shape

    @property
    def is_draft(self) -> bool:
        """Whether a function that gets it could change the state."""
        return self.shape.kind is not Kind.LEAF or self.is_array

    @property
    def is_array(self) -> bool:
        """Whether it is an array, or a part of one: either has the place of the whole."""
        return self.shape.array is not None

    def __str__(self) -> str:
        return text_of(self.steps) or "the whole state"


@dataclass(frozen=True, slots=True)
class Many:
    """A list, an iterator or the like, of these values."""

    values: Values


@dataclass(frozen=True, slots=True)
class Parts:
    """A tuple with known items."""

    items: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A method of a container, or of a draft."""

    place: Place
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An object of the program: a function, a task, a class, a module, a path."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class Code:
    """A function, with the value of its first parameter if it is a method, and the names around it."""

    definition: Definition
    self: Values
    around: Names | None = field(default=None, compare=False)


Value: TypeAlias = "Place | Many | Parts | Bound | Known | Code"
Values: TypeAlias = "frozenset[Value]"
Names: TypeAlias = "dict[str, Values]"
Call: TypeAlias = "tuple[Definition, tuple[tuple[str, Values], ...]]"

NONE: Values = frozenset()


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a source file; lines count from 1, and columns too."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to a place of the state; with `adds` the write appends or counts."""

    place: Place
    access: Way
    adds: bool
    spot: Spot


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that the reader cannot see, or that is wrong whatever the contract says."""

    text: str
    spot: Spot
    is_error: bool
    place: Place | None = None


@dataclass(slots=True)
class Frame:
    """A call that is being read."""

    definition: Definition
    names: Names
    around: Names | None
    returned: Values = NONE
    yielded: Values = NONE


def union(found: Iterable[Values]) -> Values:
    return frozenset[Value]().union(*found)


def merged(one: Names, other: Names) -> Names:
    return {name: one.get(name, NONE) | other.get(name, NONE) for name in {**one, **other}}


def drafts_in(value: Value) -> Iterator[Place]:
    if isinstance(value, Place):
        if value.is_draft:
            yield value
    elif isinstance(value, Many):
        for inner in value.values:
            yield from drafts_in(inner)
    elif isinstance(value, Parts):
        for inner in union(value.items):
            yield from drafts_in(inner)


def may_change(value: Value) -> bool:
    """Whether a function that gets a value could change the state with it."""
    return isinstance(value, Code) or next(drafts_in(value), None) is not None


def constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def step_of(shape: Shape, node: ast.expr) -> Step:
    key = constant(node) if shape.of_policy else None
    return Key(key) if isinstance(key, str) else EACH


def bound_names(code: Code, arguments: Sequence[Values], keywords: Names) -> Names:
    """Returns what the parameters of a function stand for."""
    given = [code.self, *arguments] if code.self else list(arguments)
    parameters = code.definition.node.args
    positional = [*parameters.posonlyargs, *parameters.args]
    names: Names = {one.arg: NONE for one in (*positional, *parameters.kwonlyargs)}
    for one, values in zip(positional, given, strict=False):
        names[one.arg] = values
    if parameters.vararg is not None:
        names[parameters.vararg.arg] = frozenset((Many(union(given[len(positional) :])),))
    rest: list[Values] = []
    for name, values in keywords.items():
        if name in names:
            names[name] = values
        else:
            rest.append(values)
    if parameters.kwarg is not None:
        names[parameters.kwarg.arg] = frozenset((Many(union(rest)),))
    return names
