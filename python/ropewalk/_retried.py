"""After which exceptions something is tried again. Workers ask this of the tasks that they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: The classes of exceptions after which something is tried again, or a predicate of the exception.
On: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], object]

#: The ends of a program are never tried again, whatever else their class derives from. `asyncio.CancelledError` is no
#: `Exception`.
_ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def is_retried(on: On, error: BaseException) -> bool:
    """Whether something that raised `error` is tried again.

    A predicate that raises has said no: a note on the error reports what it raised.
    """
    if not isinstance(error, Exception) or isinstance(error, _ENDS):
        return False
    if isinstance(on, (type, tuple)):
        return isinstance(error, on)
    try:
        return bool(on(error))
    except Exception as failure:
        error.add_note(f"The predicate {on!r} raised {failure!r} when it was asked about this exception.")
        return False
