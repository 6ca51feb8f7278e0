//! One worker's part in the sleep protocol. The worker and the loom model both go through it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_sync::Parker;

use crate::sleep::{Sleep, Slept};

pub(crate) struct Seat {
    parker: Arc<Parker>,
    /// Whether `Sleep` counts this worker as a searcher.
    searching: Cell<bool>,
}

impl Seat {
    /// A seat for the calling thread, which its starter has counted as a searcher.
    pub(crate) fn of_searcher() -> Self {
        Self { parker: Parker::current(), searching: Cell::new(true) }
    }

    pub(crate) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Whether the worker is a searcher, or may become one.
    pub(crate) fn search(&self, sleep: &Sleep) -> bool {
        if !self.searching.get() {
            self.searching.set(sleep.try_search());
        }
        self.searching.get()
    }

    /// Ceases to be a searcher. True if it was the last: then the worker notifies for remaining work.
    #[must_use]
    pub(crate) fn leave_search(&self, sleep: &Sleep) -> bool {
        self.searching.replace(false) && sleep.end_search()
    }

    /// Sleeps unless `ready`; a searcher afterwards.
    pub(crate) fn sleep(
        &self,
        sleep: &Sleep,
        timeout: Option<Duration>,
        ready: impl FnOnce() -> bool,
    ) -> Slept {
        sleep.sleep(&self.parker, self.searching.replace(true), timeout, ready)
    }
}
