//! The statistics of a pool.

use std::sync::Arc;
use std::time::Duration;

use crate::cause::Cause;
use crate::records::Histograms;

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
    /// Of the failed, those that a full queue dropped.
    pub dropped: u64,
    /// Runs of tasks beyond their first.
    pub retried: u64,
    /// Workers that died without being asked to.
    pub crashed: u64,
    /// Workers started to replace others.
    pub restarted: u64,
    /// Nanoseconds spent inside tasks, as the workers measured them.
    pub busy_ns: u64,
    /// Workers that the pool has sent away or ended, and that are gone, by [`Cause`].
    pub recycled: [u64; Cause::ALL.len()],
    /// Runs of tasks that gave no sign of life for too long.
    pub hung: u64,
    /// Of the failed, those that had cost too many workers their life.
    pub poisoned: u64,
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
    /// It is ready, and waits to take the place of a worker that is due to be replaced.
    Standby,
    /// The parent has told it to leave, or is killing it.
    Leaving,
}

/// One worker process.
#[derive(Clone, Copy, Debug)]
pub struct WorkerStatistics {
    /// Its number in the pool, from 1 on; no other worker of the pool gets it.
    pub number: u64,
    /// Process id; 0 while it is being forked.
    pub pid: i32,
    /// What it is doing.
    pub state: WorkerState,
    /// Tasks that it has answered.
    pub completed: u64,
    /// Nanoseconds inside tasks.
    pub busy_ns: u64,
    /// Since when it has been ready, if it has.
    pub age: Option<Duration>,
}

/// A task that a worker process runs now.
#[derive(Clone, Debug)]
pub struct Doing {
    /// The worker's number in the pool.
    pub worker: u64,
    /// The task's number in the pool.
    pub task: u64,
    /// Which attempt it is, from 1 on.
    pub attempt: u32,
    /// The function's name, if the task has one.
    pub function: Option<Arc<str>>,
    /// For how long it has run: from its call's beginning, or from when the pool saw that the worker had taken it.
    pub since: Duration,
}

/// What became of a signal for a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// The process has it.
    Sent,
    /// The pool has no worker process of this number.
    Gone,
    /// The process has no handler for it, which would end the process, so it was not sent.
    Deaf,
    /// The process is stopped, by a signal or a debugger, so it was not sent.
    Stopped,
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
    /// Tasks that have failed and are run again later.
    pub delayed: usize,
    /// How long the task has waited that has waited longest.
    pub oldest: Option<Duration>,
    /// The clients that have tasks waiting, by name, and how many.
    pub clients: Vec<(Arc<str>, usize)>,
    /// Workers that the pool is meant to have now.
    pub size: usize,
    /// Workers in service that are ready; for local threads as many as there are meant to be.
    pub ready: usize,
    /// Sessions that are open.
    pub sessions: usize,
    /// Worker processes; empty for a pool of local threads.
    pub workers: Vec<WorkerStatistics>,
    /// How long tasks took.
    pub histograms: Histograms,
}
