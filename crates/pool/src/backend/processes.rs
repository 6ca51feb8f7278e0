//! Worker processes: forked by a zygote, fed by rings, watched by pidfd; and workers in this process, which take
//! [seats] instead.
//!
//! The protocol is in the crate's `README.md`.

mod answers;
pub(crate) mod asking;
mod calling;
pub(crate) mod dispatch;
mod doing;
mod eviction;
pub(crate) mod hangs;
mod items;
mod recycling;
mod sampling;
mod scaling;
pub(crate) mod seats;
mod segments;
mod sessions;
pub(crate) mod spawn;
mod storms;
pub(crate) mod workers;

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_shm::channel::attention;
use ropewalk_shm::channel::ring::Retract;
use ropewalk_sync::Mutex;

use self::asking::Spawning;
use self::dispatch::{STEAL_AFTER, TaskLengths};
use self::recycling::StartTimes;
use self::scaling::Growth;
use self::sessions::Expiry;
use self::spawn::{Source, Spawn};
use self::storms::Storms;
use self::workers::Worker;
use crate::calls::{Answered, Calling};
use crate::clock::{self, Anchor};
use crate::control::WATCH;
use crate::lane::{Lane, Sent};
use crate::outcome::{Failure, Record};
use crate::payload::Payload;
use crate::pool::{Backend, Capabilities, Interrupted, Lifecycle, Pool, PoolState, Which};
use crate::pulse::Progress;
use crate::session::Session;
use crate::statistics::{Doing, WorkerState, WorkerStatistics};
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
/// How often the pool looks, a millisecond apart, whether what its zygote wrote has been read.
const MOST_LOOKS: usize = 1000;

/// Workers behind lanes.
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
    /// Since when it has had no worker and been refused some.
    pub(crate) without_since: Option<Instant>,
    /// Why the pool has fewer workers than it should, while that is so.
    pub(crate) shortage: Option<Arc<str>>,
    /// Workers in a row that were replaced for their memory with no more than a task for each of their threads.
    pub(crate) short_lived: u32,
    /// That the limit of memory is below what a task needs, once that was seen.
    pub(crate) advice: Option<Arc<str>>,
    /// Zygotes lost since a worker was last ready.
    pub(crate) lost_zygotes: u32,
    pub(crate) task_lengths: TaskLengths,
    /// Whether a task of another than the usual priority was ever seen.
    pub(crate) mixed_priorities: bool,
    /// Whether a task of a named client was ever seen.
    pub(crate) has_clients: bool,
    /// Workers that are being ended for one of their tasks.
    pub(crate) evictions: usize,
    /// Workers that the pool has asked for so far.
    pub(crate) born: u64,
    /// How long workers take to start.
    pub(crate) starts: StartTimes,
    /// No stand-in is asked for until then: the last one did not start.
    pub(crate) no_stand_in_until: Option<Instant>,
    pub(crate) growth: Growth,
    /// Sessions that have a worker of their own.
    pub(crate) bound: usize,
    /// When states that no task uses are dropped.
    pub(crate) expiries: BinaryHeap<Expiry>,
    /// Deaths of workers, one after the other.
    storms: Storms,
}

/// The capabilities of the kind.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kind: "process",
    encodes: true,
    shares_memory: true,
    starts_workers: true,
    ends_running: true,
    isolates: true,
    keeps_states: true,
};

impl Backend for Processes {
    type Settings = Spawn;
    type Members = Crew;

    const CAPABILITIES: Capabilities = CAPABILITIES;
    const POLLED: bool = true;

    fn new(spawn: Spawn) -> Self {
        Self { spawn, spawning: Mutex::new(None) }
    }

    fn prepare(pool: &Pool<Self>, page: OwnedFd) -> Result<()> {
        pool.check_limits()?;
        let Source::Zygote(command) = &pool.backend.spawn.source else { return Ok(()) };
        let supervisor = Supervisor::get()?;
        let zygote = supervisor.zygote(command)?;
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
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, task: &Arc<Task>) {
        pool.set_watch(state);
        if !state.leader && state.members.outstanding > MANY_OUTSTANDING {
            Self::poll(pool, state);
        }
        if task.options.priority != 0 || state.members.mixed_priorities {
            state.members.mixed_priorities = true;
            pool.take_back_lower(state, task);
        }
        if task.options.client().is_some() || state.members.has_clients {
            state.members.has_clients = true;
            pool.take_back_of_others(state, task);
        }
        pool.dispatch(state);
        if pool.config.lazy || pool.config.life.scale.is_some() {
            pool.may_have_to_grow(state, clock::now());
        }
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

    fn bind(pool: &Pool<Self>, state: &mut PoolState<Self>, session: &Arc<Session>, _task: &Arc<Task>) {
        pool.bind_session(state, session);
    }

    fn is_busy(state: &PoolState<Self>, session: &Session) -> bool {
        session.pending() > 0
            || state.members.lane_of(session).is_some_and(|lane| !lane.outstanding.is_empty())
    }

    fn drop_session(pool: &Pool<Self>, state: &mut PoolState<Self>, session: &Session) {
        pool.drop_states(state, session);
    }

    fn busy(members: &Crew) -> usize {
        members.busy.len()
    }

    fn waiting(members: &Crew) -> usize {
        members.outstanding.saturating_sub(members.busy.len())
    }

    fn each_waiting(members: &Crew, see: &mut dyn FnMut(&Arc<Task>)) {
        if members.outstanding == 0 {
            return;
        }
        for lane in members.busy.iter().filter_map(|index| members.lanes.get(*index)?.as_ref()) {
            let waiting = |sent: &&Sent| !sent.task.is_done() && !lane.tasks.started(sent.position);
            lane.outstanding.iter().filter(waiting).for_each(|sent| see(&sent.task));
        }
    }

    fn take_one_back(members: &mut Crew, task: &Arc<Task>) -> bool {
        matches!(members.retract(task), Some(Retract::Taken))
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
                number: worker.tenure.number,
                age: worker.tenure.ready.map(|at| clock::now().saturating_duration_since(at)),
                pid: worker.known_pid(),
                state: if worker.is_dying() {
                    WorkerState::Leaving
                } else if worker.ready < worker.lanes.len() {
                    WorkerState::Starting
                } else if worker.tenure.stands_in {
                    WorkerState::Standby
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

    fn doing(members: &Crew) -> Vec<Doing> {
        if members.outstanding == 0 {
            return Vec::new();
        }
        members.workers.iter().flatten().flat_map(|worker| members.doing_of(worker)).collect()
    }

    fn process(members: &Crew, number: u64) -> Option<(i32, Arc<OwnedFd>)> {
        let worker = members.workers.iter().flatten().find(|worker| worker.tenure.number == number)?;
        // The pidfd, not the number that the worker says of itself, names the process.
        Some((worker.pid, Arc::clone(worker.pidfd.as_ref()?))).filter(|(pid, _)| *pid > 0)
    }

    fn advice(members: &Crew) -> Option<Arc<str>> {
        members.advice.clone()
    }

    fn shortage(members: &Crew) -> Option<Arc<str>> {
        members.shortage.clone().or_else(|| members.storms.reason()).or_else(|| members.slow_start())
    }

    fn complaints(pool: &Pool<Self>) -> Vec<String> {
        let zygote = pool.backend.spawning.lock().as_ref().map(|spawning| Arc::clone(&spawning.zygote));
        let Some(zygote) = zygote else { return Vec::new() };
        // The zygote complains before it forks a worker. But that one may have done a task, whose result comes another
        // way, before a thread has come to read the zygote.
        let is_unread = |worker: &Worker| worker.own_pid != 0 && worker.pid == 0;
        for _ in 0..MOST_LOOKS {
            if !pool.lock().members.workers.iter().flatten().any(is_unread) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        zygote.complaints()
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
            Some(Retract::Started) if force && pool.backend.spawn.is_here() => {
                task.count_attempt();
                // Its call ends soon, or when it comes back from C: what it reads must not be used for other tasks.
                state.members.leave_arguments(task);
                state.members.ask_to_stop(task);
                state.members.end_call(task);
                Interrupted::Killed(0)
            }
            Some(Retract::Started) if force => {
                task.count_attempt();
                Interrupted::Killed(pool.end_worker_of(state, task, cancelled))
            }
            Some(Retract::Started) | None => Interrupted::Left,
        }
    }

    fn ask_to_stop(_pool: &Pool<Self>, state: &mut ProcessPoolState, task: &Arc<Task>) {
        state.members.ask_to_stop(task);
    }

    fn progress(members: &Crew, task: &Arc<Task>) -> Option<Progress> {
        members.lanes.get(task.lane()?)?.as_ref()?.pulse.read(task.id)?.progress
    }

    fn describe_run(members: &Crew, task: &Arc<Task>, record: &mut Record, monotonic: &Anchor) {
        let lane = task.lane().and_then(|lane| members.lanes.get(lane)?.as_ref());
        let Some(lane) = lane else { return };
        let Some(sent) = lane.outstanding.iter().find(|sent| Arc::ptr_eq(&sent.task, task)) else { return };
        if lane.tasks.started(sent.position) {
            record.begun_ns = sent.begun_ns(&lane.begun, monotonic);
            let worker = members.workers.get(lane.worker).and_then(Option::as_ref);
            record.worker = worker.map_or(0, |worker| worker.tenure.number);
        }
    }

    fn answer(
        _pool: &Pool<Self>,
        state: &mut ProcessPoolState,
        call: &Calling,
        answer: &Payload,
    ) -> Answered {
        Pool::<Self>::push_answer(&mut state.members, call.lane, call.task.id, call.number, answer)
    }

    fn all_call(members: &Crew) -> Option<usize> {
        let lanes = || members.lanes.iter().flatten().filter(|lane| !lane.closed);
        (members.starting == 0 && lanes().all(|lane| lane.call.is_some())).then(|| lanes().count())
    }

    fn run_ends(members: &mut Crew, task: &Arc<Task>, timeout: Duration, now: Instant) -> Option<Instant> {
        let lane = members.lanes.get_mut(task.lane()?)?.as_mut()?;
        let sent = lane.outstanding.iter_mut().find(|sent| Arc::ptr_eq(&sent.task, task))?;
        if sent.begun.is_none() {
            // Seen for the first time it is kept, lest the worker change its mind. It is no later than now, and what is
            // earlier than the record is another's, or an earlier attempt's.
            sent.begun = lane.begun.read(task.id).and_then(|begun| {
                // In this order: the time comes out rather too late than before the record was sent.
                let ago = Duration::from_nanos(clock::nanos().saturating_sub(begun));
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

    fn hangs_at(members: &mut Crew, task: &Arc<Task>, limit: Duration, now: Instant) -> Option<Instant> {
        members.hangs_at(task, limit, now)
    }

    fn hung(pool: &Pool<Self>, state: &mut PoolState<Self>, task: &Arc<Task>, now: Instant) {
        pool.end_hung(state, task, now);
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
            // A worker that is killed does not read it.
            members.ask_to_stop(task);
            members.end_call(task);
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
            if let Source::Seats(seats) = &pool.backend.spawn.source {
                seats.close();
            }
        }
        gone
    }

    fn look_after(pool: &Pool<Self>, state: &mut PoolState<Self>, now: Instant) -> Option<Instant> {
        pool.read_stacks(state, now);
        state.members.end_evicted(now);
        pool.expire_deaths(state, now);
        pool.end_delay(state, now);
        pool.ask_again(state, now);
        pool.expire_states(state, now);
        pool.recycle_due(state, now);
        let sized = pool.follow_load(state, now);
        let sampled = pool.next_sample(state, now);
        [pool.sweep_segments(state, now), sized, sampled].into_iter().flatten().min()
    }

    fn before_look(pool: &Pool<Self>, now: Instant) {
        pool.sample(now);
    }

    fn recycle(pool: &Pool<Self>, state: &mut PoolState<Self>, which: Which) -> usize {
        pool.recycle_workers(state, which)
    }

    fn resized(pool: &Pool<Self>, state: &mut PoolState<Self>) -> usize {
        pool.resized(state);
        0
    }

    fn next_look(state: &PoolState<Self>, now: Instant) -> Option<Instant> {
        let members = &state.members;
        let steal = state.steal_pending().then(|| now + STEAL_AFTER);
        let recycling = ProcessPool::next_recycling(members);
        let expiry = members.expiries.peek().map(Expiry::at);
        let waits = [members.next_death(), members.next_eviction(), members.refused_until];
        let health = [members.next_stack(), members.storms.delayed_until()].into_iter().flatten().min();
        let all = waits.into_iter().chain([steal, recycling, expiry, health]);
        all.flatten().min()
    }
}

impl Employer for ProcessPool {
    fn learn(&self, worker: u64, event: WorkerEvent) {
        match event {
            WorkerEvent::Spawned(pid, pidfd) => self.worker_spawned(worker, pid, pidfd.as_ref()),
            WorkerEvent::Seated => self.worker_seated(worker),
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
        if !pool.backend.spawn.is_here() {
            pool.prepare_spawning(zygote, page)?;
        }
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
            if !self.lanes.get(index).and_then(Option::as_ref).is_some_and(|lane| lane.closed) {
                self.idle.push(index);
            }
        }
    }

    /// Takes every task that has not been started out of the lanes, oldest first within a lane; `spare` leaves each
    /// lane the first that it has.
    fn take_back_waiting(&mut self, spare: bool) -> Vec<Arc<Task>> {
        let mut taken = Vec::new();
        for index in self.busy.clone() {
            taken.extend(self.take_back_behind(index, usize::from(spare)));
        }
        taken
    }

    /// The same in one lane, which keeps so many of the first.
    fn take_back_behind(&mut self, index: usize, mut kept: usize) -> Vec<Arc<Task>> {
        let mut taken = Vec::new();
        let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else { return taken };
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
        taken
    }
}

impl ProcessPoolState {
    /// Whether tasks wait while a lane has nothing to do: behind others in another lane, or in the queue because the
    /// idle lane's ring is full of records that were taken back, which its worker skips without a word.
    pub(crate) fn steal_pending(&self) -> bool {
        let members = &self.members;
        if members.idle.is_empty() {
            return false;
        }
        let waiting = members.outstanding > members.busy.len();
        if waiting && members.bound > 0 {
            // Tasks that only their own lane may run wait there, whatever the others do.
            let movable = |lane: &usize| {
                members.lanes.get(*lane).and_then(Option::as_ref).is_some_and(|lane| lane.movable() > 0)
            };
            return self.queue.has_common() || members.busy.iter().any(movable);
        }
        waiting || self.queue.has_common()
    }
}
