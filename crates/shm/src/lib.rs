//! Shared memory: [`memory`] has segments and their owners' arena and blocks, [`channel`] has rings, pipes and
//! switchboards.
//!
//! This crate's `README.md` has the protocol: states, transitions, the writer of each word, and why nothing is lost.

pub mod channel;
#[cfg(not(loom))]
pub mod memory;
