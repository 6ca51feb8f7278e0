"""Results that plain pickle refuses: a worker sends the program's own functions and classes in them by name."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle as untyped

from ropewalk.pool.wire import _classes, _remade, _watch
from ropewalk.pool.wire._taken import SPACES

cloudpickle: Any = untyped

PROTOCOL = 5


def encode_answer(value: object, keep: Callable[[pickle.PickleBuffer], object] | None) -> bytes:
    """Worker: pickles a value that plain pickle refuses; definitions of the program's modules go by name."""
    with io.BytesIO() as out:
        _AnswerPickler(out, keep).dump(value)
        return out.getvalue()


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Returns pickle's dispatch table as one dictionary; a lookup in cloudpickle's chain of tables takes longer."""
    return {**copyreg.dispatch_table, **cloudpickle.Pickler._dispatch_table, types.CodeType: _reduce_code}


#: Where a code object's constructor takes the name of the file.
_FILE_NAME = 10


def _reduce_code(code: types.CodeType) -> Any:
    """Pickles code with the name of its file, which cloudpickle 3.1.2 and later leave out: a traceback shows it."""
    make, parts = cloudpickle.cloudpickle._code_reduce(code)
    return make, (*parts[:_FILE_NAME], code.co_filename, *parts[_FILE_NAME + 1 :])


class _AnswerPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, out: io.BytesIO, buffers: Callable[[pickle.PickleBuffer], object] | None) -> None:
        self.dispatch_table = reducers()
        super().__init__(out, PROTOCOL, buffer_callback=buffers)
        self._unsendable = _remade.unsendable()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, self._unsendable):
            _remade.refuse(obj)
        if _watch.is_definition(obj):
            home = sys.modules.get(getattr(obj, "__module__", None) or "")
            for space in list(SPACES.values()):
                if space.module is home and _classes.at(space.globals, obj.__qualname__) is obj:
                    return NotImplemented
        part = _classes.reduce_part(obj) or _classes.reduce_elsewhere(obj)
        return _classes.reduce_class(obj, super().reducer_override(obj)) if part is None else part
