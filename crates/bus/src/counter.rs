//! A counter that many threads add to without sharing a cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// One for each of the first threads, and the last for all others.
const SHARDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    /// Written by the one thread that has the shard, or added to by those that share the last one. Relaxed: a
    /// statistic.
    published: AtomicU64,
    reached: AtomicU64,
}

/// How many events were published, and how many handlers they reached.
#[derive(Debug, Default)]
pub(crate) struct Counter([Shard; SHARDS]);

impl Counter {
    /// Counts an event; `thread` is a number that no other thread has at the moment.
    #[inline]
    pub(crate) fn count(&self, thread: usize, reached: usize) {
        if let Some(shard) = self.0[..SHARDS - 1].get(thread) {
            // Nobody else writes: a plain addition will do.
            shard.published.store(shard.published.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            shard.reached.store(shard.reached.load(Ordering::Relaxed) + reached as u64, Ordering::Relaxed);
        } else {
            let shard = &self.0[SHARDS - 1];
            shard.published.fetch_add(1, Ordering::Relaxed);
            shard.reached.fetch_add(reached as u64, Ordering::Relaxed);
        }
    }

    /// Events published, handlers reached.
    pub(crate) fn sums(&self) -> (u64, u64) {
        let sum =
            |of: fn(&Shard) -> &AtomicU64| self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum();
        (sum(|shard| &shard.published), sum(|shard| &shard.reached))
    }
}
