"""Zones: what may be done to a part of the state, said in its annotation.

@dataclass(frozen=True, slots=True)
class Bank:
    limits: Const[Limits]               # never written
    accounts: PMap[str, Account]        # plain
    journal: AppendOnly[Transfer]       # grows at its end
    hits: Counter                       # is counted up and down
    cursor: Transient[int]              # is in no journal, and no undo restores it
    weights: Shm[float32, "n 256"]      # an array in shared memory

To a type checker `Const[Limits]` is `Limits`, `Transient[int]` and `Counter` are `int`, `AppendOnly[Transfer]` is
`PVector[Transfer]`, and `Shm[float32, "n 256"]` is an array of NumPy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast

from ropewalk._errors import StateError, WrongType
from ropewalk._load import state as _native

T = TypeVar("T")


class Zone(IntEnum):
    """What may be done to a part of the state; the numbers are those of the compiled part."""

    #: It is replaced, and what is below it is changed.
    PLAIN = 0
    #: It is never written.
    CONST = 1
    #: A vector that grows at its end. Two transactions that append do not conflict.
    APPEND_ONLY = 2
    #: A number that is counted up and down. Two transactions that count do not conflict.
    COUNTER = 3
    #: It is not journaled, and no undo restores it.
    TRANSIENT = 4
    #: An array whose bytes are in shared memory; the state has its handle.
    ARRAY = 5

    @property
    def commutes(self) -> bool:
        """Whether writes of this zone leave the same in either order."""
        return self in (Zone.APPEND_ONLY, Zone.COUNTER)


#: The zones that hold for all that is below, whatever zone that has itself.
INHERITED = frozenset((Zone.CONST, Zone.APPEND_ONLY, Zone.TRANSIENT))

_DIMENSION = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9]+")


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """The type of an array's items, and its dimensions: numbers, or names of lengths that may be any.

    Equal names stand for equal lengths, in one array and in all that are checked with the same `lengths`. `_` stands
    for any length.
    """

    dtype: str
    dims: tuple[int | str, ...]

    @classmethod
    def of(cls, dtype: object, dims: object) -> ArrayShape:
        """Reads the two arguments of `Shm[...]`.

        Raises:
            TypeError: `dtype` names no type of items, or `dims` is no text.
            ValueError: `dims` has a dimension that is no name and no whole number.
        """
        name = dtype.__name__ if isinstance(dtype, type) else str(getattr(dtype, "name", dtype))
        if not name.isidentifier():
            raise TypeError(f"Shm[...] needs a type of items such as float32, not {dtype!r}")
        if not isinstance(dims, str):
            raise TypeError(f'Shm[...] needs its dimensions as text, such as "n 256", not {dims!r}')
        parts = dims.split()
        for part in parts:
            if not _DIMENSION.fullmatch(part):
                raise ValueError(
                    f"{part!r} in the dimensions {dims!r} is no dimension: write whole numbers and names, with spaces "
                    f"between them"
                )
        # What Python calls float and int are NumPy's of 64 bits.
        plain = {"float": "float64", "int": "int64", "bool": "bool", "bool_": "bool", "complex": "complex128"}
        return cls(plain.get(name, name), tuple(int(part) if part.isdigit() else part for part in parts))

    def check(self, array: Any, lengths: dict[str, int] | None = None) -> None:
        """Checks an array; `lengths` has the names' lengths so far, and gets those that are new.

        Raises:
            WrongType: its items have another type, or it has other dimensions.
        """
        lengths = {} if lengths is None else lengths
        found: tuple[int, ...] = tuple(getattr(array, "shape", ()))
        dtype = str(getattr(array, "dtype", type(array).__name__))
        if dtype != self.dtype or len(found) != len(self.dims):
            raise WrongType(f"an array of {dtype} {found} was given for {self}")
        for dim, length in zip(self.dims, found, strict=True):
            wanted = (
                dim if isinstance(dim, int) else length if dim == "_" else lengths.setdefault(dim, length)
            )
            if wanted != length:
                named = f"{dim} = {wanted}" if isinstance(dim, str) else str(dim)
                raise WrongType(f"an array of {dtype} {found} was given for {self}, where {named} is wanted")

    def __str__(self) -> str:
        return f'Shm[{self.dtype}, "{" ".join(map(str, self.dims))}"]'


if TYPE_CHECKING:
    from typing import Annotated as Shm

    from ropewalk._state import PVector

    Const: TypeAlias = Annotated[T, Zone.CONST]
    Transient: TypeAlias = Annotated[T, Zone.TRANSIENT]
    AppendOnly: TypeAlias = Annotated[PVector[T], Zone.APPEND_ONLY]
    Counter: TypeAlias = Annotated[int, Zone.COUNTER]
else:
    #: Is never written: `Const[Limits]` is `Limits`.
    Const = Annotated[T, Zone.CONST]
    #: Is not journaled, and no undo restores it: `Transient[int]` is `int`.
    Transient = Annotated[T, Zone.TRANSIENT]
    #: A vector that grows at its end alone: `AppendOnly[Transfer]` is `PVector[Transfer]`.
    AppendOnly = Annotated[_native.PVector[T], Zone.APPEND_ONLY]
    #: An integer that is counted up and down with `+=` and `-=`, and never conflicts.
    Counter = Annotated[int, Zone.COUNTER]

    class Shm:
        """An array in shared memory: `Shm[float32, "n 256"]`, with the type of its items and its dimensions.

        A dimension is a whole number, or a name for a length. The types of items are those of this package, such as
        `float32`, or NumPy's; to a type checker only the first stand for arrays. Linters that take the text for the
        name of a type have a switch: F722 of ruff and flake8.

        A store keeps a copy of the array in shared memory, which nothing can write to; a transaction writes to a copy
        of that. In the annotations of one record equal names stand for equal lengths.
        """

        def __new__(cls, *_args: object) -> Shm:
            """Refuses: it is an annotation."""
            raise TypeError(
                'Shm is an annotation: write Shm[float32, "n 256"], and make arrays with ropewalk.share'
            )

        def __class_getitem__(cls, arguments: object) -> Any:
            if not isinstance(arguments, tuple) or len(arguments) != 2:
                raise TypeError(
                    f'Shm needs a type of items and dimensions, as in Shm[float32, "n 256"], not {arguments!r}'
                )
            return Annotated[Any, ArrayShape.of(*arguments)]


def zone_of(metadata: tuple[object, ...], where: str) -> tuple[Zone, ArrayShape | None]:
    """Returns the zone in an annotation's metadata, and the shape of an array.

    Raises:
        StateError: there are two.
    """
    found = list({one for one in metadata if isinstance(one, (Zone, ArrayShape))})
    if not found:
        return Zone.PLAIN, None
    if len(found) > 1:
        names = " and ".join(sorted(one.name if isinstance(one, Zone) else "ARRAY" for one in found))
        raise StateError(f"{where} is in the zones {names}. Give it one of them")
    (one,) = found
    return (Zone.ARRAY, one) if isinstance(one, ArrayShape) else (one, None)


def zone_in_policy(wanted: object, where: str) -> tuple[Zone, ArrayShape | None, Any]:
    """Reads the zone that a policy gives to a path: `Const`, `AppendOnly`, `Counter`, `Shm[...]`, or a `Zone`.

    Returns the zone, the shape of an array, and the annotation of the value, `Any` where none was given.

    Raises:
        TypeError: it is no zone.
    """
    if isinstance(wanted, Zone):
        return wanted, None, Any
    metadata = cast("tuple[object, ...]", getattr(wanted, "__metadata__", ()))
    zone, array = zone_of(metadata, where)
    if zone is Zone.PLAIN:
        raise TypeError(f"the policy of {where} must be a zone, such as Const or AppendOnly, not {wanted!r}")
    origin: Any = getattr(wanted, "__origin__", Any)
    return zone, array, Any if isinstance(origin, TypeVar) else origin


__all__ = [
    "INHERITED",
    "AppendOnly",
    "ArrayShape",
    "Const",
    "Counter",
    "Shm",
    "Transient",
    "Zone",
    "zone_in_policy",
    "zone_of",
]
