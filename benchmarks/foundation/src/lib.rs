//! What the benchmark of the foundation measures, and the peers it measures beside it.
//!
//! A *contest* times one thing; a *contender* takes part in it. `contest CONTEST CONTENDER` plays one round in a
//! process of its own and prints its figures as JSON; `peers.cpp` does the same in C++. `make bench-foundation` runs
//! both in turn.

pub mod clock;
pub mod countdown;
pub mod counting;
pub mod frames;
pub mod latency;
pub mod mutexed;
pub mod pools;
pub mod publish;
pub mod shapes;
pub mod submit;
pub mod swapped;
pub mod topics;

/// The examples of the page that shows these figures, run by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/foundation.md")]
pub struct Page;
