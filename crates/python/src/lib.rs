//! The extension module: one shared object with three doors.
//!
//! `PyInit__core` (pyo3) is the parent's side and serves a main interpreter only. `PyInit__worker` and
//! `PyInit__foundation` (plain C API, multi-phase) are loaded in every worker. All see the same Rust statics, which is
//! why they are one object.

mod core;
mod door;
mod foundation;
mod guarded;
mod heap;
mod lending;
mod object;
mod worker;
