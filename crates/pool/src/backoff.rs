//! How long a task waits before it is run once more.
//!
//! Source: Brooker, "Exponential backoff and jitter" (AWS Architecture Blog, 2015): without jitter, tasks that failed
//! together come back together.

use std::time::Duration;

/// How the delays are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// Between nothing and the whole delay.
    #[default]
    Full,
    /// Between a half and the whole of it.
    Equal,
    /// Between the first delay and three times the last one.
    Decorrelated,
}

/// When a task is run again that may be. How often is in [`Options::retries`](crate::Options::retries).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure, doubled with each further one.
    pub first: Duration,
    /// The longest delay.
    pub most: Duration,
    /// How the delays are spread.
    pub jitter: Jitter,
    /// No run begins so long after the submission, or later.
    pub budget: Option<Duration>,
    /// Whether the death of its worker is a failure after which a task is run again.
    pub crashes: bool,
}

impl Backoff {
    /// The delay after this many failures, at least one; `last` is the one before it, `chance` a number from 0 to 1.
    pub(crate) fn delay(&self, failures: u32, last: Duration, chance: f64) -> Duration {
        let doubled =
            2_u32.checked_pow(failures.saturating_sub(1)).and_then(|times| self.first.checked_mul(times));
        let whole = doubled.unwrap_or(self.most).min(self.most);
        match self.jitter {
            Jitter::None => whole,
            Jitter::Full => whole.mul_f64(chance),
            Jitter::Equal => whole / 2 + (whole / 2).mul_f64(chance),
            Jitter::Decorrelated => {
                let longest = last.max(self.first).saturating_mul(3).min(self.most);
                let least = self.first.min(longest);
                least + (longest - least).mul_f64(chance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(1);

    fn delay(jitter: Jitter, failures: u32, last: Duration, chance: f64) -> Duration {
        let backoff = Backoff { first: FIRST, most: MOST, jitter, budget: None, crashes: true };
        backoff.delay(failures, last, chance)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        for (failures, expected) in
            [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (40, 1000), (u32::MAX, 1000)]
        {
            let expected = Duration::from_millis(expected);
            assert_eq!(delay(Jitter::None, failures, Duration::ZERO, 0.3), expected);
            for chance in [0.0, 0.25, 1.0] {
                assert_eq!(delay(Jitter::Full, failures, Duration::ZERO, chance), expected.mul_f64(chance));
                let equal = delay(Jitter::Equal, failures, Duration::ZERO, chance);
                assert_eq!(equal, expected / 2 + (expected / 2).mul_f64(chance));
            }
        }
    }

    #[test]
    fn decorrelated_delays_follow_the_last_one() {
        let after = |last, chance| delay(Jitter::Decorrelated, 1, last, chance);
        assert_eq!((after(Duration::ZERO, 0.0), after(Duration::ZERO, 1.0)), (FIRST, FIRST * 3));
        assert_eq!((after(FIRST * 2, 0.0), after(FIRST * 2, 1.0)), (FIRST, FIRST * 6));
        assert_eq!((after(MOST, 0.0), after(MOST, 1.0)), (FIRST, MOST));
        // A first delay above the longest is the longest.
        let short = Backoff {
            first: MOST * 2,
            most: MOST,
            jitter: Jitter::Decorrelated,
            budget: None,
            crashes: true,
        };
        assert_eq!(short.delay(1, Duration::ZERO, 0.5), MOST);
    }
}
