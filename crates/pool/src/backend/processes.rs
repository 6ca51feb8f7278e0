//! Worker processes: forked by a zygote, fed by rings, watched by pidfd.
//!
//! The protocol is in the crate's `README.md`.

pub(crate) mod asking;
pub(crate) mod dispatch;
mod eviction;
mod segments;
pub(crate) mod spawn;
pub(crate) mod workers;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_os::clock::monotonic_nanos;
use ropewalk_shm::channel::attention;
use ropewalk_shm::channel::ring::Retract;
use ropewalk_sync::Mutex;

use self::asking::Spawning;
use self::dispatch::{STEAL_AFTER, TaskLengths};
use self::spawn::Spawn;
use self::workers::Worker;
use crate::clock;
use crate::control::WATCH;
use crate::lane::Lane;
use crate::outcome::Failure;
use crate::pool::{Backend, Capabilities, Interrupted, Lifecycle, Pool, PoolState};
use crate::statistics::{WorkerState, WorkerStatistics};
use crate::supervisor::{Employer, Supervisor, WorkerEvent};
use crate::task::{Stage, Task};
use crate::zygote::{Zygote, ZygoteCommand};

/// A worker that has taken a task and does not say for so long that the call has begun is not believed any more: its
/// run counts from then on.
pub(crate) const PREPARATION: Duration = Duration::from_secs(300);
/// The least time between two checks of a task that has not begun, and the most that a check may be late.
const LEAST_LOOK: Duration = Duration::from_millis(10);
pub(crate) const MOST_LATE: Duration = Duration::from_millis(250);
/// The number of tasks in lanes from which on a submitting thread reads answers that no thread waits for.
const MANY_OUTSTANDING: usize = 8;

/// Workers that are processes.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) spawn: Spawn,
    /// The parts of a request for a worker, once the pool is awake.
    pub(crate) spawning: Mutex<Option<Spawning>>,
}

pub(crate) type ProcessPool = Pool<Processes>;
pub(crate) type ProcessPoolState = PoolState<Processes>;

/// The worker processes of a pool, and their lanes.
#[derive(Debug, Default)]
pub(crate) struct Crew {
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
    pub(crate) task_lengths: TaskLengths,
    /// Whether a task of another than the usual priority was ever seen.
    pub(crate) mixed_priorities: bool,
    /// Workers that are being ended for one of their tasks.
    pub(crate) evictions: usize,
}

impl Backend for Processes {
    type Settings = Spawn;
    type Members = Crew;

    const CAPABILITIES: Capabilities = Capabilities {
        kind: "process",
        encodes: true,
        shares_memory: true,
        starts_workers: true,
        ends_running: true,
        isolates: true,
    };
    const POLLED: bool = true;

    fn new(spawn: Spawn) -> Self {
        Self { spawn, spawning: Mutex::new(None) }
    }

    fn prepare(pool: &Pool<Self>, page: OwnedFd) -> Result<()> {
        pool.check_limits()?;
        let supervisor = Supervisor::get()?;
        let zygote = supervisor.zygote(&pool.backend.spawn.zygote)?;
        supervisor.add_employer(pool.me.clone());
        pool.prepare_spawning(zygote, page)
    }

    fn start(pool: &Pool<Self>) -> Result<()> {
        let mut state = pool.lock();
        let filled = pool.fill(&mut state);
        Self::rest(pool, &mut state);
        drop(state);
        if let Err(error) = &filled {
            pool.break_down(&Failure::Broken(error.report().into()));
        }
        filled
    }

    #[inline]
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, priority: i32) {
        if pool.config.lazy {
            pool.fill_or_fall_short(state);
        }
        pool.set_watch(state);
        if !state.leader && state.members.outstanding > MANY_OUTSTANDING {
            Self::poll(pool, state);
        }
        if priority != 0 || state.members.mixed_priorities {
            state.members.mixed_priorities = true;
            pool.take_back_lower(state, priority);
        }
        pool.dispatch(state);
        if !state.leader {
            Self::rest(pool, state);
        }
    }

    fn requeued(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {
        // It was an answer, or a death, that brought it here: what reads those gives out what is queued.
    }

    fn feed(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        pool.dispatch(state);
    }

    fn collect(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        pool.drain_lanes(state)
    }

    #[inline]
    fn poll(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        let came = pool.drain_lanes(state);
        if came || !state.queue.is_empty() || !state.members.idle.is_empty() {
            pool.dispatch(state);
        }
        came
    }

    #[inline]
    fn has_answers(members: &Crew) -> bool {
        members.any_ready()
    }

    fn patience(state: &PoolState<Self>) -> Option<Duration> {
        if state.steal_pending() {
            Some(STEAL_AFTER)
        } else {
            // Without tasks nothing comes, and the first one that does sets the supervisor to watch.
            state.has_work().then_some(WATCH)
        }
    }

    fn rest(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        if state.steal_pending() {
            // A lane that is stuck behind a long task causes no wake-up: the supervisor checks by itself.
            pool.wake_supervisor_at(state, clock::now() + STEAL_AFTER);
        }
        for _ in 0..3 {
            let members = &state.members;
            let open = matches!(state.lifecycle, Lifecycle::Open);
            let mode = if members.starting > 0 || members.evictions > 0 || !open {
                attention::ANY
            } else if !state.queue.is_empty() || members.outstanding > members.busy.len() {
                attention::HUNGRY
            } else {
                attention::QUIET
            };
            if pool.control.mode() == mode {
                return;
            }
            pool.control.arm(mode);
            // Answers that came while no wake-up was armed have woken no thread: check once more.
            let missed = match mode {
                attention::ANY => members.any_ready(),
                attention::HUNGRY => members.any_ready() && members.somebody_hungry(),
                _ => false,
            };
            if !missed || !Self::poll(pool, state) {
                return;
            }
        }
    }

    fn busy(members: &Crew) -> usize {
        members.busy.len()
    }

    fn waiting(members: &Crew) -> usize {
        members.outstanding.saturating_sub(members.busy.len())
    }

    fn has_work(members: &Crew) -> bool {
        members.outstanding > 0 || members.starting > 0
    }

    fn is_drained(members: &Crew) -> bool {
        members.outstanding == 0
    }

    fn is_gone(members: &Crew) -> bool {
        members.workers.iter().flatten().next().is_none()
    }

    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>) {
        let members = &state.members;
        let mut running = 0;
        let tell = |worker: &Worker| {
            let started = members.started_in(worker);
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
        };
        let workers = members.workers.iter().flatten().map(tell).collect();
        (running, members.outstanding.saturating_sub(running), workers)
    }

    fn shortage(members: &Crew) -> Option<Arc<str>> {
        members.shortage.clone()
    }

    fn complaints(pool: &Pool<Self>) -> Vec<String> {
        pool.backend.spawning.lock().as_ref().map_or_else(Vec::new, |spawning| spawning.zygote.complaints())
    }

    fn is_running(state: &mut PoolState<Self>, task: &Arc<Task>) -> bool {
        state.members.sent_started(task).unwrap_or(false)
    }

    fn interrupt(
        pool: &Pool<Self>,
        state: &mut PoolState<Self>,
        task: &Arc<Task>,
        force: bool,
        cancelled: bool,
    ) -> Interrupted {
        if Self::poll(pool, state) && task.is_done() {
            return Interrupted::Ended;
        }
        if task.stage() == Stage::Queued {
            return Interrupted::Queued;
        }
        match state.members.retract(task) {
            Some(Retract::Taken) => Interrupted::TakenBack,
            Some(Retract::Started) if force => {
                task.count_attempt();
                Interrupted::Killed(pool.end_worker_of(state, task, cancelled))
            }
            Some(Retract::Started) | None => Interrupted::Left,
        }
    }

    fn run_ends(members: &mut Crew, task: &Arc<Task>, timeout: Duration, now: Instant) -> Option<Instant> {
        let lane = members.lanes.get_mut(task.lane()?)?.as_mut()?;
        let sent = lane.outstanding.iter_mut().find(|sent| Arc::ptr_eq(&sent.task, task))?;
        if sent.begun.is_none() {
            // Seen for the first time it is kept, lest the worker change its mind. It is no later than now, and what is
            // earlier than the record is another's, or an earlier attempt's.
            sent.begun = lane.begun.read(task.id).and_then(|begun| {
                // In this order: the time comes out rather too late than before the record was sent.
                let ago = Duration::from_nanos(monotonic_nanos().saturating_sub(begun));
                clock::now().checked_sub(ago).filter(|at| *at >= sent.at)
            });
        }
        if sent.begun.is_none() && lane.tasks.started(sent.position) {
            let taken = *sent.taken.get_or_insert(now);
            if now.duration_since(taken) >= PREPARATION {
                sent.begun = Some(now);
            }
        }
        match sent.begun {
            Some(begun) => begun.checked_add(timeout),
            None => {
                let late = (now.duration_since(sent.at) / 16).min(MOST_LATE);
                now.checked_add(timeout.max(late).max(LEAST_LOOK))
            }
        }
    }

    fn take_back(members: &mut Crew, spare: bool) -> Vec<Arc<Task>> {
        members.take_back_waiting(spare)
    }

    fn abandon(members: &mut Crew) -> Vec<(Arc<Task>, i32)> {
        let mut left = Vec::new();
        for lane in members.lanes.iter().flatten() {
            let worker = members.workers.get(lane.worker).and_then(Option::as_ref);
            let pid = worker.map_or(0, Worker::known_pid);
            left.extend(lane.outstanding.iter().map(|sent| (Arc::clone(&sent.task), pid)));
        }
        for (task, _) in &left {
            members.leave_arguments(task);
        }
        left
    }

    fn kill(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        for worker in state.members.workers.iter_mut().flatten() {
            worker.kill();
        }
        pool.forget_requested(state);
    }

    fn give_up(members: &mut Crew) -> Vec<Arc<Task>> {
        members.kill_everything()
    }

    fn signal(members: &mut Crew, signal: i32) {
        for worker in members.workers.iter_mut().flatten() {
            worker.signal(signal);
        }
    }

    fn forget_requested(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        pool.forget_requested(state);
    }

    fn dismiss(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        let gone = state.members.dismiss_all();
        if gone {
            pool.backend.spawn.handed.close();
        }
        gone
    }

    fn look_after(pool: &Pool<Self>, state: &mut PoolState<Self>, now: Instant) -> Option<Instant> {
        state.members.end_evicted(now);
        pool.expire_deaths(state, now);
        pool.ask_again(state, now);
        pool.sweep_segments(state, now)
    }

    fn next_look(state: &PoolState<Self>, now: Instant) -> Option<Instant> {
        let members = &state.members;
        let steal = state.steal_pending().then(|| now + STEAL_AFTER);
        let all = [members.next_death(), members.next_eviction(), members.refused_until, steal];
        all.into_iter().flatten().min()
    }
}

impl Employer for ProcessPool {
    fn learn(&self, worker: u64, event: WorkerEvent) {
        match event {
            WorkerEvent::Spawned(pid, pidfd) => self.worker_spawned(worker, pid, pidfd.as_ref()),
            WorkerEvent::Failed(reason) => self.worker_failed(worker, &reason),
            WorkerEvent::Gone(status) => self.worker_gone(worker, status),
            WorkerEvent::HungUp => self.worker_hung_up(worker),
        }
    }

    fn zygote_gone(
        &self,
        zygote: &Arc<Zygote>,
        reason: &str,
        restart: &dyn Fn(&ZygoteCommand) -> Result<Arc<Zygote>>,
    ) {
        self.lose_zygote(zygote, reason, restart);
    }
}

/// Starts a pool whose zygote, workers and supervisor a simulation plays.
#[cfg(any(test, fuzzing))]
#[cfg_attr(mutants, mutants::skip)]
impl ProcessPool {
    pub(crate) fn simulated(
        config: crate::config::Config,
        spawn: Spawn,
        zygote: Arc<Zygote>,
    ) -> Result<Arc<Self>> {
        let (pool, page) = Self::assemble(config, spawn)?;
        pool.prepare_spawning(zygote, page)?;
        Processes::start(&pool)?;
        Ok(pool)
    }
}

impl Crew {
    /// Whether anything may come from a worker.
    pub(crate) fn any_ready(&self) -> bool {
        let ready = |lane: &Lane| lane.results.is_ready();
        if self.starting > 0 {
            return self.lanes.iter().flatten().any(ready);
        }
        self.busy.iter().filter_map(|i| self.lanes.get(*i)?.as_ref()).any(ready)
    }

    fn somebody_hungry(&self) -> bool {
        self.busy.iter().filter_map(|i| self.lanes.get(*i)?.as_ref()).any(|lane| lane.tasks.is_empty())
    }

    /// Whether a sent task's record has been started; `None` if it lies in no lane.
    fn sent_started(&mut self, task: &Arc<Task>) -> Option<bool> {
        let lane = self.lanes.get(task.lane()?)?.as_ref()?;
        let sent = lane.outstanding.iter().find(|sent| Arc::ptr_eq(&sent.task, task))?;
        Some(lane.tasks.started(sent.position))
    }

    /// Tries to take a sent task out of its lane.
    fn retract(&mut self, task: &Arc<Task>) -> Option<Retract> {
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
    fn take_back_waiting(&mut self, spare: bool) -> Vec<Arc<Task>> {
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

impl ProcessPoolState {
    /// Whether tasks wait while a lane has nothing to do: behind others in another lane, or in the queue because the
    /// idle lane's ring is full of records that were taken back, which its worker skips without a word.
    pub(crate) fn steal_pending(&self) -> bool {
        let members = &self.members;
        !members.idle.is_empty() && (members.outstanding > members.busy.len() || !self.queue.is_empty())
    }
}
