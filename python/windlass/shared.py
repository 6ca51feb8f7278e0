"""Arrays and buffers that many tasks read and write in place.

A shared array is a NumPy array over shared memory. Given to a task, or returned by one, it arrives as the same memory:
what one side writes, the other sees, and nothing is copied. Nobody is locked out meanwhile: tasks that write the same
elements have to agree among themselves.

Outside of a pool's tasks (``pickle.dumps``, a queue of another library) a shared array is pickled by value, as any
array is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

# The errors are loaded now: once descriptors run out, no module can be read any more.
from windlass import _errors as _errors
from windlass._load import worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import Buffer

    from windlass._worker import SharedBuffer
else:
    SharedBuffer = worker.SharedBuffer

__all__ = ["SharedArray", "SharedBuffer", "array", "buffer", "share"]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            "shared arrays need NumPy, which is not installed. Install numpy, or use windlass.shared.buffer."
        ) from error
    return numpy


def buffer(nbytes: int) -> SharedBuffer:
    """A writable buffer of `nbytes` zero bytes in shared memory.

    Raises:
        OutOfMemory: if the machine has no room for it.
    """
    return worker.shared_new(nbytes)


def array(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> SharedArray:
    """A writable array of zeros in shared memory, in C order.

    Args:
        shape: elements along each axis.
        dtype: anything that NumPy takes for one, but not objects: they cannot be shared.

    Raises:
        OutOfMemory: if the machine has no room for it.
    """
    np = _numpy()
    kind = _checked_dtype(np, dtype)
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
def share(data: Any) -> Any:
    """A writable copy of an array or a buffer in shared memory.

    Args:
        data: a NumPy array, for a `SharedArray`; anything else with the buffer protocol, for a `SharedBuffer`. One that
            is shared already is returned as it is.

    Raises:
        OutOfMemory: if the machine has no room for it.
        TypeError: for data without the buffer protocol, and arrays of objects.
    """
    if isinstance(data, SharedBuffer):
        return data
    import sys

    np = sys.modules.get("numpy")
    if np is None or not isinstance(data, np.ndarray):
        return worker.shared_from(data)
    if isinstance(data, _array_class()) and _memory(data) is not None:
        return data
    kind = _checked_dtype(np, data.dtype)
    flat = np.ascontiguousarray(data)
    memory = worker.shared_from(flat.reshape(-1).view(np.uint8) if flat.size else b"")
    return _view(memory, data.shape, kind, None, 0)


def _checked_dtype(np: Any, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"arrays of Python objects cannot be shared, and {kind} has some")
    return kind


def _view(memory: SharedBuffer, shape: Any, kind: Any, strides: Any, offset: int) -> Any:
    return _array_class()(shape, kind, memory, offset, strides)


_made_class: Any = None


def _array_class() -> Any:
    global _made_class
    if _made_class is None:
        _made_class = _make_array_class(_numpy())
    return _made_class


def _make_array_class(np: Any) -> Any:
    class SharedArray(np.ndarray):  # type: ignore[misc]
        """A NumPy array over shared memory; see the module. Results of operations on it are plain arrays."""

        def __array_wrap__(self, made: Any, context: Any = None, return_scalar: bool = False) -> Any:
            plain: Any = made.view(np.ndarray) if type(made) is SharedArray and made is not self else made
            return plain[()] if return_scalar else plain

        def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
            memory = _memory(self)
            handle = None if memory is None else memory._lend()
            if memory is None or handle is None:
                return self.view(np.ndarray).__reduce_ex__(protocol)
            if not self.size:
                return _attach, (handle, self.shape, self.dtype, None, 0, self.flags.writeable)
            start = self.__array_interface__["data"][0] - _address(np, memory)
            return _attach, (handle, self.shape, self.dtype, self.strides, start, self.flags.writeable)

    SharedArray.__module__ = __name__
    SharedArray.__qualname__ = "SharedArray"
    return SharedArray


def _address(np: Any, memory: Any) -> int:
    address: int = np.frombuffer(memory, dtype=np.uint8).__array_interface__["data"][0] if len(memory) else 0
    return address


def _memory(data: Any) -> SharedBuffer | None:
    """The shared memory that an array lies in, if it does."""
    base = data.base
    while base is not None:
        if isinstance(base, SharedBuffer):
            return None if base.readonly else base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def _attach(
    handle: tuple[int, int, int, int], shape: Any, kind: Any, strides: Any, start: int, writable: bool
) -> Any:
    """The far side of a shared array's pickle."""
    made = _view(worker.shared_attach(*handle), shape, kind, strides, start)
    if not writable:
        made.flags.writeable = False
    return made


def _attach_buffer(*handle: int) -> SharedBuffer:
    """The far side of a shared buffer's pickle. Not the compiled function itself, whose module no import finds."""
    return worker.shared_attach(*handle)


def _copy_in(data: bytes) -> SharedBuffer:
    return worker.shared_from(data)


def reduce_buffer(memory: SharedBuffer) -> Any:
    """How a shared buffer is pickled: called by the compiled part."""
    handle = memory._lend()
    return (_copy_in, (bytes(memory),)) if handle is None else (_attach_buffer, handle)


if TYPE_CHECKING:

    class SharedArray(np.ndarray[Any, Any]):
        """A NumPy array over shared memory; see the module. Results of operations on it are plain arrays."""

else:

    def __getattr__(name: str) -> Any:
        # The class derives from one of NumPy's, which is imported when somebody asks for it.
        if name == "SharedArray":
            return _array_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
