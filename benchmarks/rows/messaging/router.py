"""Table: a server of many connections."""

from __future__ import annotations

from harness.programs import line
from harness.table import Row, at_least

OF_MANY = ("libzmq", "omq", "zeromq", "rzmq")
"""Peers whose ROUTER takes many connections."""

ROW = Row(
    "router",
    "A ROUTER that echoes 64 B to many DEALERs by tcp, round trips each second",
    "Two threads where the system puts them: one has the ROUTER, one has all DEALERs, each with one request in flight. "
    "Ropewalk's driver is epoll here and everywhere; `drivers` tells why.",
    (
        line(
            "64 DEALERs",
            "k/s",
            "router",
            at_least(220),
            OF_MANY,
            size=64,
            count=256_000,
            place="free",
            ends=64,
        ),
        line(
            "512 DEALERs",
            "k/s",
            "router",
            at_least(200),
            OF_MANY,
            size=64,
            count=256_000,
            place="free",
            ends=512,
        ),
    ),
)
