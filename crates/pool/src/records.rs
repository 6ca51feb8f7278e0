//! The last tasks that ended, and how long all of them took.
//!
//! A record holds no bytes of a call or a result, and no object of the layer above. The ring of records is bounded by
//! their number, and by the bytes of the texts in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::{self, Anchor};
use crate::codec::Table;
use crate::histogram::Histogram;
use crate::outcome::{Kept, Outcome, Record};
use crate::task::Task;
use crate::wire::flags;

/// Bytes of texts for each record that a ring may have: what is left of it goes to those with longer ones.
const BYTES_EACH: usize = 256;
/// Bytes of a function's name, or of the reason why a task has no result.
pub(crate) const MOST_TEXT: usize = 1024;
/// The time of day is read anew when the last reading is older, so that records follow a clock that is set.
const DAY_HOLDS: Duration = Duration::from_secs(1);

/// A task that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its number in the pool.
    pub id: u64,
    /// How often it was started.
    pub attempt: u32,
    /// Its last run.
    pub record: Record,
    /// The function's name, if that is known.
    pub function: Option<Arc<str>>,
    /// The name of its session, and the number of the state that it was given.
    pub session: Option<(Arc<str>, u32)>,
    /// [`Outcome::name`].
    pub outcome: &'static str,
    /// [`Outcome::cause`].
    pub cause: Option<Arc<str>>,
}

impl Ended {
    /// The account of a task with this outcome and record.
    pub fn of(task: &Task, outcome: &Outcome, record: Record) -> Self {
        Line::of(task, outcome, record.into(), task.name().cloned()).tell()
    }
}

/// The same as the ring keeps it. The texts of a task that has neither a session nor a failure are its function's name.
#[derive(Debug)]
struct Line {
    id: u64,
    record: Kept,
    function: Option<Arc<str>>,
    outcome: &'static str,
    beside: Option<Box<Beside>>,
    attempt: u32,
}

// Each task writes one, and a pool keeps 1,000: two cache lines, which are fetched as a pair, are enough.
const _: () = assert!(size_of::<Line>() <= 128);

/// What few tasks have to tell.
#[derive(Clone, Debug)]
struct Beside {
    session: Option<(Arc<str>, u32)>,
    cause: Option<Arc<str>>,
}

impl Line {
    #[inline]
    fn of(task: &Task, outcome: &Outcome, record: Kept, function: Option<Arc<str>>) -> Self {
        let has_more = task.session().is_some() || matches!(outcome, Outcome::Failed(_));
        Self {
            id: task.id,
            record,
            function,
            outcome: outcome.name(),
            beside: has_more.then(|| Box::new(Beside::of(task, outcome))),
            attempt: task.attempt(),
        }
    }

    fn tell(&self) -> Ended {
        let Self { id, attempt, record, function, outcome, beside } = self;
        let Beside { session, cause } = match beside {
            Some(beside) => Beside::clone(beside),
            None => Beside { session: None, cause: None },
        };
        let (record, function) = (Record::from(*record), function.clone());
        Ended { id: *id, attempt: *attempt, record, function, session, outcome, cause }
    }

    /// Bytes of its texts. A name counts with each task that has it, though they share it.
    #[inline]
    fn texts(&self) -> usize {
        let beside = self.beside.as_ref().map_or(0, |beside| beside.texts());
        self.function.as_ref().map_or(0, |name| name.len()) + beside
    }
}

impl Beside {
    fn of(task: &Task, outcome: &Outcome) -> Self {
        let cause =
            outcome.cause().map(|cause| if cause.len() > MOST_TEXT { shortened(&cause) } else { cause });
        let session = task.session().map(|session| (Arc::clone(&session.name), task.generation()));
        Self { session, cause }
    }

    fn texts(&self) -> usize {
        let session = self.session.as_ref().map(|(name, _)| name);
        session.into_iter().chain(&self.cause).map(|text| text.len()).sum()
    }
}

/// The beginning of a text that is too long.
pub(crate) fn shortened(text: &str) -> Arc<str> {
    let mut end = MOST_TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end]).into()
}

/// The last tasks, the newest at the end.
#[derive(Debug)]
struct Ring {
    most: usize,
    /// Of texts.
    bytes: usize,
    ended: VecDeque<Line>,
}

impl Ring {
    fn push(&mut self, ended: Line) {
        self.bytes += ended.texts();
        while self.ended.len() >= self.most || self.bytes > self.most * BYTES_EACH + ended.texts() {
            let Some(oldest) = self.ended.pop_front() else { break };
            self.bytes -= oldest.texts();
        }
        self.ended.push_back(ended);
    }
}

/// How long tasks took.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    /// From when a task was queued, or queued again, until its call began; of those whose beginning is known.
    pub queueing: Histogram,
    /// The calls of tasks that were answered.
    pub running: Histogram,
    /// From submission to the end, of all.
    pub total: Histogram,
}

/// What a pool knows of the tasks that have ended, besides its counters.
#[derive(Debug)]
pub(crate) struct Records {
    /// The clock on which workers say when a call ended.
    pub(crate) monotonic: Anchor,
    day: Anchor,
    pub(crate) histograms: Histograms,
    ring: Ring,
}

impl Records {
    pub(crate) fn new(most: usize) -> Self {
        let ring = Ring { most, bytes: 0, ended: VecDeque::new() };
        let monotonic = Anchor::monotonic();
        Self { monotonic, day: Anchor::of_day(clock::now()), histograms: Histograms::default(), ring }
    }

    /// A task ends now with this outcome; completes its record.
    pub(crate) fn note(
        &mut self,
        task: &Task,
        outcome: &Outcome,
        mut record: Record,
        name: Option<&Arc<str>>,
        now: Instant,
    ) -> Kept {
        if self.day.age(now) >= DAY_HOLDS {
            self.day = Anchor::of_day(now);
        }
        record.queued_at = self.day.nanos_of(task.submitted);
        record.received = received(outcome);
        if let Some(begun) = record.begun_ns {
            self.histograms.queueing.add(begun.saturating_sub(task.queued_again_ns()));
        }
        if matches!(outcome, Outcome::Replied(_) | Outcome::Local { .. }) {
            self.histograms.running.add(record.busy_ns);
        }
        self.histograms.total.add(record.total_ns);
        let kept = Kept::from(record);
        if self.ring.most > 0 {
            self.ring.push(Line::of(task, outcome, kept, name.cloned()));
        }
        kept
    }

    /// The last tasks that have ended, the newest at the end.
    pub(crate) fn last(&self) -> Vec<Ended> {
        self.ring.ended.iter().map(Line::tell).collect()
    }
}

/// Bytes of a call or a result: those in its record, and those beside it. What was shared before is not sent.
pub(crate) fn size(bits: u16, bytes: &[u8]) -> u64 {
    let inline = bytes.len() as u64;
    if bits & flags::DESCRIBED == 0 {
        return inline;
    }
    let Ok(table) = Table::parse(bytes) else { return inline };
    let buffers = table.len() - table.handles();
    let mut beside = 0_u64;
    let mut in_shared = false;
    for entry in table.entries().take(buffers) {
        if entry.is_shared() {
            // The next entry is the part of it.
            in_shared = true;
        } else if !std::mem::take(&mut in_shared) && entry.segment != 0 {
            beside = beside.saturating_add(entry.bytes());
        }
    }
    inline.saturating_add(beside)
}

fn received(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Replied(reply) => size(reply.flags, &reply.bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
