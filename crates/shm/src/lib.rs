//! Shared memory: [`memory`] has segments and who owns what in them, [`channel`] has rings, pipes and switchboards.
//!
//! `README.md` beside this crate has the protocol: states, transitions, who writes what, and why nothing is
//! lost.

pub mod channel;
#[cfg(not(loom))]
pub mod memory;
