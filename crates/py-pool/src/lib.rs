//! The two extension modules of a pool.
//!
//! `parent` is `ropewalk._core`, written with pyo3, for the main interpreter of the program. `worker` is
//! `ropewalk._worker`, in the plain C API, which every interpreter may load. Both encode: what pickles becomes is
//! `pool::codec`'s, and here is what it takes of Python.

mod constants;
pub mod parent;
pub mod worker;

/// What opens an item of a chunk where it arrives.
const OPEN_APART: ropewalk_pool::codec::chunk::Opener =
    ropewalk_pool::codec::chunk::Opener { module: "ropewalk.pool.wire._serialize", function: "open_apart" };
