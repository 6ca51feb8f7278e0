"""The draft of an array: what a transaction sees of it, and how it writes.

The compiled class keeps the array and the transaction's copy. Here it gets NumPy's operators, indexing and methods.
Reading goes to the array as it is now; the first write copies it. A part that indexing gives, such as a row, is a draft
of its own, so that `b.weights[3] *= 2` writes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, NamedTuple, TypeVar, cast

from ropewalk._errors import TransactionEnded
from ropewalk._load import state as _native
from ropewalk.state import _array_shapes, _arrays
from ropewalk.state._arrays import Work

T = TypeVar("T")

#: What `_held` is asked for; the numbers of `crates/py-state/src/draft/array.rs`.
_READ, _WRITE, _LEND = 0, 1, 2
#: Functions of NumPy's that write to their first argument.
WRITERS = frozenset(("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"))
#: Methods of an array that change it.
_CHANGING = ("fill", "itemset", "partition", "put", "sort")
#: Attributes of an array that are the same items in another order, and methods that return such an array.
_VIEWS = frozenset(("T", "imag", "mT", "real"))
_VIEWING = frozenset(("ravel", "reshape", "squeeze", "swapaxes", "transpose", "view"))
#: Attributes of an array whose assignment changes its items.
_ASSIGNED = frozenset(("flat", "imag", "real"))


class _Attribute(NamedTuple):
    """Which attribute a part is, where others have an index."""

    name: str


def writable(array: T) -> T:
    """Returns the transaction's own array for the draft of one, which the transaction may write to by any means.

    It counts as a write of the whole array, whether something is written or not. What is written after the transaction
    has ended changes nothing. While the program keeps the array or a view of it, the commit copies the bytes once more.

    Raises:
        ContractViolation: the array may not be written.
        TransactionEnded: the transaction has ended.
        TypeError: it is no draft of an array.
    """
    if type(cast("object", array)) is not _native.ArrayDraft:
        raise TypeError(f"writable takes the draft of an array in a transaction, not {array!r}")
    return cast("T", cast("Any", array).writable())


class _Face:
    """What drafts of arrays and of their parts do, by two methods: `_reading` and `_writing`."""

    __slots__ = ()

    def _reading(self) -> Any:
        """Returns the items as they are now, in an array that cannot be written."""
        raise NotImplementedError

    def _writing(self) -> Any:
        """Returns the transaction's copy."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self._reading()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        out = cast("tuple[Any, ...]", named.get("out") or ())
        if out:
            named["out"] = tuple(_target(one) for one in out)
        given: list[Any] = list(inputs)
        if method == "at":
            given[0] = _target(given[0])
        if "where" in named:
            named["where"] = _plain(named["where"])
        made = getattr(ufunc, method)(*map(_plain, given), **named)
        if not out:
            return made
        # The program gets the drafts that it gave, so that `b.weights *= 2` assigns the draft.
        return out[0] if len(out) == 1 else cast("Any", tuple)(map(_given, out, made))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given: list[Any] = list(args)
        if given and function.__name__ in WRITERS:
            given[0] = _target(given[0])
        out: Any = kwargs.get("out")
        named = {name: _plain_all(value) for name, value in kwargs.items() if name != "out"}
        if out is not None:
            several = isinstance(out, tuple)
            named["out"] = tuple(map(_target, cast("Any", out))) if several else _target(out)
        made = function(*map(_plain_all, given), **named)
        return made if out is None else out

    def __getitem__(self, key: Any) -> Any:
        key = _plain_all(key)
        return _part(self, itemgetter(key), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is _part_class and value._is_of(self, key):
            # `b.weights[3] *= 2` assigns the part that it has changed.
            return
        self._writing()[_plain_all(key)] = _plain(value)

    def __len__(self) -> int:
        return len(self._reading())

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return _plain(item) in self._reading()

    def __bool__(self) -> bool:
        return bool(self._reading())

    def __int__(self) -> int:
        return int(self._reading())

    def __float__(self) -> float:
        return float(self._reading())

    def __complex__(self) -> complex:
        return complex(self._reading())

    def __index__(self) -> int:
        return cast("int", self._reading().__index__())

    def __copy__(self) -> Any:
        return self._reading().copy()

    def __deepcopy__(self, _memo: Any) -> Any:
        return self._reading().copy()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _CHANGING:
            raise AttributeError(f"the draft of an array has no attribute {name!r}", name=name, obj=self)
        if name in _VIEWS:
            return _part(self, attrgetter(name), _Attribute(name))
        if name in _VIEWING:
            return partial(_viewed, self, name)
        return getattr(self._reading(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is _part_class and value._whole is self and value._key == _Attribute(name):
            # `b.weights.real *= 2` assigns the part that it has changed.
            return
        if name not in _ASSIGNED:
            raise AttributeError(
                f"{name} of an array cannot be set in a transaction. Store another array in its place: "
                f"model.weights = model.weights.reshape(...), or .astype(...)",
                name=name,
                obj=self,
            )
        setattr(self._writing(), name, _plain(value))

    def __str__(self) -> str:
        try:
            return str(self._reading())
        except TransactionEnded:
            return repr(self)

    def __format__(self, spec: str) -> str:
        return format(self._reading(), spec)

    def fill(self, value: Any) -> None:
        """Gives all items one value."""
        self._writing().fill(_plain(value))

    def partition(self, *args: Any, **named: Any) -> None:
        """Sorts in place in part, as NumPy does."""
        self._writing().partition(*args, **named)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Gives values to items by their places in the flat array, as NumPy does."""
        self._writing().put(_plain(indices), _plain(values), mode)

    def sort(self, *args: Any, **named: Any) -> None:
        """Sorts in place, as NumPy does."""
        self._writing().sort(*args, **named)


def _reading(self: Any) -> Any:
    held = self._held(_READ)
    return held.reading() if type(held) is Work else held


def _writing(self: Any) -> Any:
    return self._held(_WRITE).writable()


def _writable(self: Any) -> Any:
    """Returns the transaction's own array; see `ropewalk.state.writable`."""
    return self._held(_LEND).writable()


def _is_face(value: object) -> bool:
    kind = type(value)
    return kind is _native.ArrayDraft or kind is _part_class


def _plain(value: Any) -> Any:
    return value._reading() if _is_face(value) else value


def _plain_all(value: Any) -> Any:
    """Puts arrays into the place of drafts, in sequences too."""
    if type(value) in (tuple, list):
        parts = [_plain_all(part) for part in value]
        is_same = all(one is other for one, other in zip(parts, value, strict=True))
        return value if is_same else type(value)(parts)
    return _plain(value)


def _target(value: Any) -> Any:
    return value._writing() if _is_face(value) else value


def _given(out: Any, made: Any) -> Any:
    return made if out is None else out


def _viewed(whole: Any, name: str, /, *args: Any, **named: Any) -> Any:
    return _part(whole, methodcaller(name, *map(_plain, args), **named))


def _part(whole: Any, view: Callable[[Any], Any], key: Any = None) -> Any:
    """Returns the part of a draft that `view` takes of an array."""
    array = whole._reading()
    found = view(array)
    # Lists and masks give a copy, which is the program's own; so does what has no items.
    return _part_class(whole, view, key) if _is_view(found, array) else _own(found)


def _is_view(found: Any, array: Any) -> bool:
    import numpy

    return type(found) is numpy.ndarray and numpy.may_share_memory(found, array)


def _own(found: Any) -> Any:
    is_locked = hasattr(found, "flags") and hasattr(found, "copy") and found.shape != () and not found.size
    return found.copy() if is_locked else found


#: The class of parts, made over NumPy's operators when there is an array.
_part_class: Any = None


def _make_part_class(operators: Any) -> Any:
    class ArrayPart(operators, _Face):  # type: ignore[misc]
        """A part of an array as a transaction sees and changes it: a row, a slice, or the whole in another shape."""

        __slots__ = ("_key", "_view", "_whole")
        #: What a transaction returns has a copy in its place.
        _is_part_of_array = True
        _key: Any
        _view: Callable[[Any], Any]
        _whole: Any

        def __init__(self, whole: Any, view: Callable[[Any], Any], key: Any) -> None:
            for name, value in (("_whole", whole), ("_view", view), ("_key", key)):
                object.__setattr__(self, name, value)

        def _reading(self) -> Any:
            return self._view(self._whole._reading())

        def _writing(self) -> Any:
            return self._view(self._whole._writing())

        def _is_of(self, whole: Any, key: Any) -> bool:
            return whole is self._whole and key is self._key and key is not None

        def __repr__(self) -> str:
            return f"<draft of {self._reading()!r}>"

    ArrayPart.__qualname__ = "ArrayPart"
    return ArrayPart


class _Hooks:
    """What the compiled half asks about arrays."""

    admitted = staticmethod(_array_shapes.admitted)
    frozen = staticmethod(_arrays.frozen)
    opened = staticmethod(_arrays.opened)
    settled = staticmethod(_arrays.settled)
    restored = staticmethod(_arrays.put_back)
    same = staticmethod(_arrays.is_same)
    equal = staticmethod(_arrays.is_equal)


def _learn_arrays() -> None:
    """Gives the drafts of arrays their face, and says which class arrays have. NumPy is there by now."""
    global _part_class
    if _part_class is None:
        from numpy.lib.mixins import NDArrayOperatorsMixin as Operators

        for source in (Operators, _Face):
            for name, function in vars(source).items():
                if isinstance(function, types.FunctionType):
                    setattr(_native.ArrayDraft, name, function)
        own: tuple[tuple[str, Callable[[Any], Any]], ...] = (
            ("_reading", _reading),
            ("_writing", _writing),
            ("writable", _writable),
        )
        for name, function in own:
            setattr(_native.ArrayDraft, name, function)
        _part_class = _make_part_class(Operators)
    import numpy

    _native.set_arrays(_Hooks, numpy.ndarray)


_native.set_arrays(_Hooks, None)
_arrays.when_known.append(_learn_arrays)
