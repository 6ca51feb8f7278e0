//! How often a socket writes: each message by itself, or many in one write.
//!
//! A write costs some microseconds, a message that joins others some nanoseconds. So writes may take a share of the
//! time: half of it while each of them has one message, down to a tenth of it the more messages each has. What is not
//! used is saved, up to [`SAVED`]: the first messages of a row are written at once, also at rates at which each message
//! has a write of its own.
//!
//! Source: the virtual clock is that of the generic cell rate algorithm (ITU-T I.371).

use std::time::{Duration, Instant};

/// Writes may run so far ahead of their share.
const SAVED: Duration = Duration::from_micros(40);
/// No message is held back longer than this after a write, however long the write took.
const LONGEST: Duration = Duration::from_micros(50);
/// A write counts as no more than this: a longer one has lost its core, or has waited for a lock of the kernel.
const COSTLIEST: Duration = Duration::from_micros(10);
/// A program that sends on does so within this time. The background waits so much longer before it writes.
const PATIENCE: Duration = Duration::from_micros(15);
/// Of so many messages in the last write, one asks for the time.
const SHARE_THAT_ASKS: u32 = 8;
/// No more than so many messages in a row do not ask for the time.
const MOST_UNASKED: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The writes so far have their share of the time until then.
    paid_until: Instant,
    /// So many messages need not ask for the time, which costs half as much as queueing one.
    unasked: u32,
    stride: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { paid_until: now, unasked: 0, stride: 0 }
    }

    /// Whether the next message that is queued behind others asks [`may_write`](Self::may_write).
    #[inline]
    pub(crate) fn asks(&mut self) -> bool {
        if self.unasked > 0 {
            self.unasked -= 1;
            return false;
        }
        self.unasked = self.stride;
        true
    }

    /// From when on there may be a write.
    fn opens(&self) -> Instant {
        self.paid_until.checked_sub(SAVED).unwrap_or(self.paid_until)
    }

    /// Whether what is queued is written now.
    #[inline]
    pub(crate) fn may_write(&self, now: Instant) -> bool {
        now + SAVED >= self.paid_until
    }

    /// There was a write of so many messages.
    pub(crate) fn wrote(&mut self, began: Instant, ended: Instant, messages: usize) {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX).max(1);
        let cost = ended.saturating_duration_since(began).min(COSTLIEST);
        // Twice the cost for one message, ten times for 129 and more.
        let share = cost * (messages.min(129) + 31) / 16;
        self.paid_until = (self.paid_until.max(began) + share).min(ended + SAVED + LONGEST);
        self.stride = (messages / SHARE_THAT_ASKS).min(MOST_UNASKED);
        self.unasked = self.stride;
    }

    /// The program has not sent on, so it is not known how fast it will: each message asks for the time.
    pub(crate) fn forget(&mut self) {
        (self.stride, self.unasked) = (0, 0);
    }

    /// From when on the background writes what is queued since `left`: when the program has let the time of its own
    /// write pass, or writes again and again, and something else.
    pub(crate) fn overdue(&self, left: Instant) -> Instant {
        self.opens().max(left).min(left + LONGEST) + PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// A sender of a message every `gap`, for which a write takes `cost`. Gives the writes, and how long a message
    /// waited at most.
    fn play(gap: Duration, cost: Duration, messages: u32) -> (u32, Duration) {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let (mut now, mut writes, mut longest) = (start, 0, Duration::ZERO);
        let mut queued: Vec<Instant> = Vec::new();
        for number in 0..messages {
            now = now.max(start + gap * number);
            queued.push(now);
            if (queued.len() == 1 || pace.asks()) && pace.may_write(now) {
                longest = longest.max(now - queued[0]);
                pace.wrote(now, now + cost, queued.len());
                now += cost;
                writes += 1;
                queued.clear();
            }
        }
        (writes, longest)
    }

    #[test]
    fn up_to_a_hundred_thousand_a_second_each_message_has_a_write_of_its_own() {
        for gap in [10, 20, 50, 100, 1_000] {
            let (writes, longest) = play(gap * MICRO, 4 * MICRO, 10_000);
            assert_eq!((writes, longest), (10_000, Duration::ZERO), "{gap} µs");
        }
    }

    #[test]
    fn faster_senders_wait_for_a_few_messages() {
        for (gap, most) in [(5_000, 20), (2_000, 20), (1_000, 25)] {
            let (writes, longest) = play(Duration::from_nanos(gap), 4 * MICRO, 100_000);
            assert!(longest <= most * MICRO, "{gap} ns: {longest:?}");
            assert!(writes >= 2_000, "{gap} ns: {writes}");
        }
    }

    #[test]
    fn a_sender_that_does_nothing_else_writes_for_a_small_share_of_its_time() {
        let (writes, longest) = play(Duration::from_nanos(60), 5 * MICRO, 1_000_000);
        let all = Duration::from_nanos(60) * 1_000_000;
        assert!(5 * MICRO * writes < all / 8, "{writes} writes");
        assert!(longest <= 60 * MICRO, "{longest:?}");
    }

    #[test]
    fn the_first_messages_of_a_row_are_written_at_once() {
        let (writes, longest) = play(Duration::ZERO, 4 * MICRO, 8);
        assert_eq!((writes, longest), (8, Duration::ZERO));
    }

    #[test]
    fn a_write_that_loses_its_core_holds_nothing_up_for_long() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let after = start + Duration::from_secs(1);
        pace.wrote(start, after, 1);
        assert!(pace.may_write(after), "the time has passed for the program, too");
        for _ in 0..100 {
            pace.wrote(after, after, 1_000);
            pace.wrote(after, after + 10 * MICRO, 1_000);
        }
        assert!(!pace.may_write(after + 10 * MICRO));
        assert!(pace.may_write(after + 10 * MICRO + LONGEST));
    }

    #[test]
    fn the_background_waits_until_the_program_has_let_its_own_time_pass() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.overdue(start), start + PATIENCE, "it may write now, and does not");
        for _ in 0..100 {
            pace.wrote(start, start + 10 * MICRO, 100);
        }
        assert_eq!(pace.overdue(start), start + LONGEST + PATIENCE, "it writes again and again, to others");
    }

    #[test]
    fn a_sender_that_has_become_slow_asks_for_the_time_again() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.wrote(start, start + MICRO, 10_000);
        let asking: Vec<usize> = (0..200).filter(|_| pace.asks()).collect();
        assert_eq!(asking, [64, 129, 194], "of so many only these have asked");
        pace.wrote(start, start + MICRO, 10_000);
        pace.forget();
        assert!(pace.asks());
    }
}
