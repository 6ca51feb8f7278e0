"""Loading a server's file, in the server's process and in each worker. What loads it must not become a server by that.

A script without ``if __name__ == "__main__":`` makes its server whenever it is imported, and a server's process imports
it a second time, as the module of the tools. Each worker would do the same again.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType

from ropewalk._errors import ServingError
from ropewalk._target import Place, module_at


class _Here(threading.local):
    #: The file that this thread loads.
    place: Place | None = None
    #: The refusal of a server that the file made meanwhile.
    refused: ServingError | None = None


_HERE = _Here()


def load(place: Place) -> ModuleType:
    """Imports the file of a server.

    Raises:
        ServingError: it makes a server while it is imported.
        TargetError: it fails when it is imported.
    """
    before, _HERE.place = _HERE.place, place
    try:
        module = module_at(place)
    except Exception:
        refused = _HERE.refused
        if refused is not None:
            # The traceback would be that of the file's last line, and says no more.
            raise refused.with_traceback(None) from None
        raise
    finally:
        _HERE.place, _HERE.refused = before, None
    if place.module is not None and _is_being_imported(place.module):
        # Then the file itself, further up in this thread, makes the server.
        raise _refusal(place)
    return module


def _is_being_imported(name: str) -> bool:
    # Of another thread's import the one above has waited for the end.
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def check_may_serve() -> None:
    """Refuses a server that a file makes while it is loaded for a server.

    Raises:
        ServingError: this thread loads such a file.
    """
    if _HERE.place is not None:
        _HERE.refused = _refusal(_HERE.place)
        raise _HERE.refused


def _refusal(place: Place) -> ServingError:
    return ServingError(
        f"{place.shown!r} makes a Server while it is imported, and its workers import it, too. Put what makes and uses "
        f'the server under `if __name__ == "__main__":`'
    )
