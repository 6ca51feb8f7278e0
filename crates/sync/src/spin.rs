//! How long to spin before sleeping, and whether to spin at all.
//!
//! Waking a core costs tens of microseconds; checking again costs nothing but the core. So a waiter spins for a moment
//! first. [`AdaptiveSpin`] belongs to one waiter and learns for how long spinning pays. [`SpinScore`] belongs to all
//! waiters of one thing, which spin for a fixed time, and learns whether spinning pays.
//!
//! Source: the idea is that of adaptive mutexes; Karlin, Li, Manasse, Owicki, "Empirical studies of competitive
//! spinning for a shared-memory multiprocessor" (SOSP 1991).

mod score;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use score::SpinScore;

const LEAST: Duration = Duration::from_micros(2);
const MOST: Duration = Duration::from_micros(50);
/// After this many failures in a row the next spin has its full length: what did not pay before may pay now.
const PROBE_EVERY: u32 = 8;
/// Checks between two readings of the clock.
const LOOKS: u32 = 16;

/// Checks after which [`until`] assumes that the other thread has lost its core.
const PROMPT: u32 = 64;

/// Spins until `ready`, which another thread makes true within a few instructions. If it takes longer, that thread has
/// lost its core, and the caller yields its own between two checks.
#[inline]
pub fn until(mut ready: impl FnMut() -> bool) {
    let mut looks = 0;
    while !ready() {
        if looks < PROMPT {
            looks += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Cores that this process may use. The number is read once, because it comes from files.
#[inline]
pub fn usable_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(ropewalk_os::cpu::usable_cores)
}

/// Whether another core can do the work that a waiter waits for.
#[inline]
pub fn has_other_cores() -> bool {
    usable_cores() > 1
}

/// A waiter's memory of how long spinning has paid.
#[derive(Debug)]
pub struct AdaptiveSpin {
    most: Duration,
    budget: Duration,
    failures: u32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self::new()
    }
}

impl AdaptiveSpin {
    /// Spins for 50 µs at most, which is about the cost of a wake-up.
    pub const fn new() -> Self {
        Self::up_to(MOST)
    }

    /// Spins for this long at most. The first spin has its full length.
    pub const fn up_to(most: Duration) -> Self {
        Self { most, budget: most, failures: 0 }
    }

    /// How long the next spin may take.
    fn patience(&self) -> Duration {
        let probe = self.failures > 0 && self.failures.is_multiple_of(PROBE_EVERY);
        if probe { self.most } else { self.budget }
    }

    /// Learns from a success. It reads the clock only where there is something to learn, because this time is part of
    /// every round trip.
    fn paid(&mut self, start: Instant) {
        self.failures = 0;
        if self.budget < self.most {
            self.budget = self.budget.max(start.elapsed() * 4).min(self.most);
        }
    }

    /// Spins until `ready`, at most for as long as has paid lately, and only while `may_spin`; returns whether it
    /// became ready. It does not yield: on a busy machine it would lose its core for milliseconds.
    pub fn spin(&mut self, may_spin: impl Fn() -> bool, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if !may_spin() {
            return false;
        }
        let budget = self.patience();
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if ready() {
                    self.paid(start);
                    return true;
                }
            }
            if !may_spin() {
                // Other work needs the core; that says nothing about how long spinning would have taken.
                return false;
            }
            if start.elapsed() > budget {
                self.failures = self.failures.wrapping_add(1);
                self.budget = (self.budget / 2).max(LEAST);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_pays_is_given_up_quickly() {
        let mut spin = AdaptiveSpin::new();
        for _ in 0..6 {
            assert!(!spin.spin(|| true, || false));
        }
        assert_eq!(spin.budget, LEAST);
        assert!(spin.spin(|| true, || true));
    }

    #[test]
    fn each_failure_halves_what_the_next_try_may_take_and_a_wanted_core_does_not() {
        for most in [MOST, Duration::from_micros(10)] {
            let mut spin = AdaptiveSpin::up_to(most);
            let start = Instant::now();
            assert!(!spin.spin(|| true, || false));
            assert!(start.elapsed() >= most, "it looks for as long as it may");
            assert_eq!((spin.failures, spin.budget), (1, most / 2));
            let asked = std::cell::Cell::new(0);
            let may_spin = || asked.replace(asked.get() + 1) == 0;
            assert!(!spin.spin(may_spin, || false));
            assert_eq!((asked.get(), spin.failures, spin.budget), (2, 1, most / 2));
            let mut looks = 0;
            let ready = || {
                looks += 1;
                looks == LOOKS
            };
            assert!(spin.spin(|| true, ready));
            assert_eq!(spin.failures, 0);
        }
    }

    #[test]
    fn what_is_ready_at_once_teaches_nothing() {
        let mut spin = AdaptiveSpin { most: MOST, budget: LEAST, failures: 1 };
        let mut looks = 0;
        let ready = || {
            looks += 1;
            true
        };
        assert!(spin.spin(|| unreachable!("it is ready"), ready));
        assert_eq!((looks, spin.failures, spin.budget), (1, 1, LEAST));
    }

    #[test]
    fn now_and_then_a_full_try_is_made() {
        let mut spin = AdaptiveSpin { most: Duration::from_secs(9), budget: LEAST, failures: 0 };
        let full: Vec<_> = (0..20)
            .filter(|failures| {
                spin.failures = *failures;
                spin.patience() == spin.most
            })
            .collect();
        assert_eq!(full, [PROBE_EVERY, 2 * PROBE_EVERY]);
        spin.failures = 1;
        assert_eq!(spin.patience(), LEAST);
    }

    #[test]
    fn what_has_paid_is_worth_four_times_as_much() {
        let most = Duration::from_secs(2);
        let mut spin = AdaptiveSpin { most, budget: LEAST, failures: 5 };
        spin.paid(Instant::now() - Duration::from_millis(200));
        assert_eq!(spin.failures, 0);
        assert!(spin.budget >= Duration::from_millis(800) && spin.budget < most, "{:?}", spin.budget);
        let before = spin.budget;
        spin.paid(Instant::now());
        assert_eq!(spin.budget, before, "what paid before is not forgotten");
        spin.paid(Instant::now() - Duration::from_secs(1));
        assert_eq!(spin.budget, most);
    }

    #[test]
    fn a_busy_machine_is_not_spun_on() {
        let mut looks = 0;
        let ready = || {
            looks += 1;
            false
        };
        assert!(!AdaptiveSpin::new().spin(|| false, ready));
        assert_eq!(looks, 1);
    }

    #[test]
    fn what_takes_long_is_waited_for_too() {
        let mut looks = 0;
        until(|| {
            looks += 1;
            looks > 2 * PROMPT
        });
        assert_eq!(looks, 2 * PROMPT + 1);
    }

    #[test]
    fn the_cores_are_those_that_this_process_may_use() {
        assert_eq!(usable_cores(), ropewalk_os::cpu::usable_cores());
    }
}
