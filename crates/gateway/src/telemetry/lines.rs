//! Records of calls for the program's log, on their way to what writes it: a thread of the layer above.
//!
//! A record has no headers, no arguments and no results of a call: what may be secret is not in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ropewalk_sync::{Event, Mutex};

/// Records that may wait to be written; further ones are counted and dropped.
const MOST: usize = 8192;
/// Records that are handed over at once.
const BATCH: usize = 256;

/// Which calls are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// None.
    #[default]
    Nothing,
    /// Those that failed by a fault that is not the caller's.
    Failures,
    /// All.
    Calls,
}

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gravity {
    /// It ended well, the caller has called wrongly, or there was no room for it.
    Info,
    /// The server has not served the call, and may serve it at another time.
    Warning,
    /// The tool, or the server, has failed.
    Error,
}

/// A call that has ended, for the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// How grave it is.
    pub gravity: Gravity,
    /// When it ended.
    pub at: SystemTime,
    /// The tool; a name that no tool has is not in it.
    pub tool: Arc<str>,
    /// The protocol.
    pub protocol: &'static str,
    /// The status, by gRPC's names.
    pub status: &'static str,
    /// Why it failed, if it did.
    pub message: Option<String>,
    /// How long it took.
    pub took: Duration,
    /// How long it waited for a worker, if one began it.
    pub queued: Option<Duration>,
    /// How long a worker ran it, if one did.
    pub ran: Option<Duration>,
    /// The worker's process; 0 if none ran it.
    pub pid: i32,
    /// How often a worker has begun it.
    pub attempts: u32,
    /// Items of a stream.
    pub items: u64,
    /// Its trace and its span, if it has such.
    pub trace: Option<(String, String)>,
}

/// The records that are to be written.
#[derive(Debug, Default)]
pub struct Lines {
    /// A number of [`Logging`]. Orders nothing: relaxed.
    logging: AtomicU8,
    waiting: Mutex<Waiting>,
    /// Notified when one comes, and at the end.
    came: Event,
    /// Orders nothing: relaxed.
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Logged>,
    closed: bool,
}

impl Lines {
    /// Keeps records of these calls.
    pub fn new(logging: Logging) -> Self {
        Self { logging: AtomicU8::new(logging as u8), ..Self::default() }
    }

    /// From now on it keeps records of these.
    pub fn set(&self, logging: Logging) {
        self.logging.store(logging as u8, Ordering::Relaxed);
    }

    /// Whether a call of this gravity is logged.
    pub(super) fn wants(&self, gravity: Gravity) -> bool {
        match self.logging.load(Ordering::Relaxed) {
            wanted if wanted == Logging::Nothing as u8 => false,
            wanted if wanted == Logging::Calls as u8 => true,
            _ => gravity != Gravity::Info,
        }
    }

    /// Adds a record, unless too many wait.
    pub(super) fn add(&self, line: Logged) {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.lines.len() >= MOST {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.lines.push_back(line);
        let first = waiting.lines.len() == 1;
        drop(waiting);
        if first {
            self.came.notify();
        }
    }

    /// Waits for records, and takes some; `None` at the end, when all were taken.
    pub fn next(&self) -> Option<Vec<Logged>> {
        loop {
            let mut waiting = self.waiting.lock();
            if !waiting.lines.is_empty() {
                let most = waiting.lines.len().min(BATCH);
                return Some(waiting.lines.drain(..most).collect());
            }
            if waiting.closed {
                return None;
            }
            drop(waiting);
            self.came.wait(None, || {
                let waiting = self.waiting.lock();
                waiting.closed || !waiting.lines.is_empty()
            });
        }
    }

    /// Records that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// No more come.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.came.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Logged {
        Logged {
            gravity: Gravity::Info,
            at: SystemTime::UNIX_EPOCH,
            tool: "t".into(),
            protocol: "http",
            status: "OK",
            message: Some(message.to_owned()),
            took: Duration::ZERO,
            queued: None,
            ran: None,
            pid: 0,
            attempts: 0,
            items: 0,
            trace: None,
        }
    }

    #[test]
    fn records_come_in_order_and_the_end_after_them() {
        let lines = Lines::new(Logging::Calls);
        for number in 0..BATCH + 1 {
            lines.add(line(&number.to_string()));
        }
        lines.close();
        let first = lines.next().expect("records");
        assert_eq!((first.len(), first[1].message.as_deref()), (BATCH, Some("1")));
        assert_eq!(lines.next().map(|rest| rest.len()), Some(1));
        assert!(lines.next().is_none());
        lines.add(line("late"));
        assert_eq!(lines.dropped(), 1);
    }

    #[test]
    fn what_nobody_takes_is_counted_and_dropped() {
        let lines = Lines::new(Logging::Calls);
        for _ in 0..MOST + 3 {
            lines.add(line(""));
        }
        assert_eq!((lines.dropped(), lines.waiting.lock().lines.len()), (3, MOST));
    }

    #[test]
    fn the_calls_that_are_wanted_are_logged() {
        let wants = |logging| {
            [Gravity::Info, Gravity::Warning, Gravity::Error].map(|one| Lines::new(logging).wants(one))
        };
        assert_eq!(wants(Logging::Nothing), [false; 3]);
        assert_eq!(wants(Logging::Failures), [false, true, true]);
        assert_eq!(wants(Logging::Calls), [true; 3]);
    }
}
