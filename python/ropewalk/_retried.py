"""After which exceptions something is tried again. Workers ask this of the tasks that they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, cast

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
        with suppress(Exception):  # Their texts are the program's code, too.
            asked = f"{failure!r} when it was asked about this exception."
            note(error, f"The predicate {on!r} raised ", asked)
        return False


def note(error: BaseException, begin: str, rest: str) -> None:
    """Adds a note to an exception, in place of the one that begins alike: an exception may be raised many times.

    A note that cannot be added is left out: what it would raise must not take the place of the exception.
    """
    with suppress(Exception):
        text = begin + rest
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            known = cast("list[object]", notes)
            for at, one in enumerate(known):
                if isinstance(one, str) and one.startswith(begin):
                    known[at] = text
                    return
        error.add_note(text)
