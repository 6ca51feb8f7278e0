//! The extension module: one shared object with five doors.
//!
//! `PyInit__core` and `PyInit__zmq` (pyo3) serve a main interpreter only: the parent's side, and messaging.
//! `PyInit__worker`, `PyInit__foundation` and `PyInit__loop` (plain C API, multi-phase) may be loaded in every worker.
//! All see the same Rust statics, which is why they are one object.

mod apart;
mod awaitable;
mod core;
mod door;
mod entry;
mod event_loop;
mod forced_unwind;
mod foundation;
mod guarded;
mod heap;
mod lending;
mod messaging;
mod object;
mod shared;
mod worker;
