//! The two extension modules of a pool.
//!
//! `parent` is `ropewalk._core`, written with pyo3, for the main interpreter of the program. `worker` is
//! `ropewalk._worker`, in the plain C API, which every interpreter may load. Both encode: what a pickle becomes is
//! `pool::codec`'s, and `pickle` has the pickler as both ends use it.

mod constants;
mod current;
pub mod parent;
mod pickle;
mod seats;
pub mod worker;
