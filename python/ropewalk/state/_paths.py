"""Typed paths: names of places in a state, made by writing them.

P = paths(Bank)
P.accounts["ann"].balance       # one place
P.accounts[...].balance         # the balance of each account
P.journal[-1]                   # the last item
P.acounts                       # NoSuchPath, when the module is imported

A path has no methods, because any name could be the name of a field: functions of this module take paths instead.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Never, TypeAlias, TypeVar, cast, final, overload

from ropewalk._errors import NoSuchPath
from ropewalk.state._shape import Kind, Shape, name_of, shape_of

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A step to one item: the key in a map, or the index in a vector; a step to a field is its name as `str`."""

    value: Any

    def __repr__(self) -> str:
        return f"[{self.value!r}]"


class Each(Enum):
    """The step to each item of a map or a vector: `EACH`, written `[...]`."""

    EACH = "[...]"

    def __repr__(self) -> str:
        return "[...]"


EACH = Each.EACH
Step: TypeAlias = "str | Key | Each"


@final
class Path(Generic[T]):
    """The name of a place in a state; immutable, hashable, and equal to each path of the same state and steps.

    `paths` makes the first one. An attribute of it is the path of a field, `path[key]` that of one item and
    `path[...]` that of each item.

    `T` is the state's class for the path that `paths` returns, and `Any` below it: checkers do not know which fields
    there are, because a type that gives its attributes to another one cannot be written. Each path is checked against
    the state's annotations when it is made, which for a contract is when its module is imported.
    """

    __slots__ = ("__place__", "__root__", "__steps__")

    # Slots of two underscores on either side, because fields have no such names.
    __root__: Any
    __steps__: tuple[Step, ...]
    __place__: Shape | None

    def __init__(self, root: Any, steps: tuple[Step, ...] = (), place: Shape | None = None) -> None:
        """Names a place without a check; `paths` and `path_from` check."""
        object.__setattr__(self, "__root__", root)
        object.__setattr__(self, "__steps__", steps)
        object.__setattr__(self, "__place__", place)

    def __getattr__(self, name: str) -> Path[Any]:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _below(self, name)

    def __getitem__(self, key: Any) -> Path[Any]:
        if key is ... or key is EACH:
            return _below(self, EACH)
        return _below(self, key if isinstance(key, Key) else Key(key))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{self!r} is the name of a place, and has no value that could be set")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"{self!r} is the name of a place, and has no value that could be deleted")

    def __iter__(self) -> Never:
        # Python would call `path[0]`, `path[1]` and so on without an end.
        raise TypeError(f"{self!r} is the name of a place; {self!r}[...] names each of its items")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return bool(self.__root__ == other.__root__) and self.__steps__ == other.__steps__

    def __hash__(self) -> int:
        return hash((self.__root__, self.__steps__))

    def __str__(self) -> str:
        return text_of(self.__steps__)

    def __repr__(self) -> str:
        text = text_of(self.__steps__)
        root = "state" if isinstance(self.__root__, Shape) else name_of(self.__root__)
        return root + ("" if text.startswith("[") or not text else ".") + text

    def __reduce__(self) -> Any:
        return Path, (self.__root__, self.__steps__)


@overload
def paths(cls: type[T]) -> Path[T]: ...
@overload
def paths(cls: Shape) -> Path[Any]: ...
def paths(cls: Any) -> Path[Any]:
    """Returns the path of a whole state, of which all others are made; `cls` is the state's class.

    For a dict-shaped state `cls` is the shape that `policy_shape` makes.

    Raises:
        NotFrozen, StateError: the class cannot be a state, as `shape_of` reports.
    """
    return Path(cls, (), shape_of(cls))


def path_from(root: Any, steps: tuple[Step, ...]) -> Path[Any]:
    """Returns the path of these steps below a state's class or shape.

    Raises:
        NoSuchPath: the state has no such place.
    """
    found: Path[Any] = Path(root, (), shape_of(root))
    for step in steps:
        found = _below(found, step)
    return found


def path_at(root: Any, text: str) -> Path[Any]:
    """Returns the path that is written in a text, as `str(path)` writes it: ``accounts[...].balance``.

    Raises:
        NoSuchPath: the state has no such place.
        ValueError: the text is no path.
    """
    return path_from(root, steps_in(text))


def steps_in(text: str) -> tuple[Step, ...]:
    """Returns the steps that are written in a text.

    Raises:
        ValueError: the text is no path.
    """
    wrong = ValueError(f"{text!r} is no path: write fields and keys as in 'accounts[\"ann\"].balance'")
    try:
        node = ast.parse("_" + ("" if text.startswith("[") or not text else ".") + text, mode="eval").body
    except (SyntaxError, ValueError):
        raise wrong from None
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(node.attr)
        elif isinstance(node, ast.Subscript):
            try:
                value = ast.literal_eval(node.slice)
                hash(value)
            except (ValueError, TypeError):
                raise wrong from None
            steps.append(EACH if value is ... else Key(value))
        else:
            raise wrong
        node = node.value
    return tuple(reversed(steps))


def _below(path: Path[Any], step: Step) -> Path[Any]:
    shape = shape_at(path)
    if shape.of_policy and isinstance(step, str):
        step = Key(step)
    return Path(path.__root__, (*path.__steps__, step), shape_below(shape, step, path))


def shape_below(shape: Shape, step: Step, path: object = "the state") -> Shape:
    """Returns the shape of the place one step below.

    Raises:
        NoSuchPath: there is none.
        TypeError: the key of a map cannot be hashed.
    """
    if shape.kind is Kind.ANY:
        if isinstance(step, Key):
            hash(step.value)
        return shape
    if shape.kind is Kind.LEAF:
        raise NoSuchPath(f"{path!r} is of {name_of(shape.annotation)}, which has no places below it")
    if isinstance(step, str):
        if shape.kind is not Kind.RECORD:
            raise NoSuchPath(
                f"{path!r} is of {name_of(shape.annotation)}, which has no field {step!r} but items: name one as "
                f"{path!r}[key], or each as {path!r}[...]"
            )
        return shape.field(step)
    if shape.kind is Kind.RECORD:
        raise NoSuchPath(
            f"{path!r} is of {name_of(shape.annotation)}, which has no items but the fields {', '.join(shape.names)}"
        )
    if isinstance(step, Key):
        named = _check_key(shape, step.value, path)
        if named is not None:
            return named
    assert shape.items is not None
    return shape.items


def shapes_below(shape: Shape, steps: tuple[Step, ...]) -> list[Shape]:
    """Returns the shape of the place behind each step."""
    found: list[Shape] = []
    for step in steps:
        shape = shape_below(shape, step)
        found.append(shape)
    return found


def _check_key(shape: Shape, value: Any, path: object) -> Shape | None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{value!r} cannot be hashed, so that no map has it as a key") from None
    if shape.kind is Kind.VECTOR:
        if not isinstance(value, int) or isinstance(value, bool):
            raise NoSuchPath(f"{path!r} is a vector, whose items have whole numbers, and not {value!r}")
        return None
    if isinstance(value, str) and value in shape.names:
        return shape.field(value)
    key = shape.key
    # An int is accepted where a float is, as checkers do.
    if key is not None and not isinstance(value, key) and not (key is float and isinstance(value, int)):
        raise NoSuchPath(
            f"the keys of {path!r} are of {name_of(key)}, and {value!r} is of {name_of(type(value))}"
        )
    return None


def as_path(value: Any) -> Path[Any] | None:
    """Returns a value that is a path, and `None` for any other."""
    # Checkers would narrow `value` itself to a path of an unknown class.
    found: Any = value
    return found if type(value) is Path else None


# --- what a path says -------------------------------------------------------------------------------------------------


def root_of(path: Path[T]) -> type[T]:
    """Returns the class of the state; the shape of a dict-shaped one."""
    return cast("type[T]", path.__root__)


def steps_of(path: Path[Any]) -> tuple[Step, ...]:
    """Returns the steps from the state to the place: names of fields as `str`, `Key(value)`, and `EACH`."""
    return path.__steps__


def shape_at(path: Path[Any]) -> Shape:
    """Returns the shape of the place.

    Raises:
        NoSuchPath: the path was unpickled, and the state's class here has no such place.
    """
    place = path.__place__
    if place is None:
        place = path_from(path.__root__, path.__steps__).__place__
        assert place is not None
        object.__setattr__(path, "__place__", place)
    return place


def text_of(steps: tuple[Step, ...]) -> str:
    """Returns steps as they are written: ``accounts[...].balance``; an empty text for the whole state."""
    return "".join(f".{step}" if isinstance(step, str) else repr(step) for step in steps).removeprefix(".")


def code_of(path: Path[Any], name: str = "P") -> str:
    """Returns a path as it is written in a contract: ``P.accounts[...].balance``, with the name of the whole state's.

    A path of a dict-shaped state is written as a text, ``'accounts.ann'``.
    """
    if isinstance(path.__root__, Shape) and path.__root__.of_policy:
        steps = tuple(
            step.value if isinstance(step, Key) and str(step.value).isidentifier() else step
            for step in path.__steps__
        )
        return repr(text_of(steps))
    text = text_of(path.__steps__)
    return name + ("" if not text or text.startswith("[") else ".") + text


def pointer(path: Path[Any]) -> str:
    """Returns the path as a JSON pointer, ``/accounts/ann/balance``.

    `EACH` is written ``*``, which the standard does not have, and which no key but ``*`` itself is written as.

    Source: RFC 6901.
    """
    parts: list[str] = []
    for step in path.__steps__:
        part = "*" if step is EACH else str(step.value) if isinstance(step, Key) else str(step)
        parts.append("/" + part.replace("~", "~0").replace("/", "~1"))
    return "".join(parts)


def value_at(path: Path[Any], state: Any) -> Any:
    """Returns the value of the place in a state, or in a snapshot.

    Raises:
        ValueError: the path names more than one place.
        LookupError: the state has no such item.
    """
    value = state
    for step in path.__steps__:
        if step is EACH:
            raise ValueError(f"{path!r} names each of the items, and one value was asked for")
        value = value[step.value] if isinstance(step, Key) else getattr(value, step)
    return value


# --- two paths --------------------------------------------------------------------------------------------------------


def covers(path: Path[Any], other: Path[Any]) -> bool:
    """Whether every place that `other` names is named by `path`, or below one that is."""
    one, two = path.__steps__, other.__steps__
    if not _have_one_root(path, other) or len(one) > len(two):
        return False
    return all(
        mine == its or (mine is EACH and isinstance(its, Key)) for mine, its in zip(one, two, strict=False)
    )


def meets(path: Path[Any], other: Path[Any]) -> bool:
    """Whether a state could have a place that both name, or that is below a place of each.

    In a vector `[-1]` may be `[5]`, because that depends on its length.
    """
    if not _have_one_root(path, other):
        return False
    shape = shape_of(path.__root__)
    for mine, its in zip(path.__steps__, other.__steps__, strict=False):
        if mine != its and not _may_be_one(shape, mine, its):
            return False
        shape = shape_below(shape, mine)
    return True


def _have_one_root(path: Path[Any], other: Path[Any]) -> bool:
    return bool(path.__root__ == other.__root__)


def _may_be_one(shape: Shape, mine: Step, its: Step) -> bool:
    if isinstance(mine, str) or isinstance(its, str):
        return False
    if mine is EACH or its is EACH:
        return True
    one, two = mine.value, its.value
    if shape.kind is Kind.MAP or not isinstance(one, int) or not isinstance(two, int):
        return False
    return (one < 0) != (two < 0)
