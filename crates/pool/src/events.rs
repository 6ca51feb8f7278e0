//! The events that pools report: see [`ropewalk_bus::reports`].
//!
//! Pools report with their locks held. A report is kept in the listeners' mailboxes, and no handler is called; without
//! a listener no report is made.

use std::sync::Arc;

use ropewalk_bus::reports::{Field, Report, Reporter};

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
    /// The pool has ended a worker that was not to go on, and puts another in its place: its task was cancelled or out
    /// of time.
    WorkerRecycled {
        /// Its process id.
        pid: i32,
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
    /// The pool runs nothing any more, for something went wrong.
    Broken {
        /// What.
        reason: Arc<str>,
    },
    /// The pool has ended on request.
    Ended,
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
    /// The pool broke.
    Broken,
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
        }
    }
}

/// The topics, in the order of `What::index`.
pub const TOPICS: [&str; 7] = [
    "pool.worker.started",
    "pool.worker.recycled",
    "pool.worker.crashed",
    "pool.saturated",
    "pool.task.failed",
    "pool.broken",
    "pool.ended",
];

static REPORTER: Reporter<{ TOPICS.len() }> = Reporter::new(TOPICS);

impl Report for Event {
    fn topic(&self) -> &'static str {
        self.what.topic()
    }

    /// The pool, the worker's process id, the task, the wait status, how many are queued, and why.
    fn fields(&self) -> Vec<Field<'_>> {
        let number = |number: Option<u64>| {
            number.and_then(|number| i64::try_from(number).ok()).map_or(Field::Nothing, Field::Number)
        };
        let (mut process, mut task, mut status) = (0, Field::Nothing, Field::Nothing);
        let (mut waiting, mut why) = (Field::Number(0), Field::Nothing);
        match &self.what {
            What::WorkerStarted { pid } | What::WorkerRecycled { pid } => process = *pid,
            What::WorkerCrashed { pid, status: left, reason } => {
                process = *pid;
                status = left.map_or(Field::Nothing, |left| Field::Number(left.into()));
                why = reason.as_deref().map_or(Field::Nothing, Field::Text);
            }
            What::Saturated { queued } => waiting = number(u64::try_from(*queued).ok()),
            What::TaskFailed { task: id, pid, how } => {
                process = *pid;
                task = number(Some(*id));
                why = Field::Text(how.text());
            }
            What::Broken { reason } => why = Field::Text(reason),
            What::Ended => {}
        }
        vec![Field::Text(&self.pool), Field::Number(process.into()), task, status, waiting, why]
    }
}

impl How {
    fn text(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::Broken => "broken",
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
            What::WorkerRecycled { pid: 1 },
            What::WorkerCrashed { pid: 1, status: None, reason: None },
            What::Saturated { queued: 1 },
            What::TaskFailed { task: 1, pid: 1, how: How::Raised },
            What::Broken { reason },
            What::Ended,
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
