//! When a transport gathers what one callback writes.
//!
//! Each write costs a system call, and wakes the peer for a part of its answer. A server that answers in two pieces
//! (uvicorn: the head and the body) pays for both twice. But what is gathered is lost with the process, and work
//! behind it delays the peer. So a transport gathers only after several callbacks in a row have written more than once
//! and ended soon after. If one does not end soon whose writes were kept, the transport waits for twice as many before
//! it gathers again. Many that end soon undo that, because now and then a callback is late without work of its own: the
//! machine runs something else.

use std::cell::Cell;

/// A callback ends soon if it does within so many nanoseconds of its first write.
const SOON: u64 = 50_000;
/// So many callbacks are needed at first, and at most.
const FEWEST: u32 = 4;
const MOST: u32 = 1 << 16;
/// So many callbacks whose writes were kept, and of which none was late, halve that number.
const PROVEN: u32 = 256;

/// What to do with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Send,
    /// Send, and report the end of the callback.
    Watch,
    /// Keep it until the end of the callback, and report that.
    Keep,
}

/// The writes of one transport, as far as they decide that.
#[derive(Debug)]
pub(super) struct Gather {
    /// The callback that wrote last, and whether it has written more than once.
    callback: Cell<u64>,
    several: Cell<bool>,
    /// When it wrote first, in nanoseconds; 0 if the one before it has written once, so that nothing is to be learned.
    began: Cell<u64>,
    /// How many callbacks in a row were as a transport that gathers wants them, and how many it wants.
    streak: Cell<u32>,
    needed: Cell<u32>,
    /// How many callbacks whose writes were kept have ended soon, since that number has changed.
    proven: Cell<u32>,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self {
            callback: Cell::new(0),
            several: Cell::new(false),
            began: Cell::new(0),
            streak: Cell::new(0),
            needed: Cell::new(FEWEST),
            proven: Cell::new(0),
        }
    }

    fn gathers(&self) -> bool {
        self.streak.get() >= self.needed.get()
    }

    /// A callback writes. `now` reads the clock.
    pub(super) fn note(&self, callback: u64, now: impl FnOnce() -> u64) -> Advice {
        if callback != self.callback.replace(callback) {
            if !self.several.replace(false) {
                self.began.set(0);
                self.streak.set(0);
                return Advice::Send;
            }
            self.began.set(now());
            return if self.gathers() { Advice::Keep } else { Advice::Send };
        }
        if self.several.replace(true) || self.began.get() == 0 { Advice::Send } else { Advice::Watch }
    }

    /// The callback that wrote last has ended.
    pub(super) fn ended(&self, now: u64) {
        let kept = self.gathers();
        if !self.several.get() {
            self.streak.set(0);
        } else if now.saturating_sub(self.began.get()) <= SOON {
            self.streak.set(self.streak.get().saturating_add(1));
            if kept {
                self.prove();
            }
        } else {
            self.streak.set(0);
            // What was sent at once has delayed nobody.
            if kept {
                self.needed.set((self.needed.get() * 2).min(MOST));
                self.proven.set(0);
            }
        }
    }

    fn prove(&self) {
        let proven = self.proven.get() + 1;
        self.proven.set(proven % PROVEN);
        if proven == PROVEN {
            self.needed.set((self.needed.get() / 2).max(FEWEST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A callback with so many writes that takes so long; what it was advised.
    fn play(gather: &Gather, callback: u64, writes: u32, takes: u64) -> Vec<Advice> {
        let began = callback * 1_000_000_000;
        let advised: Vec<_> = (0..writes).map(|_| gather.note(callback, || began)).collect();
        if advised.iter().any(|&advice| advice != Advice::Send) {
            gather.ended(began + takes);
        }
        advised
    }

    #[test]
    fn several_writes_of_several_callbacks_are_gathered() {
        let gather = Gather::new();
        for callback in 1..=5 {
            assert!(!play(&gather, callback, 3, 10_000).contains(&Advice::Keep), "{callback}");
        }
        for callback in 6..100 {
            assert_eq!(play(&gather, callback, 3, 10_000)[0], Advice::Keep, "{callback}");
        }
        // One that writes once ends it.
        play(&gather, 100, 1, 10_000);
        for callback in 101..=104 {
            assert!(!play(&gather, callback, 2, 10_000).contains(&Advice::Keep), "{callback}");
        }
    }

    #[test]
    fn single_writes_are_sent() {
        let gather = Gather::new();
        for callback in 1..100 {
            assert_eq!(gather.note(callback, || unreachable!("nothing is timed")), Advice::Send);
        }
    }

    #[test]
    fn work_behind_a_write_ends_it_for_longer_each_time() {
        let gather = Gather::new();
        let (mut callback, mut last, mut waits) = (0, 0, Vec::new());
        while waits.len() < 8 {
            callback += 1;
            // As soon as the transport gathers, there is work behind the writes.
            let kept = gather.streak.get() >= gather.needed.get();
            if play(&gather, callback, 2, if kept { 20_000_000 } else { 1_000 })[0] == Advice::Keep {
                waits.push(callback - last);
                last = callback;
            }
        }
        assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
        assert!(waits[7] > 512, "{waits:?}");
    }

    #[test]
    fn a_late_end_of_what_was_sent_at_once_costs_nothing() {
        let gather = Gather::new();
        for callback in 1..100 {
            assert_eq!(play(&gather, callback, 2, 20_000_000)[0], Advice::Send);
        }
        for callback in 100..104 {
            play(&gather, callback, 2, 1_000);
        }
        assert_eq!(play(&gather, 104, 2, 1_000)[0], Advice::Keep);
    }

    #[test]
    fn a_few_late_ends_are_forgotten() {
        let gather = Gather::new();
        let mut callback = 0;
        let mut next = |takes| {
            callback += 1;
            play(&gather, callback, 2, takes)[0]
        };
        for _ in 0..100 {
            for _ in 0..4 * PROVEN {
                next(1_000);
            }
            // The machine runs something else for a while.
            assert_eq!(next(20_000_000), Advice::Keep);
            let waited = (0..4 * PROVEN).take_while(|_| next(1_000) == Advice::Send).count();
            assert!(waited <= 2 * FEWEST as usize, "{waited}");
        }
    }
}
