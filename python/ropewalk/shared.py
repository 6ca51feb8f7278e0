"""Arrays and buffers that many tasks read and write in place.

A shared array is a NumPy array over shared memory. Given to a task, or returned by one, it arrives as the same memory:
each side sees what the other writes, and nothing is copied. There is no lock: tasks that write to the same elements
must agree on an order.

Outside of a pool's tasks (``pickle.dumps``, a queue of another library) a shared array is pickled by value, like any
other array.
"""

from __future__ import annotations

import functools
import itertools
import math
import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

# Loaded now, because Python can read no module any more once descriptors run out.
from ropewalk import _errors as _errors
from ropewalk._load import worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import Buffer

    from ropewalk._worker import SharedBuffer
else:
    SharedBuffer = worker.SharedBuffer

T = TypeVar("T")
#: Parts of a shared object start at multiples of this many bytes.
_ALIGN = 64

__all__ = ["SharedArray", "SharedBuffer", "array", "buffer", "share"]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            "shared arrays need NumPy, which is not installed. Install numpy, or use ropewalk.shared.buffer."
        ) from error
    return numpy


def buffer(nbytes: int) -> SharedBuffer:
    """Makes a writable buffer of `nbytes` zero bytes in shared memory.

    The memory lives as long as the buffer or a view of it. The buffer's `release()`, or the end of its ``with`` block,
    frees the memory at once.

    Raises:
        OutOfMemory: the machine has no room for it.
    """
    return worker.shared_new(nbytes)


def array(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> SharedArray:
    """Makes a writable array of zeros in shared memory, in C order.

    Args:
        shape: the number of elements along each axis.
        dtype: anything that NumPy accepts as a dtype, except Python objects, which cannot be shared.

    Raises:
        OutOfMemory: the machine has no room for it.
        TypeError: `dtype` contains Python objects.
        ValueError: a length of `shape` is negative.
    """
    np = _numpy()
    # As in NumPy, "S" means elements of one byte.
    kind = np.empty(0, _checked_dtype(np, dtype)).dtype
    lengths = (int(shape),) if isinstance(shape, SupportsIndex) else tuple(int(n) for n in shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"a shape cannot have negative lengths: {shape!r}")
    memory = worker.shared_new(math.prod(lengths) * kind.itemsize)
    made: SharedArray = _view(memory, lengths, kind, None, 0)
    return made


@overload
def share(data: NDArray[Any]) -> SharedArray: ...
@overload
def share(data: Buffer) -> SharedBuffer: ...
@overload
def share(data: T) -> T: ...
def share(data: Any) -> Any:
    """Copies an array, a buffer, or an object that contains some, into shared memory; the copy is writable.

    Args:
        data: a NumPy array, copied to a `SharedArray` of the same layout; another object with the buffer protocol,
            copied to a `SharedBuffer`; or an object with large buffers in it (a DataFrame, an Arrow table, a list of
            arrays), copied to an object of its class whose buffers lie in shared memory. An array or a buffer that is
            shared already is returned as it is.

    Raises:
        OutOfMemory: the machine has no room for it.
        TypeError: `data` has no buffer, is an array of objects, or is of an array class with state beside its elements.
    """
    if isinstance(data, SharedBuffer):
        return data
    np = sys.modules.get("numpy")
    if np is not None and isinstance(data, np.ndarray):
        return _share_array(np, data)
    try:
        memoryview(data)
    except TypeError:
        return _share_object(data)
    return worker.shared_from(data)


def _share_array(np: Any, data: Any) -> Any:
    if isinstance(data, _array_class()) and _memory(data) is not None:
        return data
    kind = _checked_dtype(np, data.dtype)
    if type(data) not in (np.ndarray, np.memmap, _array_class()):
        name = f"{type(data).__module__}.{type(data).__qualname__}"
        cure = (
            "Share its parts, ropewalk.share(a.data) and ropewalk.share(numpy.ma.getmaskarray(a)), and make it of them "
            "in the task"
            if isinstance(data, np.ma.MaskedArray)
            else f"Share the plain array, ropewalk.share(numpy.asarray(a)), and in the task make it a {name} again "
            f"with its `view`"
        )
        raise TypeError(f"share() cannot keep what a {name} has beside its elements. {cure}.")
    if data.nbytes and data.flags.c_contiguous:
        memory = worker.shared_from(data.reshape(-1).view(np.uint8))
        return _view(memory, data.shape, kind, None, 0)
    # The layout that `copy` chooses: Fortran order stays Fortran order, and gaps are not copied.
    strides = np.empty_like(data, order="K", subok=False).strides if data.nbytes else None
    made = _view(worker.shared_new(data.nbytes), data.shape, kind, strides, 0)
    made[...] = data
    return made


def _share_object(data: Any) -> Any:
    parts: list[Any] = []

    def take(part: pickle.PickleBuffer) -> bool:
        try:
            parts.append(part.raw())
        except BufferError:  # Not contiguous: it stays in the stream.
            return True
        return False

    kind = type(data).__qualname__
    try:
        stream = pickle.dumps(data, 5, buffer_callback=take)
    except MemoryError:
        raise
    except Exception as error:
        raise TypeError(f"share() cannot copy a {kind}: {type(error).__name__}: {error}") from error
    if not parts:
        raise TypeError(
            f"share() accepts arrays, buffers, and objects that pickle their buffers out of band (protocol 5); "
            f"a {kind} has no such buffer."
        )
    starts = list(itertools.accumulate((-(-part.nbytes // _ALIGN) * _ALIGN for part in parts), initial=0))
    whole = memoryview(worker.shared_new(starts[-1]))
    places = [whole[start : start + part.nbytes] for start, part in zip(starts, parts, strict=False)]
    for place, part in zip(places, parts, strict=True):
        place[:] = part
    return pickle.loads(stream, buffers=places)


def _checked_dtype(np: Any, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"arrays of Python objects cannot be shared, and the dtype {kind} contains some")
    return kind


def _view(memory: SharedBuffer, shape: Any, kind: Any, strides: Any, offset: int) -> Any:
    np = _numpy()
    # A view of the buffer protocol counts as an export, so that the memory is not released while an array uses it.
    raw = np.frombuffer(memory, dtype=np.uint8)
    if kind.itemsize:
        return _array_class()(shape, kind, raw, offset, strides)
    # NumPy makes elements of no bytes only as a field of a structure.
    outer = np.dtype({"names": ["it"], "formats": [kind], "offsets": [0], "itemsize": 0})
    return _array_class()(shape, outer, raw)["it"]


_made_class: Any = None


def _array_class() -> Any:
    global _made_class
    if _made_class is None:
        _made_class = _make_array_class(_numpy())
    return _made_class


#: Methods of an array that return, or may return, another array with memory of its own.
_COPYING = (
    "__copy__",
    "__deepcopy__",
    "all",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "astype",
    "byteswap",
    "choose",
    "clip",
    "compress",
    "conj",
    "conjugate",
    "copy",
    "cumprod",
    "cumsum",
    "diagonal",
    "dot",
    "flatten",
    "getfield",
    "max",
    "mean",
    "min",
    "nonzero",
    "prod",
    "ptp",
    "ravel",
    "repeat",
    "reshape",
    "round",
    "searchsorted",
    "std",
    "sum",
    "take",
    "trace",
    "var",
)


def _make_array_class(np: Any) -> Any:
    class SharedArray(worker.shared_array_base(np.ndarray)):  # type: ignore[misc]
        """A NumPy array over shared memory; see the module.

        Views of it are shared arrays too. Arrays with memory of their own (copies, results of operations, elements
        picked by a mask or a list) are plain arrays.
        """

        def __array_wrap__(self, made: Any, context: Any = None, return_scalar: bool = False) -> Any:
            plain: Any = made.view(np.ndarray) if type(made) is SharedArray and made is not self else made
            return plain[()] if return_scalar else plain

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            plain: Any = super()
            return _settled(plain.__array_function__(func, types, args, kwargs))

        def _settled(self) -> Any:
            """Returns the array itself if it lies in shared memory, else the same elements as a plain array.

            The compiled base class calls this too.
            """
            if _memory(self) is not None:
                return self
            base = self.base
            if type(base) is np.ndarray and base.shape == self.shape and base.dtype == self.dtype:
                return base
            return self.view(np.ndarray)

        @property
        def imag(self) -> Any:
            """The imaginary parts, in the same memory."""
            return _as_shared(self.view(np.ndarray).imag)

        @imag.setter
        def imag(self, value: Any) -> None:
            self.view(np.ndarray).imag = value

        @property
        def flat(self) -> Any:
            """An iterator over the elements, in the same memory."""
            return self.view(np.ndarray).flat

        @flat.setter
        def flat(self, value: Any) -> None:
            self.view(np.ndarray).flat = value

        def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
            return _reduce_array(np, self, protocol)

    def _settled(made: Any) -> Any:
        if type(made) is SharedArray:
            return made._settled()
        if type(made) in (tuple, list):
            return type(made)(map(_settled, made))
        return made

    def _as_shared(made: Any) -> Any:
        if type(made) is np.ndarray and _memory(made) is not None:
            return made.view(SharedArray)
        return made

    def copying(name: str) -> Any:
        plain = getattr(np.ndarray, name)

        @functools.wraps(plain)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            view = self.view(np.ndarray)
            made = plain(view, *args, **kwargs)
            return self if made is view else _as_shared(made)

        return method

    for name in _COPYING:
        if hasattr(np.ndarray, name):
            setattr(SharedArray, name, copying(name))
    SharedArray.__qualname__ = "SharedArray"
    return SharedArray


def _reduce_array(np: Any, data: Any, protocol: SupportsIndex) -> Any:
    if data.nbytes:
        found = worker.shared_lend(data.__array_interface__["data"][0], 1)
        if found is not None:
            handle, start = found
            return _attach, (handle, data.shape, data.dtype, data.strides, start, data.flags.writeable)
    else:
        memory = _memory(data)
        empty = None if memory is None else memory._lend()
        if empty is not None:
            return _attach, (empty, data.shape, data.dtype, None, 0, data.flags.writeable)
    return data.view(np.ndarray).__reduce_ex__(protocol)


def _memory(data: Any) -> SharedBuffer | None:
    """Returns the shared memory in which an array lies, or None."""
    base = data.base
    while base is not None:
        if isinstance(base, SharedBuffer):
            return None if base.readonly else base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def _attach(
    handle: tuple[int, int, int, int], shape: Any, kind: Any, strides: Any, start: int, writable: bool
) -> Any:
    """Unpickles a shared array."""
    made = _view(worker.shared_attach(*handle), shape, kind, strides, start)
    if not writable:
        made.flags.writeable = False
    return made


def _attach_buffer(*handle: int) -> SharedBuffer:
    """Unpickles a shared buffer. Pickle could not name the compiled function, whose module no import finds."""
    return worker.shared_attach(*handle)


def _copy_in(data: bytes) -> SharedBuffer:
    return worker.shared_from(data)


def _attach_sealed(*handle: int) -> SharedBuffer:
    return worker.shared_attach(*handle)._seal()


def reduce_buffer(memory: SharedBuffer) -> Any:
    """Pickles a shared buffer; the compiled class calls this."""
    handle = memory._lend()
    if handle is None:
        return _copy_in, (bytes(memory),)
    return _attach_sealed if memory._sealed else _attach_buffer, handle


if TYPE_CHECKING:

    class SharedArray(np.ndarray[Any, Any]):
        """A NumPy array over shared memory; see the module.

        Views of it are shared arrays too. Arrays with memory of their own (copies, results of operations, elements
        picked by a mask or a list) are plain arrays.
        """

else:

    def __getattr__(name: str) -> Any:
        # The class derives from NumPy's array, so NumPy is imported when the class is first used.
        if name == "SharedArray":
            return _array_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
