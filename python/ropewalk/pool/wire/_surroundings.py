"""The surroundings that a worker takes over from the process that made its pool, beside the environment.

A zygote is older than most pools that use it, so each pool sends what its program may have changed since. The zygote
applies this before it forks the first worker of that pool, so that workers share the memory that it takes. Each worker
sets the resource limits itself, because a zygote could not raise a limit again.
"""

from __future__ import annotations

# `_locale` and not `locale`, which takes longer to load and adds only help in choosing a locale.
import _locale as locale
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

_LIMITS = tuple(sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}))
_CATEGORIES = (locale.LC_CTYPE, locale.LC_NUMERIC, locale.LC_TIME, locale.LC_COLLATE, locale.LC_MONETARY,
               locale.LC_MESSAGES)  # fmt: skip
_ARITHMETIC = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
#: Signal dispositions that workers take over; handlers written in Python stay in their process.
_SIGNALS = (signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2)

#: How many workers deep this process is nested; each worker sets it, and so does a zygote, in which no pool may start.
#: A lookup in `sys.modules` would not do: CPython 3.13t can hang at exit if a daemon thread that makes pools holds the
#: lock of that dictionary.
depth = 0


def gather(ignored: Collection[int] = ()) -> dict[str, Any]:
    """Returns this process's surroundings as plain values; workers are to ignore the signals `ignored`."""
    decimal = sys.modules.get("decimal")
    context = decimal.getcontext() if decimal is not None else None
    return {
        "argv": list(sys.argv),
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "stack": threading.stack_size(),
        "umask": _umask(),
        "limits": {which: resource.getrlimit(which) for which in _LIMITS},
        "locale": {category: locale.setlocale(category) for category in _CATEGORIES},
        "signals": {
            number: int(now)
            for number in _SIGNALS
            if isinstance(now := signal.getsignal(number), signal.Handlers)
        }
        | {int(signal.SIGTERM): int(signal.SIG_DFL)}
        | {number: int(signal.SIG_IGN) for number in ignored},
        "decimal": {name: getattr(context, name) for name in _ARITHMETIC} if context is not None else None,
        "digits": sys.get_int_max_str_digits(),
    }


def apply(given: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Applies the values that differ, except resource limits; returns the limits that differ, for `set_limits`.

    A zygote does this for the workers that it will fork. It skips a locale that does not exist any more.
    """
    if sys.argv != given["argv"]:
        sys.argv[:] = given["argv"]
    if sys.getrecursionlimit() != given["recursion"]:
        sys.setrecursionlimit(given["recursion"])
    if sys.getswitchinterval() != given["switch"]:
        sys.setswitchinterval(given["switch"])
    if threading.stack_size() != given["stack"]:
        threading.stack_size(given["stack"])
    if given["umask"] is not None:
        os.umask(given["umask"])
    for category, name in given["locale"].items():
        with contextlib.suppress(locale.Error):  # type: ignore[attr-defined] # pyright: ignore
            if locale.setlocale(category) != name:
                locale.setlocale(category, name)
    for number, disposition in given["signals"].items():
        if signal.getsignal(number) != disposition:
            signal.signal(number, signal.Handlers(disposition))
    if given["decimal"] is not None:
        import decimal

        # The contexts of new threads start as copies of the default context.
        for context in (decimal.DefaultContext, decimal.getcontext()):
            for name, value in given["decimal"].items():
                setattr(context, name, value)
    sys.set_int_max_str_digits(given["digits"])
    # The environment has been applied; the C library reads TZ only when `tzset` is called.
    time.tzset()
    limits: dict[int, tuple[int, int]] = given["limits"]
    return {which: wanted for which, wanted in limits.items() if _limit(which) != wanted}


def _limit(which: int) -> tuple[int, int] | None:
    try:
        return resource.getrlimit(which)
    except (OSError, ValueError):
        return None


def set_limits(limits: dict[int, tuple[int, int]]) -> None:
    """Sets these limits, except those that this process may not raise."""
    for which, wanted in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, wanted)


def _umask() -> int | None:
    # Read from the process's status, because `os.umask` would change it for other threads meanwhile.
    try:
        # As bytes: in a removed working directory Python 3.13.0 cannot import a codec.
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None
