"""Table: what an idle connection weighs."""

from __future__ import annotations

from harness.programs import line
from harness.table import Row, at_most

ROW = Row(
    "idle",
    "Memory of an idle server connection",
    "What a PULL server's resident memory grows by for each of 1,000 tcp connections that have sent one message. The "
    "clients are another process, of plain sockets that speak ZMTP, so that no client's memory is in it; nor is the "
    "kernel's.",
    (
        line(
            "an idle connection",
            "KB",
            "idle",
            at_most(8),
            ("libzmq", "omq", "zeromq", "rzmq"),
            ends=1000,
            place="free",
        ),
    ),
)
