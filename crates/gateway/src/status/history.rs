//! How busy each worker was at each of the last looks, kept while the server is watched.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Looks that are kept.
const KEPT: usize = 60;

/// A worker: its pool's number, and its own.
type Key = (usize, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Histories(HashMap<Key, History>);

#[derive(Debug)]
struct History {
    /// When it was looked at last, and how many seconds it had been busy by then.
    last: (Instant, f64),
    /// Parts of the time between two looks, in hundredths.
    busy: VecDeque<u8>,
}

impl Histories {
    /// A worker has been busy for so many seconds since its start.
    pub(super) fn note(&mut self, key: Key, busy: f64, now: Instant) {
        let Some(history) = self.0.get_mut(&key) else {
            self.0.insert(key, History { last: (now, busy), busy: VecDeque::new() });
            return;
        };
        let (before, had) = std::mem::replace(&mut history.last, (now, busy));
        let passed = now.saturating_duration_since(before).as_secs_f64();
        if passed > 0.0 {
            history.busy.push_back(((busy - had) / passed * 100.0).clamp(0.0, 100.0).round() as u8);
            if history.busy.len() > KEPT {
                history.busy.pop_front();
            }
        }
    }

    /// Forgets the workers that were not noted now.
    pub(super) fn keep(&mut self, now: Instant) {
        self.0.retain(|_, history| history.last.0 == now);
    }

    pub(super) fn of(&self, key: Key) -> Vec<u8> {
        self.0.get(&key).map(|history| history.busy.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_history_is_the_part_of_the_time_between_looks() {
        let mut histories = Histories::default();
        let mut now = Instant::now();
        for busy in [0.0, 0.5, 1.5, 1.5] {
            histories.note((0, 1), busy, now);
            now += Duration::from_secs(1);
        }
        assert_eq!(histories.of((0, 1)), [50, 100, 0]);
        histories.note((0, 2), 0.0, now);
        histories.keep(now);
        assert!(histories.of((0, 1)).is_empty(), "it is gone");
        for _ in 0..2 * KEPT {
            now += Duration::from_secs(1);
            histories.note((0, 2), 0.0, now);
        }
        assert_eq!(histories.of((0, 2)).len(), KEPT);
    }
}
