//! The parent's engine: one lock, one queue, and the lanes that it feeds.
//!
//! Whoever waits for something drives: a thread in [`Engine::wait`] becomes the *leader* if there is none, polls the
//! result rings itself and sleeps on the control page; other waiting threads are *followers* and sleep on what
//! they wait for. When nobody waits, the supervisor's thread is rung only by a worker that runs out of tasks while
//! there is a backlog. See the crate's `README.md`.

mod closing;
mod ending;
mod room;
mod timers;
mod wait;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ropewalk_base::Result;
use ropewalk_shm::arena::Arena;
use ropewalk_shm::ring::Retract;
use ropewalk_sync::spin::AdaptiveSpin;
use ropewalk_sync::{Condvar, Mutex};

use crate::backend::processes::dispatch::Load;
use crate::backend::processes::workers::Worker;
use crate::config::{Config, OnCrash, OnFull};
use crate::control::{Control, WATCH};
use crate::events::{self, What};
use crate::function::{DroppedFunctions, Function};
use crate::lane::Lane;
use crate::locked::{Guard, Locked};
use crate::outcome::Failure;
use crate::payload::Payload;
use crate::queue::Queue;
use crate::statistics::{Counters, Statistics, WorkerState, WorkerStatistics};
use crate::supervisor::Supervisor;
use crate::task::{Call, Options, Task};

/// Looks of the supervisor without work before it leaves a pool alone: ten seconds.
const MOST_QUIET_LOOKS: u32 = 20;

use self::timers::Timers;

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
    /// Workers that have died before they were ready, since one was last ready.
    pub(crate) failed_starts: u32,
    /// No worker more is asked for until then: the last one was refused.
    pub(crate) refused_until: Option<Instant>,
    /// Why the pool has fewer workers than it should, while that is so.
    pub(crate) shortage: Option<Arc<str>>,
    /// Zygotes lost since a worker was last ready.
    pub(crate) lost_zygotes: u32,
    pub(crate) load: Load,
    pub(crate) leader: bool,
    pub(crate) spin: AdaptiveSpin,
    pub(crate) followers: Vec<(u64, Sleeper)>,
    pub(crate) next_follower: u64,
    pub(crate) timers: Timers,
    /// When the supervisor will look by itself.
    pub(crate) supervisor_wakes: Option<Instant>,
    /// Looks of the supervisor in a row that found the pool without work.
    pub(crate) quiet_looks: u32,
    /// Tasks submitted when the supervisor looked last.
    pub(crate) watched_until: u64,
    pub(crate) counters: Counters,
    /// Local tasks being run.
    pub(crate) local: Vec<Running>,
    /// Workers that are being ended for one of their tasks.
    pub(crate) doomed: usize,
    /// When what still runs is ended, in a pool that has been closed.
    pub(crate) end_at: Option<Instant>,
    /// Nothing is run again, and no worker replaced: the pool is being ended.
    pub(crate) ending: bool,
    pub(crate) local_idle: usize,
    /// A local thread without a task spins, and has not been told of one.
    pub(crate) local_spins: bool,
    /// Followers that wait for room in the queue, or for one of several tasks.
    pub(crate) change_waiters: usize,
    /// Tasks that nobody runs: they end when there is room. See [`Engine::room`].
    pub(crate) rooms: Vec<Arc<Task>>,
}

/// A local task that is being run.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) task: Arc<Task>,
    pub(crate) since: Instant,
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
    /// That one of these tasks ends, or the queue has room.
    AnyOrSpace(Arc<[Arc<Task>]>),
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
    /// Another thread has the lock at the moment: submit again, and wait for it.
    Busy,
}

/// A pool's engine. Dropping the last handle does not end it: call [`close`](Self::close).
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) control: Arc<Control>,
    pub(crate) core: Locked<Core>,
    pub(crate) me: Weak<Self>,
    /// Watched tasks that have ended, for the collector.
    pub(crate) completed: Locked<Vec<Arc<Task>>>,
    pub(crate) completed_word: AtomicU32,
    pub(crate) change_word: AtomicU32,
    pub(crate) next_id: AtomicU64,
    pub(crate) next_function: AtomicU32,
    pub(crate) dropped_functions: Arc<DroppedFunctions>,
    pub(crate) local_ready: Condvar,
    /// Changes when the local thread that spins is told of a task; written under the lock.
    pub(crate) local_told: AtomicU32,
    /// Counts the ends of the pool that there were: whoever joins sleeps on it.
    pub(crate) ended_word: AtomicU32,
    pub(crate) collecting: AtomicBool,
    pub(crate) fork_generation: u64,
    /// Whether it is to be awakened by the first task.
    pub(crate) asleep: AtomicBool,
    /// The descriptor of the control page, until the first workers are started.
    pub(crate) unstarted: Mutex<Option<OwnedFd>>,
    pub(crate) spawning: Mutex<Option<crate::backend::processes::workers::Spawning>>,
}

impl Engine {
    /// Starts a pool: the zygote and the workers of a process pool are asked for at once, and come up in the
    /// background.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn start(config: Config) -> Result<Arc<Self>> {
        let (engine, control) = Self::assemble(config)?;
        *engine.unstarted.lock() = Some(control);
        if engine.config.lazy && engine.is_remote() {
            engine.asleep.store(true, Ordering::Release);
        } else {
            engine.awaken()?;
        }
        Ok(engine)
    }

    /// Whether it has started nothing yet.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }

    /// Starts the zygote and the first workers, if that has not been done.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory, processes or descriptors.
    pub fn awaken(&self) -> Result<()> {
        let mut unstarted = self.unstarted.lock();
        let Some(control) = unstarted.take() else { return Ok(()) };
        let supervisor = Supervisor::get()?;
        if let Some(spawn) = &self.config.spawn {
            self.check_limits()?;
            let zygote = supervisor.zygote(&spawn.zygote)?;
            self.prepare_spawning(spawn, zygote, control)?;
        }
        // From here on it is looked after, however this ends.
        if let Some(me) = self.me.upgrade() {
            supervisor.add_engine(&me);
        }
        self.asleep.store(false, Ordering::Release);
        if self.is_remote() {
            self.add_first_workers()?;
        }
        Ok(())
    }

    /// Starts a pool whose zygote, workers and supervisor a simulation plays.
    #[cfg(any(test, fuzzing))]
    #[cfg_attr(mutants, mutants::skip)]
    pub(crate) fn start_simulated(config: Config, zygote: Arc<crate::zygote::Zygote>) -> Result<Arc<Self>> {
        let (engine, control) = Self::assemble(config)?;
        if let Some(spawn) = &engine.config.spawn {
            engine.prepare_spawning(spawn, zygote, control)?;
            engine.add_first_workers()?;
        }
        Ok(engine)
    }

    /// An engine that nothing drives yet, and the descriptor of its control page.
    fn assemble(config: Config) -> Result<(Arc<Self>, OwnedFd)> {
        let cores = u32::try_from(ropewalk_os::cpu::usable_cores()).unwrap_or(u32::MAX);
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
            refused_until: None,
            shortage: None,
            lost_zygotes: 0,
            load: Load::default(),
            leader: false,
            spin: AdaptiveSpin::new(),
            followers: Vec::new(),
            next_follower: 0,
            timers: Timers::default(),
            supervisor_wakes: None,
            quiet_looks: 0,
            watched_until: 0,
            counters: Counters::default(),
            local: Vec::new(),
            doomed: 0,
            end_at: None,
            ending: false,
            local_idle: 0,
            local_spins: false,
            change_waiters: 0,
            rooms: Vec::new(),
        };
        let dropped_functions = Arc::new(DroppedFunctions::new(Arc::clone(&control)));
        let engine = Arc::new_cyclic(|me| Self {
            control,
            core: Locked::new(core),
            me: me.clone(),
            completed: Locked::default(),
            completed_word: AtomicU32::new(0),
            change_word: AtomicU32::new(0),
            next_id: AtomicU64::new(1),
            next_function: AtomicU32::new(1),
            dropped_functions,
            local_ready: Condvar::new(),
            local_told: AtomicU32::new(0),
            ended_word: AtomicU32::new(0),
            collecting: AtomicBool::new(false),
            fork_generation: ropewalk_os::process::fork_generation(),
            asleep: AtomicBool::new(false),
            unstarted: Mutex::new(None),
            spawning: Mutex::new(None),
            config,
        });
        Ok((engine, control_fd))
    }

    /// Asks for the workers that the pool begins with.
    fn add_first_workers(&self) -> Result<()> {
        let mut core = self.lock();
        let filled = self.fill(&mut core);
        self.rest(&mut core);
        drop(core);
        if let Err(error) = &filled {
            self.break_down(&Failure::Broken(error.report().into()));
        }
        filled
    }

    pub(crate) fn lock(&self) -> Guard<'_, Core> {
        self.core.lock()
    }

    /// The lock for a call from outside; `None` in a forked child, where a thread that is not there may hold it.
    pub(crate) fn enter(&self) -> Option<Guard<'_, Core>> {
        if self.is_forked() { None } else { Some(self.lock()) }
    }

    /// Whether this process has forked off the one that made the pool: its workers and threads are not here.
    pub fn is_forked(&self) -> bool {
        self.fork_generation != ropewalk_os::process::fork_generation()
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
    pub fn function(&self, name: &str, payload: Payload) -> Arc<Function> {
        let id = self.next_function.fetch_add(1, Ordering::Relaxed);
        Arc::new(Function { id, name: name.into(), payload, dropped: Arc::clone(&self.dropped_functions) })
    }

    // --- submission ---------------------------------------------------------------------------------

    /// Takes a task, or gives the call back with the reason. With `wait` false it does not even wait for the lock, for
    /// callers that hold one of their own.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the call comes back with it.
    pub fn submit(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        self.take_in(call, task_flags, options, wait, self.config.max_queue)
    }

    /// The same for what was part of a task that was taken already, and comes back: the limit of the queue was for
    /// that.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; it is never for want of room.
    pub fn submit_again(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        self.take_in(call, task_flags, options, true, None)
    }

    fn take_in(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
        max_queue: Option<usize>,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        if self.is_forked() {
            return Err(Box::new((call, Refused::Forked)));
        }
        let guard = if wait { Some(self.lock()) } else { self.core.try_lock() };
        let Some(mut core) = guard else { return Err(Box::new((call, Refused::Busy))) };
        match &core.state {
            State::Open => {}
            State::Broken(failure) => {
                let failure = failure.clone();
                return Err(Box::new((call, Refused::Broken(failure))));
            }
            State::Closing | State::Ended => return Err(Box::new((call, Refused::Closed))),
        }
        if let Some(max) = max_queue
            && core.queued() >= max
        {
            events::tell(&self.config.name, What::Saturated { queued: core.queued() });
            let refused = if self.config.on_full == OnFull::Reject { Refused::Full } else { Refused::Wait };
            return Err(Box::new((call, refused)));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let task = Arc::new(Task::new(id, call, task_flags, options, 0));
        core.counters.submitted += 1;
        self.add_deadline(&mut core, &task);
        core.queue.push(Arc::clone(&task));
        if self.is_remote() {
            if self.config.lazy {
                self.fill_or_fall_short(&mut core);
            }
            self.set_watch(&mut core);
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
        } else {
            self.local_changed(&mut core);
        }
        Ok(task)
    }

    /// Makes sure that the supervisor looks at the rings at its own pace while there are tasks.
    fn set_watch(&self, core: &mut Core) {
        if core.supervisor_wakes.is_none() {
            core.supervisor_wakes = Some(Instant::now() + WATCH);
            core.quiet_looks = 0;
            self.control.kick();
        }
    }

    // --- numbers ------------------------------------------------------------------------------------

    /// A snapshot of the counters; `None` in a forked child.
    pub fn statistics(&self) -> Option<Statistics> {
        let mut core = self.enter()?;
        self.look(&mut core);
        let mut running = core.local.len();
        let workers: Vec<WorkerStatistics> = core
            .workers
            .iter()
            .flatten()
            .map(|worker| {
                let started = core.started_in(worker);
                running += started;
                WorkerStatistics {
                    pid: worker.known_pid(),
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
        let queued = core.queue.len() + core.outstanding - (running - core.local.len()).min(core.outstanding);
        Some(Statistics { counters: core.counters, queued, running, workers })
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

    /// Whether anything may come from a worker.
    pub(crate) fn has_work(&self) -> bool {
        self.outstanding > 0 || self.starting > 0 || !self.queue.is_empty()
    }

    /// When the supervisor has to look at the rings, rung or not: a worker may have disarmed the wake-up. It goes on
    /// for a while after the last task, so that a pool that is used now and then is not set to watch each time.
    pub(crate) fn next_watch(&mut self, now: Instant) -> Option<Instant> {
        let active = self.has_work() || self.counters.submitted != self.watched_until;
        self.watched_until = self.counters.submitted;
        self.quiet_looks = if active { 0 } else { self.quiet_looks.saturating_add(1) };
        (self.quiet_looks < MOST_QUIET_LOOKS).then(|| now + WATCH)
    }

    /// Whether no worker is left and none will come.
    fn is_over(&self) -> bool {
        match self.state {
            State::Ended => true,
            State::Broken(_) => self.workers.iter().flatten().count() == 0 && self.local.is_empty(),
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

    /// Whether tasks wait while a lane has nothing to do: behind others in another lane, or in the queue
    /// because the idle lane's ring is full of records that were taken back, which its worker skips without a
    /// word.
    fn steal_pending(&self) -> bool {
        !self.idle.is_empty() && (self.outstanding > self.busy.len() || !self.queue.is_empty())
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

    /// Takes every task that has not been started out of the lanes, oldest first within a lane; `spare` leaves each
    /// lane the first that it has.
    pub(crate) fn take_back_waiting(&mut self, spare: bool) -> Vec<Arc<Task>> {
        let mut taken = Vec::new();
        for index in self.busy.clone() {
            let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let mut kept = usize::from(spare);
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
