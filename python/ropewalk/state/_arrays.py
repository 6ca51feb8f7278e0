"""Arrays of states: their bytes lie in shared memory that nothing can write to.

A committed array is a plain array of NumPy's over a sealed buffer, which `SharedBuffer._seal` makes: it refuses while a
view of the memory exists, and gives none that can write afterwards. So whether an array never changes is a property of
the memory that it lies in, and no program can forge it. NumPy is imported by the first array.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import NotFrozen, OutOfDescriptors, OutOfMemory, StateError

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ropewalk._worker import SharedBuffer

    Array: TypeAlias = NDArray[Any]

#: The types of items that a state takes, and their sizes in bytes. Objects are none of them: they would be addresses.
SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
#: Changes of an array are recorded in blocks of so many bytes.
BLOCK = 4096
#: So many blocks are compared at once.
_MANY = 256

#: Where bytes of an array start, and the bytes.
Runs = tuple[tuple[int, bytes], ...]


def _numpy() -> Any:
    import numpy

    return numpy


def _memory() -> Any:
    # An interpreter that cannot load it still has stores without arrays.
    from ropewalk._load import worker

    return worker


# --- committed arrays -------------------------------------------------------------------------------------------------


def over(memory: SharedBuffer, name: str, shape: tuple[int, ...]) -> Array:
    """Returns the array over the whole of a buffer."""
    np = _numpy()
    if memory._sealed or not len(memory):
        # The array keeps the buffer, which nothing can release: a `memoryview` in between could be.
        return cast("Array", np.ndarray(shape, name, memory))
    # A view of the buffer protocol counts as an export, so that the memory is not sealed or released meanwhile.
    return cast("Array", np.frombuffer(memoryview(memory), name).reshape(shape))


def filled_from(array: Array) -> SharedBuffer:
    """Returns new shared memory with the items of an array, in C order.

    Raises:
        OutOfMemory: the machine has no room for it.
    """
    np = _numpy()
    if not array.nbytes:
        return cast("SharedBuffer", _memory().shared_new(0))
    try:
        made = _memory().shared_from(np.asarray(array, order="C").reshape(-1).view(np.uint8))
    except (OutOfDescriptors, OutOfMemory) as error:
        error.add_note(
            "A store keeps each version of an array that its history has: history=10, for instance, keeps ten."
        )
        raise
    return cast("SharedBuffer", made)


def committed(array: Array) -> Array:
    """Returns an array that never changes with the items of another one.

    Raises:
        OutOfMemory: the machine has no room for it.
    """
    return over(filled_from(array)._seal(), array.dtype.name, array.shape)


def sealed_memory(array: Any) -> SharedBuffer | None:
    """Returns the memory that an array fills and nothing can write to, if it does."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(array) is not numpy.ndarray:
        return None
    base: Any = array.base
    while type(base) is numpy.ndarray:
        base = base.base
    if type(base) is memoryview:
        base = base.obj
    if (
        not getattr(base, "_sealed", False)
        or type(base) is not _memory().SharedBuffer
        # A slice of a large array would keep all of that.
        or len(base) != array.nbytes
        or not array.flags.c_contiguous
        or not array.dtype.isnative
        or array.dtype.name not in SIZES
    ):
        return None
    return cast("SharedBuffer", base)


def frozen(array: Any) -> Any:
    """Returns an array that never changes; the compiled half asks it of arrays where none is declared.

    Raises:
        NotFrozen: it may change.
    """
    if sealed_memory(array) is not None:
        return array
    if _is_open(array):
        return committed(array)
    dims = " ".join(map(str, array.shape))
    raise NotFrozen(
        f"an array of {array.dtype} {array.shape} changes in place, so that a snapshot would change too. Annotate its "
        f'place with Shm[{array.dtype}, "{dims}"], where names may stand for lengths, and the state keeps a copy; or '
        f"keep the array outside of the state, in shared memory with ropewalk.share for instance"
    )


def is_array_class(kind: type) -> bool:
    """Whether a class is NumPy's class of arrays itself."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and kind is numpy.ndarray


def is_part_of_array(kind: Any) -> bool:
    """Whether a class is that of parts of arrays in a transaction."""
    return getattr(kind, "_is_part_of_array", False) is True


# --- what a transaction writes to -------------------------------------------------------------------------------------


class Work:
    """A transaction's copy of an array: made when it is first written to, and sealed when it is committed."""

    __slots__ = ("_array", "_memory", "_name", "_settled", "_shape")

    def __init__(self, base: Array) -> None:
        self._name = base.dtype.name
        self._shape = base.shape
        #: The array that never changes with the items as they are; `None` while they can be written.
        self._settled: Array | None = base
        #: The copy and its memory, while they can be written.
        self._array: Array | None = None
        self._memory: SharedBuffer | None = None

    def writable(self) -> Array:
        """Returns the copy.

        Raises:
            OutOfMemory: the machine has no room for it.
        """
        if self._array is None:
            assert self._settled is not None
            self._memory = filled_from(self._settled)
            self._array, self._settled = over(self._memory, self._name, self._shape), None
        return self._array

    def reading(self) -> Array:
        """Returns the items as they are, in an array that cannot be written."""
        if self._array is None:
            assert self._settled is not None
            return self._settled
        view = self._array.view()
        view.flags.writeable = False
        return view

    def settled(self) -> Array:
        """Returns an array that never changes with the items as they are; a later write makes another copy.

        Raises:
            OutOfMemory: the program has a view of the copy, so that it had to be copied, and there is no room.
        """
        if self._array is None:
            assert self._settled is not None
            return self._settled
        memory = self._sealed()
        if memory is None:
            return committed(self.writable())
        self._settled = over(memory, self._name, self._shape)
        return self._settled

    def restored(self, items: Array) -> bool:
        """Goes back to the items of an array that never changes; returns whether the program has a view of the copy.

        Such a view sees them, too, and what it writes later still counts.
        """
        if self._array is not None and self._sealed() is None:
            self.writable()[...] = items
            return True
        self._settled = items
        return False

    def _sealed(self) -> SharedBuffer | None:
        """Seals the copy's memory and takes it out; `None` if the program has a view of it."""
        assert self._memory is not None
        self._array = None
        try:
            sealed = self._memory._seal()
        except BufferError:
            self._array = over(self._memory, self._name, self._shape)
            return None
        self._memory = None
        return sealed


# --- bytes in records -------------------------------------------------------------------------------------------------


def reduced(array: Any, protocol: int) -> Any:
    """Takes an array apart for pickle: one of a state into its bytes, any other as NumPy does."""
    memory = sealed_memory(array)
    if memory is None:
        return array.__reduce_ex__(protocol)
    return restored, (array.dtype.name, array.shape, PickleBuffer(cast("Any", memory)))


def restored(name: Any, shape: Any, data: Any) -> Array:
    """Makes a committed array of what `reduced` gave; over the same memory, if that came along.

    Raises:
        OutOfMemory: the machine has no room for it.
        StateError: the parts do not fit.
    """
    _check_parts(name, shape)
    size = math.prod(shape) * SIZES[name]
    if memoryview(data).nbytes != size:
        raise StateError(f"an array of {name} {shape} has {size} bytes, and not {memoryview(data).nbytes}")
    if not getattr(data, "_sealed", False):
        data = _memory().shared_from(data) if size else _memory().shared_new(0)
        data = data._seal()
    return over(data, name, shape)


def _check_parts(name: object, shape: Any) -> None:
    is_shape = type(shape) is tuple
    lengths: Any = shape
    if name not in SIZES or not is_shape or not all(type(one) is int and one >= 0 for one in lengths):
        raise StateError(f"there are no arrays of {name!r} {shape!r} in a state")


class Lent:
    """An array on its way to another process of the pool, where it is the same memory."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __reduce__(self) -> Any:
        memory = sealed_memory(self._array)
        return restored, (self._array.dtype.name, self._array.shape, memory)


def changed_runs(old: Array, new: Array) -> Runs | None:
    """Returns the blocks in which two committed arrays differ; `None` if they are better recorded whole."""
    if old.dtype != new.dtype or old.shape != new.shape or new.nbytes <= BLOCK:
        return None
    np = _numpy()
    before, after = (array.reshape(-1).view(np.uint8) for array in (old, new))
    runs: list[tuple[int, int]] = []
    changed = 0
    for start, end in _differing(np, before, after):
        changed += end - start
        if changed * 2 >= new.nbytes:
            return None
        if runs and runs[-1][1] == start:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((start, end))
    return tuple((start, after[start:end].tobytes()) for start, end in runs)


def _differing(np: Any, before: Any, after: Any) -> Iterator[tuple[int, int]]:
    """Yields where blocks begin and end that differ."""
    whole = before.size // BLOCK
    one, other = (array[: whole * BLOCK].view(np.uint64).reshape(whole, -1) for array in (before, after))
    for first in range(0, whole, _MANY):
        differ = (one[first : first + _MANY] != other[first : first + _MANY]).any(axis=1)
        for index in np.flatnonzero(differ).tolist():
            yield (first + index) * BLOCK, (first + index + 1) * BLOCK
    rest = whole * BLOCK
    if not np.array_equal(before[rest:], after[rest:]):
        yield rest, before.size


class _Open(threading.local):
    """The arrays that this thread's recovery changes in place, by their addresses; `None` while there is none.

    Weak, because a later record may replace such an array by another one.
    """

    arrays: weakref.WeakValueDictionary[int, Array] | None = None


_OPEN = _Open()


@contextmanager
def recovering() -> Generator[None, None, None]:
    """A block in which `patched` copies an array once, and changes the copy in place after that.

    No program has the states in between. The copies are committed when the last state is frozen.
    """
    outer, _OPEN.arrays = _OPEN.arrays, weakref.WeakValueDictionary()
    try:
        yield
    finally:
        _OPEN.arrays = outer


def patched(array: Any, name: Any, shape: Any, runs: Any) -> Array:
    """Returns an array with other bytes in some places; called by a recovery.

    Raises:
        MemoryError: there is no room for it.
        StateError: the bytes are not of this array.
    """
    if not _is_open(array):
        if sealed_memory(array) is None:
            raise _no_such_array(name, shape)
        array = array.copy()
        assert _OPEN.arrays is not None
        _OPEN.arrays[id(array)] = array
    if array.dtype.name != name or array.shape != shape:
        raise _no_such_array(name, shape)
    view = memoryview(array.reshape(-1).view(_numpy().uint8))
    for start, data in runs:
        if type(start) is not int or type(data) is not bytes or not 0 <= start <= len(view) - len(data):
            raise StateError(
                f"a change in the journal is of bytes that an array of {name} {shape} does not have"
            )
        view[start : start + len(data)] = data
    return cast("Array", array)


def _is_open(array: object) -> bool:
    return _OPEN.arrays is not None and _OPEN.arrays.get(id(array)) is array


def _no_such_array(name: Any, shape: Any) -> StateError:
    return StateError(
        f"a change in the journal is of an array of {name!r} {shape!r}, which the state does not have"
    )


# --- what the compiled half asks --------------------------------------------------------------------------------------


def opened(base: Array) -> Work:
    """Returns the copy of an array that a transaction begins to write to."""
    return Work(base)


def settled(work: Work) -> Array:
    """Returns the array that is committed."""
    return work.settled()


def put_back(work: Work, items: Array) -> bool:
    """Goes back to the items of a savepoint."""
    return work.restored(items)


def is_same(one: Array, other: Array) -> bool:
    """Returns whether two arrays of a state have the same type, shape and bytes."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one.reshape(-1).view("u1") == other.reshape(-1).view("u1")).all())


def is_equal(one: Array, other: Array) -> bool:
    """Returns whether two arrays have the same shape and equal items, in a comparison of collections."""
    return bool(_numpy().array_equal(one, other))


#: Called when the first array is met; NumPy is imported by then.
when_known: list[Callable[[], None]] = []


def know() -> None:
    """Prepares the drafts of arrays, and says to the compiled half which class arrays have."""
    for one in when_known:
        one()
