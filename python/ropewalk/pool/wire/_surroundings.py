"""What a worker takes over from the process that made its pool, beside the environment: gathered there, set here.

A zygote is older than most pools that use it. So whatever a program may have changed since then travels with each
pool. The zygote sets it before it forks the first worker of that pool, so that workers share the memory this takes. The
limits of resources are for each worker to set: a zygote could not raise one again, and has to live with it.
"""

from __future__ import annotations

# The calls themselves: what `locale` adds to them is for those who choose a locale, and takes time to load.
import _locale as locale
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

_LIMITS = tuple(sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}))
_CATEGORIES = (locale.LC_CTYPE, locale.LC_NUMERIC, locale.LC_TIME, locale.LC_COLLATE, locale.LC_MONETARY,
               locale.LC_MESSAGES)  # fmt: skip
_ARITHMETIC = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
#: Dispositions that a program chooses for itself; a handler of its own stays in its process.
_SIGNALS = (signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2)

#: In how many workers, one inside the other, this process runs: set by each worker, and by a zygote, which runs none.
#: It is not asked of `sys.modules` whether this is a worker: CPython 3.13t can hang at its end if a daemon thread that
#: makes pools takes the lock of that dictionary along.
depth = 0


def gather() -> dict[str, Any]:
    """What this process has, as plain values."""
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
        },
        "decimal": {name: getattr(context, name) for name in _ARITHMETIC} if context is not None else None,
        "digits": sys.get_int_max_str_digits(),
    }


def apply(given: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Sets what differs, all but the limits; gives those of them that differ, for `set_limits`.

    A zygote does this for the workers that it is going to fork. A locale that is gone stays as it is.
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

        # The default is what the context of each further thread begins as.
        for context in (decimal.DefaultContext, decimal.getcontext()):
            for name, value in given["decimal"].items():
                setattr(context, name, value)
    sys.set_int_max_str_digits(given["digits"])
    # The environment has been taken over; the C library reads its TZ when it is told to.
    time.tzset()
    limits: dict[int, tuple[int, int]] = given["limits"]
    return {which: wanted for which, wanted in limits.items() if _limit(which) != wanted}


def _limit(which: int) -> tuple[int, int] | None:
    try:
        return resource.getrlimit(which)
    except (OSError, ValueError):
        return None


def set_limits(limits: dict[int, tuple[int, int]]) -> None:
    """Sets these limits. One that this process may not set (a higher one) stays as it is."""
    for which, wanted in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, wanted)


def _umask() -> int | None:
    # Reading it from the process's status does not change it for the other threads meanwhile.
    try:
        # As bytes: from a folder that is gone, Python 3.13.0 cannot even look for a codec that it has not loaded yet.
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None
