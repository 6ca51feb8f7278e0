//! What pools tell of their lives, on a bus of this process.
//!
//! Pools tell with their locks held, so nobody is called then: the events are handed to the process's executor, which
//! delivers them in order, one at a time. While nobody listens nothing is made and nothing handed over.

use std::sync::{Arc, OnceLock};

use ropewalk_bus::{Bus, Topic};
use ropewalk_executor::{Executor, Job, Serial, background};
use ropewalk_sync::PerProcess;

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
    /// A worker has ended by itself, or by somebody else's hand.
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
    /// The pool has ended as it was told to.
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
    /// The topic that it is told on.
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

struct Teller {
    bus: Bus,
    topics: [Topic<Event>; TOPICS.len()],
}

static TELLER: OnceLock<Teller> = OnceLock::new();

fn teller() -> &'static Teller {
    TELLER.get_or_init(|| {
        let bus = Bus::new();
        let topics = TOPICS.map(|name| match bus.topic(name) {
            Ok(topic) => topic,
            Err(error) => unreachable!("{error}"),
        });
        Teller { bus, topics }
    })
}

/// The bus that the pools of this process tell their events on, as [`Event`]s on [`TOPICS`].
///
/// Handlers are called one at a time, in a thread of [`ropewalk_executor::background`]. One that blocks delays the
/// events behind it, and no pool. A forked child has the handlers of its parent.
pub fn bus() -> &'static Bus {
    &teller().bus
}

/// Where the events wait for their delivery: of this process, for a fork leaves its parent's threads behind.
fn queue() -> Option<&'static Serial> {
    static CURRENT: PerProcess<Serial> = PerProcess::new();
    let made = CURRENT.get_or_try(|| Ok::<_, ropewalk_base::Error>(Serial::new(Arc::new(background()?))));
    made.ok()
}

/// Tells an event to whoever listens; takes no time if nobody does, and calls nobody.
pub(crate) fn tell(pool: &Arc<str>, what: What) {
    // As long as nobody has asked for the bus, nobody listens. Making it may wait for every core to pass through the
    // scheduler, which is longer than a worker takes to start.
    let Some(teller) = TELLER.get() else { return };
    let topic = &teller.topics[what.index()];
    if !topic.is_heard() {
        return;
    }
    let event = Event { pool: Arc::clone(pool), what };
    if let Some(queue) = queue() {
        // Refused only by a process that cannot start a thread; there is nobody left to tell.
        let _ = queue.execute(Job::new(move || {
            let _ = topic.publish(&event);
        }));
    }
}

#[cfg(test)]
mod tests {
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
        let (send, receive) = std::sync::mpsc::channel();
        let pool: Arc<str> = "a pool of this test's own".into();
        let ours = Arc::clone(&pool);
        let listening = bus().listen::<Event>("pool.**").filter(move |event| event.pool == ours);
        let subscription = listening.call(move |event| {
            let _ = send.send(event.clone());
        });
        for pid in 0..100 {
            tell(&pool, What::WorkerStarted { pid });
        }
        tell(&pool, What::Ended);
        let limit = std::time::Duration::from_secs(20);
        for pid in 0..100 {
            let event = receive.recv_timeout(limit).expect("told");
            assert_eq!(event, Event { pool: Arc::clone(&pool), what: What::WorkerStarted { pid } });
        }
        assert_eq!(receive.recv_timeout(limit).map(|event| event.what), Ok(What::Ended));
        drop(subscription);
    }
}
