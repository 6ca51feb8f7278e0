//! The parent's engine: one lock, one queue, and the lanes that it feeds.
//!
//! Whoever waits for something drives: a thread in [`Engine::wait`] becomes the *leader* if there is none, polls the
//! result rings itself and sleeps on the control page's bell; other waiting threads are *followers* and sleep on what
//! they wait for. When nobody waits, the supervisor's thread is rung only by a worker that runs out of tasks while
//! there is a backlog. See the crate's `README.md`.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use windlass_base::{Code, Error, Result};
use windlass_os::futex::{self, Scope};
use windlass_shm::arena::Arena;
use windlass_shm::ring::{AdaptiveSpin, Retract};

use crate::config::{Config, OnCrash, OnFull};
use crate::control::{Control, bell};
use crate::dispatch::{Load, STEAL_AFTER};
use crate::lane::Lane;
use crate::queue::Queue;
use crate::statistics::{Counters, Statistics, WorkerState, WorkerStatistics};
use crate::supervisor::Supervisor;
use crate::task::{Call, Failure, Function, Opaque, Options, Outcome, Payload, Phase, Record, Stage, Task};
use crate::wire::flags;
use crate::workers::Worker;

/// Where a pool stands.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// It takes tasks.
    Open,
    /// It takes no more, and ends when what it has is done.
    Closing,
    /// It can run nothing any more.
    Broken(Failure),
    /// Its workers are gone.
    Ended,
}

/// Everything behind the engine's lock.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) queue: Queue,
    pub(crate) lanes: Vec<Option<Lane>>,
    pub(crate) workers: Vec<Option<Worker>>,
    /// Lanes with outstanding tasks.
    pub(crate) busy: Vec<usize>,
    /// Lanes without, the one that worked last at the end: it is the warmest.
    pub(crate) idle: Vec<usize>,
    /// Tasks in all lanes.
    pub(crate) outstanding: usize,
    /// Where the search for room in a busy lane goes on.
    pub(crate) cursor: usize,
    /// Workers that have not said READY.
    pub(crate) starting: usize,
    pub(crate) failed_starts: u32,
    pub(crate) load: Load,
    leader: bool,
    spin: AdaptiveSpin,
    followers: Vec<(u64, Sleeper)>,
    next_follower: u64,
    deadlines: BinaryHeap<Deadline>,
    /// When the supervisor will look by itself.
    supervisor_wakes: Option<Instant>,
    pub(crate) counters: Counters,
    /// Local tasks being run.
    local_running: usize,
    local_idle: usize,
    /// Followers that wait for room in the queue, or for one of several tasks.
    change_waiters: usize,
}

#[derive(Debug)]
struct Deadline {
    at: Instant,
    task: Weak<Task>,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Deadline {}
impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

/// What a thread waits for.
#[derive(Clone, Debug)]
pub enum Sleeper {
    /// That a task ends.
    Task(Arc<Task>),
    /// That the completed list is not empty.
    Completed,
    /// That the queue has room.
    Space,
    /// That one of these tasks ends.
    Any(Arc<[Arc<Task>]>),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Waited {
    /// What was waited for is there.
    Ready,
    /// The time is up.
    TimedOut,
    /// A signal handler wants to run; wait again afterwards.
    Interrupted,
}

/// What [`Engine::submit`] refuses, with the reason.
#[derive(Clone, Debug)]
#[must_use]
pub enum Refused {
    /// The pool was shut down.
    Closed,
    /// The pool is broken.
    Broken(Failure),
    /// The queue is full and the pool was told to reject.
    Full,
    /// The queue is full: wait for [`Sleeper::Space`], then try again.
    Wait,
    /// The process has forked since the pool was made.
    Forked,
}

/// A pool's engine. Dropping the last handle does not end it: call [`close`](Self::close).
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) control: Arc<Control>,
    pub(crate) core: Mutex<Core>,
    pub(crate) me: Weak<Self>,
    /// Watched tasks that have ended, for the collector.
    completed: Mutex<Vec<Arc<Task>>>,
    completed_word: AtomicU32,
    change_word: AtomicU32,
    next_id: AtomicU64,
    next_function: AtomicU32,
    dropped_functions: Arc<Mutex<Vec<u32>>>,
    local_ready: Condvar,
    ended: Condvar,
    collecting: AtomicBool,
    fork_generation: u64,
    pub(crate) spawning: Mutex<Option<crate::workers::Spawning>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts a pool: the zygote and the workers of a process pool are asked for at once, and come up in the
    /// background.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn start(config: Config) -> Result<Arc<Self>> {
        let cores = u32::try_from(windlass_os::cpu::usable_cores()).unwrap_or(u32::MAX);
        let (control, control_fd) = Control::create(cores)?;
        let core = Core {
            state: State::Open,
            queue: Queue::default(),
            lanes: Vec::new(),
            workers: Vec::new(),
            busy: Vec::new(),
            idle: Vec::new(),
            outstanding: 0,
            cursor: 0,
            starting: 0,
            failed_starts: 0,
            load: Load::default(),
            leader: false,
            spin: AdaptiveSpin::new(),
            followers: Vec::new(),
            next_follower: 0,
            deadlines: BinaryHeap::new(),
            supervisor_wakes: None,
            counters: Counters::default(),
            local_running: 0,
            local_idle: 0,
            change_waiters: 0,
        };
        let remote = config.spawn.is_some();
        let engine = Arc::new_cyclic(|me| Self {
            control,
            core: Mutex::new(core),
            me: me.clone(),
            completed: Mutex::default(),
            completed_word: AtomicU32::new(0),
            change_word: AtomicU32::new(0),
            next_id: AtomicU64::new(1),
            next_function: AtomicU32::new(1),
            dropped_functions: Arc::default(),
            local_ready: Condvar::new(),
            ended: Condvar::new(),
            collecting: AtomicBool::new(false),
            fork_generation: windlass_os::process::fork_generation(),
            spawning: Mutex::new(None),
            config,
        });
        if remote {
            engine.prepare_spawning(control_fd)?;
            let mut core = engine.lock();
            for _ in 0..engine.config.workers {
                engine.add_worker(&mut core)?;
            }
            engine.rest(&mut core);
        }
        Supervisor::get()?.add_engine(&engine);
        Ok(engine)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// The arena for large arguments.
    pub fn arena(&self) -> &'static Arc<Arena> {
        Arena::global()
    }

    /// Whether tasks go to worker processes.
    pub fn is_remote(&self) -> bool {
        self.config.spawn.is_some()
    }

    /// Registers an encoded function, to be shipped to each worker once.
    pub fn function(&self, payload: Payload) -> Arc<Function> {
        let id = self.next_function.fetch_add(1, Ordering::Relaxed);
        Arc::new(Function { id, payload, dropped: Arc::clone(&self.dropped_functions) })
    }

    /// Ids of functions that no task can name any more.
    pub(crate) fn take_dropped_functions(&self) -> Vec<u32> {
        let mut dropped = lock(&self.dropped_functions);
        if dropped.is_empty() { Vec::new() } else { std::mem::take(&mut *dropped) }
    }

    // --- submission -------------------------------------------------------------------------------------------------

    /// Takes a task, or gives the call back with the reason.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the call comes back with it.
    pub fn submit(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        if self.fork_generation != windlass_os::process::fork_generation() {
            return Err(Box::new((call, Refused::Forked)));
        }
        let mut core = self.lock();
        match &core.state {
            State::Open => {}
            State::Broken(failure) => {
                let failure = failure.clone();
                return Err(Box::new((call, Refused::Broken(failure))));
            }
            State::Closing | State::Ended => return Err(Box::new((call, Refused::Closed))),
        }
        if let Some(max) = self.config.max_queue
            && core.queued() >= max
        {
            let refused = if self.config.on_full == OnFull::Reject { Refused::Full } else { Refused::Wait };
            return Err(Box::new((call, refused)));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let task = Arc::new(Task::new(id, call, task_flags, options, 0));
        core.counters.submitted += 1;
        if let Some(timeout) = options.timeout {
            self.add_deadline(&mut core, &task, timeout);
        }
        core.queue.push(Arc::clone(&task));
        if self.is_remote() {
            if !core.leader && core.outstanding > 8 {
                self.poll(&mut core);
            }
            if options.priority != 0 || core.load.mixed_priorities {
                core.load.mixed_priorities = true;
                self.take_back_lower(&mut core, options.priority);
            }
            self.dispatch(&mut core);
            if !core.leader {
                self.rest(&mut core);
            }
        } else if core.local_idle > 0 {
            self.local_ready.notify_one();
        }
        Ok(task)
    }

    fn add_deadline(&self, core: &mut Core, task: &Arc<Task>, timeout: Duration) {
        let Some(at) = task.submitted.checked_add(timeout) else { return };
        core.deadlines.push(Deadline { at, task: Arc::downgrade(task) });
        if core.supervisor_wakes.is_none_or(|wakes| at < wakes) {
            core.supervisor_wakes = Some(at);
            self.control.kick();
        }
    }

    // --- waiting ----------------------------------------------------------------------------------------------------

    fn is_ready(&self, what: &Sleeper) -> bool {
        match what {
            Sleeper::Task(task) => task.is_done(),
            Sleeper::Completed => !lock(&self.completed).is_empty(),
            Sleeper::Space => false,
            Sleeper::Any(tasks) => tasks.iter().any(|task| task.is_done()),
        }
    }

    fn has_space(&self, core: &Core) -> bool {
        !matches!(core.state, State::Open) || self.config.max_queue.is_none_or(|max| core.queued() < max)
    }

    /// Blocks until `what` is there, driving the pool meanwhile. Call it with the interpreter released.
    pub fn wait(&self, what: &Sleeper, deadline: Option<Instant>) -> Waited {
        loop {
            if self.is_ready(what) {
                return Waited::Ready;
            }
            if self.fork_generation != windlass_os::process::fork_generation() {
                return Waited::TimedOut;
            }
            let mut core = self.lock();
            if matches!(what, Sleeper::Space) && self.has_space(&core) {
                return Waited::Ready;
            }
            if core.is_over() {
                // Every task has its outcome by now; nobody is left who would wake a sleeper.
                return Waited::Ready;
            }
            if self.is_remote() && !core.leader {
                core.leader = true;
                self.control.arm(bell::AWAKE);
                let spin = std::mem::replace(&mut core.spin, AdaptiveSpin::new());
                return self.lead(core, what, deadline, spin);
            }
            let waited = self.follow(core, what, deadline);
            if waited != Waited::Ready {
                return waited;
            }
        }
    }

    fn follow(&self, mut core: MutexGuard<'_, Core>, what: &Sleeper, deadline: Option<Instant>) -> Waited {
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if timeout == Some(Duration::ZERO) {
            return Waited::TimedOut;
        }
        let token = core.next_follower;
        core.next_follower += 1;
        core.followers.push((token, what.clone()));
        let any_change = matches!(what, Sleeper::Space | Sleeper::Any(_));
        if any_change {
            core.change_waiters += 1;
        }
        let interrupted = match what {
            Sleeper::Task(task) => {
                let observed = task.prepare_sleep();
                drop(core);
                task.sleep(observed, timeout)
            }
            Sleeper::Completed => self.sleep_on(core, &self.completed_word, what, timeout),
            Sleeper::Space | Sleeper::Any(_) => self.sleep_on(core, &self.change_word, what, timeout),
        };
        let mut core = self.lock();
        core.followers.retain(|(id, _)| *id != token);
        if any_change {
            core.change_waiters -= 1;
        }
        if !core.leader {
            // The nudge of a leader that left may have come to us, who need it no more.
            self.promote(&mut core);
        }
        if interrupted { Waited::Interrupted } else { Waited::Ready }
    }

    fn sleep_on(
        &self,
        core: MutexGuard<'_, Core>,
        word: &AtomicU32,
        what: &Sleeper,
        timeout: Option<Duration>,
    ) -> bool {
        let observed = word.load(Ordering::Acquire);
        drop(core);
        if self.is_ready(what) {
            return false;
        }
        matches!(futex::wait(word, observed, timeout, Scope::Private), futex::Wait::Interrupted)
    }

    fn lead<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        what: &Sleeper,
        deadline: Option<Instant>,
        mut spin: AdaptiveSpin,
    ) -> Waited {
        let mut interrupted = false;
        loop {
            self.poll(&mut core);
            let ready = self.is_there(&core, what);
            let late = deadline.is_some_and(|at| Instant::now() >= at);
            if ready || late || interrupted {
                core.spin = spin;
                core.leader = false;
                self.rest(&mut core);
                self.promote(&mut core);
                return match (ready, interrupted) {
                    (true, _) => Waited::Ready,
                    (false, true) => Waited::Interrupted,
                    (false, false) => Waited::TimedOut,
                };
            }
            drop(core);
            let spun = spin.spin(|| self.control.may_spin(), || self.glance() || self.is_ready(what));
            core = self.lock();
            if spun {
                continue;
            }
            self.control.arm(bell::FUTEX);
            if self.poll(&mut core) || self.is_there(&core, what) {
                self.control.arm(bell::AWAKE);
                continue;
            }
            let look = core.steal_pending().then_some(STEAL_AFTER);
            drop(core);
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = match (left, look) {
                (Some(left), Some(look)) => Some(left.min(look)),
                (left, look) => left.or(look),
            };
            interrupted = self.control.sleep(timeout);
            core = self.lock();
            self.control.arm(bell::AWAKE);
        }
    }

    fn is_there(&self, core: &Core, what: &Sleeper) -> bool {
        self.is_ready(what) || (matches!(what, Sleeper::Space) && self.has_space(core)) || core.is_over()
    }

    /// Whether a look at the rings would find something; no more than a hint.
    fn glance(&self) -> bool {
        let Ok(core) = self.core.try_lock() else { return false };
        core.any_ready()
    }

    /// Makes another waiting thread look, because the leader leaves.
    fn promote(&self, core: &mut Core) {
        match core.followers.first() {
            None => {}
            Some((_, Sleeper::Task(task))) => task.nudge(),
            Some((_, Sleeper::Completed)) => Self::bump(&self.completed_word),
            Some((_, Sleeper::Space | Sleeper::Any(_))) => Self::bump(&self.change_word),
        }
    }

    fn bump(word: &AtomicU32) {
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake(word, u32::MAX >> 1, Scope::Private);
    }

    /// Arms the bell for a time in which nobody looks at the rings.
    pub(crate) fn rest(&self, core: &mut Core) {
        if !self.is_remote() {
            return;
        }
        if core.steal_pending() {
            // Nobody rings for a lane that is stuck behind a long task: the supervisor looks by itself.
            let at = Instant::now() + STEAL_AFTER;
            if core.supervisor_wakes.is_none_or(|wakes| at < wakes) {
                core.supervisor_wakes = Some(at);
                self.control.kick();
            }
        }
        for _ in 0..3 {
            let mode = if core.starting > 0 || !matches!(core.state, State::Open) {
                bell::ANY
            } else if !core.queue.is_empty() || core.outstanding > core.busy.len() {
                bell::HUNGRY
            } else {
                bell::QUIET
            };
            if self.control.mode() == mode {
                return;
            }
            self.control.arm(mode);
            // Whatever came while nobody had armed the bell rings nobody: look once more.
            let missed = match mode {
                bell::ANY => core.any_ready(),
                bell::HUNGRY => core.any_ready() && core.somebody_hungry(),
                _ => false,
            };
            if !missed || !self.poll(core) {
                return;
            }
        }
    }

    /// Reads the results that are there, if nobody waits for them: for those who ask again and again and never wait.
    pub fn catch_up(&self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.is_remote() && self.fork_generation == windlass_os::process::fork_generation() {
            self.look(&mut self.lock());
        }
    }

    fn look(&self, core: &mut Core) {
        if self.is_remote() && !core.leader {
            self.poll(core);
            self.rest(core);
        }
    }

    /// Reads the result rings and feeds the task rings; true if anything came.
    pub(crate) fn poll(&self, core: &mut Core) -> bool {
        let came = self.drain_lanes(core);
        if came || !core.queue.is_empty() || !core.idle.is_empty() {
            self.dispatch(core);
        }
        came
    }

    // --- the end of tasks ------------------------------------------------------------------------------------------

    /// Ends a task, frees what it held, and tells whoever wants to know.
    pub(crate) fn finish(&self, core: &mut Core, task: &Arc<Task>, outcome: Outcome, mut record: Record) {
        if task.is_done() {
            return;
        }
        let counters = &mut core.counters;
        match &outcome {
            Outcome::Replied(reply) if reply.flags & flags::ERROR == 0 => counters.completed += 1,
            Outcome::Local { raised: false, .. } => counters.completed += 1,
            Outcome::Cancelled => counters.cancelled += 1,
            Outcome::Failed(Failure::TimedOut(_)) => {
                counters.timed_out += 1;
                counters.failed += 1;
            }
            _ => counters.failed += 1,
        }
        counters.busy_ns += record.busy_ns;
        record.total_ns = u64::try_from(task.submitted.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(mut payload) = task.payload() {
            *payload = Payload::default();
        }
        if task.finish(outcome, record) {
            lock(&self.completed).push(Arc::clone(task));
            Self::bump(&self.completed_word);
        }
        if core.change_waiters > 0 {
            Self::bump(&self.change_word);
        }
    }

    /// Runs a task again if it may be, else ends it.
    pub(crate) fn retry_or_finish(
        &self,
        core: &mut Core,
        task: &Arc<Task>,
        outcome: Outcome,
        record: Record,
    ) {
        if task.is_done() {
            return;
        }
        let open = matches!(core.state, State::Open | State::Closing);
        if open && task.attempt() <= task.options.retries {
            core.counters.retried += 1;
            task.set_stage(Stage::Queued);
            core.queue.push_front(Arc::clone(task));
            if !self.is_remote() && core.local_idle > 0 {
                self.local_ready.notify_one();
            }
        } else {
            self.finish(core, task, outcome, record);
        }
    }

    /// Watched tasks that have ended since the last call.
    pub fn take_completed(&self) -> Vec<Arc<Task>> {
        std::mem::take(&mut *lock(&self.completed))
    }

    /// True for the first caller: the pool needs one collector.
    pub fn start_collecting(&self) -> bool {
        !self.collecting.swap(true, Ordering::AcqRel)
    }

    /// Makes the collector look, whatever there is: for a pool's end.
    pub fn nudge_collector(&self) {
        Self::bump(&self.completed_word);
        self.control.wake_sleeper();
    }

    /// Cancels a task. One that has not started is simply dropped; one that is running is ended, with its worker, if
    /// `running` says so and it runs in a worker process. True if the task is cancelled now.
    pub fn cancel(&self, task: &Arc<Task>, running: bool) -> bool {
        if self.fork_generation != windlass_os::process::fork_generation() {
            return false; // The task, and the worker that would be killed, are the parent's.
        }
        let mut core = self.lock();
        let cancelled = self.end_early(&mut core, task, running, |_| Outcome::Cancelled);
        // Also when it was too late: the look at the rings may have ended what another thread sleeps for.
        self.after_outside_change(&mut core);
        cancelled
    }

    /// Whether the task is being run right now.
    pub fn is_running(&self, task: &Arc<Task>) -> bool {
        let mut core = self.lock();
        match task.stage() {
            Stage::Running => true,
            Stage::Sent => core.sent_started(task).unwrap_or(false),
            Stage::Queued | Stage::Done => false,
        }
    }

    fn end_early(
        &self,
        core: &mut Core,
        task: &Arc<Task>,
        running: bool,
        outcome: impl FnOnce(Phase) -> Outcome,
    ) -> bool {
        match task.stage() {
            Stage::Done => false,
            Stage::Queued => {
                core.queue.forget_one();
                self.finish(core, task, outcome(Phase::Queued), Record::default());
                true
            }
            Stage::Running => {
                // A thread cannot be ended from outside: the caller is told, the call goes on.
                if running && matches!(outcome(Phase::Running), Outcome::Failed(_)) {
                    let timed_out = Outcome::Failed(Failure::TimedOut(Phase::Running));
                    self.finish(core, task, timed_out, Record::default());
                    return true;
                }
                false
            }
            Stage::Sent => {
                if self.poll(core) && task.is_done() {
                    return false;
                }
                if task.stage() == Stage::Queued {
                    return self.end_early(core, task, running, outcome);
                }
                match core.retract(task) {
                    Some(Retract::Taken) => {
                        self.finish(core, task, outcome(Phase::Queued), Record::default());
                        true
                    }
                    Some(Retract::Started) if running => {
                        let pid = self.kill_worker_of(core, task);
                        self.finish(core, task, outcome(Phase::Running), Record { pid, ..Record::default() });
                        true
                    }
                    Some(Retract::Started) | None => false,
                }
            }
        }
    }

    /// After a change made by a thread that may not be the leader.
    fn after_outside_change(&self, core: &mut Core) {
        if self.is_remote() {
            self.dispatch(core);
        }
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(core);
        }
        self.check_end(core);
    }

    // --- the supervisor's round -------------------------------------------------------------------------------------

    /// One look by the supervisor; gives the time of the next one.
    pub(crate) fn tick(&self, now: Instant) -> Option<Instant> {
        let mut core = self.lock();
        self.poll(&mut core);
        while let Some(first) = core.deadlines.peek() {
            if first.at > now {
                break;
            }
            let Some(due) = core.deadlines.pop() else { break };
            if let Some(task) = due.task.upgrade() {
                self.end_early(&mut core, &task, true, |phase| Outcome::Failed(Failure::TimedOut(phase)));
            }
        }
        self.expire_deaths(&mut core, now);
        let sweep = self.sweep_segments(&mut core, now);
        self.after_outside_change(&mut core);
        let first = core.deadlines.peek().map(|d| d.at);
        let steal = core.steal_pending().then(|| now + STEAL_AFTER);
        let wakes = [first, core.next_death(), sweep, steal].into_iter().flatten().min();
        core.supervisor_wakes = wakes;
        wakes
    }

    // --- the end of the pool ----------------------------------------------------------------------------------------

    /// Takes no more tasks; with `cancel`, drops those that have not started. The workers leave when all is done.
    pub fn close(&self, cancel: bool) {
        let mut core = self.lock();
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        if cancel {
            if self.is_remote() {
                self.poll(&mut core);
            }
            let mut waiting = core.queue.drain();
            let taken = if self.is_remote() { core.busy.len() } else { core.local_running };
            // A worker that is free would have taken one, had it been looked at a moment later: those count as started.
            let free = (self.config.workers * self.config.threads).saturating_sub(taken).min(waiting.len());
            let spared: Vec<_> = waiting.drain(..free).collect();
            for task in spared.into_iter().rev() {
                core.queue.push_front(task);
            }
            if self.is_remote() {
                waiting.extend(core.take_back_waiting());
                self.dispatch(&mut core);
            }
            for task in waiting {
                self.finish(&mut core, &task, Outcome::Cancelled, Record::default());
            }
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
        self.check_end(&mut core);
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(&mut core);
        }
        self.control.kick();
    }

    /// Ends every worker at once; whatever has no result fails with `failure`.
    pub fn break_down(&self, failure: &Failure) {
        let mut core = self.lock();
        self.break_core(&mut core, failure);
        self.after_outside_change(&mut core);
        self.control.kick();
    }

    pub(crate) fn break_core(&self, core: &mut Core, failure: &Failure) {
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        core.state = State::Broken(failure.clone());
        let mut waiting = core.queue.drain();
        waiting.extend(self.kill_everything(core));
        for task in waiting {
            self.finish(core, &task, Outcome::Failed(failure.clone()), Record::default());
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
    }

    /// Moves to the end if nothing is left to do.
    pub(crate) fn check_end(&self, core: &mut Core) {
        let broken = match core.state {
            State::Open | State::Ended => return,
            State::Closing => false,
            State::Broken(_) => true,
        };
        let drained = core.queue.is_empty() && core.outstanding == 0 && core.local_running == 0;
        if !drained && !broken {
            return;
        }
        if self.is_remote() && !self.dismiss_workers(core) {
            return;
        }
        if !self.is_remote() && core.local_running > 0 {
            return;
        }
        if !broken {
            core.state = State::Ended;
        }
        self.local_ready.notify_all();
        self.ended.notify_all();
        self.nudge_all(core);
    }

    fn nudge_all(&self, core: &mut Core) {
        for (_, sleeper) in &core.followers {
            if let Sleeper::Task(task) = sleeper {
                task.nudge();
            }
        }
        Self::bump(&self.completed_word);
        Self::bump(&self.change_word);
        self.control.wake_sleeper();
    }

    /// Whether every worker is gone and no task is left.
    pub fn has_ended(&self) -> bool {
        self.lock().is_over()
    }

    /// Blocks until the pool has ended or the time is up; true if it has.
    pub fn join(&self, timeout: Duration) -> bool {
        if self.fork_generation != windlass_os::process::fork_generation() {
            return true;
        }
        let deadline = Instant::now() + timeout;
        while !self.has_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let core = self.lock();
            drop(self.ended.wait_timeout(core, left.min(Duration::from_millis(20))));
        }
        true
    }

    /// Whether it takes no tasks any more.
    pub fn is_closed(&self) -> bool {
        !matches!(self.lock().state, State::Open)
    }

    /// What the zygote had to say about preloads that failed.
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.spawning).as_ref().map_or_else(Vec::new, |spawning| spawning.zygote.complaints())
    }

    /// The failure that broke the pool, if one did.
    pub fn broken(&self) -> Option<Failure> {
        match &self.lock().state {
            State::Broken(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    // --- local tasks ------------------------------------------------------------------------------------------------

    /// Takes the next task for a thread of this process, blocking up to `timeout`. `Ok(None)`: nothing yet.
    ///
    /// # Errors
    ///
    /// `Code::PoolClosed` when no task will come any more.
    pub fn take_local(&self, timeout: Duration) -> Result<Option<(Arc<Task>, Opaque)>> {
        let mut core = self.lock();
        loop {
            if let Some(task) = core.queue.pop() {
                let Call::Local(call) = &task.call else { continue };
                let retries = task.options.retries > 0;
                let mut slot = lock(call);
                let Some(work) = slot.take() else { continue };
                drop(slot);
                let _ = retries;
                task.count_attempt();
                task.set_stage(Stage::Running);
                core.local_running += 1;
                if core.change_waiters > 0 {
                    Self::bump(&self.change_word);
                }
                return Ok(Some((task, work)));
            }
            if !matches!(core.state, State::Open) {
                return Err(Error::new(Code::PoolClosed, "the pool has no more tasks"));
            }
            core.local_idle += 1;
            let (again, result) =
                self.local_ready.wait_timeout(core, timeout).unwrap_or_else(PoisonError::into_inner);
            core = again;
            core.local_idle -= 1;
            if result.timed_out() && core.queue.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Ends a local task. `again` gives the call back, for a retry.
    pub fn finish_local(
        &self,
        task: &Arc<Task>,
        value: Opaque,
        raised: bool,
        busy_ns: u64,
        again: Option<Opaque>,
    ) {
        let mut core = self.lock();
        core.local_running = core.local_running.saturating_sub(1);
        let pid = windlass_os::process::current_pid();
        let record = Record { pid, busy_ns, total_ns: 0 };
        let outcome = Outcome::Local { value, raised };
        match (raised, again, &task.call) {
            (true, Some(work), Call::Local(slot)) => {
                *lock(slot) = Some(work);
                self.retry_or_finish(&mut core, task, outcome, record);
            }
            _ => self.finish(&mut core, task, outcome, record),
        }
        self.check_end(&mut core);
    }

    // --- numbers ----------------------------------------------------------------------------------------------------

    /// A snapshot of the counters.
    pub fn statistics(&self) -> Statistics {
        let mut core = self.lock();
        self.look(&mut core);
        let mut running = core.local_running;
        let workers: Vec<WorkerStatistics> = core
            .workers
            .iter()
            .flatten()
            .map(|worker| {
                let started = core.started_in(worker);
                running += started;
                WorkerStatistics {
                    pid: worker.pid,
                    state: if worker.is_dying() {
                        WorkerState::Leaving
                    } else if worker.ready < worker.lanes.len() {
                        WorkerState::Starting
                    } else if started > 0 {
                        WorkerState::Busy
                    } else {
                        WorkerState::Idle
                    },
                    completed: worker.completed,
                    busy_ns: worker.busy_ns,
                }
            })
            .collect();
        let queued =
            core.queue.len() + core.outstanding - (running - core.local_running).min(core.outstanding);
        Statistics { counters: core.counters, queued, running, workers }
    }

    /// Whether a crash takes the whole pool with it.
    pub(crate) fn breaks_on_crash(&self) -> bool {
        self.config.on_crash == OnCrash::Break
    }
}

impl Core {
    /// Tasks that have been accepted and are not being run.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + self.outstanding.saturating_sub(self.busy.len())
    }

    /// Whether no worker is left and none will come.
    fn is_over(&self) -> bool {
        match self.state {
            State::Ended => true,
            State::Broken(_) => self.workers.iter().flatten().count() == 0 && self.local_running == 0,
            State::Open | State::Closing => false,
        }
    }

    pub(crate) fn any_ready(&self) -> bool {
        let ready = |lane: &Lane| lane.results.is_ready();
        if self.starting > 0 {
            return self.lanes.iter().flatten().any(ready);
        }
        self.busy.iter().filter_map(|i| self.lanes.get(*i)?.as_ref()).any(ready)
    }

    /// Whether tasks wait in lanes while others have nothing to do.
    fn steal_pending(&self) -> bool {
        !self.idle.is_empty() && self.outstanding > self.busy.len()
    }

    fn somebody_hungry(&self) -> bool {
        self.busy.iter().filter_map(|i| self.lanes.get(*i)?.as_ref()).any(|lane| lane.tasks.is_empty())
    }

    /// Whether a sent task's record has been started; `None` if it lies in no lane.
    pub(crate) fn sent_started(&mut self, task: &Arc<Task>) -> Option<bool> {
        let lane = self.lanes.get(task.lane()?)?.as_ref()?;
        let sent = lane.outstanding.iter().find(|sent| Arc::ptr_eq(&sent.task, task))?;
        Some(lane.tasks.started(sent.position))
    }

    /// Tries to take a sent task out of its lane.
    pub(crate) fn retract(&mut self, task: &Arc<Task>) -> Option<Retract> {
        let index = task.lane()?;
        let lane = self.lanes.get_mut(index)?.as_mut()?;
        let at = lane.outstanding.iter().position(|sent| Arc::ptr_eq(&sent.task, task))?;
        let result = lane.tasks.retract(lane.outstanding.get(at)?.position);
        if matches!(result, Retract::Taken) {
            lane.outstanding.remove(at);
            self.lane_shrank(index, 1);
        }
        Some(result)
    }

    /// Keeps `outstanding`, `busy` and `idle` in step after tasks left a lane.
    pub(crate) fn lane_shrank(&mut self, index: usize, by: usize) {
        self.outstanding -= by;
        let empty =
            self.lanes.get(index).and_then(Option::as_ref).is_some_and(|lane| lane.outstanding.is_empty());
        if empty && let Some(at) = self.busy.iter().position(|lane| *lane == index) {
            self.busy.swap_remove(at);
            self.idle.push(index);
        }
    }

    /// Takes every task that has not been started and is not the next out of the lanes, oldest first within a lane.
    pub(crate) fn take_back_waiting(&mut self) -> Vec<Arc<Task>> {
        let mut taken = Vec::new();
        for index in self.busy.clone() {
            let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let mut kept = 1;
            let before = lane.outstanding.len();
            while kept < lane.outstanding.len() {
                let sent = &lane.outstanding[kept];
                if matches!(lane.tasks.retract(sent.position), Retract::Taken) {
                    taken.extend(lane.outstanding.remove(kept).map(|sent| sent.task));
                } else {
                    kept += 1;
                }
            }
            let removed = before - lane.outstanding.len();
            self.lane_shrank(index, removed);
        }
        taken
    }
}
