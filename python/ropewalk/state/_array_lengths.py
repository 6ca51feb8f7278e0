"""Lengths of arrays: equal names are equal lengths in a record, which each commit checks of what it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from ropewalk._errors import WrongType
from ropewalk._load import state as _native
from ropewalk.state._replay import MISSING, is_map, is_vector
from ropewalk.state._shape import Kind, Shape, has_arrays
from ropewalk.state._zones import ArrayShape


class Lengths(dict[str, int]):
    """Lengths by their names, and the places of the arrays that they were found in."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}


#: So many items are looked at for one that has lengths. If there were more, what was found is kept.
_FEW = 64
#: Of so many collections at most.
_MOST = 8


class Unfit(Exception):
    """An array is not as its place declares it; `where` has the names, keys and indices behind the place above."""

    def __init__(self, where: str, text: str, beside: str = "") -> None:
        super().__init__(text)
        self.where = where
        self.text = text
        #: Where an array has the other length.
        self.beside = beside

    def said(self, what: str) -> Unfit:
        """Returns it with what is to be said of the place that has the other length, if that is another one."""
        if self.beside == self.where:
            return self
        return Unfit(self.where, f"{self.text}: {self.beside.removeprefix('.')} {what}")

    def at(self, above: str) -> WrongType:
        """Returns the error for the program."""
        where = above + self.where if above else self.where.removeprefix(".")
        error = WrongType(f"{where}: {self.text}")
        error.path = where
        return error


def below(shape: Shape, step: Any) -> Shape | None:
    """Returns the shape of a field, or of an item."""
    if isinstance(step, str) and step in shape.names:
        return shape.fields[shape.names.index(step)]
    return shape.items


def with_lengths(shape: Shape, check: Callable[[Any, Any, Any], None] | None) -> Any:
    """Returns what a store calls before each commit: `check`, and that lengths are equal where arrays are declared."""
    if not has_arrays(shape):
        return check
    lengths = CheckedLengths(shape)

    def both(old: Any, new: Any, transaction: Any) -> None:
        lengths.check(old, new)
        if check is not None:
            check(old, new, transaction)

    return both


class _Place(NamedTuple):
    """What has arrays in a record, or in a mapping with a policy: before and after a change."""

    shape: Shape
    old: Any
    new: Any
    where: str


class CheckedLengths:
    """Whether equal names stand for equal lengths, in the versions of one state.

    The annotations of one record share their names, in whatever collections the arrays are, and so do the rows of one
    policy. A record of another class, or in a collection, has lengths of its own.

    A commit is compared with one array for each name that the state before has, so it costs what has changed. Only if
    lengths have changed all arrays of the record are looked at.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        #: For collections in which many items had no lengths: the collection, and what its lengths can be. Threads
        #: that commit at once may lose one, which costs another search.
        self._known: dict[str, tuple[Any, Lengths]] = {}

    def check(self, old: Any, new: Any) -> None:
        """Checks a state; `old` is one that was checked, or `None`.

        Raises:
            WrongType: an array has another length than one beside it.
        """
        try:
            self._check(self._shape, old, new, "")
        except Unfit as error:
            raise error.at("") from None

    def _check(self, shape: Shape, old: Any, new: Any, above: str) -> None:
        """Checks a record, or a mapping of a policy, and the records below."""
        if old is new:
            return
        if type(old) is not type(new):
            old = None
        places = list(_places(shape, old, new, above))
        arrays: list[_Place] = []
        records: list[_Place] = []
        for place in places:
            for one in _changed(place):
                (records if one.shape.array is None else arrays).append(one)
        if arrays:
            self._check_arrays(places, arrays, old is None)
        for one in records:
            self._check(one.shape, one.old, one.new, one.where)

    def _check_arrays(self, places: list[_Place], arrays: list[_Place], is_new: bool) -> None:
        if not is_new and all(
            getattr(one.old, "shape", None) == getattr(one.new, "shape", None) for one in arrays
        ):
            self._go_on(places)
            return
        lengths = Lengths()
        if is_new:
            try:
                _bind_all(arrays, lengths)
            except Unfit as error:
                raise error.said("has that length") from None
            return
        wanted = set[str]().union(*(_names(one.shape) for one in arrays))
        found = self._lengths_before(places, wanted, lengths)
        try:
            _bind_all(arrays, lengths)
        except Unfit:
            # No array may be left that has the length of before. If one is, the error is that of what was changed.
            lengths = Lengths()
            changed = {one.where for one in arrays}
            every = [one for place in places for one in _changed(place._replace(old=None))]
            every.sort(key=lambda one: one.where in changed)
            try:
                _bind_all(every, lengths)
            except Unfit as error:
                is_changed = error.beside in changed
                raise error.said(
                    "has that length now" if is_changed else "has that length, and was not changed"
                ) from None
        for place in found:
            # The lengths of arrays that are gone may be among them: a commit that does not fit these looks at all.
            self._known[place.where] = place.new, lengths
            while len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)), None)

    def _go_on(self, places: list[_Place]) -> None:
        """Lets what is known hold for the new versions of collections; the old ones would keep their arrays."""
        for place in places if self._known else ():
            known = self._known.pop(place.where, None)
            if known is not None and known[0] is place.old:
                self._known[place.where] = place.new, known[1]

    def _lengths_before(self, places: list[_Place], wanted: set[str], lengths: Lengths) -> list[_Place]:
        """Finds the lengths of names in the state before; returns the collections in which that has taken long."""
        long: list[_Place] = []
        for place in places:
            if place.shape.array is not None:
                _bind(place.shape.array, place.old, lengths, place.where)
        for place in places:
            names = wanted & _names(place.shape)
            if place.shape.array is not None or names <= lengths.keys():
                continue
            known = self._known.get(place.where)
            if known is not None and known[0] is place.old:
                for name, length in known[1].items():
                    lengths.setdefault(name, length)
                long.append(place)
                continue
            looks = 0
            for declared, array in _items(place.shape, place.old):
                looks += 1
                if declared is not None:
                    _bind(declared, array, lengths, place.where)
                    if names <= lengths.keys():
                        break
            if looks > _FEW:
                long.append(place)
        return long


def _places(shape: Shape, old: Any, new: Any, above: str) -> Iterator[_Place]:
    """Yields what has arrays in a record; a mapping of a policy is one place."""
    if shape.kind is not Kind.RECORD:
        yield _Place(shape, old, new, above)
        return
    for name, field in zip(shape.names, shape.fields, strict=True):
        if has_arrays(field):
            yield _Place(field, getattr(old, name, None), getattr(new, name, None), f"{above}.{name}")


def _changed(place: _Place) -> Iterator[_Place]:
    """Yields the arrays and the records below a place, through collections, that are not as they were."""
    shape, old, new, where = place
    if old is new or not has_arrays(shape):
        return
    if shape.array is not None or shape.kind is Kind.RECORD:
        yield place
        return
    if not (is_map(new) or is_vector(new)):
        return
    empty: Any = cast("Any", _native.PMap if is_map(new) else _native.PVector)()
    differ: Any = _native.diff_maps if is_map(new) else _native.diff_vectors
    for key, before, after in differ(old if type(old) is type(new) else empty, new):
        item = below(shape, key)
        if item is not None and after is not MISSING:
            yield from _changed(
                _Place(item, None if before is MISSING else before, after, f"{where}[{key!r}]")
            )


def _items(shape: Shape, value: Any) -> Iterator[tuple[ArrayShape | None, Any]]:
    """Yields the arrays below a place with their declarations, through collections, and nothing for what is none."""
    if shape.array is not None:
        yield shape.array if value is not None else None, value
    elif shape.kind is Kind.RECORD or not has_arrays(shape) or not (is_map(value) or is_vector(value)):
        yield None, None
    elif is_map(value) and shape.names:
        for key, item in value.items():
            place = below(shape, key)
            if place is not None:
                yield from _items(place, item)
    elif shape.items is not None and has_arrays(shape.items):
        for item in value.values() if is_map(value) else value:
            yield from _items(shape.items, item)


def _names(shape: Shape) -> set[str]:
    """Returns the names of lengths of the arrays at a place and below, but for those of records."""
    if shape.array is not None:
        return {dim for dim in shape.array.dims if isinstance(dim, str) and dim != "_"}
    if shape.kind is Kind.RECORD or not has_arrays(shape):
        return set()
    inner = [*shape.fields, *([] if shape.items is None else [shape.items])]
    return set[str]().union(*map(_names, inner))


def _bind_all(arrays: list[_Place], lengths: Lengths) -> None:
    for one in arrays:
        if one.shape.array is not None:
            _bind(one.shape.array, one.new, lengths, one.where)


def _bind(declared: ArrayShape, array: Any, lengths: Lengths, where: str) -> None:
    if array is None:
        return
    known = dict(lengths)
    try:
        declared.check(array, lengths)
    except WrongType as error:
        dims = zip(map(str, declared.dims), array.shape, strict=False)
        unequal = (name for name, length in dims if known.get(name, length) != length)
        raise Unfit(where, str(error), lengths.places.get(next(unequal, ""), where)) from None
    for name in lengths.keys() - known.keys():
        lengths.places[name] = where
