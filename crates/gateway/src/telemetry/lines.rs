//! Records of calls for the program's log, on their way to what writes it: a thread of the layer above.
//!
//! A record has no headers, no arguments and no results of a call: what may be secret is not in it, unless an exception
//! of the tool's says it.
//!
//! Workers that are ended with a call leave a record, too. Callers choose how often that happens, so a pool has one
//! such record at a time, which counts the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ropewalk_sync::{Event, Mutex};

use crate::failed::Thrown;

/// Records that may wait to be written; further ones are counted and dropped.
const MOST: usize = 8192;
/// Records that are handed over at once.
const BATCH: usize = 256;
/// Bytes of tracebacks that may wait to be written; further records have none.
const MOST_BYTES: usize = 4 << 20;
/// How long a pool has no other record of a worker that was ended.
const QUIET: Duration = Duration::from_secs(10);

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
    /// The caller, if it has a name.
    pub caller: Option<Arc<str>>,
    /// The status, by gRPC's names.
    pub status: &'static str,
    /// Why it failed, if it did.
    pub message: Option<String>,
    /// What its tool raised, if that is no answer.
    pub raised: Option<Thrown>,
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

/// A worker that was ended because a call of its was over before it had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedWorker {
    /// The pool.
    pub pool: Arc<str>,
    /// The worker's process.
    pub pid: i32,
    /// The tool.
    pub tool: Arc<str>,
    /// Whether the time of the call was up; otherwise its caller had left.
    pub late: bool,
    /// Workers of the pool that were ended so since the record before, without a record of their own.
    pub others: u64,
}

/// Records that are to be written now.
#[derive(Debug)]
pub struct Taken {
    /// Calls.
    pub calls: Vec<Logged>,
    /// Workers that were ended.
    pub ended: Vec<EndedWorker>,
}

/// What is known of the workers of a pool that were ended.
#[derive(Debug)]
struct Quiet {
    /// When the next one may have a record.
    until: Instant,
    /// The last one.
    pid: i32,
    /// The last one that has no record yet.
    held: Option<EndedWorker>,
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
    /// Bytes of their tracebacks.
    bytes: usize,
    /// By the names of pools.
    ended: BTreeMap<Arc<str>, Quiet>,
    closed: bool,
}

impl Waiting {
    fn take(&mut self) -> Vec<Logged> {
        let most = self.lines.len().min(BATCH);
        let calls: Vec<_> = self.lines.drain(..most).collect();
        self.bytes -= calls.iter().map(Logged::bytes).sum::<usize>();
        calls
    }

    /// Workers that were ended and may have their record by now; at the end all may.
    fn take_ended(&mut self, now: Instant) -> Vec<EndedWorker> {
        let due = self.ended.values_mut().filter(|of| self.closed || of.until <= now);
        due.filter_map(|of| {
            let ended = of.held.take()?;
            of.until = now + QUIET;
            Some(ended)
        })
        .collect()
    }

    /// When the next one may have its record.
    fn due(&self) -> Option<Instant> {
        self.ended.values().filter(|of| of.held.is_some()).map(|of| of.until).min()
    }
}

impl Logged {
    fn bytes(&self) -> usize {
        self.raised.as_ref().and_then(|raised| raised.traceback.as_ref()).map_or(0, |text| text.len())
    }
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
    pub(super) fn add(&self, mut line: Logged) {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.lines.len() >= MOST {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if waiting.bytes + line.bytes() > MOST_BYTES
            && let Some(raised) = &mut line.raised
        {
            raised.traceback = None;
        }
        waiting.bytes += line.bytes();
        waiting.lines.push_back(line);
        let first = waiting.lines.len() == 1;
        drop(waiting);
        if first {
            self.came.notify();
        }
    }

    /// A worker was ended. The calls of a batch end one and the same.
    pub(super) fn ended(&self, ended: EndedWorker) {
        if !self.wants(Gravity::Warning) {
            return;
        }
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        let fresh = Quiet { until: now, pid: 0, held: None };
        let of = waiting.ended.entry(Arc::clone(&ended.pool)).or_insert(fresh);
        if of.pid == ended.pid {
            return;
        }
        of.pid = ended.pid;
        let others = of.held.as_ref().map_or(0, |held| held.others + 1);
        of.held = Some(EndedWorker { others, ..ended });
        drop(waiting);
        self.came.notify();
    }

    /// Waits for records, and takes some; `None` at the end, when all were taken.
    pub fn next(&self) -> Option<Taken> {
        loop {
            let mut waiting = self.waiting.lock();
            let taken = Taken { calls: waiting.take(), ended: waiting.take_ended(Instant::now()) };
            if !taken.calls.is_empty() || !taken.ended.is_empty() {
                return Some(taken);
            }
            if waiting.closed {
                return None;
            }
            let due = waiting.due();
            drop(waiting);
            self.came.wait(due, || {
                let waiting = self.waiting.lock();
                waiting.closed || !waiting.lines.is_empty() || waiting.due() != due
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
            caller: None,
            status: "OK",
            message: Some(message.to_owned()),
            raised: None,
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
        assert_eq!((first.calls.len(), first.calls[1].message.as_deref()), (BATCH, Some("1")));
        assert_eq!(lines.next().map(|rest| rest.calls.len()), Some(1));
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
    fn tracebacks_that_wait_are_bounded_and_records_stay() {
        let lines = Lines::new(Logging::Failures);
        let traceback: Arc<str> = "x".repeat(MOST_BYTES / 2).into();
        let raised = || Thrown { class: Some("ValueError".into()), traceback: Some(Arc::clone(&traceback)) };
        let fill = || {
            for _ in 0..3 {
                lines.add(Logged { raised: Some(raised()), ..line("") });
            }
            let taken = lines.next().expect("records");
            let with = taken.calls.iter().filter(|call| call.bytes() > 0).count();
            assert!(taken.calls.iter().all(|call| call.raised.is_some()));
            (taken.calls.len(), with)
        };
        assert_eq!(fill(), (3, 2));
        // Those that were taken have given their room back.
        assert_eq!(fill(), (3, 2));
    }

    fn ended(pool: &str, pid: i32) -> EndedWorker {
        EndedWorker { pool: pool.into(), pid, tool: "t".into(), late: false, others: 0 }
    }

    #[test]
    fn a_pool_has_one_record_of_ended_workers_at_a_time() {
        let lines = Lines::new(Logging::Failures);
        lines.ended(ended("a", 1));
        lines.ended(ended("a", 1));
        lines.ended(ended("b", 2));
        assert_eq!(lines.next().expect("records").ended, [ended("a", 1), ended("b", 2)]);
        for pid in [3, 4, 4, 5] {
            lines.ended(ended("a", pid));
        }
        let (mut waiting, now) = (lines.waiting.lock(), Instant::now());
        assert_eq!(waiting.take_ended(now), []);
        let due = waiting.due().expect("one is held");
        assert!(due > now && due <= now + QUIET);
        assert_eq!(waiting.take_ended(due), [EndedWorker { others: 2, ..ended("a", 5) }]);
        assert_eq!((waiting.due(), waiting.take_ended(due + QUIET)), (None, Vec::new()));
    }

    #[test]
    fn the_end_waits_for_no_record() {
        let lines = Lines::new(Logging::Failures);
        lines.ended(ended("a", 1));
        assert_eq!(lines.next().expect("a record").ended, [ended("a", 1)]);
        lines.ended(ended("a", 2));
        lines.close();
        assert_eq!(lines.next().expect("a record").ended, [ended("a", 2)]);
        assert!(lines.next().is_none());
        let silent = Lines::new(Logging::Nothing);
        silent.ended(ended("a", 1));
        silent.close();
        assert!(silent.next().is_none());
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
