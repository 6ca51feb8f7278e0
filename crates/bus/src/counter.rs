//! A counter that many threads add to without sharing a cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// One shard for each of the first threads, and the last for all others.
const SHARDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    /// Written by the one thread that owns the shard; the last one is added to by all others. Relaxed: a statistic.
    published: AtomicU64,
    reached: AtomicU64,
}

/// How many events were published, and how many handlers they reached.
#[derive(Debug, Default)]
pub(crate) struct Counter([Shard; SHARDS]);

impl Counter {
    /// Counts an event; `thread` is a number that no other live thread has.
    #[inline]
    pub(crate) fn count(&self, thread: usize, reached: usize) {
        if let Some(shard) = self.0[..SHARDS - 1].get(thread) {
            // No other thread writes, so a plain addition is enough.
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn every_thread_s_events_are_in_the_sums() {
        let counter = Counter::default();
        assert_eq!(counter.sums(), (0, 0));
        for thread in 0..2 * SHARDS {
            counter.count(thread, 3);
            counter.count(thread, 0);
        }
        assert_eq!(counter.sums(), (4 * SHARDS as u64, 6 * SHARDS as u64));
        // Threads beyond the first ones share a shard; no others do.
        let shared = counter.0[SHARDS - 1].published.load(Ordering::Relaxed);
        assert_eq!(shared, 2 * (SHARDS as u64 + 1));
    }
}
