"""How many cores a pool may use."""

from __future__ import annotations

import os
import sys

from ropewalk import _core


def requested_cores() -> int | None:
    """Returns the number in ``PYTHON_CPU_COUNT`` or ``-X cpu_count``, which `os.process_cpu_count` reads from 3.13 on.

    Before 3.13 it reads only the variable. It ignores a value that is not a positive number.
    """
    value = sys._xoptions.get("cpu_count") if sys.version_info >= (3, 13) else None
    if value is None and not sys.flags.ignore_environment:
        value = os.environ.get("PYTHON_CPU_COUNT")
    try:
        number = int(value) if isinstance(value, str) else 0
    except ValueError:
        return None
    return number if number > 0 else None


def usable_cores() -> int:
    """Returns `requested_cores`, or else the cores of the affinity mask, at most the control group's quota."""
    return requested_cores() or _core.usable_cores()
