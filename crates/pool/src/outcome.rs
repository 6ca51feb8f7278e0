//! How tasks end: answered, failed, cancelled; and the records of their runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Code;
use ropewalk_shm::memory::Segment;

use crate::locked::Opaque;
use crate::wire::flags;

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
    /// [`crate::task::Options::hang`].
    Hang,
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
    /// It waited when a full queue was to take a newer task, or was the least that was to be taken.
    Dropped {
        /// Tasks that waited.
        depth: usize,
        /// How many may.
        capacity: usize,
    },
    /// The actor whose method it calls is gone for good.
    ActorDied {
        /// The actor's name.
        actor: Arc<str>,
        /// What ended it: the death of its worker, or its class, which raised.
        cause: Arc<Failure>,
    },
    /// Its run gave no sign of life for too long.
    Hung {
        /// The process that ran it.
        pid: i32,
        /// Where its code was, if that could be learned.
        stack: Option<Arc<str>>,
        /// Why there is no stack, if there is none.
        silent: Option<&'static str>,
    },
    /// It has cost so many workers their life that it is not run again.
    Poisoned {
        /// Their deaths, in order.
        deaths: Arc<[Death]>,
        /// Where its code was when the last of them died.
        stack: Option<Arc<str>>,
    },
    /// More of the pool's workers have died, unasked, than it may start anew.
    Unhealthy {
        /// So many may die,
        most: u32,
        /// in so much time.
        within: Duration,
        /// The last death.
        last: Arc<Failure>,
    },
}

impl Failure {
    /// Whether the task had a worker, which is gone or going: how far it was with a batch is known.
    pub fn took_worker(&self) -> bool {
        matches!(self, Self::Crashed { .. } | Self::Hung { .. } | Self::Poisoned { .. })
    }

    /// The death of a worker that a task is blamed for.
    pub(crate) fn as_death(&self) -> Death {
        match self {
            Self::Crashed { pid, status, .. } => Death { pid: *pid, status: *status, hung: false },
            Self::Hung { pid, .. } => Death { pid: *pid, status: None, hung: true },
            _ => Death { pid: 0, status: None, hung: false },
        }
    }

    /// Where the code of a worker was when it died.
    pub(crate) fn into_stack(self) -> Option<Arc<str>> {
        match self {
            Self::Crashed { stack, .. } | Self::Hung { stack, .. } | Self::Poisoned { stack, .. } => stack,
            _ => None,
        }
    }

    /// How a worker has died, in words.
    pub fn of_worker(&self) -> String {
        match self {
            Self::Crashed { pid, reason: Some(reason), .. } => format!("({pid}) was ended: {reason}"),
            Self::Crashed { pid, status: Some(status), .. } if status & 0x7f != 0 => {
                format!("({pid}) by signal {}", status & 0x7f)
            }
            Self::Crashed { pid, status: Some(status), .. } => {
                format!("({pid}) with exit status {}", (status >> 8) & 0xff)
            }
            Self::Crashed { pid, .. } => format!("({pid}) without a status"),
            _ => String::from("for another reason"),
        }
    }
}

/// The death of a worker that a task has caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The worker's process id.
    pub pid: i32,
    /// Its wait status, if it could be had.
    pub status: Option<i32>,
    /// Whether the pool has ended it, because the task hung.
    pub hung: bool,
}

impl Failure {
    /// What happened, in a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Crashed { .. } => "crashed",
            Self::TimedOut(..) => "timed out",
            Self::Neighbour { .. } => "neighbour ended",
            Self::Broken(_) | Self::Initializer(_) => "pool broken",
            Self::Limit { .. } => "limit reached",
            Self::Terminated => "terminated",
            Self::Dropped { .. } => "dropped",
            Self::ActorDied { .. } => "actor died",
            Self::Hung { .. } => "hung",
            Self::Poisoned { .. } => "poisoned",
            Self::Unhealthy { .. } => "pool unhealthy",
        }
    }

    /// The reason, as a phrase.
    pub fn cause(&self) -> Arc<str> {
        match self {
            Self::Crashed { reason: Some(reason), .. } => Arc::clone(reason),
            Self::Crashed { status: Some(status), .. } => match (status & 0x7f, status >> 8 & 0xff) {
                (0, code) => format!("its worker left with exit status {code}").into(),
                (signal, _) => format!("its worker was killed by signal {signal}").into(),
            },
            Self::Crashed { .. } => "its worker died".into(),
            Self::TimedOut(limit, phase) => {
                let limit = if *limit == Limit::Timeout { "task_timeout" } else { "deadline" };
                let phase = if *phase == Phase::Queued { "waited" } else { "ran" };
                format!("its {limit} passed while it {phase}").into()
            }
            Self::Neighbour { task, cancelled, .. } => {
                let why = if *cancelled { "was cancelled" } else { "was out of time" };
                format!("task {task} in its worker {why}").into()
            }
            Self::Broken(reason) | Self::Limit { reason, .. } => Arc::clone(reason),
            Self::Initializer(_) => "an initializer failed".into(),
            Self::Terminated => "the pool was terminated".into(),
            Self::ActorDied { actor, cause } => format!("{actor} is gone: {}", cause.cause()).into(),
            Self::Hung { .. } => "it gave no sign of life for too long".into(),
            Self::Poisoned { deaths, .. } => format!("{} workers have died of it", deaths.len()).into(),
            Self::Unhealthy { last, .. } => {
                format!("too many workers died, the last {}", last.of_worker()).into()
            }
            Self::Dropped { depth, capacity } => format!("{depth} tasks waited, and {capacity} may").into(),
        }
    }
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

impl Outcome {
    /// What happened, in a word or two.
    pub fn name(&self) -> &'static str {
        let raised = match self {
            Self::Replied(reply) => reply.flags & flags::ERROR != 0,
            Self::Local { raised, .. } => *raised,
            Self::Failed(failure) => return failure.name(),
            Self::Cancelled => return "cancelled",
        };
        if raised { "raised" } else { "returned" }
    }

    /// Why the task has no result, if it did not get that far.
    pub fn cause(&self) -> Option<Arc<str>> {
        match self {
            Self::Failed(failure) => Some(failure.cause()),
            Self::Replied(_) | Self::Local { .. } | Self::Cancelled => None,
        }
    }
}

/// The record of a finished task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The worker that ran it; 0 if none did.
    pub pid: i32,
    /// The worker's number in its pool; 0 if it has none.
    pub worker: u64,
    /// The worker's own measure of the call, in nanoseconds.
    pub busy_ns: u64,
    /// From submission to the end, in nanoseconds.
    pub total_ns: u64,
    /// How many inputs of a batch its worker said that it had begun, if the worker died meanwhile.
    pub reached: u64,
    /// From submission to the beginning of the last call, in nanoseconds, if that is known.
    pub begun_ns: Option<u64>,
    /// How long the call's thread was on a processor, in nanoseconds, if that was measured.
    pub cpu_ns: Option<u64>,
    /// When it was submitted, in nanoseconds since 1970.
    pub queued_at: u64,
    /// When it ended, if its backend has just read the clock.
    pub ended: Option<Instant>,
    /// Bytes of the call.
    pub sent: u64,
    /// Bytes of the result.
    pub received: u64,
}

/// A time that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A record as a task keeps it, and a pool of its last tasks: the same in less room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    worker: u64,
    busy_ns: u64,
    total_ns: u64,
    begun_ns: u64,
    cpu_ns: u64,
    queued_at: u64,
    sent: u64,
    received: u64,
    pid: i32,
    reached: u32,
}

impl Default for Kept {
    fn default() -> Self {
        Record::default().into()
    }
}

impl From<Record> for Kept {
    #[inline]
    fn from(record: Record) -> Self {
        let Record {
            pid,
            worker,
            busy_ns,
            total_ns,
            reached,
            begun_ns,
            cpu_ns,
            queued_at,
            ended: _,
            sent,
            received,
        } = record;
        let (begun_ns, cpu_ns) = (begun_ns.unwrap_or(UNKNOWN), cpu_ns.unwrap_or(UNKNOWN));
        // No batch is as large.
        let reached = u32::try_from(reached).unwrap_or(u32::MAX);
        Self { worker, busy_ns, total_ns, begun_ns, cpu_ns, queued_at, sent, received, pid, reached }
    }
}

impl From<Kept> for Record {
    fn from(kept: Kept) -> Self {
        let Kept { worker, busy_ns, total_ns, begun_ns, cpu_ns, queued_at, sent, received, pid, reached } =
            kept;
        let known = |time| Some(time).filter(|time| *time != UNKNOWN);
        let (begun_ns, cpu_ns, reached) = (known(begun_ns), known(cpu_ns), reached.into());
        Self {
            pid,
            worker,
            busy_ns,
            total_ns,
            reached,
            begun_ns,
            cpu_ns,
            queued_at,
            ended: None,
            sent,
            received,
        }
    }
}
