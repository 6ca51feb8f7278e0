"""Whether a worker is fit for tasks: its `warmup`, and its `probe`."""

from __future__ import annotations

import logging
from collections.abc import Callable


class Unfit(Exception):
    """Says by its text why a worker is not fit. What raises it has logged the cause."""


def reason(what: str, call: Callable[[], object]) -> str | None:
    """Calls the warmup or the probe of a worker; returns why the worker is not fit, or None if it is."""
    try:
        answer = call()
    except Unfit as error:
        return str(error)
    except BaseException as error:  # Whatever it is, the worker gets no task.
        logging.getLogger("ropewalk").error("Exception in %s:", what, exc_info=True)
        return f"its {what} raised {type(error).__name__}: {error}"
    if what == "probe" and answer is False:
        return "its probe returned False"
    return None
