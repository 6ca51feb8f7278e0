//! When the time of a call is up, and whose limit that is: the failure names it, so that it is looked for in its place.

use std::time::{Duration, Instant};

use crate::failed::{Code, Failed};

/// What a caller reads whose own time is up.
pub(crate) const OF_CALLER: &str = "the caller's deadline has passed";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When the time is up.
    pub at: Instant,
    /// The tool's own `deadline`, if that is it; else it is the caller's.
    own: Option<Duration>,
}

impl From<Instant> for Deadline {
    /// A caller's.
    fn from(at: Instant) -> Self {
        Self { at, own: None }
    }
}

impl Deadline {
    /// The first of two: one that there is already, and the tool's, which begins then.
    pub(crate) fn first(given: Option<Self>, own: Option<Duration>, from: Instant) -> Option<Self> {
        let own = own.and_then(|time| Some(Self { at: from.checked_add(time)?, own: Some(time) }));
        given.into_iter().chain(own).min_by_key(|one| one.at)
    }

    /// Why a call has failed whose time is up.
    pub(crate) fn passed(self) -> Failed {
        match self.own {
            None => Failed::new(Code::DeadlineExceeded, OF_CALLER),
            Some(own) => {
                let text = format!("the deadline of the tool, {} s, has passed", own.as_secs_f64());
                Failed::new(Code::DeadlineExceeded, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_counts_and_says_whose_it_is() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let caller = Some(Deadline::from(now + second));
        let said = |deadline: Option<Deadline>| deadline.map(|one| one.passed().message.into_owned());
        let of_caller = Some(String::from(OF_CALLER));
        assert_eq!(Deadline::first(None, None, now), None);
        assert_eq!(said(Deadline::first(caller, None, now)), of_caller);
        assert_eq!(said(Deadline::first(caller, Some(second * 2), now)), of_caller);
        let own = Deadline::first(caller, Some(second / 2), now);
        assert_eq!(own.map(|one| one.at), Some(now + second / 2));
        assert_eq!(said(own).as_deref(), Some("the deadline of the tool, 0.5 s, has passed"));
        // It began before the call came to the worker's queue, and stays what it was.
        assert_eq!(Deadline::first(own, Some(second / 2), now + second / 4), own);
        assert_eq!(Deadline::first(None, Some(Duration::MAX), now), None, "beyond the clock");
    }
}
