//! The engine's one source of time, which a simulation sets.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(not(any(test, fuzzing)))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[cfg(not(any(test, fuzzing)))]
pub(crate) fn nanos() -> u64 {
    ropewalk_os::clock::monotonic_nanos()
}

#[cfg(any(test, fuzzing))]
pub(crate) use simulated::{nanos, now, set, unset};

/// Nanoseconds of a duration; one that is too long for them is the longest.
pub(crate) fn in_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What relates this process's `Instant`s to another clock: a moment on both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    at: Instant,
    nanos: u64,
}

impl Anchor {
    /// Relates them to the monotonic clock. The two are one clock, but an `Instant` does not say its nanoseconds.
    pub(crate) fn monotonic() -> Self {
        // Of several readings the one that took the least time: this thread may lose its core between two.
        let readings = (0..4).map(|_| {
            let (at, nanos) = (now(), nanos());
            (now().saturating_duration_since(at), Self { at, nanos })
        });
        let best = readings.min_by_key(|(took, _)| *took);
        best.map_or_else(|| Self { at: now(), nanos: nanos() }, |(_, anchor)| anchor)
    }

    /// Relates them to the time of day.
    pub(crate) fn of_day(at: Instant) -> Self {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at, nanos: in_nanos(day) }
    }

    /// A moment in nanoseconds of the other clock.
    pub(crate) fn nanos_of(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.at) {
            Some(later) => self.nanos.saturating_add(in_nanos(later)),
            None => self.nanos.saturating_sub(in_nanos(self.at.duration_since(at))),
        }
    }

    /// How long ago it was made.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

#[cfg(any(test, fuzzing))]
mod simulated {
    use std::cell::Cell;
    use std::time::Instant;

    /// Nanoseconds at which a simulation begins.
    const BEGIN: u64 = 1 << 60;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
        static FIRST: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// Nanoseconds of the time that this thread's simulation has set, else of the real one.
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn nanos() -> u64 {
        match (NOW.get(), FIRST.get()) {
            (Some(now), Some(first)) => BEGIN + now.saturating_duration_since(first).as_nanos() as u64,
            _ => ropewalk_os::clock::monotonic_nanos(),
        }
    }

    /// The time that this thread's simulation has set, else the real one.
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn now() -> Instant {
        NOW.get().unwrap_or_else(Instant::now)
    }

    /// Stops this thread's time at a moment.
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn set(now: Instant) {
        NOW.set(Some(now));
        FIRST.set(FIRST.get().or(Some(now)));
    }

    /// Lets this thread's time run again.
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn unset() {
        NOW.set(None);
        FIRST.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_holds_both_ways() {
        let anchor = Anchor { at: Instant::now(), nanos: 1000 };
        let time = Duration::from_nanos(300);
        assert_eq!(anchor.nanos_of(anchor.at + time), 1300);
        assert_eq!(anchor.nanos_of(anchor.at - time), 700);
        assert_eq!(anchor.nanos_of(anchor.at - time * 10), 0);
        assert_eq!(anchor.age(anchor.at + time), time);
    }

    #[test]
    fn the_monotonic_clock_is_the_one_of_instants() {
        let anchor = Anchor::monotonic();
        let before = nanos();
        let at = anchor.nanos_of(now());
        let after = nanos();
        // No more than the anchor's own reading took, which is not a time to be judged: a second.
        assert!((before - 1_000_000_000..after + 1_000_000_000).contains(&at));
    }
}
