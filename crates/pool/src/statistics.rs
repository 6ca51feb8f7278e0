//! The statistics of a pool.

/// Running totals since the pool's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Tasks accepted.
    pub submitted: u64,
    /// Tasks that returned.
    pub completed: u64,
    /// Tasks that raised, crashed, or ran out of time.
    pub failed: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Of the failed, those out of time.
    pub timed_out: u64,
    /// Runs of tasks beyond their first.
    pub retried: u64,
    /// Workers that died without being asked to.
    pub crashed: u64,
    /// Workers started to replace others.
    pub restarted: u64,
    /// Nanoseconds spent inside tasks, as the workers measured them.
    pub busy_ns: u64,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It has not reported that it is ready.
    Starting,
    /// It waits for tasks.
    Idle,
    /// It runs one.
    Busy,
    /// The parent has told it to leave, or is killing it.
    Leaving,
}

/// One worker process.
#[derive(Clone, Copy, Debug)]
pub struct WorkerStatistics {
    /// Process id; 0 while it is being forked.
    pub pid: i32,
    /// What it is doing.
    pub state: WorkerState,
    /// Tasks that it has answered.
    pub completed: u64,
    /// Nanoseconds inside tasks.
    pub busy_ns: u64,
}

/// A snapshot of a pool.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Running totals.
    pub counters: Counters,
    /// Tasks that wait.
    pub queued: usize,
    /// Tasks that run.
    pub running: usize,
    /// Worker processes; empty for a pool of local threads.
    pub workers: Vec<WorkerStatistics>,
}
