//! Segments, leases, rings and pipes in shared memory.
//!
//! `README.md` beside this crate has the protocol: states, transitions, who writes what, and why nothing is
//! lost.

#[cfg(not(loom))]
pub mod arena;
pub mod attention;
#[cfg(not(loom))]
pub mod block;
#[cfg(not(loom))]
mod once;
pub mod pipe;
#[cfg(not(loom))]
mod ranges;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod switchboard;
mod wide;
