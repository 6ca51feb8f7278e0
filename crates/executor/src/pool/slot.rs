//! A worker's slot in its pool: the data that other threads may read. The slot outlives the worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crossbeam_deque::{Stealer, Worker as Deque};
use ropewalk_sync::Mutex;

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
    /// The `Label` of the job that runs, or null. Written by the worker; a function's address carries no other
    /// data, so Relaxed.
    label: AtomicPtr<()>,
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
            label: AtomicPtr::new(std::ptr::null_mut()),
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

    /// Publishes the running job's label; returns the previous one.
    pub(super) fn show(&self, label: Option<Label>) -> Option<Label> {
        let before = self.shown();
        let shown = label.map_or(std::ptr::null_mut(), |label| label as *mut ());
        self.label.store(shown, Ordering::Relaxed);
        before
    }

    fn shown(&self) -> Option<Label> {
        let shown = self.label.load(Ordering::Relaxed);
        // SAFETY: the pointer is null, which is `None` of a function pointer, or `show` made it of a `Label`.
        unsafe { std::mem::transmute::<*mut (), Option<Label>>(shown) }
    }

    /// The name of the job that runs.
    pub(super) fn running(&self) -> Option<&'static str> {
        self.shown().map(|label| label())
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
