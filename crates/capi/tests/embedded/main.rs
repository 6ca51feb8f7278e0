//! The kit's own tests, with an interpreter in this process.
//!
//! Each test attaches a thread of its own. The interpreter allocates its objects with the C library's `malloc`, so that
//! a sanitizer detects a use after free.

#![cfg_attr(not(embedded), allow(unused))]

#[cfg(embedded)]
mod awaitable;
#[cfg(embedded)]
mod entry;
#[cfg(embedded)]
mod guarded;
#[cfg(embedded)]
mod heap;
#[cfg(embedded)]
mod interpreter;
#[cfg(embedded)]
mod mailbox;
#[cfg(embedded)]
mod module;
#[cfg(embedded)]
mod object;
#[cfg(embedded)]
mod threads;

#[cfg(not(embedded))]
#[test]
#[ignore = "the interpreter that the crates are built for has no shared library where it says"]
fn embedded() {}
