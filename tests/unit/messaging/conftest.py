"""Sockets for a test, which the fixture closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ropewalk.zmq as zmq

#: A wait that is longer has failed, in milliseconds.
PATIENCE = 20_000

Pair = tuple[Any, Any]


class Keeping(zmq.Context[Any]):
    """Keeps its sockets until it is destroyed: a test need not close what it has made."""

    _instance = None
    opened: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["opened"] = []

    def _add_socket(self, socket: Any) -> None:
        super()._add_socket(socket)
        self.opened.append(socket)


@pytest.fixture
def context() -> Iterator[Any]:
    """A context whose sockets never wait for ever."""
    context = Keeping()
    context.linger = 0
    context.rcvtimeo = PATIENCE
    context.sndtimeo = PATIENCE
    yield context
    context.destroy(linger=0)
    # They know their context: descriptors would stay until the collector comes, which 3.14's may put off for long.
    context.opened.clear()


@pytest.fixture(params=["tcp", "ipc", "shm", "inproc"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """An endpoint of each transport."""
    return {
        "tcp": "tcp://127.0.0.1:*",
        "ipc": f"ipc://{tmp_path}/socket",
        "shm": f"shm://{tmp_path}/socket",
        "inproc": "inproc://somewhere",
    }[str(request.param)]


@pytest.fixture
def pair(context: Any) -> Callable[..., Pair]:
    """Makes two sockets, the second connected to the first."""

    def make(first: int = zmq.PAIR, second: int = zmq.PAIR, endpoint: str = "tcp://127.0.0.1:*") -> Pair:
        bound, connected = context.socket(first), context.socket(second)
        bound.bind(endpoint)
        connected.connect(bound.last_endpoint.decode())
        return bound, connected

    return make
