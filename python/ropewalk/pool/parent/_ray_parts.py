"""What travels between a lane and its actor: calls as lists of bytes and buffers, results, and Ray's reasons."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ropewalk.pool.wire import _exceptions, _serialize
from ropewalk.pool.worker._actor import Item, parted

#: Larger buffers of a result are views of Ray's object store, which are read-only; in bytes.
_SHARED = 1 << 20


def parts_of(pickled: tuple[bytes, bool, object]) -> list[Any]:
    """Returns the parts of a pickle that the engine has encoded."""
    from ropewalk._load import worker

    payload, described, _lease = pickled
    if not described:
        return parted(payload, ())
    stream, *buffers = worker.open_frame(payload, False, True)
    return parted(stream, buffers)


def value_of(parts: Sequence[Any]) -> Any:
    """Unpickles a result.

    Raises:
        DecodeError: it could not be unpickled.
    """
    stream, *buffers = parts
    # A result is its receiver's own. A copy makes that so; a large one stays a view of the object store.
    views = [memoryview(buffer) for buffer in buffers]
    owned = [view if view.nbytes >= _SHARED else bytearray(view) for view in views]
    try:
        return _exceptions.loads(stream, owned)
    except MemoryError:
        raise
    except BaseException as error:
        raise _serialize.undecodable("result", error) from error


def values_of(items: Sequence[Item], parts: Sequence[Any]) -> list[tuple[bool, Any]]:
    """Unpickles the results of a batch: pairs `(returned, value or encoded exception)`."""
    if not items:
        return [(True, value) for value in value_of(parts)]
    made: list[tuple[bool, Any]] = []
    at = 0
    for ok, count in items:
        own, at = parts[at : at + count], at + count
        if ok:
            try:
                made.append((True, value_of(own)))
                continue
            except Exception as error:
                own = [_serialize.encode_error(error)]
        made.append((False, pickle.loads(own[0])))
    return made


def reason_of(error: BaseException) -> str:
    """Returns what Ray says of a lost actor; it says why in the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("The actor is dead because")), first_line(error))
    return said if len(said) <= 300 else f"{said[:297]}..."


def first_line(error: BaseException) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
