//! The events that pools report: see [`ropewalk_bus::reports`].
//!
//! Pools report with their locks held. A report is kept in the listeners' mailboxes, and no handler is called; without
//! a listener no report is made.

use std::sync::Arc;

use ropewalk_bus::reports::{Field, Report, Reporter};

use crate::cause::Cause;

/// Something happened in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The pool's name.
    pub pool: Arc<str>,
    /// What happened.
    pub what: What,
}

/// What can happen in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A worker process is ready to run tasks.
    WorkerStarted {
        /// Its process id.
        pid: i32,
    },
    /// A worker is gone that the pool has sent away or ended. Unless the pool was to have fewer, another has its place.
    WorkerRecycled {
        /// Its process id.
        pid: i32,
        /// Its number in the pool.
        number: u64,
        /// Why.
        cause: Cause,
        /// Its private memory when it was sent away, if that is known.
        memory: Option<u64>,
        /// Tasks that it had answered.
        tasks: u64,
    },
    /// Workers are replaced for their memory after each task: the limit is below what one task needs. Told once.
    LimitTooLow {
        /// The last one's process id.
        pid: i32,
        /// Its number in the pool.
        number: u64,
        /// The memory that it had.
        memory: Option<u64>,
        /// The limit, and what it had.
        reason: Arc<str>,
    },
    /// The pool is meant to have another number of workers.
    Resized {
        /// How many.
        workers: usize,
    },
    /// A worker has ended by itself, or was killed from outside.
    WorkerCrashed {
        /// Its process id.
        pid: i32,
        /// Its wait status, if it could be had.
        status: Option<i32>,
        /// Why the pool gave it up, if it did.
        reason: Option<Arc<str>>,
    },
    /// A task was not taken because the queue is full: its caller waits, or was refused.
    Saturated {
        /// Tasks in the queue.
        queued: usize,
    },
    /// A task has ended without a result: it raised, was out of time, or went down with its worker.
    TaskFailed {
        /// Its number.
        task: u64,
        /// The process that ran it; 0 if none did.
        pid: i32,
        /// How it failed.
        how: How,
    },
    /// A task gave no sign of life for too long; its worker, if that is a process, is ended.
    Hung {
        /// The task's number.
        task: u64,
        /// The process that runs it.
        pid: i32,
    },
    /// A task has cost too many workers their life, and is not run again.
    Poisoned {
        /// The task's number.
        task: u64,
        /// The last worker's process id.
        pid: i32,
        /// The function's name.
        function: Option<Arc<str>>,
    },
    /// Workers die one after the other: the next ones are started later.
    Delayed {
        /// How many have died, and how long the pool waits.
        reason: Arc<str>,
    },
    /// Too many workers have died: the pool breaks.
    Unhealthy {
        /// How many, and how the last one died.
        reason: Arc<str>,
    },
    /// A task is to be run once more: at once, or after a delay.
    TaskRetried {
        /// Its number.
        task: u64,
        /// The process that ran it; 0 if none did, or if that was a thread.
        pid: i32,
        /// How its last run has ended.
        why: &'static str,
    },
    /// A stream was accepted.
    StreamOpened {
        /// The number of its task.
        task: u64,
    },
    /// A stream has ended: read to its end, left, or failed.
    StreamClosed {
        /// The number of its task.
        task: u64,
        /// How it has ended.
        why: &'static str,
    },
    /// A worker was asked to make the state of a session, or the object of an actor; or a thread of this process has
    /// made it.
    SessionMade {
        /// The worker's number in the pool; its process may be yet to start. 0 for a thread of this process.
        worker: u64,
        /// The session's name.
        session: Arc<str>,
        /// The number of the state.
        generation: u32,
    },
    /// The pool runs nothing any more, for something went wrong.
    Broken {
        /// What.
        reason: Arc<str>,
    },
    /// The pool has ended on request.
    Ended,
    /// A session's state, or an actor's object, is gone with its worker.
    SessionLost {
        /// The session's name.
        session: Arc<str>,
        /// The worker's process id.
        pid: i32,
        /// Whether it is not made again: an actor without restarts, or anything in a pool that has come to its end.
        for_good: bool,
    },
}

/// How a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its function raised.
    Raised,
    /// Its time was up.
    TimedOut,
    /// Its worker died.
    Crashed,
    /// It gave no sign of life.
    Hung,
    /// It had cost too many workers their life.
    Poisoned,
    /// The pool broke.
    Broken,
    /// A full queue dropped it: so many waited.
    Dropped(usize),
}

impl What {
    /// The topic that it is reported on.
    pub fn topic(&self) -> &'static str {
        TOPICS[self.index()]
    }

    fn index(&self) -> usize {
        match self {
            Self::WorkerStarted { .. } => 0,
            Self::WorkerRecycled { .. } => 1,
            Self::WorkerCrashed { .. } => 2,
            Self::Saturated { .. } => 3,
            Self::TaskFailed { .. } => 4,
            Self::Broken { .. } => 5,
            Self::Ended => 6,
            Self::Resized { .. } => 7,
            Self::Hung { .. } => 8,
            Self::Poisoned { .. } => 9,
            Self::Delayed { .. } => 10,
            Self::Unhealthy { .. } => 11,
            Self::TaskRetried { .. } => 12,
            Self::StreamOpened { .. } => 13,
            Self::StreamClosed { .. } => 14,
            Self::SessionMade { .. } => 15,
            Self::SessionLost { .. } => 16,
            Self::LimitTooLow { .. } => 17,
        }
    }
}

/// The topics, in the order of `What::index`.
pub const TOPICS: [&str; 18] = [
    "pool.worker.started",
    "pool.worker.recycled",
    "pool.worker.crashed",
    "pool.saturated",
    "pool.task.failed",
    "pool.broken",
    "pool.ended",
    "pool.resized",
    "pool.task.hung",
    "pool.task.poisoned",
    "pool.restarts.delayed",
    "pool.unhealthy",
    "pool.task.retried",
    "pool.stream.opened",
    "pool.stream.closed",
    "pool.session.made",
    "pool.session.lost",
    "pool.limit.low",
];

static REPORTER: Reporter<{ TOPICS.len() }> = Reporter::new(TOPICS);

impl Report for Event {
    fn topic(&self) -> &'static str {
        self.what.topic()
    }

    /// The pool, the worker's process id, the task, the wait status, how many are queued, why, the worker's number, its
    /// memory, its tasks, the number of workers, the session, and the number of its state.
    fn fields(&self) -> Vec<Field<'_>> {
        let number = |number: Option<u64>| {
            number.and_then(|number| i64::try_from(number).ok()).map_or(Field::Nothing, Field::Number)
        };
        let (mut process, mut task, mut status) = (0, Field::Nothing, Field::Nothing);
        let (mut waiting, mut why) = (Field::Number(0), Field::Nothing);
        let (mut session, mut state) = (Field::Nothing, Field::Nothing);
        let mut recycled = [Field::Nothing, Field::Nothing, Field::Nothing, Field::Nothing];
        match &self.what {
            What::WorkerStarted { pid } => process = *pid,
            What::WorkerRecycled { pid, number: worker, cause, memory, tasks } => {
                process = *pid;
                why = Field::Text(cause.name());
                recycled = [number(Some(*worker)), number(*memory), number(Some(*tasks)), Field::Nothing];
            }
            What::LimitTooLow { pid, number: worker, memory, reason } => {
                process = *pid;
                why = Field::Text(reason);
                recycled = [number(Some(*worker)), number(*memory), Field::Nothing, Field::Nothing];
            }
            What::Resized { workers } => recycled[3] = number(u64::try_from(*workers).ok()),
            What::WorkerCrashed { pid, status: left, reason } => {
                process = *pid;
                status = left.map_or(Field::Nothing, |left| Field::Number(left.into()));
                why = reason.as_deref().map_or(Field::Nothing, Field::Text);
            }
            What::Saturated { queued } => waiting = number(u64::try_from(*queued).ok()),
            What::TaskFailed { task: id, pid, how } => {
                process = *pid;
                task = number(Some(*id));
                if let How::Dropped(queued) = how {
                    waiting = number(u64::try_from(*queued).ok());
                }
                why = Field::Text(how.text());
            }
            What::Hung { task: id, pid } => {
                process = *pid;
                task = number(Some(*id));
            }
            What::Poisoned { task: id, pid, function } => {
                process = *pid;
                task = number(Some(*id));
                why = function.as_deref().map_or(Field::Nothing, Field::Text);
            }
            What::Broken { reason } | What::Delayed { reason } | What::Unhealthy { reason } => {
                why = Field::Text(reason);
            }
            What::TaskRetried { task: id, pid, why: how } => {
                process = *pid;
                task = number(Some(*id));
                why = Field::Text(how);
            }
            What::StreamOpened { task: id } => task = number(Some(*id)),
            What::StreamClosed { task: id, why: how } => {
                task = number(Some(*id));
                why = Field::Text(how);
            }
            What::SessionMade { worker, session: name, generation } => {
                recycled[0] = number((*worker > 0).then_some(*worker));
                (session, state) = (Field::Text(name), number(Some((*generation).into())));
            }
            What::Ended => {}
            What::SessionLost { session: name, pid, for_good } => {
                process = *pid;
                session = Field::Text(name);
                why = Field::Text(if *for_good { "gone for good" } else { "made again" });
            }
        }
        let mut all =
            vec![Field::Text(&self.pool), Field::Number(process.into()), task, status, waiting, why];
        all.extend(recycled);
        all.extend([session, state]);
        all
    }
}

impl How {
    fn text(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::Hung => "hung",
            Self::Poisoned => "poisoned",
            Self::Broken => "broken",
            Self::Dropped(_) => "dropped",
        }
    }
}

/// Reports an event to the listeners, without calling them; costs almost nothing if there are none.
pub(crate) fn tell(pool: &Arc<str>, what: What) {
    REPORTER.report(what.index(), || Arc::new(Event { pool: Arc::clone(pool), what }));
}

#[cfg(test)]
mod tests {
    use ropewalk_bus::{Mailbox, Overflow, Taken, reports};

    use super::*;

    #[test]
    fn every_event_has_a_topic_of_its_own() {
        let reason: Arc<str> = "it".into();
        let all = [
            What::WorkerStarted { pid: 1 },
            What::WorkerRecycled { pid: 1, number: 2, cause: Cause::Asked, memory: Some(3), tasks: 4 },
            What::WorkerCrashed { pid: 1, status: None, reason: None },
            What::Saturated { queued: 1 },
            What::TaskFailed { task: 1, pid: 1, how: How::Raised },
            What::Broken { reason: Arc::clone(&reason) },
            What::Ended,
            What::Resized { workers: 1 },
            What::Hung { task: 1, pid: 1 },
            What::Poisoned { task: 1, pid: 1, function: None },
            What::Delayed { reason: Arc::clone(&reason) },
            What::Unhealthy { reason: Arc::clone(&reason) },
            What::TaskRetried { task: 1, pid: 1, why: "raised" },
            What::StreamOpened { task: 1 },
            What::StreamClosed { task: 1, why: "returned" },
            What::SessionMade { worker: 1, session: Arc::clone(&reason), generation: 1 },
            What::SessionLost { session: Arc::clone(&reason), pid: 1, for_good: true },
            What::LimitTooLow { pid: 1, number: 1, memory: Some(1), reason },
        ];
        assert_eq!(all.each_ref().map(What::topic), TOPICS);
    }

    #[test]
    fn events_come_in_order_to_those_who_listen() {
        let mailbox = Arc::new(Mailbox::new(1000, Overflow::Block, None));
        let subscription = reports::collect("pool.**", &mailbox).expect("sound");
        let pool: Arc<str> = "a pool of this test's own".into();
        for pid in 0..100 {
            tell(&pool, What::WorkerStarted { pid });
        }
        tell(&pool, What::TaskFailed { task: 7, pid: 1, how: How::TimedOut });
        drop(subscription);
        tell(&pool, What::Ended);
        mailbox.close();
        // Pools of other tests report, too.
        let ours = std::iter::from_fn(|| match mailbox.take() {
            Taken::Message(report) => Some(report),
            _ => None,
        })
        .filter(|report| report.fields()[0] == Field::Text(&pool));
        let ours: Vec<_> = ours.collect();
        for (pid, report) in (0..100).zip(&ours) {
            assert_eq!((report.topic(), report.fields()[1]), ("pool.worker.started", Field::Number(pid)));
        }
        let failed = [Field::Number(1), Field::Number(7), Field::Nothing, Field::Number(0)];
        assert_eq!(ours[100].fields()[1..5], failed);
        assert_eq!((ours[100].fields()[5], ours.len()), (Field::Text("timed out"), 101));
    }
}
