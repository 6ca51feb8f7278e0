//! The common part of all pools: one lock, one queue, limits, retries, waits, and an end.
//!
//! With a backend that is polled, a waiting thread drives the pool: a thread in [`Pool::wait`] becomes the *leader* if
//! there is none, polls the workers' answers itself and sleeps on the control page; other waiting threads are
//! *followers* and sleep on what they wait for. When no thread waits, only a worker that runs out of tasks while there
//! is a backlog wakes the supervisor's thread. See the crate's `README.md`.

mod backend;
mod calling;
mod closing;
mod deaths;
mod delays;
mod dropping;
mod ending;
mod room;
mod sessions;
mod streaming;
mod timers;
mod wait;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_sync::Mutex;
use ropewalk_sync::futex::Futex;
use ropewalk_sync::spin::AdaptiveSpin;

pub use self::backend::{
    Answer, Attempt, Attended, Capabilities, Errand, Finished, Hung, News, Order, Taken, Which,
};
pub(crate) use self::backend::{Backend, Interrupted};
pub(crate) use self::deaths::Deaths;
use self::delays::Delays;
use self::timers::Timers;
use crate::calls::Calls;
use crate::clock;
use crate::config::{Config, OnCrash, Overflow};
use crate::control::{Control, WATCH};
use crate::events::{self, What};
use crate::function::{DroppedFunctions, Function};
use crate::locked::{Guard, Locked};
use crate::outcome::Failure;
use crate::payload::Payload;
use crate::quarantine::{Quarantine, Quarantined};
use crate::queue::Queue;
use crate::records::{Ended, MOST_TEXT as MOST_NAME, Records, shortened};
use crate::session::Session;
use crate::statistics::{Counters, Doing, Signalled, Statistics, WorkerState, WorkerStatistics};
use crate::supervisor::{Supervised, Supervisor};
use crate::task::{Call, Options, Task};

/// Looks of the supervisor without work before it leaves a pool alone: ten seconds.
const MOST_QUIET_LOOKS: u32 = 20;

/// Where a pool stands.
#[derive(Clone, Debug)]
pub(crate) enum Lifecycle {
    /// It takes tasks.
    Open,
    /// It takes no more, and ends when its tasks are done.
    Closing,
    /// It can run nothing any more.
    Broken(Failure),
    /// Its workers are gone.
    Ended,
}

/// Everything behind a pool's lock.
#[derive(Debug)]
pub(crate) struct PoolState<B: Backend> {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) queue: Queue,
    /// The backend's own.
    pub(crate) members: B::Members,
    /// A thread that waits looks for answers.
    pub(crate) leader: bool,
    spin: AdaptiveSpin,
    followers: Vec<(u64, WaitFor)>,
    next_follower: u64,
    pub(crate) timers: Timers,
    /// Tasks that have failed and are run again later.
    pub(crate) delays: Delays,
    /// When the supervisor will look by itself.
    pub(crate) supervisor_wakes: Option<Instant>,
    /// Looks of the supervisor in a row that found the pool without work.
    quiet_looks: u32,
    /// Tasks submitted when the supervisor looked last.
    watched_until: u64,
    pub(crate) counters: Counters,
    /// When what still runs is ended, in a pool that has been closed.
    end_at: Option<Instant>,
    /// Nothing is run again, and no worker replaced: the pool is being ended.
    pub(crate) ending: bool,
    /// Followers that wait for room in the queue, or for one of several tasks.
    pub(crate) change_waiters: usize,
    /// Tasks that no worker runs: they end when there is room. See [`Pool::room`].
    rooms: Vec<Arc<Task>>,
    /// Workers that the pool is meant to have now.
    pub(crate) size: usize,
    /// Whether the program has set that number: it does not follow the load any more.
    pub(crate) is_sized: bool,
    /// The streams that have not ended, each with the task that ends when something of it comes, if a reader waits for
    /// one. See [`Pool::stream_signal`].
    streams: Vec<(Arc<Task>, Option<Arc<Task>>)>,
    /// Sessions that have not been closed, or have tasks left, by their numbers.
    sessions: BTreeMap<u32, Arc<Session>>,
    /// Tasks that have cost too many workers their life.
    pub(crate) quarantine: Quarantine,
    pub(crate) records: Records,
    /// Calls of tasks that no thread of the program has taken.
    pub(crate) calls: Calls,
}

/// What a thread waits for.
#[derive(Clone, Debug)]
pub enum WaitFor {
    /// That a task ends.
    Task(Arc<Task>),
    /// That the completed list is not empty.
    Completed,
    /// That the queue has room.
    Space,
    /// That one of these tasks ends.
    Any(Arc<[Arc<Task>]>),
    /// That one of these tasks ends, or the queue has room.
    AnyOrSpace(Arc<[Arc<Task>]>),
    /// That an item of a stream is there, or the stream ends.
    Stream(Arc<Task>),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Waited {
    /// The awaited condition holds.
    Ready,
    /// The time is up.
    TimedOut,
    /// A signal handler wants to run; wait again afterwards.
    Interrupted,
}

/// What [`Engine::submit`](crate::Engine::submit) refuses, with the reason.
#[derive(Clone, Debug)]
#[must_use]
pub enum Refused {
    /// The pool was shut down.
    Closed,
    /// The pool is broken.
    Broken(Failure),
    /// The queue is full and the pool is set to reject: so many wait, of so many that may.
    Full(usize, usize),
    /// The queue is full in the same way: wait for [`WaitFor::Space`], then try again.
    MustWait(usize, usize),
    /// The process has forked since the pool was made.
    Forked,
    /// Another thread has the lock at the moment: submit again, and wait for it.
    Busy,
    /// The session was closed.
    SessionClosed,
    /// The session's worker is busy, and the session is set to fail then.
    SessionBusy,
    /// The actor is gone for good.
    Lost(Failure),
}

/// One pool, whose workers are `B`. Dropping the last handle does not end it: call [`close`](Self::close).
#[derive(Debug)]
pub(crate) struct Pool<B: Backend> {
    pub(crate) config: Config,
    pub(crate) backend: B,
    pub(crate) control: Arc<Control>,
    pub(crate) state: Locked<PoolState<B>>,
    pub(crate) me: Weak<Self>,
    /// Watched tasks that have ended, for the collector.
    completed: Locked<Vec<Arc<Task>>>,
    completed_word: Futex,
    pub(crate) change_word: Futex,
    /// Changes when a task has called; threads that serve calls sleep on it.
    pub(crate) calls_word: Futex,
    next_id: AtomicU64,
    next_function: AtomicU32,
    next_session: AtomicU32,
    pub(crate) dropped_functions: Arc<DroppedFunctions>,
    /// Counts the pool's ends; threads that join sleep on it.
    ended_word: Futex,
    collecting: AtomicBool,
    fork_generation: u64,
    /// Whether it is to be awakened by the first task.
    asleep: AtomicBool,
    /// The descriptor of the control page, until the first workers are started.
    unstarted: Mutex<Option<OwnedFd>>,
}

impl<B: Backend> Pool<B> {
    /// Starts a pool: if the backend starts workers they are asked for at once, and come up in the background.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub(crate) fn start(config: Config, settings: B::Settings) -> Result<Arc<Self>> {
        let (pool, page) = Self::assemble(config, settings)?;
        *pool.unstarted.lock() = Some(page);
        if pool.config.lazy && B::CAPABILITIES.starts_workers {
            pool.asleep.store(true, Ordering::Release);
        } else {
            pool.awaken()?;
        }
        Ok(pool)
    }

    /// See [`Engine::is_asleep`](crate::Engine::is_asleep).
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }

    /// See [`Engine::awaken`](crate::Engine::awaken).
    pub(crate) fn awaken(&self) -> Result<()> {
        let mut unstarted = self.unstarted.lock();
        let Some(page) = unstarted.take() else { return Ok(()) };
        let supervisor = Supervisor::get()?;
        B::prepare(self, page)?;
        // From here on it is looked after, however this ends.
        if let Some(me) = self.me.upgrade() {
            supervisor.add_pool(me);
        }
        self.asleep.store(false, Ordering::Release);
        B::start(self)
    }

    /// A pool that nothing drives yet, and the descriptor of its control page.
    pub(crate) fn assemble(config: Config, settings: B::Settings) -> Result<(Arc<Self>, OwnedFd)> {
        let cores = u32::try_from(ropewalk_os::cpu::usable_cores()).unwrap_or(u32::MAX);
        let (control, page) = Control::create(cores)?;
        let state = PoolState {
            lifecycle: Lifecycle::Open,
            queue: Queue::new(config.aging),
            members: B::Members::default(),
            leader: false,
            spin: AdaptiveSpin::new(),
            followers: Vec::new(),
            next_follower: 0,
            timers: Timers::default(),
            delays: Delays::default(),
            supervisor_wakes: None,
            quiet_looks: 0,
            watched_until: 0,
            counters: Counters::default(),
            end_at: None,
            ending: false,
            change_waiters: 0,
            rooms: Vec::new(),
            size: match config.scale() {
                Some(scale) if B::CAPABILITIES.starts_workers => scale.least,
                _ => config.workers,
            },
            is_sized: false,
            streams: Vec::new(),
            sessions: BTreeMap::new(),
            quarantine: Quarantine::default(),
            records: Records::new(config.records),
            calls: Calls::default(),
        };
        let dropped_functions = Arc::new(DroppedFunctions::new(Arc::clone(&control)));
        let pool = Arc::new_cyclic(|me| Self {
            backend: B::new(settings),
            control,
            state: Locked::new(state),
            me: me.clone(),
            completed: Locked::default(),
            completed_word: Futex::new(0),
            change_word: Futex::new(0),
            calls_word: Futex::new(0),
            next_id: AtomicU64::new(1),
            next_function: AtomicU32::new(1),
            next_session: AtomicU32::new(1),
            dropped_functions,
            ended_word: Futex::new(0),
            collecting: AtomicBool::new(false),
            fork_generation: ropewalk_os::process::fork_generation(),
            asleep: AtomicBool::new(false),
            unstarted: Mutex::new(None),
            config,
        });
        Ok((pool, page))
    }

    pub(crate) fn lock(&self) -> Guard<'_, PoolState<B>> {
        self.state.lock()
    }

    /// The lock for a call from outside; `None` in a forked child, where a thread that is not there may hold it.
    pub(crate) fn enter(&self) -> Option<Guard<'_, PoolState<B>>> {
        if self.is_forked() { None } else { Some(self.lock()) }
    }

    /// See [`Engine::is_forked`](crate::Engine::is_forked).
    pub(crate) fn is_forked(&self) -> bool {
        self.fork_generation != ropewalk_os::process::fork_generation()
    }

    /// See [`Engine::name`](crate::Engine::name).
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.config.name)
    }

    /// See [`Engine::function`](crate::Engine::function).
    pub(crate) fn function(&self, name: &str, payload: Payload) -> Arc<Function> {
        let id = self.next_function.fetch_add(1, Ordering::Relaxed);
        let name = if name.len() > MOST_NAME { shortened(name) } else { name.into() };
        Arc::new(Function { id, name, payload, dropped: Arc::clone(&self.dropped_functions) })
    }

    // --- submission ---------------------------------------------------------------------------------

    /// See [`Engine::submit`](crate::Engine::submit).
    pub(crate) fn submit(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        let drops = self.config.overflow == Overflow::DropOldest;
        self.take_in(call, task_flags, options, wait, self.config.capacity, drops)
    }

    /// See [`Engine::submit_in_room`](crate::Engine::submit_in_room).
    pub(crate) fn submit_in_room(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        self.take_in(call, task_flags, options, wait, self.config.capacity, false)
    }

    /// See [`Engine::submit_again`](crate::Engine::submit_again).
    pub(crate) fn submit_again(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        self.take_in(call, task_flags, options, true, None, false)
    }

    fn take_in(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
        capacity: Option<usize>,
        drops: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        if self.is_forked() {
            return Err(Box::new((call, Refused::Forked)));
        }
        let guard = if wait { Some(self.lock()) } else { self.state.try_lock() };
        let Some(mut state) = guard else { return Err(Box::new((call, Refused::Busy))) };
        match &state.lifecycle {
            Lifecycle::Open => {}
            Lifecycle::Broken(failure) => {
                let failure = failure.clone();
                return Err(Box::new((call, Refused::Broken(failure))));
            }
            Lifecycle::Closing | Lifecycle::Ended => return Err(Box::new((call, Refused::Closed))),
        }
        let full = capacity.filter(|max| state.queued() >= *max);
        if let Some(max) = full {
            let depth = state.queued();
            events::tell(&self.config.name, What::Saturated { queued: depth });
            if !drops {
                let refused = match self.config.overflow {
                    Overflow::Error => Refused::Full(depth, max),
                    Overflow::Block | Overflow::DropOldest => Refused::MustWait(depth, max),
                };
                return Err(Box::new((call, refused)));
            }
        }
        let session = match options.session {
            None => None,
            Some(number) => match self.enter_session(&mut state, number) {
                Ok(session) => Some(session),
                Err(refused) => return Err(Box::new((call, refused))),
            },
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let task = Arc::new(Task::new(id, call, task_flags, options, 0).of_session(session));
        state.counters.submitted += 1;
        if let Some(session) = task.session() {
            B::bind(self, &mut state, session, &task);
        }
        self.add_deadline(&mut state, &task);
        if let Some(max) = full
            && !self.drop_for(&mut state, &task, max)
        {
            self.drop_task(&mut state, &task, max, max);
            self.after_outside_change(&mut state);
            return Ok(task);
        }
        if task.stream().is_some() {
            state.streams.push((Arc::clone(&task), None));
            events::tell(&self.config.name, What::StreamOpened { task: task.id });
        }
        state.queue.push(Arc::clone(&task));
        B::submitted(self, &mut state, &task);
        Ok(task)
    }

    /// See [`Engine::take_local`](crate::Engine::take_local).
    #[inline]
    pub(crate) fn take_local(&self, spin: &mut AdaptiveSpin, timeout: Duration) -> Taken {
        B::take_local(self, spin, timeout)
    }

    /// See [`Engine::finish_and_take_local`](crate::Engine::finish_and_take_local).
    #[inline]
    pub(crate) fn finish_and_take_local(
        &self,
        finished: Finished,
        spin: &mut AdaptiveSpin,
        timeout: Duration,
    ) -> Result<Taken, Box<Task>> {
        B::finish_and_take_local(self, finished, spin, timeout)
    }

    /// See [`Engine::finish_local`](crate::Engine::finish_local).
    pub(crate) fn finish_local(&self, finished: Finished) {
        B::finish_local(self, finished);
    }

    /// See [`Engine::attend`](crate::Engine::attend).
    pub(crate) fn attend(&self, worker: usize, news: News, timeout: Duration) -> Attended {
        B::attend(self, worker, news, timeout)
    }

    /// See [`Engine::orders`](crate::Engine::orders).
    pub(crate) fn orders(&self, timeout: Duration) -> Option<Vec<Order>> {
        B::orders(self, timeout)
    }

    /// See [`Engine::take_dropped`](crate::Engine::take_dropped).
    pub(crate) fn take_dropped(&self) -> Vec<u32> {
        if self.dropped_functions.any() { self.dropped_functions.take() } else { Vec::new() }
    }

    /// See [`Engine::take_hung`](crate::Engine::take_hung).
    pub(crate) fn take_hung(&self, timeout: Duration) -> Vec<Hung> {
        B::take_hung(self, timeout)
    }

    /// See [`Engine::given_up`](crate::Engine::given_up).
    pub(crate) fn given_up(&self) -> Vec<u64> {
        self.enter().map_or_else(Vec::new, |state| B::given_up(&state.members))
    }

    /// See [`Engine::fail_hung`](crate::Engine::fail_hung).
    pub(crate) fn fail_hung(&self, hung: &Hung, stack: Option<Arc<str>>) {
        B::fail_hung(self, hung, stack);
    }

    /// Makes sure that the supervisor checks the rings at its own pace while there are tasks.
    pub(crate) fn set_watch(&self, state: &mut PoolState<B>) {
        if state.supervisor_wakes.is_none() {
            state.supervisor_wakes = Some(Instant::now() + WATCH);
            state.quiet_looks = 0;
            self.control.kick();
        }
    }

    /// Makes sure that the supervisor checks at this time, or sooner.
    pub(crate) fn wake_supervisor_at(&self, state: &mut PoolState<B>, at: Instant) {
        if state.supervisor_wakes.is_none_or(|wakes| at < wakes) {
            state.supervisor_wakes = Some(at);
            self.control.kick();
        }
    }

    /// See [`Engine::recycle`](crate::Engine::recycle).
    pub(crate) fn recycle(&self, which: Which) -> usize {
        self.enter().map_or(0, |mut state| B::recycle(self, &mut state, which))
    }

    /// See [`Engine::resize`](crate::Engine::resize).
    pub(crate) fn resize(&self, workers: usize) -> usize {
        let Some(mut state) = self.enter() else { return 0 };
        state.size = workers;
        state.is_sized = true;
        events::tell(&self.config.name, What::Resized { workers });
        B::resized(self, &mut state)
    }

    // --- numbers ------------------------------------------------------------------------------------

    /// See [`Engine::statistics`](crate::Engine::statistics).
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        let mut state = self.enter()?;
        self.look(&mut state);
        let (running, waiting, workers) = B::statistics(&state);
        let now = clock::now();
        let oldest = state.oldest_waiting().map(|since| now.saturating_duration_since(since));
        let mut clients = state.queue.depths();
        B::each_waiting(&state.members, &mut |task| {
            if let Some(client) = task.options.client() {
                *clients.entry(Arc::clone(&client.name)).or_default() += 1;
            }
        });
        let queued = state.queue.len() + waiting;
        let clients = clients.into_iter().collect();
        let in_service =
            |worker: &&WorkerStatistics| matches!(worker.state, WorkerState::Idle | WorkerState::Busy);
        let ready = match B::CAPABILITIES.starts_workers || B::CAPABILITIES.isolates {
            true => workers.iter().filter(in_service).count(),
            false => state.size,
        };
        let (counters, size, sessions) = (state.counters, state.size, state.sessions());
        let delayed = state.delays.len();
        let histograms = state.records.histograms.clone();
        Some(Statistics {
            counters,
            queued,
            running,
            delayed,
            oldest,
            clients,
            size,
            ready,
            sessions,
            workers,
            histograms,
        })
    }

    /// See [`Engine::doing`](crate::Engine::doing).
    pub(crate) fn doing(&self) -> Vec<Doing> {
        let Some(mut state) = self.enter() else { return Vec::new() };
        self.look(&mut state);
        B::doing(&state.members)
    }

    /// See [`Engine::signal_worker`](crate::Engine::signal_worker).
    pub(crate) fn signal_worker(&self, number: u64, signal: i32) -> Signalled {
        let process = self.enter().and_then(|state| B::process(&state.members, number));
        // Without the lock: a file is read. The descriptor is the process's own, whatever becomes of its id.
        let Some((pid, process)) = process else { return Signalled::Gone };
        match ropewalk_os::process::condition(pid) {
            None => Signalled::Gone,
            Some(condition) if condition.stopped => Signalled::Stopped,
            Some(condition) if !condition.catches(signal) => Signalled::Deaf,
            Some(_) => match ropewalk_os::pidfd::send_signal(process.as_fd(), signal) {
                Ok(()) => Signalled::Sent,
                Err(_) => Signalled::Gone,
            },
        }
    }

    /// See [`Engine::records`](crate::Engine::records).
    pub(crate) fn records(&self) -> Option<Vec<Ended>> {
        let mut state = self.enter()?;
        self.look(&mut state);
        Some(state.records.last())
    }

    /// See [`Engine::measures_cpu`](crate::Engine::measures_cpu).
    pub(crate) fn measures_cpu(&self) -> bool {
        self.config.cpu_time
    }

    /// See [`Engine::quarantine`](crate::Engine::quarantine).
    pub(crate) fn quarantine(&self) -> Vec<Quarantined> {
        self.enter().map_or_else(Vec::new, |state| state.quarantine.all())
    }

    /// Whether a crash takes the whole pool with it.
    pub(crate) fn breaks_on_crash(&self) -> bool {
        self.config.on_crash == OnCrash::Break
    }
}

impl<B: Backend> Supervised for Pool<B> {
    fn look_after(&self, now: Instant) -> Option<Instant> {
        Self::look_after(self, now)
    }

    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn control(&self) -> &Control {
        &self.control
    }
}

impl<B: Backend> PoolState<B> {
    /// Tasks that have been accepted and are not being run.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + B::waiting(&self.members)
    }

    /// Since when the task waits that has waited longest, in the queue or in a lane.
    pub(crate) fn oldest_waiting(&self) -> Option<Instant> {
        let mut oldest = self.queue.oldest();
        B::each_waiting(&self.members, &mut |task| {
            oldest = oldest.into_iter().chain([task.waits_since()]).min();
        });
        oldest
    }

    /// Whether anything may come from a worker.
    pub(crate) fn has_work(&self) -> bool {
        B::has_work(&self.members) || !self.queue.is_empty()
    }

    /// When the supervisor must check the rings even without a wake-up: a worker may have disarmed it. This goes on for
    /// a while after the last task, so that a pool that is used now and then need not start it each time.
    pub(crate) fn next_watch(&mut self, now: Instant) -> Option<Instant> {
        let active = self.has_work() || self.counters.submitted != self.watched_until;
        self.watched_until = self.counters.submitted;
        self.quiet_looks = if active { 0 } else { self.quiet_looks.saturating_add(1) };
        (self.quiet_looks < MOST_QUIET_LOOKS).then(|| now + WATCH)
    }

    /// Whether no worker is left and none will come.
    pub(crate) fn is_over(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Ended => true,
            Lifecycle::Broken(_) => B::is_gone(&self.members),
            Lifecycle::Open | Lifecycle::Closing => false,
        }
    }
}
