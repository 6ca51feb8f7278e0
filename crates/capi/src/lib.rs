//! What every extension module in the plain C API stands on.
//!
//! `object` has references that are given back; `errors` makes exceptions of Rust's errors; `heap` has types whose
//! objects hold Rust's values; `module` has definitions and their state. `entry` is what stands before every function
//! that the interpreter calls, `forced_unwind` what becomes of a thread that the interpreter ends. `guarded` is state
//! that attached threads share, `awaitable` what every awaitable has, `running_loop` which loop a thread runs,
//! `mailbox` what other threads have for it.
//!
//! Nothing here knows a room, nor pyo3: all of it serves every interpreter of a process.

// What `#[entry]` writes names this crate from outside.
extern crate self as ropewalk_capi;

pub mod awaitable;
pub mod entry;
pub mod errors;
pub mod forced_unwind;
pub mod guarded;
pub mod heap;
pub mod mailbox;
pub mod module;
pub mod object;
pub mod panics;
pub mod running_loop;

pub use self::entry::entry;
