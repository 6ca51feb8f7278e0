//! Whether the waiters of one thing spin before they sleep: they do as long as it has paid lately. If it did not pay,
//! it is tried again at growing intervals.

use std::sync::atomic::{AtomicU32, Ordering};

/// The highest score.
const MOST: u32 = 8;
/// The first score.
const FIRST: u32 = 4;
/// After the first failure in a row, spinning is tried again after this many waits, and then after twice as many each
/// time.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 4096;

/// What the waiters have learnt together. All fields are heuristics, so Relaxed order is enough.
#[derive(Debug)]
pub struct SpinScore {
    /// Recent successes; at 0 waiters do not spin.
    score: AtomicU32,
    /// Waits until spinning is tried again.
    left: AtomicU32,
    /// The length of the last pause, in waits.
    pause: AtomicU32,
}

impl SpinScore {
    /// A score at which waiters spin.
    pub fn new() -> Self {
        Self { score: AtomicU32::new(FIRST), left: AtomicU32::new(0), pause: AtomicU32::new(FIRST_PAUSE) }
    }

    /// Whether to spin now. Called once for each wait.
    #[inline]
    pub fn is_worth_it(&self) -> bool {
        if self.score.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Learns from one spin, which found something or not.
    pub fn learn(&self, has_found: bool) {
        let score = self.score.load(Ordering::Relaxed);
        if has_found {
            self.score.store((score + 1).min(MOST), Ordering::Relaxed);
            self.pause.store(FIRST_PAUSE, Ordering::Relaxed);
            return;
        }
        self.score.store(score.saturating_sub(1), Ordering::Relaxed);
        if score <= 1 {
            let pause = self.pause.load(Ordering::Relaxed);
            self.left.store(pause, Ordering::Relaxed);
            self.pause.store((pause * 2).min(LONGEST_PAUSE), Ordering::Relaxed);
        }
    }
}

impl Default for SpinScore {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_when_it_fails_and_tried_ever_more_seldom() {
        let spin = SpinScore::new();
        let mut waits_between = Vec::new();
        let mut waits = 0;
        for _ in 0..1_000 {
            if spin.is_worth_it() {
                waits_between.push(waits);
                waits = 0;
                spin.learn(false);
            } else {
                waits += 1;
            }
        }
        assert_eq!(waits_between, [0, 0, 0, 0, 64, 128, 256, 512]);
    }

    #[test]
    fn it_goes_on_while_it_finds_something_every_other_time() {
        let spin = SpinScore::new();
        for turn in 0..300 {
            assert!(spin.is_worth_it(), "turn {turn}");
            spin.learn(turn % 2 == 0);
        }
        for _ in 0..8 {
            spin.learn(false);
        }
        assert!(!spin.is_worth_it());
    }
}
