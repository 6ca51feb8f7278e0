//! The counters of an executor.

/// The counters of one worker. A worker that retires leaves its slot and its counters to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatistics {
    /// Jobs run, panics included; one for each turn of a [`Serial`](crate::Serial).
    pub executed: u64,
    /// Jobs taken over from other workers' deques.
    pub stolen: u64,
    /// Sleeps.
    pub parked: u64,
    /// Jobs that panicked.
    pub panicked: u64,
}

/// The counters of an executor. Each number was correct at some moment of the call, not all at the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Every worker slot that was ever used.
    pub workers: Vec<WorkerStatistics>,
    /// Live worker threads.
    pub live: usize,
    /// Workers that sleep.
    pub sleeping: usize,
    /// Jobs that run.
    pub running: usize,
    /// Jobs that wait for a worker, cancelled ones included. Exact for a bounded queue; for a busy unbounded one it may
    /// be too high by the jobs that arrived during the call.
    pub queued: usize,
    /// Jobs that wait for their time.
    pub delayed: usize,
    /// Panics of the panic hook itself.
    pub hook_panics: u64,
    /// Threads that the system refused to start.
    pub failed_starts: u64,
}

impl Statistics {
    /// Jobs run by all workers.
    pub fn executed(&self) -> u64 {
        self.workers.iter().map(|worker| worker.executed).sum()
    }

    /// Jobs that panicked.
    pub fn panicked(&self) -> u64 {
        self.workers.iter().map(|worker| worker.panicked).sum()
    }
}
