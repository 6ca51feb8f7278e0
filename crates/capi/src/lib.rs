//! The base of every extension module that is written in the plain C API.
//!
//! `object` has owned references; `errors` makes exceptions of Rust errors; `heap` has types whose objects hold Rust
//! values; `module` has module definitions and their state. `entry` wraps every function that the interpreter calls;
//! `forced_unwind` stops a thread that the interpreter ends. `guarded` is state that attached threads share,
//! `awaitable` has the parts that all awaitables share, `running_loop` knows which loop a thread runs, `mailbox`
//! takes what other threads post to a loop, `nest` drops objects that are within each other very deep, and `signals`
//! says how long a call may sleep at once.
//!
//! This crate depends on none of the extension modules and not on pyo3: all of it serves every interpreter of a
//! process.

// The code that `#[entry]` generates names this crate by its outside name.
extern crate self as ropewalk_capi;

pub mod awaitable;
pub mod entry;
pub mod errors;
pub mod forced_unwind;
pub mod guarded;
pub mod heap;
pub mod mailbox;
pub mod module;
pub mod nest;
pub mod object;
pub mod panics;
pub mod running_loop;
pub mod signals;

pub use self::entry::entry;
