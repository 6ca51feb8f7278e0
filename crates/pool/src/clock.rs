//! The engine's one source of time, which a simulation sets.

#[cfg(not(any(test, fuzzing)))]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(any(test, fuzzing))]
pub(crate) use simulated::{now, set, unset};

#[cfg(any(test, fuzzing))]
mod simulated {
    use std::cell::Cell;
    use std::time::Instant;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
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
    }

    /// Lets this thread's time run again.
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn unset() {
        NOW.set(None);
    }
}
