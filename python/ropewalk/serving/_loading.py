"""Loading a server's file, in the server's process and in each worker. What loads it must not become a server by that.

A script without ``if __name__ == "__main__":`` makes its server whenever it is imported, and a server's process imports
it a second time, as the module of the tools. Each worker would do the same again.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType, ModuleType

from ropewalk._errors import ServingError
from ropewalk._target import Place, module_at, name_of


class _Load:
    """The import of a server's file."""

    def __init__(self, place: Place) -> None:
        """Begins it in this thread."""
        self.place = place
        self.thread = threading.get_ident()
        #: The refusal of a server that the file made meanwhile, and whether it made it in another thread.
        self.refused: ServingError | None = None
        self.is_elsewhere = False


#: What is being loaded, by any thread. Each adds and removes its own.
_LOADS: list[_Load] = []


def load(place: Place) -> ModuleType:
    """Imports the file of a server.

    Raises:
        ServingError: it makes a server while it is imported.
        TargetError: it fails when it is imported.
    """
    mine = _Load(place)
    _LOADS.append(mine)
    try:
        module = module_at(place)
    except Exception:
        if mine.refused is not None:
            # The traceback would be that of the file's last line, and says no more.
            raise mine.refused.with_traceback(None) from None
        raise
    finally:
        _LOADS.remove(mine)
    if mine.refused is not None and mine.is_elsewhere:
        # The file's own thread has ended with it.
        raise mine.refused.with_traceback(None)
    if place.module is not None and _is_being_imported(place.module):
        # Then the file itself, further up in this thread, makes the server.
        raise _refusal(place)
    return module


def _is_being_imported(name: str) -> bool:
    # Of another thread's import the one above has waited for the end.
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def check_may_serve() -> None:
    """Refuses a server that a file makes while it is loaded for a server, in whichever thread.

    Raises:
        ServingError: this thread loads such a file, or runs code of one that is being loaded.
    """
    for one in reversed(_LOADS.copy()):
        is_elsewhere = one.thread != threading.get_ident()
        if not is_elsewhere or _runs(one.place, sys._getframe(1)):
            one.refused, one.is_elsewhere = _refusal(one.place), is_elsewhere
            raise one.refused


def _runs(place: Place, frame: FrameType | None) -> bool:
    """Returns whether a stack has code of the module that is being loaded: not of an earlier one of its name."""
    names = getattr(sys.modules.get(name_of(place)), "__dict__", None)
    while names is not None and frame is not None:
        if frame.f_globals is names:
            return True
        frame = frame.f_back
    return False


def _refusal(place: Place) -> ServingError:
    return ServingError(
        f"{place.shown!r} makes a Server while it is imported, and its workers import it, too. Put what makes and uses "
        f'the server under `if __name__ == "__main__":`'
    )
