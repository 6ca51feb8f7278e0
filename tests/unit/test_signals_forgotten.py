"""Receptions that nobody awaits: Python warns, as of a coroutine; and what they are called."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk import Bus

Make = Callable[[Any], Any]

RECEPTIONS: dict[str, Make] = {
    "recv_async": lambda subscription: subscription.recv_async(),
    "recv_many_async": lambda subscription: subscription.recv_many_async(3),
    "__anext__": lambda subscription: anext(aiter(subscription)),
}
each = pytest.mark.parametrize(("name", "make"), RECEPTIONS.items(), ids=RECEPTIONS)


@each
def test_python_warns_at_once(name: str, make: Make) -> None:
    subscription = Bus().subscribe("t")
    with pytest.warns(RuntimeWarning, match=rf"^coroutine 'Subscription\.{name}' was never awaited"):
        make(subscription)


@each
def test_python_warns_of_one_that_was_used_before(name: str, make: Make) -> None:
    async def main() -> None:
        subscription = (bus := Bus()).subscribe("t")
        for number in range(3):
            bus.publish("t", number)
            await subscription.recv_async()
        with pytest.warns(RuntimeWarning, match=f"{name}' was never awaited"):
            make(subscription)

    asyncio.run(main())


@each
def test_one_that_is_forgotten_keeps_its_subscription_no_longer(name: str, make: Make) -> None:
    subscription = Bus().subscribe("t")
    before = sys.getrefcount(subscription)
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        make(subscription)
    assert sys.getrefcount(subscription) == before


@each
def test_no_warning_when_it_was_begun_closed_or_cancelled(name: str, make: Make) -> None:
    async def main() -> None:
        subscription = (bus := Bus()).subscribe("t")
        make(subscription).close()
        with pytest.raises(ZeroDivisionError):
            make(subscription).throw(ZeroDivisionError())
        task = asyncio.ensure_future(make(subscription))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        bus.publish("t", 1)
        assert await make(subscription) in (1, [1])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


def test_no_warning_of_messages_that_found_no_room() -> None:
    async def main() -> None:
        subscription = (bus := Bus()).subscribe("t", capacity=1)
        bus.publish("t", 1)
        published = asyncio.create_task(bus.publish_async("t", 2))
        await asyncio.sleep(0)
        published.cancel()
        await asyncio.wait([published])
        assert await subscription.recv_async() == 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


@each
def test_it_is_called_as_its_method(name: str, make: Make) -> None:
    reception = make(Bus().subscribe("t"))
    assert (reception.__name__, reception.__qualname__) == (name, f"Subscription.{name}")
    assert repr(reception).startswith(f"<coroutine object Subscription.{name} at 0x")
    reception.close()


def test_one_that_is_kept_is_not_used_again() -> None:
    async def main() -> None:
        subscription = (bus := Bus()).subscribe("t")
        bus.publish_many("t", range(3))
        first = subscription.recv_async()
        assert await first == 0
        second = subscription.recv_async()
        assert second is not first
        with pytest.raises(RuntimeError, match="twice"):
            await first
        assert await second == 1
        assert await subscription.recv_async() == 2

    asyncio.run(main())
