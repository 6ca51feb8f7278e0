//! The kinds of worker that a pool can have.

pub(crate) mod processes;
pub(crate) mod threads;
