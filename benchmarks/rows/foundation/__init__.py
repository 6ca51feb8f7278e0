"""Rust's executor, event bus and results beside Rust and C++ peers; `benchmarks/foundation` has the programs."""

TABLES = ("submit", "latency", "allocations", "publish", "publishers", "frames", "sizes", "machine_code")
