//! How long to look before sleeping.
//!
//! Waking a core costs tens of microseconds, looking again costs nothing but the core. So a waiter looks for
//! a moment, for as long as that has paid lately, and only while the machine has a core to spare.
//!
//! Source: the idea is that of adaptive mutexes; Karlin, Li, Manasse, Owicki, "Empirical studies of
//! competitive spinning for a shared-memory multiprocessor" (SOSP 1991).

use std::time::{Duration, Instant};

const LEAST: Duration = Duration::from_micros(2);
const MOST: Duration = Duration::from_micros(50);
/// After so many failures in a row one full try is made: what did not pay before may pay now.
const PROBE_EVERY: u32 = 8;
/// Looks between two glances at the clock.
const LOOKS: u32 = 16;

/// A waiter's memory of how long looking has paid.
#[derive(Debug)]
pub struct AdaptiveSpin {
    budget: Duration,
    failures: u32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self::new()
    }
}

impl AdaptiveSpin {
    /// Starts out patient.
    pub fn new() -> Self {
        Self { budget: MOST, failures: 0 }
    }

    /// How long the next try may take.
    fn patience(&self) -> Duration {
        let probe = self.failures > 0 && self.failures.is_multiple_of(PROBE_EVERY);
        if probe { MOST } else { self.budget }
    }

    /// It became ready after so long.
    fn paid(&mut self, after: Duration) {
        self.budget = self.budget.max(after * 4).min(MOST);
        self.failures = 0;
    }

    /// Looks until `ready`, at most for what has paid lately and only while `may_spin`; true if it became
    /// ready.
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
                    self.paid(start.elapsed());
                    return true;
                }
            }
            if !may_spin() {
                // The core was wanted; that says nothing about how long looking would have taken.
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
        let mut spin = AdaptiveSpin::new();
        let start = Instant::now();
        assert!(!spin.spin(|| true, || false));
        assert!(start.elapsed() >= MOST, "it looks for as long as it may");
        assert_eq!((spin.failures, spin.budget), (1, MOST / 2));
        let asked = std::cell::Cell::new(0);
        let may_spin = || asked.replace(asked.get() + 1) == 0;
        assert!(!spin.spin(may_spin, || false));
        assert_eq!((asked.get(), spin.failures, spin.budget), (2, 1, MOST / 2));
        let mut looks = 0;
        assert!(spin.spin(
            || true,
            || {
                looks += 1;
                looks == LOOKS
            }
        ));
        assert_eq!(spin.failures, 0);
    }

    #[test]
    fn now_and_then_a_full_try_is_made() {
        let mut spin = AdaptiveSpin { budget: LEAST, failures: 0 };
        let full: Vec<_> = (0..20)
            .filter(|failures| {
                spin.failures = *failures;
                spin.patience() == MOST
            })
            .collect();
        assert_eq!(full, [PROBE_EVERY, 2 * PROBE_EVERY]);
        spin.failures = 1;
        assert_eq!(spin.patience(), LEAST);
    }

    #[test]
    fn what_has_paid_is_worth_four_times_as_much() {
        let mut spin = AdaptiveSpin { budget: LEAST, failures: 5 };
        spin.paid(LEAST * 2);
        assert_eq!((spin.budget, spin.failures), (LEAST * 8, 0));
        spin.paid(LEAST);
        assert_eq!(spin.budget, LEAST * 8, "what paid before is not forgotten");
        spin.paid(MOST);
        assert_eq!(spin.budget, MOST);
    }

    #[test]
    fn a_busy_machine_is_not_spun_on() {
        let mut looks = 0;
        assert!(!AdaptiveSpin::new().spin(
            || false,
            || {
                looks += 1;
                false
            }
        ));
        assert_eq!(looks, 1);
    }
}
