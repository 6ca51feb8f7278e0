"""What the methods of drafts do: which touch the container and which an item, and what they give. A table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ropewalk.state._array_draft import WRITERS
from ropewalk.state._records import is_record
from ropewalk.state._shape import Kind

Where: TypeAlias = Literal["item", "whole"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a method touches, in this order, and what it returns: an item, an iterable of items, pairs, or a value."""

    touches: tuple[tuple[Where, Literal["read", "write"]], ...]
    gives: Literal["item", "items", "pairs", "value"] = "value"
    #: Its writes append.
    adds: bool = False
    #: Its second argument may be what it returns.
    has_default: bool = False


_READ_WHOLE = Effect((("whole", "read"),))
_WRITE_WHOLE = Effect((("whole", "write"),))
_WRITE_ITEM = Effect((("item", "write"),))
_CHANGE_WHOLE = Effect((("whole", "read"), ("whole", "write")))
_APPEND = Effect((("whole", "write"),), adds=True)

_MAP: dict[str, Effect] = {
    # As a subscript: to ask for one key of a map is to pass through it.
    "get": Effect((), "item", has_default=True),
    "keys": _READ_WHOLE,
    "values": Effect((("whole", "read"),), "items"),
    "items": Effect((("whole", "read"),), "pairs"),
    "pop": Effect((("item", "read"), ("item", "write"))),
    "popitem": _CHANGE_WHOLE,
    "setdefault": Effect((("item", "read"), ("item", "write")), "item", has_default=True),
    "update": _WRITE_ITEM,
    "clear": _WRITE_WHOLE,
}

_VECTOR: dict[str, Effect] = {
    "append": _APPEND,
    "extend": _APPEND,
    "insert": _WRITE_WHOLE,
    "pop": _CHANGE_WHOLE,
    "remove": _CHANGE_WHOLE,
    "clear": _WRITE_WHOLE,
    "reverse": _CHANGE_WHOLE,
    "index": _READ_WHOLE,
    "count": _READ_WHOLE,
}

_COUNTER: dict[str, Effect] = {"add": Effect((("whole", "write"),), adds=True)}

_ARRAY: dict[str, Effect] = {
    "fill": _CHANGE_WHOLE,
    "partition": _CHANGE_WHOLE,
    "put": _CHANGE_WHOLE,
    "sort": _CHANGE_WHOLE,
    "writable": Effect((("whole", "read"), ("whole", "write")), "item"),
}

#: A method of each draft, that touches nothing.
ON_COMMIT = "on_commit"

#: Builtin functions that iterate over their arguments.
ITERATING = frozenset(
    (
        *("all", "any", "enumerate", "filter", "frozenset", "iter", "list", "map", "max", "min"),
        *("reversed", "set", "sorted", "sum", "tuple", "zip"),
    )
)

_ONLY_READ = frozenset(
    (
        "copy.copy",
        "copy.deepcopy",
        "dataclasses.asdict",
        "dataclasses.astuple",
        "dataclasses.fields",
        "dataclasses.replace",
        "json.dumps",
        "msgspec.structs.asdict",
        "msgspec.structs.replace",
    )
)


def effect_of(kind: Kind, name: str) -> Effect | None:
    """Returns what a method of a container does; `None` for one that is not known."""
    if kind is Kind.MAP:
        return _MAP.get(name)
    if kind is Kind.VECTOR:
        return _VECTOR.get(name)
    if kind is Kind.LEAF:
        return _COUNTER.get(name) or _ARRAY.get(name)
    if kind is Kind.ANY:
        # It may be either; what a reading method of one gives is as good as the other's.
        return _VECTOR.get(name) or _MAP.get(name) or _READ_WHOLE
    return None


def only_reads(called: object) -> bool:
    """Whether a class or a function of a library is known to change nothing that it gets."""
    if isinstance(called, type):
        return is_record(called) or called.__module__.partition(".")[0] in ("builtins", "ropewalk")
    name = f"{getattr(called, '__module__', '')}.{getattr(called, '__name__', '')}"
    return name in _ONLY_READ


def of_arrays(called: object) -> Literal["reads", "writes"] | None:
    """What a function of NumPy's does with its first argument, but for `out=`; `None` for another function."""
    owner = getattr(called, "__self__", None)
    if type(owner).__module__ == "numpy" and type(owner).__name__ == "ufunc":
        return "writes" if getattr(called, "__name__", "") == "at" else "reads"
    module = (
        type(called).__module__ if type(called).__name__ == "ufunc" else getattr(called, "__module__", None)
    )
    if not isinstance(module, str) or module.partition(".")[0] != "numpy":
        return None
    return "writes" if getattr(called, "__name__", "") in WRITERS else "reads"


def is_known(kind: Kind, name: str) -> bool:
    """Whether a container has a method of this name."""
    return effect_of(kind, name) is not None
