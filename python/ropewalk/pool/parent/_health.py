"""What a pool knows of tasks that hang or kill: its settings, its quarantine, and the thread that looks at threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, cast

from ropewalk._checked import checked_count, checked_limit
from ropewalk.pool.parent._exit import start

if TYPE_CHECKING:
    from ropewalk import _core

#: Seconds after which a watching thread looks whether its pool has ended.
_PATIENCE = 5.0


def refuse_hang(hang_timeout: object) -> None:
    """Refuses a `hang_timeout` for workers whose stacks the pool cannot ask for, on other machines for instance.

    Raises:
        ValueError: it is not `None`.
    """
    if hang_timeout is not None:
        raise ValueError(
            "hang_timeout must be None for workers that are neither processes nor threads: this process cannot read "
            "the stack of a call that hangs there. Use task_timeout instead"
        )


def checked_poison(value: object) -> int | None:
    """Returns a `poison_after` after checking it.

    Raises:
        TypeError, ValueError: it is neither `None` nor a number from 1.
    """
    return None if value is None else checked_count("poison_after", value, 1, 2**32 - 1)


def checked_restarts(value: object) -> tuple[int, float] | None:
    """Returns a `max_restarts` after checking it.

    Raises:
        TypeError, ValueError: it is neither `None` nor a number of deaths and a positive number of seconds.
    """
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(cast("Sequence[object]", value)) != 2:
        raise TypeError(f"max_restarts must be (number, seconds) or None, not {value!r}")
    most, within = cast("Sequence[object]", value)
    number = checked_count("the number of max_restarts", most, 0, 2**32 - 1)
    seconds = checked_limit("the seconds of max_restarts", within)
    if not seconds:
        raise ValueError(f"the seconds of max_restarts must be more than 0, not {within!r}")
    return number, seconds


class Watch:
    """Learns where the hung tasks of a thread pool are, in a thread of its own that the first `start` makes.

    Worker processes write their stacks themselves, on a signal.
    """

    def __init__(self, name: str, engine: _core.PoolHandle) -> None:
        self._name = name
        self._engine = engine
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts the thread, unless it runs or the pool's workers are processes.

        Raises:
            ValueError: the pool cannot find tasks that hang.
        """
        if not self._engine.finds_hung:
            refuse_hang(True)
        if self._engine.isolates or self.threads:
            return
        thread = threading.Thread(
            target=_watch, args=(self._engine,), name=f"{self._name}-watch", daemon=True
        )
        start(thread)
        self.threads.append(thread)


def _watch(engine: _core.PoolHandle) -> None:
    while engine.watch_hung(_stack_of, _PATIENCE):
        pass


def _stack_of(thread: int) -> str | None:
    """Returns the stack of a thread of this process, innermost call first as `faulthandler` prints it."""
    frame: FrameType | None = sys._current_frames().get(thread)
    if frame is None:
        return None
    import traceback

    calls = reversed(traceback.extract_stack(frame))
    return "\n".join(f'  File "{call.filename}", line {call.lineno} in {call.name}' for call in calls)
