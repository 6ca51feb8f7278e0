"""The extension module of state: persistent maps and vectors, drafts of them, and transactions."""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from types import GenericAlias, TracebackType
from typing import Any, ClassVar, Final, Generic, Protocol, Self, SupportsIndex, TypeVar, final, overload

_K = TypeVar("_K")
_V = TypeVar("_V")
_V_co = TypeVar("_V_co", covariant=True)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_D = TypeVar("_D")

class _Keyed(Protocol[_K, _V_co]):
    """What has keys and a value for each: all that is read of a mapping."""

    def keys(self) -> Iterable[_K]: ...
    def __getitem__(self, key: _K, /) -> _V_co: ...

@final
class Missing:
    """The type of `MISSING`."""

#: Stands for no value in a difference.
MISSING: Final[Missing]

@final
class PMap(Mapping[_K, _V_co]):
    """A persistent map: it never changes, and its methods derive other maps that share its nodes.

    It is made of a mapping or an iterable of pairs, and of entries by name. To derive a map with one entry set takes a
    time that grows with the logarithm of the length. The order of a map follows the hashes of its keys, and is the same
    for maps with the same entries but for keys of one hash.

    A map equals every mapping with equal entries. Its hash is that of its entries; it has none if a value has none.

    Source: Steindorfer and Vinju, "Optimizing Hash-Array Mapped Tries for Fast and Lean Immutable JVM Collections",
    OOPSLA 2015.

    >>> from ropewalk.state import PMap
    >>> old = PMap(a=1)
    >>> new = old.set("b", 2)
    >>> old["a"], "b" in old, new["b"]
    (1, False, 2)
    """

    @overload
    def __new__(cls, /) -> Self: ...
    @overload
    def __new__(cls: type[PMap[str, _V_co]], /, **entries: _V_co) -> PMap[str, _V_co]: ...
    @overload
    def __new__(cls, source: _Keyed[_K, _V_co], /) -> Self: ...
    @overload
    def __new__(
        cls: type[PMap[str, _V_co]], source: _Keyed[str, _V_co], /, **entries: _V_co
    ) -> PMap[str, _V_co]: ...
    @overload
    def __new__(cls, source: Iterable[tuple[_K, _V_co]], /) -> Self: ...
    @overload
    def __new__(
        cls: type[PMap[str, _V_co]], source: Iterable[tuple[str, _V_co]], /, **entries: _V_co
    ) -> PMap[str, _V_co]: ...
    def __getitem__(self, key: _K, /) -> _V_co: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_K]: ...
    def __len__(self) -> int: ...
    @overload
    def get(self, key: _K, default: None = None, /) -> _V_co | None: ...
    @overload
    def get(self, key: _K, default: _V_co | _D, /) -> _V_co | _D:
        """Returns the value, or `default` if there is none."""
    def set(self, key: _K, value: _V, /) -> PMap[_K, _V_co | _V]:
        """Returns the map with an entry set: this very map if the value is the same object already."""
    def delete(self, key: _K, /) -> Self:
        """Returns the map without an entry.

        Raises `KeyError` if there is none.
        """
    def discard(self, key: _K, /) -> Self:
        """Returns the map without an entry: this very map if there is none."""
    @overload
    def update(self, /, **entries: _V) -> PMap[_K, _V_co | _V]: ...
    @overload
    def update(self, source: _Keyed[_K, _V], /, **entries: _V) -> PMap[_K, _V_co | _V]: ...
    @overload
    def update(self, source: Iterable[tuple[_K, _V]], /, **entries: _V) -> PMap[_K, _V_co | _V]:
        """Returns the map with the entries of a mapping or of an iterable of pairs, and with those given by name."""
    def keys(self) -> MapKeys[_K, _V_co]:
        """Returns a view of the keys, which is a set."""
    def values(self) -> MapValues[_K, _V_co]:
        """Returns a view of the values."""
    def items(self) -> MapItems[_K, _V_co]:
        """Returns a view of the entries, which is a set of pairs."""
    def mutate(self) -> MapBuilder[_K, _V_co]:
        """Returns a builder that begins with the map's entries, for many changes at once. The map stays as it is."""
    def __or__(self, other: Mapping[_K, _V], /) -> PMap[_K, _V_co | _V]:
        """Returns the entries of both; those of the right side where both have one."""
    def __ror__(self, other: Mapping[_K, _V], /) -> PMap[_K, _V_co | _V]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int:
        """Returns the hash of the entries, whatever their order.

        Raises `TypeError` if a value has no hash.
        """
    def __copy__(self) -> Self: ...
    def __reduce__(self) -> tuple[type[Self], tuple[dict[_K, _V_co]]]: ...
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any, /) -> Any: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class MapKeys(KeysView[_K], Generic[_K, _V_co]):
    """The keys of a map, as a set."""

    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_K]: ...
    def __len__(self) -> int: ...
    def isdisjoint(self, other: Iterable[Any], /) -> bool:
        """Returns whether none of the other's items is a key."""
    def __and__(self, other: Iterable[Any], /) -> set[_K]: ...
    def __rand__(self, other: Iterable[_T], /) -> set[_T]: ...
    def __or__(self, other: Iterable[_T], /) -> set[_K | _T]: ...
    def __ror__(self, other: Iterable[_T], /) -> set[_K | _T]: ...
    def __sub__(self, other: Iterable[Any], /) -> set[_K]: ...
    def __rsub__(self, other: Iterable[_T], /) -> set[_T]: ...
    def __xor__(self, other: Iterable[_T], /) -> set[_K | _T]: ...
    def __rxor__(self, other: Iterable[_T], /) -> set[_K | _T]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> bool: ...
    def __le__(self, other: Any, /) -> bool: ...
    def __gt__(self, other: Any, /) -> bool: ...
    def __ge__(self, other: Any, /) -> bool: ...

@final
class MapValues(ValuesView[_V_co], Generic[_K, _V_co]):
    """The values of a map."""

    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_V_co]: ...
    def __len__(self) -> int: ...

@final
class MapItems(ItemsView[_K, _V_co]):
    """The entries of a map, as a set of pairs."""

    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[tuple[_K, _V_co]]: ...
    def __len__(self) -> int: ...
    def isdisjoint(self, other: Iterable[Any], /) -> bool:
        """Returns whether none of the other's items is an entry."""
    def __and__(self, other: Iterable[Any], /) -> set[tuple[_K, _V_co]]: ...
    def __rand__(self, other: Iterable[_T], /) -> set[_T]: ...
    def __or__(self, other: Iterable[_T], /) -> set[tuple[_K, _V_co] | _T]: ...
    def __ror__(self, other: Iterable[_T], /) -> set[tuple[_K, _V_co] | _T]: ...
    def __sub__(self, other: Iterable[Any], /) -> set[tuple[_K, _V_co]]: ...
    def __rsub__(self, other: Iterable[_T], /) -> set[_T]: ...
    def __xor__(self, other: Iterable[_T], /) -> set[tuple[_K, _V_co] | _T]: ...
    def __rxor__(self, other: Iterable[_T], /) -> set[tuple[_K, _V_co] | _T]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> bool: ...
    def __le__(self, other: Any, /) -> bool: ...
    def __gt__(self, other: Any, /) -> bool: ...
    def __ge__(self, other: Any, /) -> bool: ...

@final
class MapBuilder(Generic[_K, _V]):
    """Many changes to one map: made by `PMap.mutate`.

    The builder changes nodes of its own in place, and copies a map's node once. It is for one call at a time: a call
    from another thread meanwhile, or from the comparison of two keys, raises `RuntimeError`. As a context manager it
    ends with its block: after that it can be read and finished.

    >>> from ropewalk.state import PMap
    >>> with PMap(a=1).mutate() as builder:
    ...     builder["b"] = 2
    ...     del builder["a"]
    >>> builder.finish()
    PMap({'b': 2})
    """

    def __getitem__(self, key: _K, /) -> _V: ...
    def __setitem__(self, key: _K, value: _V, /) -> None: ...
    def __delitem__(self, key: _K, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __len__(self) -> int: ...
    @overload
    def get(self, key: _K, default: None = None, /) -> _V | None: ...
    @overload
    def get(self, key: _K, default: _V | _D, /) -> _V | _D:
        """Returns the value, or `default` if there is none."""
    def discard(self, key: _K, /) -> None:
        """Deletes an entry if there is one."""
    @overload
    def update(self, /, **entries: _V) -> None: ...
    @overload
    def update(self, source: _Keyed[_K, _V], /, **entries: _V) -> None: ...
    @overload
    def update(self, source: Iterable[tuple[_K, _V]], /, **entries: _V) -> None:
        """Sets the entries of a mapping or of an iterable of pairs, and those that are given by name."""
    def finish(self) -> PMap[_K, _V]:
        """Returns the map with the entries of now. The builder can go on, and that map stays as it is."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class PVector(Sequence[_T_co]):
    """A persistent vector: it never changes, and its methods derive other vectors that share its nodes.

    It is made of an iterable. To derive a vector with one item set, appended or dropped at the end takes a time that
    grows with the logarithm of the length; a slice from the first item on shares the nodes of the vector.

    A vector equals vectors with equal items, and no list or tuple. Its hash is that of its items in their order; it has
    none if an item has none.

    Source: the vectors of Clojure; Bagwell and Rompf, "RRB-Trees: Efficient Immutable Vectors" (2011), section 2.

    >>> from ropewalk.state import PVector
    >>> old = PVector([1, 2])
    >>> old.append(3), old.set(0, "one"), old
    (PVector([1, 2, 3]), PVector(['one', 2]), PVector([1, 2]))
    """

    def __new__(cls, items: Iterable[_T_co] = ..., /) -> Self: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> _T_co: ...
    @overload
    def __getitem__(self, index: slice[Any, Any, Any], /) -> Self: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_T_co]: ...
    def __len__(self) -> int: ...
    def index(self, item: Any, start: SupportsIndex = 0, stop: SupportsIndex = ..., /) -> int:
        """Returns the first index of an equal item, from `start` on and before `stop`.

        Raises `ValueError` if there is none.
        """
    def count(self, item: Any, /) -> int:
        """Returns how many items are equal to it."""
    def append(self, item: _T, /) -> PVector[_T_co | _T]:
        """Returns the vector with one item more."""
    def extend(self, items: Iterable[_T], /) -> PVector[_T_co | _T]:
        """Returns the vector with the items of an iterable behind its own."""
    def set(self, index: SupportsIndex, item: _T, /) -> PVector[_T_co | _T]:
        """Returns the vector with an item replaced: this very vector if the item is the same object already.

        Raises `IndexError`.
        """
    def pop(self) -> Self:
        """Returns the vector without its last item.

        Raises `IndexError` if it is empty.
        """
    def delete(self, index: SupportsIndex, /) -> Self:
        """Returns the vector without an item; it copies those behind it.

        Raises `IndexError`.
        """
    def insert(self, index: SupportsIndex, item: _T, /) -> PVector[_T_co | _T]:
        """Returns the vector with one more item before an index; it copies those behind it."""
    def mutate(self) -> VectorBuilder[_T_co]:
        """Returns a builder that begins with the vector's items, for many changes at once. The vector stays as it
        is."""
    def __add__(self, other: PVector[_T], /) -> PVector[_T_co | _T]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Self: ...
    def __reduce__(self) -> tuple[type[Self], tuple[tuple[_T_co, ...]]]: ...
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any, /) -> Any: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

@final
class VectorBuilder(Generic[_T]):
    """Many changes to one vector: made by `PVector.mutate`. It is for one call at a time, as a `MapBuilder`.

    >>> from ropewalk.state import PVector
    >>> builder = PVector([1, 2]).mutate()
    >>> builder.append(3)
    >>> builder[0] = "one"
    >>> builder.finish()
    PVector(['one', 2, 3])
    """

    def __getitem__(self, index: SupportsIndex, /) -> _T: ...
    def __setitem__(self, index: SupportsIndex, item: _T, /) -> None: ...
    def __len__(self) -> int: ...
    def append(self, item: _T, /) -> None:
        """Appends an item."""
    def extend(self, items: Iterable[_T], /) -> None:
        """Appends the items of an iterable."""
    def pop(self) -> _T:
        """Deletes the last item and returns it.

        Raises `IndexError` if there is none.
        """
    def finish(self) -> PVector[_T]:
        """Returns the vector with the items of now. The builder can go on, and that vector stays as it is."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...

def diff_maps(old: PMap[_K, _V], new: PMap[_K, _V], /) -> list[tuple[_K, _V | Missing, _V | Missing]]:
    """Returns the entries that differ, as ``(key, old value, new value)``; `MISSING` stands for no entry.

    Values differ if they are not the same object. The call takes the time of the changes between the two maps, and not
    that of their lengths, because it skips the nodes that they share.
    """

def diff_vectors(old: PVector[_T], new: PVector[_T], /) -> list[tuple[int, _T | Missing, _T | Missing]]:
    """Returns the items that differ, as ``(index, old item, new item)``; `MISSING` stands for no item.

    Items differ if they are not the same object. The call takes the time of the changes between the two vectors, and
    not that of their lengths, because it skips the nodes that they share.
    """

@final
class Record:
    """What is known of a class of records: its fields, and how a changed copy of one is made."""

    def __new__(
        cls,
        kind: type,
        names: tuple[str, ...],
        rebuild: Callable[[Any, dict[str, Any]], Any] | None,
        check: Callable[[Any], object] | None,
        beside: Callable[[Any], dict[str, Any]] | None,
        /,
    ) -> Self: ...
    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Returns how None is made: a class gets a new record where it is used."""

@final
class Form:
    """Which values a place of a state is declared to have, and the forms of the places below."""

    def __new__(
        cls,
        classes: tuple[type, ...],
        fits: Callable[[Any], bool] | None,
        text: str,
        is_loose: bool,
        record: type | None,
        names: tuple[str, ...],
        /,
    ) -> Self: ...
    def link(self, fields: tuple[Form | None, ...], items: Form | None, key: Form | None, /) -> None:
        """Sets the forms of the places below, once."""

@final
class Rule:
    """What a transaction may do at one place of a state, and below."""

    def __new__(
        cls, reads: bool, writes: bool, zone: int, record: type | None, names: tuple[str, ...]
    ) -> Self: ...
    def link(self, fields: tuple[Rule | None, ...] | None, items: Rule | None, arrays: object, /) -> None:
        """Sets the rules of the places below, once, and the shape of the place if arrays are declared below."""
    def form(self, form: Form, /) -> None:
        """Sets what the values of the place and of those below are declared to be, once."""
    def number(self, touches: int, changes: int, /) -> None:
        """Sets the numbered parts that transactions with this rule touch, and those that they may change."""

@final
class RecordDraft:
    """A record as a transaction sees and changes it: it has the attributes of the record."""

    def __getattribute__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def on_commit(self, function: Callable[..., object], /, *args: Any) -> None:
        """Calls the function with the arguments after the commit, in the order of versions."""

@final
class MapDraft:
    """A map as a transaction sees and changes it: a mutable mapping."""

    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def get(self, key: Any, default: Any = None, /) -> Any:
        """Returns the value under a key, or the default."""
    def popitem(self) -> tuple[Any, Any]:
        """Takes an entry out and gives it; that reads which keys there are."""
    def clear(self) -> None:
        """Deletes all entries; that reads which keys there are."""
    def on_commit(self, function: Callable[..., object], /, *args: Any) -> None:
        """Calls the function with the arguments after the commit, in the order of versions."""

@final
class VectorDraft:
    """A vector as a transaction sees and changes it: a mutable sequence."""

    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: SupportsIndex, value: Any, /) -> None: ...
    def __delitem__(self, index: SupportsIndex, /) -> None: ...
    def __len__(self) -> int: ...
    def __iadd__(self, values: Iterable[Any], /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def append(self, value: Any, /) -> None:
        """Puts a value behind the last item; that reads nothing."""
    def extend(self, values: Iterable[Any], /) -> None:
        """Puts values behind the last item; that reads nothing."""
    def insert(self, index: SupportsIndex, value: Any, /) -> None:
        """Puts a value before an item."""
    def pop(self, index: SupportsIndex = -1, /) -> Any:
        """Takes an item out and gives it."""
    def reverse(self) -> None:
        """Turns the order of the items round; that reads them all."""
    def clear(self) -> None:
        """Takes all items out; that reads them all."""

@final
class CounterDraft:
    """A counter as a transaction sees and changes it: `+=` and `-=` read nothing."""

    @property
    def value(self) -> int:
        """The number as it is now; that reads it."""
    def add(self, number: SupportsIndex, /) -> None:
        """Adds to the counter; that reads nothing."""
    def __iadd__(self, number: SupportsIndex, /) -> Self: ...
    def __isub__(self, number: SupportsIndex, /) -> Self: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> bool: ...
    def __le__(self, other: Any, /) -> bool: ...
    def __gt__(self, other: Any, /) -> bool: ...
    def __ge__(self, other: Any, /) -> bool: ...

@final
class ArrayDraft:
    """An array as a transaction sees and changes it; `ropewalk.state` gives it what NumPy's arrays have."""

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def _held(self, access: int, /) -> Any: ...

@final
class Transaction:
    """One attempt at a change of the state. Only the thread that has begun it may use it."""

    @property
    def root(self) -> Any:
        """The draft of the whole state."""
    @property
    def version(self) -> int:
        """The version that it began with."""
    @property
    def base(self) -> Any:
        """The state that it began with."""
    @property
    def store(self) -> StoreBase:
        """The store."""
    @property
    def label(self) -> Any:
        """What it was begun with as its label."""
    @property
    def conflict(self) -> Any:
        """The path of the last conflict, as a tuple of names, keys and indices; `None` if there was none."""
    @property
    def effects(self) -> list[tuple[Any, ...]] | None:
        """What runs after the commit, or `None`."""
    @property
    def is_open(self) -> bool:
        """Whether its drafts may be used."""
    def savepoint(self) -> tuple[int, int]:
        """Returns where `rollback` goes back to."""
    def rollback(self, savepoint: tuple[int, int], /) -> None:
        """Undoes what was done since a savepoint, and ends it."""
    def release(self, savepoint: tuple[int, int], /) -> None:
        """Ends a savepoint that nobody goes back to."""
    def value(self, draft: Any, /) -> Any:
        """Returns the value that a draft's place has now; all of it counts as read."""
    def footprint(self) -> list[tuple[tuple[Any, ...], str]]:
        """Returns what was read and written so far, as a list of paths with the access of each."""
    def changes(self) -> list[tuple[int, tuple[Any, ...], Any]]:
        """Returns what was changed so far, as a list of a number, a path and a value."""
    def on_commit(self, function: Callable[..., object], /, *args: Any) -> None:
        """Calls the function with the arguments after the commit, in the order of versions."""
    def abort(self) -> None:
        """Gives the changes up."""

class StoreBase:
    """The compiled base of `Store`."""

    def __new__(
        cls,
        root: Any,
        version: int,
        history: int,
        check: Callable[[Any, Any, Transaction], object] | None,
        encode: Callable[[int, list[Any], Transaction], bytes] | None,
        journal: object | None,
        /,
    ) -> Self: ...
    @property
    def version(self) -> int:
        """The number of the newest version."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    @property
    def _has_claims(self) -> bool: ...
    @property
    def _has_effects(self) -> bool: ...
    @property
    def _is_due(self) -> bool: ...
    def snapshot(self) -> Any:
        """Returns the state as it is now; it never changes."""
    def _begin(self, rule: Rule, label: Any, /) -> Transaction: ...
    def _commit(self, transaction: Transaction, claim: int, /) -> tuple[int, int] | None: ...
    def _attempt(
        self,
        function: Callable[..., Any],
        rule: Rule,
        label: Any,
        claim: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        /,
    ) -> tuple[Any, tuple[int, int] | None] | None: ...
    def _attempt_now(
        self,
        function: Callable[..., Any],
        rule: Rule,
        label: Any,
        claim: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        /,
    ) -> tuple[Any, tuple[int, int] | None] | None: ...
    def _ask(self, rule: Rule, /) -> tuple[int, object]: ...
    def _is_granted(self, number: int, /) -> bool: ...
    def _is_allowed(self, rule: Rule, /) -> bool: ...
    def _wait(self, version: int, epoch: int, /) -> None: ...
    def _replace(
        self,
        base: int,
        now: Any,
        root: Any,
        label: Any,
        record: bytes | None,
        stands_for: tuple[int, int] | None,
        claim: int,
        /,
    ) -> tuple[int, int] | None: ...
    def _past(self, back: bool, /) -> tuple[int, Any, Any, tuple[int, int]] | None: ...
    def _step(self, back: bool, label: Any, claim: int, /) -> tuple[int, int] | None: ...
    def _claim(self, rule: Rule, patience: float, /) -> tuple[int, object] | None: ...
    def _release(self, claim: object, /) -> None: ...
    def _versions(self, first: int, /) -> list[tuple[int, Any, Any, float, int, int]]: ...
    def _durable(self) -> tuple[int, Any, int]: ...
    def _next_effects(self, known: int, /) -> tuple[int, list[tuple[Any, ...]]] | None: ...
    def _close(self) -> None: ...

def set_hooks(
    kind_of: Callable[[type], Record | bool | None],
    violated: Callable[[Transaction, tuple[Any, ...], str], BaseException],
    plain: Callable[[Any], Any],
    misplaced: Callable[
        [Transaction | None, tuple[Any, ...], Any, tuple[Any, ...], str | None, Any, bool, Exception | None],
        Exception,
    ],
    absent: Callable[[type, str], Exception],
    effect: Callable[[tuple[Any, ...]], tuple[Any, ...]],
    err: type,
    /,
) -> None:
    """Sets what asks the package about classes, makes its errors and its results, and checks what runs after a commit;
    and the class of failures."""

def set_arrays(arrays: object, kind: type | None, /) -> None:
    """Sets what makes, checks and settles arrays, and NumPy's class of them once it is imported."""

def add_leaf(kind: type, /) -> None:
    """Says that objects of a class never change and have no parts."""

def freeze(value: Any, form: Form | None = None, /) -> Any:
    """Returns the value to store for a value: one that nobody can change. With a form, all of it is compared."""

def columns(values: list[Any], /) -> tuple[type[Any], list[list[Any]]] | None:
    """Returns the class of records and a list for each of its fields; `None` if they are not all of one such class.

    It is a class of dataclasses that `object.__new__` makes, whose objects have no attributes beside their fields.
    """

def rows(kind: type[_T], columns: list[list[Any]], count: int, /) -> list[_T]:
    """Returns so many records with these fields; nothing is checked.

    Raises:
        TypeError: `columns` would not return such a class, or there are not as many values.
    """

def replaced(record: _T, name: str, value: Any, /) -> _T:
    """Returns a copy of a record with another value in a field."""

def transaction_of(draft: Any, /) -> Transaction:
    """Returns the transaction that a draft belongs to."""

def path_of(draft: Any, /) -> tuple[Any, ...]:
    """Returns the names, keys and indices that lead to a draft from the whole state."""

def encode_json(
    value: Any,
    default: Callable[[Any], Any] | None,
    cache: bool,
    classify: Callable[[type], tuple[int, Any]],
    /,
) -> bytes:
    """Returns a value as JSON; `ropewalk.state._json_plans` has the numbers of what `classify` returns."""
