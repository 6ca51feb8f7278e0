"""Transactions that claim what they touch: how a thread waits for its claim, and how a coroutine does.

A coroutine waits in its event loop, which does other things meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ropewalk._errors import Conflict
from ropewalk.state._transaction import entangled

if TYPE_CHECKING:
    from ropewalk.state._prepared import Prepared
    from ropewalk.state._store import Store

#: The first pause between two attempts, in seconds; it doubles, and the real one is a random part of it.
_PAUSE = 50e-6
#: So often a transaction runs again though it has claimed what it touches.
_REFUSED = 2
#: So often it makes a claim, if transactions within it meet those of others.
_MOST_CLAIMS = 20
#: How long a thread with a claim waits for the claims of others, in seconds: they may wait for it.
_PATIENCE = 0.05
#: The same for a block with `exclusive=True`, which cannot be run again.
LONG_PATIENCE = 0.4
#: A coroutine looks by itself whether its turn has come: after so many seconds first, and at most. An interrupt can end
#: a claim between any two lines, and then nothing wakes what waits for it.
_FIRST_LOOK, _LAST_LOOK = 0.005, 0.32


def pause(attempt: int) -> float:
    """Returns the seconds before an attempt: a random time keeps transactions apart that have met; it is no secret."""
    seconds: float = random.random() * _PAUSE * 2.0 ** min(attempt, 8)  # noqa: S311
    return seconds


def _long_pause(claims: int) -> float:
    """The same after the end of a claim that transactions of others were in the way of."""
    return random.random() * _PATIENCE * min(claims, 4)  # noqa: S311


def refused(label: str | None) -> Conflict:
    """Makes the error of a task that meets its own transactions."""
    return Conflict(
        f"{label} has run transactions of the same store, and they have changed what it has read. Run them before or "
        f"after it"
    )


def _crossed(label: str | None) -> Conflict:
    return Conflict(
        f"{label} runs transactions that others keep from committing, and keeps theirs. Run them before or after it, "
        f"or in the same order everywhere"
    )


def run_claimed(
    store: Store[Any], prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[int, int] | None]:
    """Runs a task while no other transaction changes what it touches; the thread waits for its claim."""
    function, rule, meta, _ = prepared
    held = store._held
    for claims in range(1, _MOST_CLAIMS + 1):
        number, claim = store._begin_claim(rule, _PATIENCE, meta.label)
        try:
            held.claim = number
            for _ in range(_REFUSED + 1):
                done = store._attempt(function, rule, meta, number, args, kwargs)
                if done is not None:
                    return done
        except Conflict as error:
            if not error._is_entangled:
                raise
            # A transaction within it waits for a claim of another thread, which may wait for this one's. It runs again
            # when it has the whole state, so that nothing of this store is left to wait for.
            rule = store._whole
        else:
            # No other transaction has changed what this one has claimed, but for a journal that has failed.
            raise refused(meta.label)
        finally:
            held.claim = 0
            store._end_claim(claim)
        time.sleep(_long_pause(claims))
    raise _crossed(meta.label)


def run_below(
    store: Store[Any], prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[int, int] | None]:
    """Runs a task in a transaction of the same store, under that one's claim."""
    function, rule, meta, _ = prepared
    for _ in range(_REFUSED + 1):
        done = store._attempt(function, rule, meta, store._held.claim, args, kwargs)
        if done is not None:
            return done
    raise entangled(meta.label)


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
            await _until(store, partial(store._is_allowed, rule))
    held = store._held
    for claims in range(1, _MOST_CLAIMS + 1):
        number, claim = store._ask(rule)
        try:
            await _until(store, partial(store._is_granted, number))
            for _ in range(_REFUSED + 1):
                # The claim is the thread's while the function runs, and no longer: other coroutines have the same
                # thread.
                before, held.claim = held.claim, number
                try:
                    done = store._attempt_now(function, rule, meta, number, args, kwargs)
                finally:
                    held.claim = before
                if done is not None:
                    return done
        except Conflict as error:
            if not error._is_entangled:
                raise
            # As in a thread.
            rule = store._whole
        else:
            raise refused(meta.label)
        finally:
            store._end_claim(claim)
        await asyncio.sleep(_long_pause(claims))
    raise _crossed(meta.label)


async def _until(store: Store[Any], is_so: Callable[[], bool]) -> None:
    """Waits until something is so that the end of a claim brings about."""
    if is_so():
        return
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    store._turns.add(event, loop)
    seconds = _FIRST_LOOK
    try:
        while not is_so():
            timer = loop.call_later(seconds, event.set)
            try:
                await event.wait()
            finally:
                timer.cancel()
            event.clear()
            seconds = min(2 * seconds, _LAST_LOOK)
    finally:
        store._turns.remove(event)
