"""Arrays as files of NumPy's, what `numpy.save` writes: the form in which calls have one array.

NumPy is needed for its own arrays alone. Nothing of a pickle is written or read.

Source: NEP 1, https://numpy.org/neps/nep-0001-npy-format.html
"""

from __future__ import annotations

import array
import importlib
import io
import sys
from typing import Any, Protocol, TypeAlias, TypeGuard

from ropewalk._errors import CallFailed, ExtraMissing

#: What such a file is called.
MEDIA_TYPE = "application/x-npy"
_MAGIC = b"\x93NUMPY\x01\x00"
#: The items begin at a multiple of this, as NumPy writes them.
_ALIGNED = 64
#: The kinds of items, by the formats of buffers; the width is the item's.
_KINDS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    "?": "b",
}


class Array(Protocol):
    """An array of NumPy's, or of a library that shows its arrays as NumPy does."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Where the items are, and of which type."""
        ...


#: What is sent as an array: one of NumPy's, or the numbers of a buffer.
Given: TypeAlias = "Array | array.array[Any] | memoryview"


def is_array(value: object) -> TypeGuard[Given]:
    """Whether a value is an array. A buffer of single bytes is not: it is bytes."""
    if isinstance(value, memoryview):
        return value.format not in ("B", "b", "c")
    return isinstance(value, array.array) or hasattr(value, "__array_interface__")


def is_of_numpy(value: object) -> bool:
    """Whether a caller that sends it has NumPy, and reads arrays of it."""
    return "numpy" in sys.modules and hasattr(value, "__array_interface__")


def written(value: Given) -> bytes:
    """Returns an array as a file.

    Raises:
        TypeError: its items are no numbers.
    """
    if isinstance(value, (memoryview, array.array)):
        view = memoryview(value)
        kind = _KINDS.get((view.format or "B").lstrip("@"))
        if kind is None:
            raise TypeError(f"a buffer of items {view.format!r} cannot be sent: they must be numbers")
        return _head(_descr(kind, view.itemsize), view.shape or ()) + view.tobytes()
    numpy: Any = importlib.import_module("numpy")
    given: Any = numpy.asarray(value)
    if given.dtype.kind not in "biufc":
        raise TypeError(f"an array of {given.dtype} cannot be sent: its items must be numbers")
    given = numpy.asarray(given, given.dtype.newbyteorder("<"), order="C")
    return b"".join((_head(given.dtype.str, given.shape), given.reshape(-1).view(numpy.uint8)))


def _descr(kind: str, size: int) -> str:
    # A server reads little-endian numbers, and says so of others.
    order = "|" if size == 1 else "<" if sys.byteorder == "little" else ">"
    return f"{order}{kind}{size}"


def _head(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    length = len(_MAGIC) + 2 + len(text) + 1
    text += " " * (-length % _ALIGNED) + "\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text.encode()


def check_numpy() -> None:
    """Checks that arrays can be read.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    try:
        importlib.import_module("numpy")
    except ImportError:
        raise ExtraMissing(
            f"results that are arrays are NumPy's, which is not installed: pip install numpy. {ExtraMissing.remedy}"
        ) from None


def read(file: bytes) -> Any:
    """Returns the array of a file: a view of its bytes, which cannot be written to.

    Raises:
        CallFailed: it is no such file.
    """
    numpy: Any = importlib.import_module("numpy")
    stream = io.BytesIO(file)
    try:
        version = numpy.lib.format.read_magic(stream)
        reads = (
            numpy.lib.format.read_array_header_1_0
            if version == (1, 0)
            else numpy.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = reads(stream)
        items: Any = numpy.frombuffer(file, dtype, offset=stream.tell())
        return items.reshape(shape, order="F" if is_fortran else "C")
    except (ValueError, TypeError) as error:
        raise CallFailed(f"the answer is no array: {error}") from error
