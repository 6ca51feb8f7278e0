//! A task's cell: the call, its stage, and its outcome.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ropewalk_sync::futex::{Futex, Wait};
use ropewalk_sync::{Mutex, MutexGuard};

use crate::clock;
use crate::function::Function;
use crate::locked::Opaque;
use crate::outcome::{Outcome, Record};
use crate::payload::Payload;

/// What a task runs.
#[derive(Debug)]
pub enum Call {
    /// An encoded call, for a worker process.
    Remote {
        /// The function; taken away when the task has ended, for futures are kept for longer than functions are needed.
        function: Mutex<Option<Arc<Function>>>,
        /// Its arguments; taken away when the task has ended.
        payload: Mutex<Payload>,
    },
    /// A call that a thread of this process makes.
    Local(Mutex<Option<Opaque>>),
}

impl Call {
    /// An encoded call of a function.
    pub fn remote(function: Arc<Function>, payload: Payload) -> Self {
        Self::Remote { function: Mutex::new(Some(function)), payload: Mutex::new(payload) }
    }
}

/// How a task is to be treated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// For each run alone, from the time at which its worker begins the call.
    pub timeout: Option<Duration>,
    /// For everything, from the submission: waiting, all runs and the ways there and back.
    pub deadline: Option<Duration>,
    /// How often the task may be run again after it raised or its worker died.
    pub retries: u32,
    /// Higher goes first; 0 is usual.
    pub priority: i32,
    /// It may write to its arguments, of which it gets copies of its own.
    pub writable: bool,
}

/// Workers that may die in a row with a task first in their lane and not started: it is blamed then, for else a worker
/// that takes back its own word could have it sent to others for ever.
const MOST_WORKERS_LOST: u32 = 64;

const PHASE: u32 = 0b111;
const WATCHED: u32 = 1 << 3;
const WAITING: u32 = 1 << 4;
const NUDGE: u32 = 1 << 8;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// In the pool's queue.
    Queued = 0,
    /// In a lane's ring; the record's own state tells whether it has been started.
    Sent = 1,
    /// Run by a thread of this process.
    Running = 2,
    /// It has an outcome.
    Done = 3,
}

/// One submitted task.
///
/// `word` packs the stage (bits 0 to 2, written under the engine's lock), `WATCHED` (its end must be put on the
/// completed list), `WAITING` (a thread sleeps on the word) and a nudge counter from bit 8 up, which makes a sleeping
/// thread check again. The outcome is written once, before the stage becomes `Done` with release ordering.
#[derive(Debug)]
pub struct Task {
    /// Unique in its pool.
    pub id: u64,
    /// What to run.
    pub call: Call,
    /// `BATCH` and `STAR` as in `wire::flags`.
    pub flags: u16,
    /// How it is to be treated.
    pub options: Options,
    pub(crate) submitted: Instant,
    word: Futex,
    /// Times that it is known to have been started; written under the engine's lock.
    attempt: AtomicU32,
    /// Workers that have died while it was the next one that they would have started.
    workers_lost: AtomicU32,
    /// Whether there is a timer for its run; written under the engine's lock.
    armed: AtomicBool,
    /// The lane it lies in while sent; written under the engine's lock.
    lane: AtomicU64,
    outcome: OnceLock<Outcome>,
    record: OnceLock<Record>,
}

/// The call of a task. The function's pickle is not included: loading it may have killed the worker.
#[derive(Debug)]
pub struct Called {
    /// The function's name; `None` if the task has released it.
    pub function: Option<Box<str>>,
    /// The pickle of its arguments, if it is short enough to be described.
    pub arguments: Option<Vec<u8>>,
}

impl Task {
    pub(crate) fn new(id: u64, call: Call, flags: u16, options: Options, attempt: u32) -> Self {
        Self {
            id,
            call,
            flags,
            options,
            submitted: clock::now(),
            word: Futex::new(Stage::Queued as u32),
            attempt: AtomicU32::new(attempt),
            workers_lost: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            lane: AtomicU64::new(u64::MAX),
            outcome: OnceLock::new(),
            record: OnceLock::new(),
        }
    }

    /// A task that has ended before it began: its arguments could not be encoded, say.
    pub fn ended(outcome: Outcome) -> Arc<Self> {
        let task = Self::new(0, Call::Local(Mutex::new(None)), 0, Options::default(), 0);
        let _ = task.outcome.set(outcome);
        task.word.store(Stage::Done as u32, Ordering::Release);
        Arc::new(task)
    }

    /// Where it stands.
    pub fn stage(&self) -> Stage {
        match self.word.load(Ordering::Acquire) & PHASE {
            0 => Stage::Queued,
            1 => Stage::Sent,
            2 => Stage::Running,
            _ => Stage::Done,
        }
    }

    /// Whether it has an outcome.
    pub fn is_done(&self) -> bool {
        self.word.load(Ordering::Acquire) & PHASE == Stage::Done as u32
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        if self.is_done() { self.outcome.get() } else { None }
    }

    /// The record of its run, once it has ended.
    pub fn record(&self) -> Record {
        self.record.get().copied().unwrap_or_default()
    }

    /// How often it has been started, as far as is known. A start in a worker is counted when the parent learns of it:
    /// by its answer, or when the worker ends. A task that was moved from lane to lane has not been started by that.
    pub fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Relaxed)
    }

    /// Asks for the task to be put on the completed list when it ends; false if it has ended already.
    pub fn watch(&self) -> bool {
        self.word.fetch_or(WATCHED, Ordering::AcqRel) & PHASE != Stage::Done as u32
    }

    /// Whether its end must be reported.
    pub fn watched(&self) -> bool {
        self.word.load(Ordering::Acquire) & WATCHED != 0
    }

    pub(crate) fn lane(&self) -> Option<usize> {
        usize::try_from(self.lane.load(Ordering::Relaxed)).ok().filter(|lane| *lane != usize::MAX)
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        // A compare loop, because the flag bits are set by threads without the engine's lock.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(word & !PHASE | stage as u32));
    }

    pub(crate) fn sent_to(&self, lane: usize) {
        self.lane.store(lane as u64, Ordering::Relaxed);
        self.set_stage(Stage::Sent);
    }

    /// Counts a start that the engine has learned of. The record of a task that has ended is not changed: a worker may
    /// answer what was cancelled, or timed out, a moment before.
    pub(crate) fn count_attempt(&self) {
        if !self.is_done() {
            self.attempt.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if there is no timer for its run yet; there is one from now on.
    pub(crate) fn arm(&self) -> bool {
        !self.armed.swap(true, Ordering::Relaxed)
    }

    /// The timer for its run is gone.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Its worker has died and had not started it, by the worker's own word; true when that is no accident any more.
    pub(crate) fn lose_worker(&self) -> bool {
        self.workers_lost.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_WORKERS_LOST
    }

    /// Ends the task; true if it is watched. The caller holds the engine's lock and has checked that it is not done.
    pub(crate) fn finish(&self, outcome: Outcome, record: Record) -> bool {
        let _ = self.record.set(record);
        let _ = self.outcome.set(outcome);
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some(word & !PHASE | Stage::Done as u32)
            })
            .unwrap_or(0);
        if before & WAITING != 0 {
            self.word.wake_all();
        }
        before & WATCHED != 0
    }

    /// Makes a thread that sleeps on this task look again.
    pub(crate) fn nudge(&self) {
        self.word.fetch_add(NUDGE, Ordering::AcqRel);
        self.word.wake_all();
    }

    /// Announces a sleeper, and gives the value to sleep on.
    pub(crate) fn prepare_sleep(&self) -> u32 {
        self.word.fetch_or(WAITING, Ordering::AcqRel) | WAITING
    }

    /// Sleeps until the task ends, is nudged, the time is up, or a signal comes (then true).
    pub(crate) fn sleep(&self, observed: u32, timeout: Option<Duration>) -> bool {
        if observed & PHASE == Stage::Done as u32 {
            return false;
        }
        self.word.wait_while(observed, timeout) == Wait::Interrupted
    }

    /// The call of a task whose worker died; nothing if it ran in this process.
    pub fn called(&self) -> Option<Called> {
        let Call::Remote { function, payload } = &self.call else { return None };
        let payload = payload.lock();
        let arguments = payload.described().map(<[u8]>::to_vec);
        let function = function.lock();
        let function = function.as_ref().map(|function| function.name.clone());
        Some(Called { function, arguments })
    }

    pub(crate) fn payload(&self) -> Option<MutexGuard<'_, Payload>> {
        match &self.call {
            Call::Remote { payload, .. } => Some(payload.lock()),
            Call::Local(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::tests::function;
    use crate::payload::SHORT;
    use crate::wire::flags;

    fn local(attempt: u32) -> Task {
        Task::new(7, Call::Local(Mutex::new(None)), 0, Options::default(), attempt)
    }

    #[test]
    fn a_task_goes_through_its_stages_with_its_flags() {
        let task = local(0);
        assert_eq!((task.stage(), task.is_done(), task.lane()), (Stage::Queued, false, None));
        assert!(!task.watched() && task.watch() && task.watched());
        task.sent_to(0);
        assert_eq!((task.stage(), task.lane()), (Stage::Sent, Some(0)));
        task.sent_to(5);
        assert_eq!(task.lane(), Some(5));
        task.set_stage(Stage::Running);
        assert_eq!(task.stage(), Stage::Running);
        task.set_stage(Stage::Queued);
        assert_eq!(task.stage(), Stage::Queued);
        assert!(task.watched(), "a stage leaves the flags alone");
        assert!(task.outcome().is_none());
        task.set_stage(Stage::Running);
        assert!(task.finish(Outcome::Cancelled, Record { pid: 4, busy_ns: 5, total_ns: 6, reached: 7 }));
        assert_eq!((task.stage(), task.is_done(), task.watched()), (Stage::Done, true, true));
        assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
        let record = task.record();
        assert_eq!((record.pid, record.busy_ns, record.total_ns), (4, 5, 6));
        assert!(!task.watch(), "it is too late");
    }

    #[test]
    fn whoever_does_not_watch_is_not_told() {
        let task = local(0);
        assert_eq!((task.record().pid, task.record().busy_ns), (0, 0));
        assert!(!task.finish(Outcome::Cancelled, Record::default()) && !task.watched());
        assert!(Task::ended(Outcome::Cancelled).is_done());
    }

    #[test]
    fn starts_are_counted_until_the_end() {
        let task = local(2);
        assert_eq!(task.attempt(), 2);
        task.count_attempt();
        assert_eq!(task.attempt(), 3);
        task.finish(Outcome::Cancelled, Record::default());
        task.count_attempt();
        assert_eq!(task.attempt(), 3);
    }

    #[test]
    fn one_timer_is_armed_at_a_time() {
        let task = local(0);
        assert!(task.arm() && !task.arm());
        task.disarm();
        assert!(task.arm() && !task.arm());
    }

    #[test]
    fn so_many_lost_workers_are_no_accident() {
        let task = local(0);
        assert_eq!((1..).find(|_| task.lose_worker()), Some(MOST_WORKERS_LOST));
        assert!(task.lose_worker());
    }

    #[test]
    fn a_sleeper_looks_again_when_it_is_nudged_and_when_the_task_ends() {
        let task = Arc::new(local(0));
        let observed = task.prepare_sleep();
        assert_eq!(observed, task.word.load(Ordering::Relaxed));
        assert_ne!(observed & WAITING, 0);
        task.nudge();
        assert_ne!(task.word.load(Ordering::Relaxed), observed);
        assert_eq!(task.stage(), Stage::Queued, "a nudge is no change of stage");
        // Both return at once: the word is another than was observed.
        assert!(!task.sleep(observed, None));
        let observed = task.prepare_sleep();
        // Nothing happens: the time has to be up.
        let (begin, timeout) = (std::time::Instant::now(), Duration::from_millis(20));
        assert!(!task.sleep(observed, Some(timeout)) && begin.elapsed() >= timeout);
        let sleeper = {
            let task = Arc::clone(&task);
            std::thread::spawn(move || {
                let mut observed = observed;
                while !task.is_done() {
                    task.sleep(observed, None);
                    observed = task.prepare_sleep();
                }
            })
        };
        std::thread::yield_now();
        assert!(!task.finish(Outcome::Cancelled, Record::default()));
        sleeper.join().expect("it has been woken");
        assert!(!task.sleep(task.prepare_sleep(), None), "nobody sleeps on a task that is over");
    }

    #[test]
    fn what_is_short_and_plain_is_described() {
        let task = |bytes: usize, flags| {
            let payload = Payload { bytes: vec![1; bytes], flags, ..Payload::default() };
            Task::new(1, Call::remote(function(vec![2; bytes], flags), payload), 0, Options::default(), 0)
        };
        let lengths = |task: &Task| {
            let called = task.called().expect("a call of a function");
            (called.function.as_deref() == Some("f"), called.arguments.map(|bytes| bytes.len()))
        };
        assert_eq!(lengths(&task(SHORT, 0)), (true, Some(SHORT)));
        assert_eq!(lengths(&task(SHORT + 1, 0)), (true, None));
        assert_eq!(lengths(&task(10, flags::DESCRIBED)), (true, None));
        assert!(local(0).called().is_none());
        let kept = |bytes: usize| {
            let payload = Payload { bytes: vec![1; bytes], flags: flags::RETAINED, ..Payload::default() };
            let kept = payload.for_description();
            (kept.bytes.len(), kept.flags)
        };
        assert_eq!(kept(SHORT), (SHORT, flags::RETAINED));
        assert_eq!(kept(SHORT + 1), (0, flags::RETAINED));
    }
}
