"""Loops, contexts and pairs for the tests of asynchronous sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from tests.unit.messaging.awaited.waiting import Pair, Run

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Socket


@pytest.fixture(params=["asyncio", "ropewalk"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a fresh loop, and gives it some time."""
    runner: Any = asyncio.run if request.param == "asyncio" else ropewalk.run

    async def within(main: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wait_for(main, 30)

    return lambda main: runner(within(main))


class Keeping(Context):
    """Keeps its sockets until it is destroyed: a test that lets go of one is warned otherwise."""

    kept: list[Socket]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["kept"] = []

    def socket(self, *args: Any, **kwargs: Any) -> Socket:
        self.kept.append(made := super().socket(*args, **kwargs))
        return made


@pytest.fixture
def context() -> Iterator[Context]:
    context = Keeping()
    yield context
    context.destroy(linger=0)
    # They know their context: descriptors would stay until the collector comes, which 3.14's may put off for long.
    context.kept.clear()


@pytest.fixture(params=["tcp", "inproc"])
def pair(context: Context, request: pytest.FixtureRequest) -> Pair:
    """Makes two connected sockets."""

    def make(left: int = zmq.PUSH, right: int = zmq.PULL, **options: Any) -> tuple[Socket, Socket]:
        first, second = context.socket(left), context.socket(right)
        for each in (first, second):
            for name, value in options.items():
                setattr(each, name, value)
        if request.param == "tcp":
            address = f"tcp://127.0.0.1:{first.bind_to_random_port('tcp://127.0.0.1')}"
        else:
            address = f"inproc://pair-{id(first)}"
            first.bind(address)
        second.connect(address)
        return first, second

    return make
