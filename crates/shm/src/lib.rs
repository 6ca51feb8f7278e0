//! Segments, leases and rings in shared memory.
