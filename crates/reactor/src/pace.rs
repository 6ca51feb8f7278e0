//! How often a loop that has work and timers reads the clock.
//!
//! Reading it costs as much as a callback. So a busy loop skips it in a few turns while turns are short, and never in
//! so many that a timer waits noticeably.

/// Turns between two readings of the clock, while turns are short.
const STRIDE: u32 = 4;
/// A turn is short up to this many nanoseconds.
const SHORT: u64 = 5_000;

/// The pace of one loop. Times are nanoseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Pace {
    turns: u32,
    stride: u32,
    read: u64,
}

impl Pace {
    /// A pace before the first turn: it reads the clock at once.
    pub fn new() -> Self {
        Self { turns: 0, stride: 1, read: 0 }
    }

    /// Counts a turn; returns whether to read the clock in this one.
    #[inline]
    pub fn is_reading_due(&mut self) -> bool {
        self.turns += 1;
        self.turns >= self.stride
    }

    /// The clock was read as `now`.
    pub fn read(&mut self, now: u64) {
        let each = now.saturating_sub(self.read) / u64::from(self.turns.max(1));
        self.stride = if each <= SHORT { STRIDE } else { 1 };
        self.turns = 0;
        self.read = now;
    }

    /// The loop has slept, or has had no timers: the last reading of the clock is old.
    #[inline]
    pub fn paused(&mut self) {
        self.stride = 1;
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns of `each` nanoseconds; returns the longest time between readings, and their number.
    fn run(pace: &mut Pace, clock: &mut u64, turns: u32, each: u64) -> (u64, u32) {
        let (mut last, mut longest, mut readings) = (*clock, 0, 0);
        for _ in 0..turns {
            if pace.is_reading_due() {
                readings += 1;
                pace.read(*clock);
                longest = longest.max(*clock - last);
                last = *clock;
            }
            *clock += each;
        }
        (longest, readings)
    }

    #[test]
    fn short_turns_skip_and_long_ones_do_not() {
        let (mut pace, mut clock) = (Pace::new(), 1_000_000);
        let (longest, readings) = run(&mut pace, &mut clock, 10_000, 100);
        assert!(longest <= u64::from(STRIDE) * 100, "{longest}");
        assert!(readings <= 10_000 / STRIDE + 2, "{readings}");
        // A change to long turns is noticed after one stride.
        let (longest, readings) = run(&mut pace, &mut clock, 100, 1_000_000);
        assert!(longest <= u64::from(STRIDE) * 1_000_000, "{longest}");
        assert!(readings >= 100 - STRIDE, "{readings}");
        run(&mut pace, &mut clock, 100, 100);
        pace.paused();
        assert!(pace.is_reading_due());
    }
}
