//! What remains of an executor that was shut down.

use std::fmt;

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// The thread that runs it.
    pub worker: String,
    /// The type of the job's closure: its module and function.
    pub job: &'static str,
}

/// What [`join`](crate::Executor::join) left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ShutdownReport {
    /// Jobs that still run.
    pub running: Vec<RunningJob>,
    /// Jobs that wait for a worker, cancelled ones included.
    pub queued: usize,
    /// Jobs that wait for their time.
    pub delayed: usize,
}

impl ShutdownReport {
    /// Whether all accepted jobs have ended.
    pub fn is_complete(&self) -> bool {
        self.running.is_empty() && self.queued == 0 && self.delayed == 0
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_complete() {
            return f.write_str("everything is over");
        }
        write!(f, "{} running, {} queued, {} delayed", self.running.len(), self.queued, self.delayed)?;
        for RunningJob { worker, job } in &self.running {
            write!(f, "; {worker} runs {job}")?;
        }
        Ok(())
    }
}
