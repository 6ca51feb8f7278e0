//! How often a loop that has work reads the clock and polls its descriptors.
//!
//! Both cost as much as several callbacks, and a busy loop would pay for them in every turn. So it skips them in a few
//! turns while turns are short, and never in so many that a descriptor or a timer waits noticeably.

/// Turns between two readings of the clock, while turns are short.
const STRIDE: u32 = 4;
/// A turn is short up to this many nanoseconds.
const SHORT: u64 = 5_000;
/// Descriptors wait at most this long for a busy loop, in nanoseconds, plus a stride of turns.
const PATIENCE: u64 = 50_000;

/// The pace of one loop. Times are nanoseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Pace {
    turns: u32,
    stride: u32,
    looked: u64,
    polled: u64,
}

impl Pace {
    /// A pace before the first turn: it reads the clock and polls at once.
    pub fn new() -> Self {
        Self { turns: 0, stride: 1, looked: 0, polled: 0 }
    }

    /// Counts a turn; returns whether to read the clock in this one.
    pub fn is_look_due(&mut self) -> bool {
        self.turns += 1;
        self.turns >= self.stride
    }

    /// The clock was read as `now`; returns whether to poll the descriptors even though there is other work.
    pub fn looked(&mut self, now: u64) -> bool {
        let each = now.saturating_sub(self.looked) / u64::from(self.turns.max(1));
        self.stride = if each <= SHORT { STRIDE } else { 1 };
        self.turns = 0;
        self.looked = now;
        now.saturating_sub(self.polled) >= PATIENCE
    }

    /// The descriptors were polled.
    pub fn polled(&mut self) {
        self.polled = self.looked;
    }

    /// The loop has slept, so the last reading of the clock is old.
    pub fn slept(&mut self) {
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

    /// Runs turns of `each` nanoseconds; returns the longest time between polls, and the number of readings.
    fn run(pace: &mut Pace, clock: &mut u64, turns: u32, each: u64) -> (u64, u32) {
        let (mut last, mut longest, mut looks) = (*clock, 0, 0);
        for _ in 0..turns {
            if pace.is_look_due() {
                looks += 1;
                if pace.looked(*clock) {
                    longest = longest.max(*clock - last);
                    last = *clock;
                    pace.polled();
                }
            }
            *clock += each;
        }
        (longest, looks)
    }

    #[test]
    fn short_turns_skip_and_long_ones_do_not() {
        let (mut pace, mut clock) = (Pace::new(), 1_000_000);
        let (longest, looks) = run(&mut pace, &mut clock, 10_000, 100);
        assert!(longest <= PATIENCE + u64::from(STRIDE) * 100, "{longest}");
        assert!(looks <= 10_000 / STRIDE + 2, "{looks}");
        // A change to long turns is noticed after one stride.
        let (longest, looks) = run(&mut pace, &mut clock, 100, 1_000_000);
        assert!(longest <= u64::from(STRIDE) * 1_000_000, "{longest}");
        assert!(looks >= 100 - STRIDE, "{looks}");
    }
}
