"""Transactions that claim what they touch: how a thread waits for its claim, and how a coroutine does.

A coroutine waits in its event loop, which does other things meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ropewalk._errors import Conflict

if TYPE_CHECKING:
    from ropewalk.state._prepared import Prepared
    from ropewalk.state._store import Store

#: The first pause between two attempts, in seconds; it doubles, and the real one is a random part of it.
_PAUSE = 50e-6
#: So often a transaction runs again though it has claimed what it touches.
_REFUSED = 2


def pause(attempt: int) -> float:
    """Returns the seconds before an attempt: a random time keeps transactions apart that have met; it is no secret."""
    seconds: float = random.random() * _PAUSE * 2.0 ** min(attempt, 8)  # noqa: S311
    return seconds


def refused(label: str | None) -> Conflict:
    """Makes the error of a task that meets its own transactions."""
    return Conflict(
        f"{label} has run transactions of the same store, and they have changed what it has read. Run them before or "
        f"after it"
    )


def run_claimed(
    store: Store[Any], prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[int, int] | None]:
    """Runs a task while no other transaction changes what it touches; the thread waits for its claim."""
    function, rule, meta, _ = prepared
    held = store._held
    outer = held.claim
    held.claim = outer or store._begin_claim(rule)
    refusals = 0
    try:
        while True:
            done = store._attempt(function, rule, meta, held.claim, args, kwargs)
            if done is not None:
                return done
            # No other transaction has changed what this one has claimed, but for a journal that has failed.
            refusals += not outer
            if refusals > _REFUSED:
                raise refused(meta.label)
    finally:
        if not outer:
            claim, held.claim = held.claim, 0
            store._end_claim(claim)


async def run_in_loop(
    store: Store[Any], prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[int, int] | None]:
    """Runs a task until it commits; returns its result and the commit, which may not be on the disk yet.

    What waits is the coroutine. A cancelled one gives its claim up.
    """
    function, rule, meta, retries = prepared
    for attempt in range(retries + 1):
        if attempt:
            await asyncio.sleep(pause(attempt))
        done = store._attempt_now(function, rule, meta, 0, args, kwargs)
        if done is not None:
            return done
        if attempt < retries:
            await _until(store, lambda: store._is_allowed(rule))
    held = store._held
    claim = store._ask(rule)
    try:
        await _until(store, lambda: store._is_granted(claim))
        for _ in range(_REFUSED + 1):
            # The claim is the thread's while the function runs, and no longer: other coroutines have the same thread.
            before, held.claim = held.claim, claim
            try:
                done = store._attempt_now(function, rule, meta, claim, args, kwargs)
            finally:
                held.claim = before
            if done is not None:
                return done
        raise refused(meta.label)
    finally:
        store._end_claim(claim)


async def _until(store: Store[Any], is_so: Callable[[], bool]) -> None:
    """Waits until something is so that the end of a claim brings about."""
    if is_so():
        return
    event = asyncio.Event()
    store._turns.add(event, asyncio.get_running_loop())
    try:
        while not is_so():
            await event.wait()
            event.clear()
    finally:
        store._turns.remove(event)
