//! Worker processes, as the parent sees them: asked for, supervised, dismissed, replaced.

mod asking;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_os::pidfd;
use ropewalk_shm::arena::Lease;
use ropewalk_shm::segment::Segment;

use crate::backend::processes::held::Held;
use crate::backend::processes::neighbours::Doom;
use crate::clock;
use crate::engine::{Core, Engine, State};
use crate::events::{self, What};
use crate::lane::{Lane, send_plain};
use crate::outcome::{Failure, Outcome, Record};
use crate::payload::Payload;
use crate::supervisor::Supervisor;
use crate::task::{Stage, Task};
use crate::wire::kind;
use crate::zygote::Zygote;

const SIGKILL: i32 = 9;
/// How long a dead worker's wait status may take to come from the zygote.
const STATUS_PATIENCE: Duration = Duration::from_millis(200);
/// Zygotes that may be lost in a row before a worker of any of them was ready.
const MOST_LOST_ZYGOTES: u32 = 3;
/// Workers that may die in a row before any of them was ready, for each worker of the pool, and the least of it.
///
/// A start that always fails must end, and the pool with it. A few unlucky ones must not: whoever kills workers at
/// random (an operator, the kernel for want of memory) hits many that are not ready yet on a slow machine, where a
/// start takes longer than a task.
const FAILED_STARTS_PER_WORKER: u32 = 3;
const LEAST_FAILED_STARTS: u32 = 8;
/// How long a process may take to end after it has closed its descriptors.
const END_PATIENCE: Duration = Duration::from_millis(500);
const DEAF: &str = "it has closed the descriptors by which it hears from the pool";
const SWEEP: Duration = Duration::from_millis(500);

pub(crate) use asking::Spawning;

/// One worker process.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Unique in this process: what the zygote calls it.
    pub(crate) id: u64,
    pub(crate) pid: i32,
    /// What it calls itself, which can be known before the zygote's word arrives. For records only: nobody is signalled
    /// by it.
    pub(crate) told_pid: i32,
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    pub(crate) socket: OwnedFd,
    pub(crate) lanes: Vec<usize>,
    /// Lanes that have said READY.
    pub(crate) ready: usize,
    pub(crate) completed: u64,
    pub(crate) busy_ns: u64,
    /// Segments whose descriptors it has.
    pub(crate) segments: Held,
    /// Segments that came from it and have not been named yet, or why they could not be taken in; oldest first.
    pub(crate) received: Vec<(u64, Result<Arc<Segment>>)>,
    /// Leases that its views still look into, each with how many `RELEASE`s are owed for it: one for each answer that
    /// said `RETAINED`, and one for each lane that was sent a function which lies in it.
    pub(crate) retained: HashMap<u64, (Arc<Lease>, u64)>,
    /// It has been asked to look at its socket, and nothing has fitted into that since.
    pub(crate) asked_to_look: bool,
    /// It has been told to leave.
    dismissed: bool,
    /// It has been killed on purpose: a timeout, a cancellation.
    killed: bool,
    /// Arguments of tasks that have ended though it runs them still: their memory is not used again before it is gone.
    pub(crate) outlived: Vec<Payload>,
    /// It is being ended for one of its tasks.
    pub(crate) doom: Option<Doom>,
    /// It was sent this signal as the pool was ended.
    signalled: Option<i32>,
    /// Why it was killed, if it misbehaved.
    condemned: Option<Arc<str>>,
    /// Its process is gone, and its status is awaited until then.
    dead_until: Option<Instant>,
    /// Its end of the socket is closed. A process that ends closes it too, and is given until then to be gone.
    deaf_until: Option<Instant>,
    status: Option<i32>,
}

impl Worker {
    /// One that has been asked for.
    fn new(id: u64, socket: OwnedFd, lanes: Vec<usize>) -> Self {
        Self {
            id,
            pid: 0,
            told_pid: 0,
            pidfd: None,
            socket,
            lanes,
            ready: 0,
            completed: 0,
            busy_ns: 0,
            segments: Held::default(),
            received: Vec::new(),
            retained: HashMap::new(),
            asked_to_look: false,
            dismissed: false,
            killed: false,
            outlived: Vec::new(),
            doom: None,
            signalled: None,
            condemned: None,
            dead_until: None,
            deaf_until: None,
            status: None,
        }
    }

    /// Its process id, from the zygote or, as long as that has not spoken, from itself; 0 if neither has.
    pub(crate) fn known_pid(&self) -> i32 {
        if self.pid == 0 { self.told_pid } else { self.pid }
    }

    /// Keeps a lease for as long as the worker may look into it.
    pub(crate) fn retain(&mut self, lease: &Arc<Lease>) {
        self.retained.entry(lease.id()).or_insert_with(|| (Arc::clone(lease), 0)).1 += 1;
    }

    /// The worker settles `count` of what it owes for a lease. It can only give up what it holds itself: the task, and
    /// other workers, have references of their own.
    pub(crate) fn release(&mut self, lease: u64, count: u64) {
        if let Entry::Occupied(mut entry) = self.retained.entry(lease) {
            entry.get_mut().1 = entry.get().1.saturating_sub(count);
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }

    pub(crate) fn is_dying(&self) -> bool {
        self.dismissed || self.killed || self.doom.is_some() || self.dead_until.is_some()
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed
    }

    /// Sends it a signal of the user's choice: now, or as soon as it exists.
    pub(crate) fn signal(&mut self, signal: i32) {
        self.signalled = Some(signal);
        if let Some(fd) = &self.pidfd {
            let _ = pidfd::send_signal(fd.as_fd(), signal);
        }
    }

    pub(crate) fn kill(&mut self) {
        if !self.killed {
            self.killed = true;
            if let Some(fd) = &self.pidfd {
                let _ = pidfd::send_signal(fd.as_fd(), SIGKILL);
            }
        }
    }
}

#[cfg(any(test, fuzzing))]
#[cfg_attr(mutants, mutants::skip)]
impl Engine {
    /// For a simulation: the workers that have been sent a signal.
    pub(crate) fn killed_workers(&self) -> Vec<u64> {
        let core = self.lock();
        core.workers.iter().flatten().filter(|worker| worker.killed).map(|worker| worker.id).collect()
    }

    /// For a simulation: the tasks that lie with a worker.
    #[cfg(test)]
    pub(crate) fn given_to(&self, id: u64) -> Vec<u64> {
        let core = self.lock();
        let Some(worker) = core.workers.iter().flatten().find(|worker| worker.id == id) else {
            return Vec::new();
        };
        let lanes = worker.lanes.iter().filter_map(|lane| core.lanes.get(*lane)?.as_ref());
        lanes.flat_map(|lane| lane.outstanding.iter().map(|sent| sent.task.id)).collect()
    }
}

impl Engine {
    fn find(core: &Core, id: u64) -> Option<usize> {
        core.workers.iter().position(|worker| worker.as_ref().is_some_and(|worker| worker.id == id))
    }

    /// A worker's process has ended; its status may be known already.
    pub(crate) fn worker_gone(&self, id: u64, status: Option<i32>) {
        let mut core = self.lock();
        let Some(index) = Self::find(&core, id) else { return };
        let Some(worker) = core.workers.get_mut(index).and_then(Option::as_mut) else { return };
        worker.status = worker.status.or(status);
        if worker.status.is_some() || worker.dismissed {
            self.bury(&mut core, index);
        } else {
            worker.dead_until = Some(clock::now() + STATUS_PATIENCE);
            // The supervisor has to look again by then, status or none.
            self.control.kick();
        }
    }

    /// A worker's end of its socket is closed: it ends, or one of its tasks has closed what is not its own.
    pub(crate) fn worker_deaf(&self, id: u64) {
        let mut core = self.lock();
        let worker = Self::find(&core, id).and_then(|index| core.workers.get_mut(index)?.as_mut());
        if let Some(worker) = worker {
            worker.deaf_until = Some(clock::now() + END_PATIENCE);
            self.control.kick();
        }
    }

    /// A zygote is gone; its workers die with it, and those that it never forked are asked for again elsewhere.
    pub(crate) fn zygote_gone(
        &self,
        zygote: &Arc<Zygote>,
        reason: &str,
        restart: impl FnOnce() -> Result<Arc<Zygote>>,
    ) {
        let mut core = self.lock();
        let ours =
            self.spawning.lock().as_ref().is_some_and(|spawning| Arc::ptr_eq(&spawning.zygote, zygote));
        if !ours || matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        core.lost_zygotes += 1;
        let fresh = if core.lost_zygotes > MOST_LOST_ZYGOTES {
            Err(reason.to_owned())
        } else {
            restart().map_err(|error| format!("{reason}, and {error}"))
        };
        match fresh {
            Ok(fresh) => {
                if let Some(spawning) = self.spawning.lock().as_mut() {
                    spawning.zygote = fresh;
                }
            }
            Err(reason) => {
                self.break_core(&mut core, &Failure::Broken(reason.into()));
            }
        }
        self.bury_those(&mut core, |worker| worker.pid == 0);
        self.control.kick();
    }

    /// Waits no longer for workers that have been asked for: a zygote may be importing for minutes. One that is forked
    /// after all is killed then.
    pub(crate) fn forget_unborn(&self, core: &mut Core) {
        // One that has spoken is there, whatever the zygote has told so far.
        self.bury_those(core, |worker| worker.known_pid() == 0 && worker.ready == 0);
    }

    fn bury_those(&self, core: &mut Core, unborn: impl Fn(&Worker) -> bool) {
        for index in 0..core.workers.len() {
            if let Some(worker) = core.workers[index].as_mut()
                && unborn(worker)
            {
                worker.killed = true;
                self.bury(core, index);
            }
        }
    }

    /// Gives up waiting for the status of workers that died long enough ago.
    pub(crate) fn expire_deaths(&self, core: &mut Core, now: Instant) {
        for index in 0..core.workers.len() {
            if let Some(worker) = core.workers[index].as_mut()
                && worker.deaf_until.is_some_and(|at| at <= now)
            {
                worker.deaf_until = None;
                if worker.dead_until.is_none()
                    && !worker.killed
                    && let Some(lane) = worker.lanes.first().copied()
                {
                    self.condemn_lane(core, lane, DEAF);
                }
            }
            let due =
                core.workers[index].as_ref().and_then(|worker| worker.dead_until).is_some_and(|at| at <= now);
            if due {
                self.bury(core, index);
            }
        }
    }

    /// A worker's process is gone: saves its results and its waiting tasks, fails what ran, replaces it.
    fn bury(&self, core: &mut Core, index: usize) {
        let lanes = match core.workers.get(index).and_then(Option::as_ref) {
            Some(worker) => worker.lanes.clone(),
            None => return,
        };
        for lane in &lanes {
            self.drain_lane(core, *lane);
        }
        let Some(worker) = core.workers.get_mut(index).and_then(Option::take) else { return };
        Supervisor::forget_worker(worker.id, worker.socket.as_fd());
        let was_ready = worker.ready == worker.lanes.len();
        if !was_ready {
            core.starting = core.starting.saturating_sub(1);
        }
        core.doomed -= usize::from(worker.doom.is_some());
        // Those that ran beside the task that it was ended for.
        let doom = worker.doom.as_ref().filter(|_| worker.killed && worker.condemned.is_none());
        let asked = worker.dismissed || worker.killed || worker.signalled.is_some();
        let unasked = !asked || worker.condemned.is_some();
        let mut victims = Vec::new();
        let mut waiting = Vec::new();
        for lane_index in lanes {
            core.idle.retain(|idle| *idle != lane_index);
            core.busy.retain(|busy| *busy != lane_index);
            let Some(mut lane) = core.lanes.get_mut(lane_index).and_then(Option::take) else { continue };
            core.outstanding -= lane.outstanding.len();
            for (at, sent) in lane.outstanding.drain(..).enumerate() {
                if sent.task.is_done() {
                    continue;
                }
                if lane.tasks.started(sent.position) {
                    if doom.is_none() {
                        sent.task.count_attempt();
                    }
                    let reached = lane.reached.read(sent.task.id);
                    victims.push((sent.task, reached));
                } else if at == 0
                    && unasked
                    && (sent.function.is_some_and(|at| lane.tasks.started(at)) || sent.task.lose_worker())
                {
                    // Loading its function is part of the attempt.
                    sent.task.count_attempt();
                    victims.push((sent.task, 0));
                } else {
                    waiting.push(sent.task);
                }
            }
        }
        waiting.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in waiting {
            task.set_stage(Stage::Queued);
            core.queue.push_front(task);
        }
        if unasked {
            core.counters.crashed += 1;
            if !was_ready {
                core.failed_starts = core.failed_starts.saturating_add(1);
            }
        }
        let stack = self.spawning.lock().as_ref().and_then(|spawning| spawning.notes.read(index));
        let failure = if worker.signalled.is_some() && !unasked {
            Failure::Terminated
        } else {
            Failure::Crashed {
                pid: worker.known_pid(),
                status: worker.status,
                reason: worker.condemned.clone(),
                stack: stack.map(Into::into),
                starting: worker.ready == 0,
            }
        };
        let breaks = unasked && (self.breaks_on_crash() || core.failed_starts >= self.most_failed_starts());
        for (task, reached) in victims {
            let record = Record { pid: worker.known_pid(), reached, ..Record::default() };
            if breaks {
                self.finish(core, &task, Outcome::Failed(failure.clone()), record);
            } else if let Some(doom) = doom {
                self.lose_neighbour(core, &task, doom.failure(record.pid), record.pid);
            } else {
                self.retry_or_finish(core, &task, Outcome::Failed(failure.clone()), record);
            }
        }
        let (pid, status, reason) = (worker.known_pid(), worker.status, worker.condemned.clone());
        if unasked {
            events::tell(&self.config.name, What::WorkerCrashed { pid, status, reason });
        } else if worker.killed && !core.ending && matches!(core.state, State::Open | State::Closing) {
            events::tell(&self.config.name, What::WorkerRecycled { pid });
        }
        drop(worker);
        if breaks {
            self.break_core(core, &failure);
        } else if !matches!(core.state, State::Ended | State::Broken(_)) {
            self.replace(core);
        }
        if !matches!(core.state, State::Open) {
            self.check_end(core);
        }
        self.control.kick();
    }

    /// So many starts that failed in a row say that the next will too.
    fn most_failed_starts(&self) -> u32 {
        let workers = u32::try_from(self.config.workers).unwrap_or(u32::MAX);
        workers.saturating_mul(FAILED_STARTS_PER_WORKER).max(LEAST_FAILED_STARTS)
    }

    /// Starts a worker in place of one that is gone, if there is work for it or there may be.
    pub(crate) fn replace(&self, core: &mut Core) {
        if core.alive() < self.wanted(core) {
            core.counters.restarted += 1;
            self.fill_or_fall_short(core);
        }
    }

    /// How many workers the pool should have now.
    fn wanted(&self, core: &Core) -> usize {
        let closing = !matches!(core.state, State::Open);
        let done = closing && core.queue.is_empty() && core.outstanding == 0;
        if done || core.ending {
            0
        } else if self.config.lazy {
            (core.queue.len() + core.outstanding).clamp(1, self.config.workers)
        } else {
            self.config.workers
        }
    }

    /// Ends a worker whose memory makes no sense. It is given nothing more and nothing is read from it before its
    /// process is gone; then whatever it has not started goes back to the queue.
    pub(crate) fn condemn_lane(&self, core: &mut Core, lane: usize, reason: &str) {
        let Some(index) = core.lanes.get(lane).and_then(Option::as_ref).map(|lane| lane.worker) else {
            return;
        };
        core.set_aside(index);
        if let Some(worker) = core.workers.get_mut(index).and_then(Option::as_mut)
            && worker.condemned.is_none()
        {
            worker.condemned = Some(reason.into());
            worker.kill();
        }
    }

    /// Kills every worker; gives back the tasks that were with them.
    pub(crate) fn kill_everything(&self, core: &mut Core) -> Vec<Arc<Task>> {
        for worker in core.workers.iter_mut().flatten() {
            worker.kill();
        }
        let mut tasks = Vec::new();
        for lane in core.lanes.iter_mut().flatten() {
            for sent in lane.outstanding.drain(..) {
                if lane.tasks.started(sent.position) {
                    sent.task.count_attempt();
                }
                tasks.push(sent.task);
            }
        }
        core.outstanding = 0;
        core.busy.clear();
        tasks.retain(|task| !task.is_done());
        tasks
    }

    /// Tells idle workers to leave; true when none is left.
    pub(crate) fn dismiss_workers(&self, core: &mut Core) -> bool {
        for index in 0..core.workers.len() {
            let Some(worker) = core.workers[index].as_ref() else { continue };
            if worker.dismissed || worker.killed {
                continue;
            }
            core.dismiss(Some(index));
        }
        core.workers.iter().flatten().next().is_none()
    }

    /// Tells workers which segments and functions they may forget; gives the time to look again.
    pub(crate) fn sweep_segments(&self, core: &mut Core, now: Instant) -> Option<Instant> {
        let pending = self.forget_functions(core);
        let mut alive = false;
        for worker in core.workers.iter_mut().flatten() {
            let Some(lane) = worker.lanes.first().and_then(|i| core.lanes.get_mut(*i)?.as_mut()) else {
                continue;
            };
            let (forgotten, kept) = worker.segments.forget_unused(worker.socket.as_fd());
            alive |= kept;
            if forgotten {
                send_plain(&mut lane.tasks, kind::LOOK, 0);
            }
        }
        (alive || pending).then(|| now + SWEEP)
    }

    /// Tells workers which functions no task can name any more; true if there is no room to tell all of them.
    pub(crate) fn forget_functions(&self, core: &mut Core) -> bool {
        let functions = self.dropped_functions.take();
        let mut pending = false;
        for lane in core.lanes.iter_mut().flatten() {
            for id in &functions {
                if lane.functions.remove(id) {
                    lane.forgotten.push(*id);
                }
            }
            lane.forget();
            pending |= !lane.forgotten.is_empty();
        }
        pending
    }
}

impl Core {
    /// Workers that are not on their way out.
    fn alive(&self) -> usize {
        self.workers.iter().flatten().filter(|worker| !worker.dismissed && worker.doom.is_none()).count()
    }

    /// Tells a worker to leave when it has run what it has been given.
    fn dismiss(&mut self, worker: Option<usize>) {
        let Some(worker) = worker.and_then(|index| self.workers.get_mut(index)?.as_mut()) else { return };
        worker.dismissed = true;
        for lane in &worker.lanes {
            if let Some(lane) = self.lanes.get_mut(*lane).and_then(Option::as_mut) {
                send_plain(&mut lane.tasks, kind::EXIT, 0);
            }
        }
    }

    /// Takes a worker's lanes out of the lists that tasks are given by and results are read by.
    fn set_aside(&mut self, worker: usize) {
        let Some(worker) = self.workers.get(worker).and_then(Option::as_ref) else { return };
        self.idle.retain(|lane| !worker.lanes.contains(lane));
        self.busy.retain(|lane| !worker.lanes.contains(lane));
    }

    pub(crate) fn next_death(&self) -> Option<Instant> {
        let all = self.workers.iter().flatten();
        all.flat_map(|worker| [worker.dead_until, worker.deaf_until]).flatten().min()
    }

    /// How many of a worker's lanes are running a task.
    pub(crate) fn started_in(&self, worker: &Worker) -> usize {
        let started =
            |lane: &Lane| lane.outstanding.front().is_some_and(|sent| lane.tasks.started(sent.position));
        worker.lanes.iter().filter_map(|i| self.lanes.get(*i)?.as_ref()).filter(|lane| started(lane)).count()
    }
}

#[cfg(test)]
mod tests;
