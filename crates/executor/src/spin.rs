//! How long to look before sleeping.
//!
//! Waking a core costs tens of microseconds, looking again costs nothing but the core. So an idle worker, and
//! a thread that waits for a job, look for a moment first: as long as that has paid lately, and not at all
//! where there is one core only. `ropewalk-shm` has the same idea for rings; this one also counts what else
//! wants the cores.
//!
//! Source: Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor" (SOSP 1991).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

const LEAST: Duration = Duration::from_micros(2);
/// After so many failures in a row one full try is made: what did not pay before may pay now.
const PROBE_EVERY: u32 = 8;
/// Looks between two glances at the clock.
const LOOKS: u32 = 16;

/// Cores that this process may use, asked once: the answer is read from files.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(ropewalk_os::cpu::usable_cores)
}

/// A waiter's memory of how long looking has paid.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    budget: Duration,
    failures: u32,
}

impl Spin {
    /// For a worker that looks for a job: up to 50 µs, in which a caller that has got one result may come with
    /// its next job. It does not yield: on a busy machine its core would be away for milliseconds.
    pub(crate) const fn for_worker() -> Self {
        Self::new(Duration::from_micros(50))
    }

    /// For a thread that waits for a result: up to 10 µs, because the worker that is to bring it may stand in
    /// line for this very core.
    pub(crate) const fn for_waiter() -> Self {
        Self::new(Duration::from_micros(10))
    }

    /// Starts out patient.
    const fn new(most: Duration) -> Self {
        Self { most, budget: most, failures: 0 }
    }

    /// It became ready. The clock is read only where there is something to learn: this time is in every job's.
    fn paid(&mut self, start: Instant) {
        self.failures = 0;
        if self.budget < self.most {
            self.budget = self.budget.max(start.elapsed() * 4).min(self.most);
        }
    }

    /// How long the next try may take.
    fn patience(&self) -> Duration {
        let probe = self.failures > 0 && self.failures.is_multiple_of(PROBE_EVERY);
        if probe { self.most } else { self.budget }
    }

    /// Looks until `ready`, at most for what has paid lately; true if it became ready.
    pub(crate) fn spin(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if cores() == 1 {
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
    fn what_never_pays_is_given_up_quickly_and_what_pays_is_not() {
        if cores() == 1 {
            return;
        }
        let mut spin = Spin::for_worker();
        for _ in 0..6 {
            assert!(!spin.spin(|| false));
        }
        assert_eq!(spin.budget, LEAST);
        let mut looks = 0;
        assert!(spin.spin(|| {
            looks += 1;
            looks > 3
        }));
        assert_eq!(spin.failures, 0);
    }

    #[test]
    fn each_failure_halves_what_the_next_try_may_take_and_an_early_end_costs_nothing() {
        if cores() == 1 {
            return;
        }
        let mut spin = Spin::for_worker();
        let most = spin.most;
        let start = Instant::now();
        assert!(!spin.spin(|| false));
        assert!(start.elapsed() >= most, "it looks for as long as it may");
        assert_eq!((spin.failures, spin.budget), (1, most / 2));
        let mut looks = 0;
        assert!(spin.spin(|| {
            looks += 1;
            true
        }));
        assert_eq!((looks, spin.failures, spin.budget), (1, 1, most / 2));
    }

    #[test]
    fn now_and_then_a_full_try_is_made() {
        let mut spin = Spin { most: Duration::from_secs(9), budget: LEAST, failures: 0 };
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
        let mut spin = Spin { most, budget: LEAST, failures: 5 };
        spin.paid(Instant::now() - Duration::from_secs(1));
        assert_eq!((spin.budget, spin.failures), (most, 0));
        spin.paid(Instant::now());
        assert_eq!(spin.budget, most, "what paid before is not forgotten");
    }

    #[test]
    fn the_cores_are_those_that_this_process_may_use() {
        assert_eq!(cores(), ropewalk_os::cpu::usable_cores());
    }
}
