"""The messaging contract: each test runs over two implementations of pyzmq's API, each end in its turn.

The reference is libzmq by pyzmq (the extra `messaging`); what it does is right. A test takes `subject`, the side of
which it asserts something, and `peer`, the side that it talks to; they are ours and libzmq, libzmq and ours, ours and
ours. `ROPEWALK_TEST_ZMQ=zmq pytest tests/conformance/messaging tests/faults/messaging` puts libzmq at both ends, which
tests the tests.

- `lab.py`: sides, links, monitors, a ZAP handler; every socket of it fails by EAGAIN instead of hanging.
- `wire.py`: ZMTP spoken by hand over a plain socket: older peers, and peers that misbehave.
- `test_pairs.py`: the matrix of socket types, ends, transports and mechanisms; the other files have one subject each.
- `tests/faults/messaging`: what peers, processes and the system do wrong.

Nothing here sleeps or measures time. A message that arrives after a missing one proves that the latter did not arrive.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.messaging.lab import NEEDS_LIBZMQ, SUBJECT, Side, load

PAIRINGS = (
    pytest.param("ours-libzmq", marks=NEEDS_LIBZMQ),
    pytest.param("libzmq-ours", marks=NEEDS_LIBZMQ),
    "ours-ours",
)


@pytest.fixture(params=PAIRINGS)
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    """The side of which something is asserted, and its peer."""
    modules = {"ours": load(SUBJECT), "libzmq": load("zmq")}
    chosen = [modules[name] for name in request.param.split("-")]
    pair = (Side(chosen[0]), Side(chosen[1]))
    yield pair
    for side in pair:
        side.close()


@pytest.fixture
def subject(sides: tuple[Side, Side]) -> Side:
    """The side of which something is asserted."""
    return sides[0]


@pytest.fixture
def peer(sides: tuple[Side, Side]) -> Side:
    """The side that it talks to."""
    return sides[1]


@pytest.fixture(params=["ours", pytest.param("libzmq", marks=NEEDS_LIBZMQ)])
def alone(request: pytest.FixtureRequest) -> Iterator[Side]:
    """One implementation without another: within a process, or against a peer written by hand."""
    module = load(SUBJECT if request.param == "ours" else "zmq")
    side = Side(module)
    yield side
    side.close()


@pytest.fixture
def ours() -> Iterator[Side]:
    """Ours, for what libzmq's wheels do not have: the draft socket types."""
    side = Side(load(SUBJECT))
    yield side
    side.close()
