"""Sockets of `ropewalk.zmq` and of the crate under it beside libzmq, Monocoque, OMQ, zmq.rs, rzmq, pyzmq, pyomq.

Tables that do not begin with `python` are played by the Rust programs of `benchmarks/messaging`, which are built first.
"""

TABLES = (
    "roundtrip",
    "cores",
    "paced",
    "push",
    "publish",
    "router",
    "drivers",
    "curve",
    "idle",
    "python_roundtrip",
    "python_paced",
    "python_push",
    "python_subscribe",
)
