//! The extension module: one shared object with two doors.
//!
//! `PyInit__core` (pyo3) is the parent's side and serves a main interpreter only. `PyInit__worker` (plain C API,
//! multi-phase) is loaded in every worker. Both see the same Rust statics, which is why they are one object.

mod core;
mod lending;
mod worker;
