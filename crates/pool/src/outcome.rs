//! How tasks end: answered, failed, cancelled; and the records of their runs.

use std::sync::Arc;

use ropewalk_base::Code;
use ropewalk_shm::memory::Segment;

use crate::locked::Opaque;

/// A finished worker's answer, still encoded.
#[derive(Debug)]
pub struct Reply {
    /// Bits of `wire::flags`.
    pub flags: u16,
    /// The frame.
    pub bytes: Vec<u8>,
    /// The segments that the frame refers to.
    pub segments: Vec<Arc<Segment>>,
}

/// Which limit a task overran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`crate::task::Options::timeout`].
    Timeout,
    /// [`crate::task::Options::deadline`].
    Deadline,
}

/// Which part of its budget a task overran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was never started.
    Queued,
    /// It was running, and has been ended.
    Running,
}

/// Why a task that raised nothing has no result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Its worker died while it ran: by signal, or with an exit status.
    Crashed {
        /// The worker's process id.
        pid: i32,
        /// The wait status, if it could be had.
        status: Option<i32>,
        /// A remark of the runtime.
        reason: Option<Arc<str>>,
        /// Where its code was, if its fault handler could still say it.
        stack: Option<Arc<str>>,
        /// Whether it died before it was ready for tasks, in its initializer for instance.
        starting: bool,
    },
    /// Its time was up.
    TimedOut(Limit, Phase),
    /// Its worker was ended for another task that ran in it, which was cancelled or out of time.
    Neighbour {
        /// The worker's process id.
        pid: i32,
        /// The other task.
        task: u64,
        /// Whether that one was cancelled.
        cancelled: bool,
    },
    /// The pool broke: the text says why.
    Broken(Arc<str>),
    /// A limit of the system kept the task from being sent, or its result from being received: the text names it.
    Limit {
        /// Which kind of limit.
        code: Code,
        /// What failed.
        reason: Arc<str>,
    },
    /// An initializer failed; the reply is its exception, encoded.
    Initializer(Arc<Reply>),
    /// The pool was terminated while the task ran.
    Terminated,
}

/// How a task ended.
#[derive(Debug)]
pub enum Outcome {
    /// The function returned or raised; `flags` says which.
    Replied(Reply),
    /// The same for a local task.
    Local {
        /// The value or the exception.
        value: Opaque,
        /// Whether it is an exception.
        raised: bool,
    },
    /// It did not get that far.
    Failed(Failure),
    /// It was cancelled.
    Cancelled,
}

/// The record of a finished task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The worker that ran it; 0 if none did.
    pub pid: i32,
    /// The worker's own measure of the call, in nanoseconds.
    pub busy_ns: u64,
    /// From submission to the end, in nanoseconds.
    pub total_ns: u64,
    /// How many inputs of a batch its worker said that it had begun, if the worker died meanwhile.
    pub reached: u64,
}
