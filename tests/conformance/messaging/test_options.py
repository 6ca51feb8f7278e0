"""Options: their defaults, the values that they accept and refuse, and the types of these."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.conformance.messaging.lab import SUBJECT, Side, load

KINDS = ("REQ", "REP", "DEALER", "ROUTER", "PUB", "SUB", "XPUB", "XSUB", "PUSH", "PULL", "PAIR", "STREAM")
#: What can be asked of every type.
READABLE = [
    "AFFINITY",
    "BACKLOG",
    "CONNECT_TIMEOUT",
    "EVENTS",
    "HANDSHAKE_IVL",
    "HEARTBEAT_IVL",
    "HEARTBEAT_TIMEOUT",
    "HEARTBEAT_TTL",
    "IMMEDIATE",
    "IPV6",
    "LINGER",
    "MAXMSGSIZE",
    "MECHANISM",
    "PLAIN_SERVER",
    "CURVE_SERVER",
    "RCVBUF",
    "RCVHWM",
    "RCVMORE",
    "RCVTIMEO",
    "RECONNECT_IVL",
    "RECONNECT_IVL_MAX",
    "ROUTING_ID",
    "SNDBUF",
    "SNDHWM",
    "SNDTIMEO",
    "TCP_KEEPALIVE",
    "TCP_KEEPALIVE_CNT",
    "TCP_KEEPALIVE_IDLE",
    "TCP_KEEPALIVE_INTVL",
    "TCP_MAXRT",
    "TOS",
    "TYPE",
    "ZAP_DOMAIN",
    "LAST_ENDPOINT",
    "LOOPBACK_FASTPATH",
    "MULTICAST_HOPS",
    "MULTICAST_LOOP",
    "MULTICAST_MAXTPDU",
    "RATE",
    "RECOVERY_IVL",
    "ZAP_ENFORCE_DOMAIN",
]
#: Values that are taken and told again.
KEPT: dict[str, list[Any]] = {
    "BACKLOG": [0, 1, 500],
    "CONNECT_TIMEOUT": [0, 1000],
    "HANDSHAKE_IVL": [0, 1000],
    "HEARTBEAT_IVL": [0, 1000],
    "HEARTBEAT_TIMEOUT": [0, 1000],
    "HEARTBEAT_TTL": [0, 1000, 6_553_500],
    "IMMEDIATE": [0, 1],
    "IPV6": [0, 1],
    "LINGER": [-1, 0, 1000],
    "MAXMSGSIZE": [-1, 0, 1 << 40],
    "RCVBUF": [-1, 65_536],
    "SNDBUF": [-1, 65_536],
    "RCVHWM": [0, 1, 100_000],
    "SNDHWM": [0, 1, 100_000],
    "RCVTIMEO": [-1, 0, 1000],
    "SNDTIMEO": [-1, 0, 1000],
    "RECONNECT_IVL": [-1, 0, 1000],
    "RECONNECT_IVL_MAX": [0, 1000],
    "TCP_KEEPALIVE": [-1, 0, 1],
    "TCP_KEEPALIVE_CNT": [-1, 5],
    "TCP_KEEPALIVE_IDLE": [-1, 60],
    "TCP_KEEPALIVE_INTVL": [-1, 10],
    "TOS": [0, 0x28],
    "ZAP_DOMAIN": [b"domain"],
    "PLAIN_USERNAME": [b"admin"],
    "PLAIN_PASSWORD": [b"secret"],
    # Of transports that ours lacks: programs set them for every socket.
    "LOOPBACK_FASTPATH": [0, 1],
    "MULTICAST_HOPS": [1, 7],
    "MULTICAST_LOOP": [0, 1],
    "MULTICAST_MAXTPDU": [1, 1500],
    "RATE": [1, 1000],
    "RECOVERY_IVL": [0, 100],
}
REFUSED: dict[str, list[Any]] = {
    "BACKLOG": [-1],
    "HANDSHAKE_IVL": [-1],
    "HEARTBEAT_IVL": [-1],
    "HEARTBEAT_TTL": [-1000, 6_553_600],
    "IMMEDIATE": [2, -1],
    "LINGER": [-2],
    "RCVHWM": [-1],
    "SNDHWM": [-1],
    "RCVTIMEO": [-2],
    "SNDTIMEO": [-2],
    "RECONNECT_IVL": [-2],
    "RECONNECT_IVL_MAX": [-1],
    "TCP_KEEPALIVE": [2, -2],
    "TOS": [-1],
    "ROUTING_ID": [b"", 256 * b"x"],
    "MULTICAST_HOPS": [0],
    "MULTICAST_MAXTPDU": [0],
    "RATE": [0],
    "RECOVERY_IVL": [-1],
}


def value(side: Side, kind: str, option: str) -> Any:
    """A fresh socket's option, or the number of the error."""
    try:
        return side.get(side.untouched(kind), option)
    except side.zmq.ZMQError as error:
        return OSError, error.errno


@pytest.fixture
def reference() -> Any:
    """libzmq, whose values are the right ones."""
    module = load("zmq")
    if module is None:
        pytest.skip("pyzmq is not installed: libzmq is the reference (extra: messaging)")
    side = Side(module)
    yield side
    side.close()


@pytest.mark.parametrize("option", READABLE)
def test_what_it_is_to_begin_with(option: str, ours: Side, reference: Side) -> None:
    for kind in KINDS:
        if value(reference, kind, option) == (OSError, errno.EINVAL):
            # The wheel is built without it; ours may have it.
            continue
        assert value(ours, kind, option) == value(reference, kind, option), kind


@pytest.mark.parametrize("option", list(KEPT))
def test_what_it_takes(option: str, alone: Side) -> None:
    for wanted in KEPT[option]:
        socket = alone.socket("DEALER")
        alone.set(socket, **{option: wanted})
        told = alone.get(socket, option)
        assert (told.rstrip(b"\0") if isinstance(told, bytes) else told) == wanted


@pytest.mark.parametrize("option", list(REFUSED))
def test_what_it_refuses(option: str, alone: Side) -> None:
    socket = alone.socket("DEALER")
    before = value(alone, "DEALER", option)
    for wanted in REFUSED[option]:
        with pytest.raises(alone.zmq.ZMQError) as refused:
            alone.set(socket, **{option: wanted})
        assert refused.value.errno == alone.zmq.EINVAL
    if option not in ("RCVTIMEO", "SNDTIMEO"):
        assert alone.get(socket, option) == before


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("SUBSCRIBE", "PUSH"),
        ("SUBSCRIBE", "PUB"),
        ("XPUB_VERBOSE", "DEALER"),
        ("ROUTER_MANDATORY", "DEALER"),
        ("REQ_RELAXED", "REP"),
        ("STREAM_NOTIFY", "ROUTER"),
        ("PROBE_ROUTER", "PUB"),
    ],
)
def test_what_is_for_other_types(option: str, kind: str, alone: Side) -> None:
    with pytest.raises(alone.zmq.ZMQError) as refused:
        alone.set(alone.socket(kind), **{option: b"x" if option == "SUBSCRIBE" else 1})
    assert refused.value.errno == alone.zmq.EINVAL


@pytest.mark.parametrize("option", ["EVENTS", "FD", "TYPE", "RCVMORE", "LAST_ENDPOINT", "MECHANISM"])
def test_what_can_only_be_read(option: str, alone: Side) -> None:
    with pytest.raises(alone.zmq.ZMQError) as refused:
        alone.set(alone.socket("DEALER"), **{option: b"x" if option == "LAST_ENDPOINT" else 1})
    assert refused.value.errno == alone.zmq.EINVAL


@pytest.mark.parametrize(
    "option", ["IO_THREADS", "MAX_SOCKETS", "SOCKET_LIMIT", "IPV6", "BLOCKY", "MAX_MSGSZ"]
)
def test_a_context_s(option: str, ours: Side, reference: Side) -> None:
    if not hasattr(reference.zmq, option):
        return
    assert ours.context.get(getattr(ours.zmq, option)) == reference.context.get(
        getattr(reference.zmq, option)
    )


def test_a_context_has_so_many_sockets(alone: Side) -> None:
    context = alone.zmq.Context()
    context.set(alone.zmq.MAX_SOCKETS, 3)
    sockets = [context.socket(alone.zmq.PAIR) for _ in range(3)]
    with pytest.raises(alone.zmq.ZMQError) as refused:
        context.socket(alone.zmq.PAIR)
    assert refused.value.errno == errno.EMFILE
    for socket in sockets:
        socket.close()
    context.term()


def test_types_have_their_numbers(alone: Side) -> None:
    for number, kind in enumerate(
        ["PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB", "STREAM"]
    ):
        assert getattr(alone.zmq, kind) == number
        assert alone.get(alone.socket(kind), "TYPE") == number


def test_there_is_something_to_compare() -> None:
    assert load(SUBJECT) is not None
