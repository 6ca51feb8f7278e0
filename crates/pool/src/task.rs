//! A task's cell: the call, its stage, and its outcome.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ropewalk_sync::futex::{Futex, Wait};
use ropewalk_sync::{Mutex, MutexGuard};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock;
use crate::function::Function;
use crate::locked::Opaque;
use crate::outcome::{Death, Kept, Limit, Outcome, Record};
use crate::payload::Payload;
use crate::session::Session;
use crate::signals::Signals;
use crate::stream::Stream;

/// What a task runs.
#[derive(Debug)]
pub enum Call {
    /// An encoded call, for a worker process.
    Remote(Mutex<Remote>),
    /// A call that a thread of this process makes.
    Local(Mutex<Option<Opaque>>),
}

/// An encoded call. It is taken away when the task has ended, for futures are kept for longer than it is needed.
#[derive(Debug)]
pub struct Remote {
    /// The function.
    pub function: Option<Arc<Function>>,
    /// Its arguments.
    pub payload: Payload,
}

impl Call {
    /// An encoded call of a function.
    pub fn remote(function: Arc<Function>, payload: Payload) -> Self {
        Self::Remote(Mutex::new(Remote { function: Some(function), payload }))
    }
}

/// How a task is to be treated. It goes with each submission, so what few tasks have is apart.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How often the task may be run again after it raised or its worker died.
    pub retries: u32,
    /// Higher goes first; 0 is usual.
    pub priority: i32,
    /// It is a stream of which so many items may be unread; 0 if it is none.
    pub stream: u32,
    /// The number of the session to whose state it belongs.
    pub session: Option<u32>,
    /// It may write to its arguments, of which it gets copies of its own.
    pub writable: bool,
    /// What few tasks have; the tasks of one submitter share it.
    pub rare: Option<Arc<Rare>>,
}

/// Options that few tasks have.
#[derive(Clone, Debug, Default)]
pub struct Rare {
    /// For each run alone, from the time at which its worker begins the call.
    pub timeout: Option<Duration>,
    /// For everything, from the submission: waiting, all runs and the ways there and back.
    pub deadline: Option<Duration>,
    /// How long a run may go without a sign of life before it counts as hung.
    pub hang: Option<Duration>,
    /// When it is run again; `None` for at once.
    pub backoff: Option<Backoff>,
    /// Whose task it is; those without a client are one client's.
    pub client: Option<Client>,
}

impl From<Rare> for Options {
    fn from(rare: Rare) -> Self {
        let Rare { timeout, deadline, hang, backoff, client } = &rare;
        let limits = [timeout, deadline, hang].into_iter().any(Option::is_some);
        let has_any = limits || backoff.is_some() || client.is_some();
        Self { rare: has_any.then(|| Arc::new(rare)), ..Self::default() }
    }
}

impl Options {
    /// The same, with rare ones changed.
    #[cfg(test)]
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Rare)) -> Self {
        change(Arc::make_mut(self.rare.get_or_insert_default()));
        self
    }

    /// See [`Rare::timeout`].
    #[inline]
    pub fn timeout(&self) -> Option<Duration> {
        self.rare.as_ref()?.timeout
    }

    /// See [`Rare::deadline`].
    #[inline]
    pub fn deadline(&self) -> Option<Duration> {
        self.rare.as_ref()?.deadline
    }

    /// See [`Rare::hang`].
    #[inline]
    pub fn hang(&self) -> Option<Duration> {
        self.rare.as_ref()?.hang
    }

    /// See [`Rare::backoff`].
    #[inline]
    pub fn backoff(&self) -> Option<&Backoff> {
        self.rare.as_ref()?.backoff.as_ref()
    }

    /// See [`Rare::client`].
    #[inline]
    pub fn client(&self) -> Option<&Client> {
        self.rare.as_ref()?.client.as_ref()
    }

    /// Whether a limit counts from the beginning of each run.
    #[inline]
    pub(crate) fn limits_runs(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.timeout.is_some() | rare.hang.is_some())
    }

    /// Whether there is any limit of its time.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        self.limits_runs() || self.deadline().is_some()
    }

    /// A limit of each run.
    pub(crate) fn of_run(&self, limit: Limit) -> Option<Duration> {
        match limit {
            Limit::Timeout => self.timeout(),
            Limit::Hang => self.hang(),
            Limit::Deadline => None,
        }
    }
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
    /// It has failed, and is run again later.
    Delayed = 4,
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
    /// The lane it lies in while sent; written under the engine's lock.
    lane: AtomicU32,
    /// The number of its session's state in the lane that it was sent to last; written under the engine's lock.
    generation: AtomicU32,
    /// For which limits of its run there is a timer, a bit for each; written under the engine's lock.
    armed: AtomicU8,
    session: Option<Arc<Session>>,
    /// Its items, if it is a stream.
    stream: Option<Box<Stream>>,
    ending: OnceLock<Ending>,
    /// Most tasks need none.
    cold: OnceLock<Box<Cold>>,
}

// A pool has a cell for each task that waits, and the threads that take part in it pass its lines from core to core:
// 344 bytes were it before tasks had sessions, streams and records. What few tasks have belongs into `Cold` or `Rare`.
const _: () = assert!(size_of::<Task>() <= 344);
const _: () = assert!(size_of::<Options>() <= 32);

/// The end of a task, written at once.
#[derive(Debug)]
struct Ending {
    outcome: Outcome,
    record: Kept,
    /// The function's name, if it is known.
    name: Option<Arc<str>>,
}

/// What few tasks have; made when the first of it is needed.
#[derive(Debug, Default)]
struct Cold {
    /// Nanoseconds from its submission until it was last queued to be run once more; written under the engine's lock.
    queued_again: AtomicU64,
    /// Nanoseconds that it waited for its last run, if it did; written under the engine's lock.
    last_delay: AtomicU64,
    /// Workers that have died while it was the next one that they would have started.
    workers_lost: AtomicU32,
    /// The deaths of workers that it has caused; written under the engine's lock.
    deaths: Mutex<Vec<Death>>,
    signals: OnceLock<Arc<Signals>>,
    /// The function's name, if a thread of this process has called it and it is called again.
    name: OnceLock<Arc<str>>,
}

/// The call of a task. The function's pickle is not included: loading it may have killed the worker.
#[derive(Clone, Debug)]
pub struct Called {
    /// The function's name; `None` if the task has released it.
    pub function: Option<Arc<str>>,
    /// The pickle of its arguments, if it is short enough to be described.
    pub arguments: Option<Vec<u8>>,
    /// Whether it calls a method of an actor.
    pub of_actor: bool,
}

impl Task {
    pub(crate) fn new(id: u64, call: Call, flags: u16, options: Options, attempt: u32) -> Self {
        let stream = (options.stream > 0).then(|| Box::new(Stream::new(options.stream)));
        Self {
            id,
            call,
            flags,
            options,
            submitted: clock::now(),
            word: Futex::new(Stage::Queued as u32),
            attempt: AtomicU32::new(attempt),
            lane: AtomicU32::new(u32::MAX),
            generation: AtomicU32::new(0),
            armed: AtomicU8::new(0),
            session: None,
            stream,
            ending: OnceLock::new(),
            cold: OnceLock::new(),
        }
    }

    fn cold(&self) -> &Cold {
        self.cold.get_or_init(Box::default)
    }

    /// The same task, of a session.
    pub(crate) fn of_session(mut self, session: Option<Arc<Session>>) -> Self {
        self.session = session;
        self
    }

    /// The session to which it belongs.
    #[inline]
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The number of the session's state that it was given; 0 if none.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// A task that has ended before it began: its arguments could not be encoded, say.
    pub fn ended(outcome: Outcome) -> Arc<Self> {
        let task = Self::new(0, Call::Local(Mutex::new(None)), 0, Options::default(), 0);
        let _ = task.ending.set(Ending { outcome, record: Kept::default(), name: None });
        task.word.store(Stage::Done as u32, Ordering::Release);
        Arc::new(task)
    }

    /// Where it stands.
    pub fn stage(&self) -> Stage {
        match self.word.load(Ordering::Acquire) & PHASE {
            0 => Stage::Queued,
            1 => Stage::Sent,
            2 => Stage::Running,
            4 => Stage::Delayed,
            _ => Stage::Done,
        }
    }

    /// Whether it has an outcome.
    pub fn is_done(&self) -> bool {
        self.word.load(Ordering::Acquire) & PHASE == Stage::Done as u32
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        if self.is_done() { self.ending.get().map(|ending| &ending.outcome) } else { None }
    }

    /// The record of its run, once it has ended.
    pub fn record(&self) -> Record {
        self.ending.get().map_or_else(Record::default, |ending| ending.record.into())
    }

    /// How often it has been started, as far as is known. A start in a worker is counted when the parent learns of it:
    /// by its answer, or when the worker ends. A task that was moved from lane to lane has not been started by that.
    pub fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Relaxed)
    }

    /// What it and the program tell each other; made if there is nothing yet.
    pub fn signals(&self) -> &Arc<Signals> {
        self.cold().signals.get_or_init(Arc::default)
    }

    /// The same, if there is anything.
    pub(crate) fn known_signals(&self) -> Option<&Arc<Signals>> {
        self.cold.get()?.signals.get()
    }

    /// Its items, if it is a stream.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_deref()
    }

    /// Whether it is a stream that has delivered something, and so cannot be run again.
    pub(crate) fn has_delivered(&self) -> bool {
        self.stream().is_some_and(Stream::has_begun)
    }

    /// Whether it was asked to stop by itself.
    pub fn is_asked_to_stop(&self) -> bool {
        self.known_signals().is_some_and(|signals| signals.is_asked_to_stop())
    }

    /// When its limits end a call of it that began at this time, in nanoseconds of the monotonic clock.
    pub fn ends(&self, began: u64) -> Option<Instant> {
        self.options.rare.as_ref()?;
        let ago = Duration::from_nanos(clock::nanos().saturating_sub(began));
        let began = clock::now().checked_sub(ago)?;
        let of_call = self.options.timeout().and_then(|timeout| began.checked_add(timeout));
        let of_all = self.options.deadline().and_then(|deadline| self.submitted.checked_add(deadline));
        [of_call, of_all].into_iter().flatten().min()
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
        Some(self.lane.load(Ordering::Relaxed)).filter(|lane| *lane != u32::MAX).map(|lane| lane as usize)
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        // A compare loop, because the flag bits are set by threads without the engine's lock.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(word & !PHASE | stage as u32));
    }

    pub(crate) fn sent_to(&self, lane: usize) {
        self.lane.store(u32::try_from(lane).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.set_stage(Stage::Sent);
    }

    /// Counts a start that the engine has learned of. The record of a task that has ended is not changed: a worker may
    /// answer what was cancelled, or timed out, a moment before.
    pub(crate) fn count_attempt(&self) {
        if !self.is_done() {
            self.attempt.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has been run, and waits once more from now on.
    pub(crate) fn waits_again(&self) {
        let since = clock::now().saturating_duration_since(self.submitted);
        self.cold().queued_again.store(clock::in_nanos(since), Ordering::Relaxed);
    }

    /// Nanoseconds from its submission until it was last queued to be run once more; 0 if it never was.
    pub fn queued_again_ns(&self) -> u64 {
        self.cold.get().map_or(0, |cold| cold.queued_again.load(Ordering::Relaxed))
    }

    /// The name of its function, once it has ended and if that is known.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.ending.get()?.name.as_ref()
    }

    /// The name of its function, which it has called and is to call again.
    pub(crate) fn set_name(&self, name: Arc<str>) {
        let _ = self.cold().name.set(name);
    }

    pub(crate) fn known_name(&self) -> Option<Arc<str>> {
        self.cold.get()?.name.get().cloned()
    }

    /// Since when it has waited, if it waits.
    pub(crate) fn waits_since(&self) -> Instant {
        let again = Duration::from_nanos(self.queued_again_ns());
        self.submitted.checked_add(again).unwrap_or(self.submitted)
    }

    pub(crate) fn last_delay(&self) -> Duration {
        Duration::from_nanos(self.cold.get().map_or(0, |cold| cold.last_delay.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_last_delay(&self, delay: Duration) {
        self.cold().last_delay.store(clock::in_nanos(delay), Ordering::Relaxed);
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        let deadline = self.options.deadline().and_then(|deadline| self.submitted.checked_add(deadline));
        deadline.is_some_and(|at| at <= clock::now())
    }

    /// True if there is no timer for this limit of its run yet; there is one from now on.
    pub(crate) fn arm(&self, limit: Limit) -> bool {
        let bit = 1 << limit as u8;
        self.armed.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The timer for this limit of its run is gone.
    pub(crate) fn disarm(&self, limit: Limit) {
        self.armed.fetch_and(!(1 << limit as u8), Ordering::Relaxed);
    }

    /// Whether it is a stream that has got on since the last look, or waits for its reader; `seen` is its pace then.
    pub(crate) fn gets_on(&self, seen: &mut u64) -> bool {
        let Some(stream) = self.stream() else { return false };
        let (pace, waits) = stream.pace_of_life();
        waits || std::mem::replace(seen, pace) != pace
    }

    /// How many workers it has cost their life.
    pub(crate) fn deaths(&self) -> usize {
        self.cold.get().map_or(0, |cold| cold.deaths.lock().len())
    }

    /// It has cost a worker its life; gives all that it has cost so far.
    pub(crate) fn add_death(&self, death: Death) -> Vec<Death> {
        let mut deaths = self.cold().deaths.lock();
        deaths.push(death);
        deaths.clone()
    }

    /// Its worker has died and had not started it, by the worker's own word; true when that is no accident any more.
    pub(crate) fn lose_worker(&self) -> bool {
        self.cold().workers_lost.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_WORKERS_LOST
    }

    /// Ends a task whose function has no name; see [`finish_named`](Self::finish_named).
    pub(crate) fn finish(&self, outcome: Outcome, record: Record) -> bool {
        self.finish_named(outcome, record.into(), None)
    }

    /// Ends the task; true if it is watched. The caller holds the engine's lock and has checked that it is not done.
    pub(crate) fn finish_named(&self, outcome: Outcome, record: Kept, name: Option<Arc<str>>) -> bool {
        if let Some(signals) = self.known_signals() {
            signals.end();
        }
        let _ = self.ending.set(Ending { outcome, record, name });
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some(word & !PHASE | Stage::Done as u32)
            })
            .unwrap_or(0);
        if before & WAITING != 0 {
            self.word.wake_all();
        }
        if let Some(stream) = self.stream() {
            stream.end();
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
        let call = self.remote()?;
        let arguments = call.payload.described().map(<[u8]>::to_vec);
        let function = call.function.as_ref().map(|function| Arc::clone(&function.name));
        let of_actor = self.session().is_some_and(|session| session.is_actor);
        Some(Called { function, arguments, of_actor })
    }

    /// What a worker process is sent, if it is a call for one.
    pub(crate) fn remote(&self) -> Option<MutexGuard<'_, Remote>> {
        match &self.call {
            Call::Remote(call) => Some(call.lock()),
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
        assert!(
            task.finish(Outcome::Cancelled, Record { pid: 4, busy_ns: 5, total_ns: 6, ..Record::default() })
        );
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
        for limit in [Limit::Timeout, Limit::Hang] {
            assert!(task.arm(limit) && !task.arm(limit));
        }
        task.disarm(Limit::Hang);
        assert!(task.arm(Limit::Hang) && !task.arm(Limit::Timeout));
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
