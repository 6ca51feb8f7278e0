//! The two extension modules of a pool.
//!
//! `parent` is `ropewalk._core`, written with pyo3, for the main interpreter of the program. `worker` is
//! `ropewalk._worker`, in the plain C API, which every interpreter may load. Both encode: `lending` and `shared` keep
//! what lies in shared memory from being copied, `apart` joins the items of a chunk.

mod apart;
mod lending;
pub mod parent;
mod shared;
pub mod worker;
