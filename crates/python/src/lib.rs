//! The extension module: one shared object with four doors.
//!
//! `PyInit__core` (pyo3) is the parent's side and serves a main interpreter only. `PyInit__worker`,
//! `PyInit__foundation` and `PyInit__loop` (plain C API, multi-phase) may be loaded in every worker. All see the same
//! Rust statics, which is why they are one object.

mod awaitable;
mod core;
mod door;
mod event_loop;
mod foundation;
mod guarded;
mod heap;
mod lending;
mod object;
mod worker;
