//! The bound on waiting jobs.

use ropewalk_sync::Event;
use ropewalk_sync::atomic::{AtomicUsize, Ordering};

/// Counts the places that are taken. It has cache lines to itself, because all threads write to it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Gate {
    limit: usize,
    /// The exact number of places taken: producers add, the thread that starts a job subtracts.
    taken: AtomicUsize,
    /// For producers that wait for a place.
    pub(crate) room: Event,
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0), room: Event::new() }
    }

    /// Takes a place, if one is free.
    pub(crate) fn try_enter(&self) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < self.limit).then_some(taken + 1)
            })
            .is_ok()
    }

    #[cfg(not(loom))]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.limit
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.room.notify();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_up_to_the_limit() {
        let gate = Gate::new(2);
        assert!(gate.has_room() && gate.try_enter());
        assert!(gate.has_room() && gate.try_enter());
        assert!(!gate.has_room() && !gate.try_enter());
        assert_eq!(gate.taken(), 2);
        gate.leave();
        assert_eq!((gate.taken(), gate.has_room()), (1, true));
        let none = Gate::new(0);
        assert!(!none.has_room() && !none.try_enter());
    }
}
