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
#[cfg(not(loom))]
mod per_process;
pub mod pipe;
#[cfg(not(loom))]
mod ranges;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
pub mod spin;
#[cfg(not(loom))]
pub mod switchboard;
mod sync;
mod wide;
