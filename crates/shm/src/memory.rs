//! Memory that processes share: segments, the owner's arena and its leases, blocks of shared arrays.

mod arena;
mod block;
mod once;
mod ranges;
mod segment;
mod slab;
mod tending;
mod wide;
mod words;

pub use arena::{Arena, ArenaConfig, Lease};
pub use block::Block;
pub use segment::{HEADER, Segment};
pub use words::{Atomics, Words};
