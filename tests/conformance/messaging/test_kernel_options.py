"""Options that the kernel honours, read back from the kernel at both ends of a connection."""

from __future__ import annotations

import errno
import os
import socket as sockets
import stat
import struct
from contextlib import ExitStack
from typing import Any

import pytest
from tests.conformance.messaging.lab import SUBJECT, Side, bind, link, port, works

TCP_USER_TIMEOUT = 18
SOL, TCP, IP = sockets.SOL_SOCKET, sockets.IPPROTO_TCP, sockets.IPPROTO_IP
#: Options, and what the kernel tells of a connection then.
TOLD: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "no delay": ({}, TCP, sockets.TCP_NODELAY, 1),
    "TCP_KEEPALIVE": ({"TCP_KEEPALIVE": 1}, SOL, sockets.SO_KEEPALIVE, 1),
    "TCP_KEEPALIVE_CNT": ({"TCP_KEEPALIVE": 1, "TCP_KEEPALIVE_CNT": 7}, TCP, sockets.TCP_KEEPCNT, 7),
    "TCP_KEEPALIVE_IDLE": ({"TCP_KEEPALIVE": 1, "TCP_KEEPALIVE_IDLE": 77}, TCP, sockets.TCP_KEEPIDLE, 77),
    "TCP_KEEPALIVE_INTVL": ({"TCP_KEEPALIVE": 1, "TCP_KEEPALIVE_INTVL": 17}, TCP, sockets.TCP_KEEPINTVL, 17),
    "TCP_MAXRT": ({"TCP_MAXRT": 12_345}, TCP, TCP_USER_TIMEOUT, 12_345),
    "TOS": ({"TOS": 0x28}, IP, sockets.IP_TOS, 0x28),
    # The kernel doubles the value, for its own needs.
    "SNDBUF": ({"SNDBUF": 40_000}, SOL, sockets.SO_SNDBUF, 80_000),
    "RCVBUF": ({"RCVBUF": 40_000}, SOL, sockets.SO_RCVBUF, 80_000),
    "PRIORITY": ({"PRIORITY": 5}, SOL, sockets.SO_PRIORITY, 5),
}
DRAFTS = {"PRIORITY"}


def descriptors(number: int) -> list[sockets.socket]:
    """Copies of this process's sockets at a port: who listens there, and both ends of the connections."""
    names = [int(name) for name in os.listdir("/proc/self/fd")]
    # One of them was the listing's own, and is free again: it must not be a copy's.
    mine = [name for name in names if _is_socket(name)]
    found = []
    for name in mine:
        copy = sockets.socket(fileno=os.dup(name))
        try:
            is_there = number in (copy.getsockname()[1], copy.getpeername()[1])
        except OSError:
            is_there = copy.family == sockets.AF_INET and copy.getsockname()[1] == number
        except IndexError:
            is_there = False
        if is_there:
            found.append(copy)
        else:
            copy.close()
    return found


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def connections(number: int) -> list[sockets.socket]:
    """Copies of both ends of the connections to a port of this process."""
    found = []
    for descriptor in descriptors(number):
        if descriptor.getsockopt(SOL, sockets.SO_ACCEPTCONN):
            descriptor.close()
        else:
            found.append(descriptor)
    return found


@pytest.mark.parametrize("what", list(TOLD))
def test_what_the_kernel_was_told(what: str, alone: Side) -> None:
    options, level, number, expected = TOLD[what]
    if what in DRAFTS and alone.zmq.__name__ == "zmq":
        pytest.skip("libzmq's wheels have no draft options")
    bound, connected = alone.socket("PAIR", **options), alone.socket("PAIR", **options)
    endpoint = link(bound, connected)
    connected.send(b"there")
    assert bound.recv() == b"there"
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for end in connections(port(endpoint))]
        assert len(ends) == 2
        assert [end.getsockopt(level, number) for end in ends] == [expected] * 2


def test_without_options_the_kernel_is_told_nothing(alone: Side) -> None:
    bound, connected = alone.socket("PAIR"), alone.socket("PAIR")
    endpoint = link(bound, connected)
    connected.send(b"there")
    assert bound.recv() == b"there"
    with ExitStack() as stack:
        for end in connections(port(endpoint)):
            stack.enter_context(end)
            for level, number in ((SOL, sockets.SO_KEEPALIVE), (TCP, TCP_USER_TIMEOUT), (IP, sockets.IP_TOS)):
                assert end.getsockopt(level, number) == 0


@pytest.mark.skipif(SUBJECT == "zmq", reason="libzmq's wheels have no draft options")
def test_the_device_is_bound(ours: Side) -> None:
    bound, connected = (ours.socket("PAIR", BINDTODEVICE=b"lo") for _ in range(2))
    if not works(ours, errno.EPERM, link, bound, connected):
        pytest.skip("this needs a privilege")
    endpoint = connected.LAST_ENDPOINT.rstrip(b"\0").decode()
    connected.send(b"there")
    assert bound.recv() == b"there"
    with ExitStack() as stack:
        for end in connections(port(endpoint)):
            stack.enter_context(end)
            assert end.getsockopt(SOL, sockets.SO_BINDTODEVICE, 16).rstrip(b"\0") == b"lo"


def test_so_many_may_wait_to_be_accepted(alone: Side) -> None:
    endpoint = bind(alone.socket("REP", BACKLOG=3))
    (listener,) = descriptors(port(endpoint))
    with listener:
        assert listener.getsockopt(SOL, sockets.SO_ACCEPTCONN)
        # Of a socket that listens, what is called "sacked" is the limit of its queue.
        assert struct.unpack_from("I", listener.getsockopt(TCP, sockets.TCP_INFO, 64), 28) == (3,)
