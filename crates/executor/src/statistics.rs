//! What an executor has done, in numbers.

/// What one worker has done. A worker that retires hands its place, and its numbers, to the next.
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

/// What an executor has done and has before it. Each number was right at some moment of the call, not all at
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Every worker's place that was ever used.
    pub workers: Vec<WorkerStatistics>,
    /// Worker threads that live.
    pub live: usize,
    /// Workers that sleep.
    pub sleeping: usize,
    /// Jobs that run.
    pub running: usize,
    /// Jobs that wait for a worker, cancelled ones included. Exact for a bounded queue; for an unbounded one at
    /// work it may be some too many, by what came in during the call.
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
