"""Work in a forked child."""

from __future__ import annotations

import os
import traceback
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_a_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does this: 0 if it raises nothing."""
    with warnings.catch_warnings():
        # Other threads of the test run may be there; this child touches nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
