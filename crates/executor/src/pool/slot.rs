//! A worker's slot in its pool: the data that other threads may read. The slot outlives the worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_deque::{Stealer, Worker as Deque};
use ropewalk_sync::{AtomicRef, Mutex};

use crate::ledger::Tally;
use crate::statistics::WorkerStatistics;
use crate::work::{Label, Work};

/// It has cache lines to itself, because its worker writes to it with every job.
#[repr(align(128))]
pub(super) struct Slot {
    pub(super) tally: Tally,
    pub(super) executed: Counter,
    pub(super) stolen: Counter,
    pub(super) parked: Counter,
    pub(super) panicked: Counter,
    /// Of the running job. Written by the worker.
    label: AtomicRef<Label>,
    /// Made with the first worker.
    stealer: OnceLock<Stealer<Work>>,
    /// The deque, while no worker owns it.
    deque: Mutex<Option<Deque<Work>>>,
}

/// A counter that one worker writes and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            tally: Tally::default(),
            executed: Counter::default(),
            stolen: Counter::default(),
            parked: Counter::default(),
            panicked: Counter::default(),
            label: AtomicRef::default(),
            stealer: OnceLock::new(),
            deque: Mutex::new(None),
        }
    }

    /// Takes the deque for a new worker. First in, first out: jobs start in the order in which they were
    /// handed in, so that none is starved by those that its own jobs hand in later.
    pub(super) fn move_in(&self) -> Deque<Work> {
        let deque = self.deque.lock().take().unwrap_or_else(Deque::new_fifo);
        self.stealer.get_or_init(|| deque.stealer());
        deque
    }

    /// Leaves the deque for the next worker.
    pub(super) fn move_out(&self, deque: Deque<Work>) {
        *self.deque.lock() = Some(deque);
    }

    pub(super) fn stealer(&self) -> Option<&Stealer<Work>> {
        self.stealer.get()
    }

    pub(super) fn has_work(&self) -> bool {
        self.stealer().is_some_and(|stealer| !stealer.is_empty())
    }

    /// Publishes the label of the running job; returns the previous one.
    pub(super) fn show(&self, label: Option<&'static Label>) -> Option<&'static Label> {
        let before = self.label.load();
        self.label.store(label);
        before
    }

    /// The name of the job that runs.
    pub(super) fn running(&self) -> Option<&'static str> {
        self.label.load().map(|label| label())
    }

    pub(super) fn statistics(&self) -> WorkerStatistics {
        WorkerStatistics {
            executed: self.executed.get(),
            stolen: self.stolen.get(),
            parked: self.parked.get(),
            panicked: self.panicked.get(),
        }
    }
}
