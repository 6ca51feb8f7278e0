//! Worker processes, as the parent sees them: requested, supervised, dismissed, replaced.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Result, error};
use ropewalk_os::pidfd;
use ropewalk_shm::memory::{Lease, Segment};

use super::eviction::Eviction;
use super::hangs::Hang;
use super::recycling::Tenure;
use super::segments::PassedSegments;
use super::spawn::Source;
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::clock;
use crate::events::{self, What};
use crate::lane::{Lane, send_plain};
use crate::leave::Leave;
use crate::notes::Notes;
use crate::outcome::{Failure, Outcome, Record};
use crate::payload::Payload;
use crate::pool::Lifecycle;
use crate::supervisor::Supervisor;
use crate::task::{Stage, Task};
use crate::wire::kind;
use crate::zygote::{Zygote, ZygoteCommand};

pub(super) const SIGKILL: i32 = 9;
/// How long a dead worker's wait status may take to come from the zygote.
const STATUS_PATIENCE: Duration = Duration::from_millis(200);
/// Zygotes that may be lost in a row before a worker of any of them was ready.
const MOST_LOST_ZYGOTES: u32 = 3;
/// Workers that may die in a row before any of them was ready, for each worker of the pool, and the least of it.
///
/// Repeated failures of starts must end the pool. A few unlucky ones must not: an operator, or the kernel when memory
/// runs out, kills workers at random, and on a slow machine, where a start takes longer than a task, many of them are
/// not ready yet.
const FAILED_STARTS_PER_WORKER: u32 = 3;
const LEAST_FAILED_STARTS: u32 = 8;
/// How long a process may take to end after it has closed its descriptors.
const END_PATIENCE: Duration = Duration::from_millis(500);
const HUNG_UP: &str = "it has closed the descriptors by which it hears from the pool";
pub(super) const SWEEP: Duration = Duration::from_millis(500);

/// One worker process.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Unique in this process: what the zygote calls it.
    pub(crate) id: u64,
    pub(crate) pid: i32,
    /// The id that the worker reports itself, perhaps before the zygote's message arrives. For records only: no signal
    /// is sent by it.
    pub(crate) own_pid: i32,
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    pub(crate) socket: OwnedFd,
    pub(crate) lanes: Vec<usize>,
    /// Lanes that have said READY.
    pub(crate) ready: usize,
    pub(crate) completed: u64,
    pub(crate) busy_ns: u64,
    /// Segments whose descriptors it has.
    pub(crate) segments: PassedSegments,
    /// Segments that came from it and have not been named yet, or why they could not be taken in; oldest first.
    pub(crate) received: Vec<(u64, Result<Arc<Segment>>)>,
    /// Leases that its views still use, each with the number of promised `RELEASE`s: one for each answer with
    /// `RETAINED`, and one for each lane that was sent a function in the lease.
    pub(crate) retained: HashMap<u64, (Arc<Lease>, u64)>,
    /// It was asked to read its socket, and nothing has fitted into that since.
    pub(crate) asked_to_look: bool,
    /// The parent has told it to leave.
    pub(super) dismissed: bool,
    /// It has been killed on purpose: a timeout, a cancellation.
    pub(super) killed: bool,
    /// Arguments of tasks that have ended though it runs them still, by the tasks' numbers: their memory is not used
    /// again before it has answered, or is gone.
    pub(crate) outlived: Vec<(u64, Payload)>,
    /// It is being ended for one of its tasks.
    pub(crate) eviction: Option<Eviction>,
    /// Tasks of its that gave no sign of life for too long.
    pub(super) hang: Option<Hang>,
    /// It was sent this signal as the pool was ended.
    pub(super) signalled: Option<i32>,
    /// Why it was killed, if it misbehaved.
    pub(super) condemned: Option<Arc<str>>,
    /// Its process is gone, and its status is awaited until then.
    pub(super) status_due: Option<Instant>,
    /// Its end of the socket is closed. A process that ends closes it too, and is given until then to be gone.
    pub(super) hang_up_due: Option<Instant>,
    pub(super) status: Option<i32>,
    /// Where it leaves its last words, in a process of its own.
    pub(super) notes: Option<Arc<Notes>>,
    /// What decides how long it lives.
    pub(super) tenure: Tenure,
    /// It is a thread of this process, which leaves when it is asked to.
    pub(super) leave: Option<Arc<Leave>>,
}

impl Worker {
    /// One that has been asked for.
    pub(super) fn new(
        id: u64,
        socket: OwnedFd,
        lanes: Vec<usize>,
        notes: Option<Arc<Notes>>,
        tenure: Tenure,
    ) -> Self {
        Self {
            id,
            pid: 0,
            own_pid: 0,
            pidfd: None,
            socket,
            lanes,
            ready: 0,
            completed: 0,
            busy_ns: 0,
            segments: PassedSegments::default(),
            received: Vec::new(),
            retained: HashMap::new(),
            asked_to_look: false,
            dismissed: false,
            killed: false,
            outlived: Vec::new(),
            eviction: None,
            hang: None,
            signalled: None,
            condemned: None,
            status_due: None,
            hang_up_due: None,
            status: None,
            notes,
            tenure,
            leave: None,
        }
    }

    /// Its process id, from the zygote or, as long as that has not spoken, from itself; 0 if neither has.
    pub(crate) fn known_pid(&self) -> i32 {
        if self.pid == 0 { self.own_pid } else { self.pid }
    }

    /// Keeps a lease for as long as the worker may use it.
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
        self.dismissed || self.killed || self.eviction.is_some() || self.status_due.is_some()
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

    /// A thread of this process leaves after the task that it runs, whatever waits in its lane.
    pub(super) fn ask_to_leave(&self) {
        if let Some(leave) = &self.leave {
            leave.ask();
        }
    }

    /// A thread of this process ends the call of this task, unless that sits in C.
    fn end_call(&self, task: u64) {
        if let Some(leave) = &self.leave {
            leave.end(task);
        }
    }

    pub(crate) fn kill(&mut self) {
        if !self.killed {
            self.killed = true;
            if let Some(fd) = &self.pidfd {
                let _ = pidfd::send_signal(fd.as_fd(), SIGKILL);
            }
            self.ask_to_leave();
        }
    }
}

#[cfg(any(test, fuzzing))]
#[cfg_attr(mutants, mutants::skip)]
impl ProcessPool {
    /// For a simulation: the workers that have been sent a signal.
    pub(crate) fn killed_workers(&self) -> Vec<u64> {
        let state = self.lock();
        state
            .members
            .workers
            .iter()
            .flatten()
            .filter(|worker| worker.killed)
            .map(|worker| worker.id)
            .collect()
    }

    /// For a simulation: the tasks that lie with a worker.
    #[cfg(test)]
    pub(crate) fn given_to(&self, id: u64) -> Vec<u64> {
        let state = self.lock();
        let Some(worker) = state.members.workers.iter().flatten().find(|worker| worker.id == id) else {
            return Vec::new();
        };
        let lanes = worker.lanes.iter().filter_map(|lane| state.members.lanes.get(*lane)?.as_ref());
        lanes.flat_map(|lane| lane.outstanding.iter().map(|sent| sent.task.id)).collect()
    }
}

impl ProcessPool {
    /// A worker's process has ended; its status may be known already.
    pub(crate) fn worker_gone(&self, id: u64, status: Option<i32>) {
        let mut state = self.lock();
        let Some(index) = state.members.find(id) else { return };
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        worker.status = worker.status.or(status);
        if worker.status.is_some() || worker.dismissed {
            self.remove_worker(&mut state, index);
        } else {
            worker.status_due = Some(clock::now() + STATUS_PATIENCE);
            // The supervisor has to look again by then, status or none.
            self.control.kick();
        }
    }

    /// A worker's end of its socket is closed: it ends, or one of its tasks has closed what is not its own.
    pub(crate) fn worker_hung_up(&self, id: u64) {
        let mut state = self.lock();
        let worker = state.members.find(id).and_then(|index| state.members.workers.get_mut(index)?.as_mut());
        if let Some(worker) = worker {
            worker.hang_up_due = Some(clock::now() + END_PATIENCE);
            self.control.kick();
        }
    }

    /// A zygote is gone; its workers die with it, and those that it never forked are asked for again elsewhere.
    pub(crate) fn lose_zygote(
        &self,
        zygote: &Arc<Zygote>,
        reason: &str,
        restart: &dyn Fn(&ZygoteCommand) -> Result<Arc<Zygote>>,
    ) {
        let mut state = self.lock();
        let ours = self
            .backend
            .spawning
            .lock()
            .as_ref()
            .is_some_and(|spawning| Arc::ptr_eq(&spawning.zygote, zygote));
        if !ours {
            return;
        }
        // The kernel kills its workers; what their tasks have started would live on, as it cannot kill that any more.
        for worker in state.members.workers.iter().flatten() {
            if let Some(fd) = worker.pidfd.as_ref().filter(|_| worker.pid > 0) {
                pidfd::kill_group(fd.as_fd(), worker.pid);
            }
        }
        if matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            return;
        }
        state.members.lost_zygotes += 1;
        let fresh = if state.members.lost_zygotes > MOST_LOST_ZYGOTES {
            Err(reason.to_owned())
        } else {
            self.restart_by(restart).map_err(|error| format!("{reason}, and {error}"))
        };
        match fresh {
            Ok(fresh) => {
                if let Some(spawning) = self.backend.spawning.lock().as_mut() {
                    spawning.zygote = fresh;
                }
            }
            Err(reason) => {
                self.break_now(&mut state, &Failure::Broken(reason.into()));
            }
        }
        self.remove_those(&mut state, |worker| worker.pid == 0);
        self.control.kick();
    }

    fn restart_by(&self, restart: &dyn Fn(&ZygoteCommand) -> Result<Arc<Zygote>>) -> Result<Arc<Zygote>> {
        match &self.backend.spawn.source {
            Source::Zygote(command) => restart(command),
            Source::Seats(_) => Err(error!(Code::ZygoteFailed, "the pool has no zygote")),
        }
    }

    /// Waits no longer for workers that have been asked for: a zygote may be importing for minutes. One that is forked
    /// after all is killed then.
    pub(crate) fn forget_requested(&self, state: &mut ProcessPoolState) {
        // A worker that has sent a record exists, whether or not the zygote has reported it.
        self.remove_those(state, |worker| worker.known_pid() == 0 && worker.ready == 0);
    }

    fn remove_those(&self, state: &mut ProcessPoolState, requested: impl Fn(&Worker) -> bool) {
        for index in 0..state.members.workers.len() {
            if let Some(worker) = state.members.workers[index].as_mut()
                && requested(worker)
            {
                worker.killed = true;
                self.remove_worker(state, index);
            }
        }
    }

    /// Gives up waiting for the status of workers that died long enough ago.
    pub(crate) fn expire_deaths(&self, state: &mut ProcessPoolState, now: Instant) {
        for index in 0..state.members.workers.len() {
            if let Some(worker) = state.members.workers[index].as_mut()
                && worker.hang_up_due.is_some_and(|at| at <= now)
            {
                worker.hang_up_due = None;
                if worker.status_due.is_none()
                    && !worker.killed
                    && let Some(lane) = worker.lanes.first().copied()
                {
                    self.condemn_lane(state, lane, HUNG_UP);
                }
            }
            let due = state.members.workers[index]
                .as_ref()
                .and_then(|worker| worker.status_due)
                .is_some_and(|at| at <= now);
            if due {
                self.remove_worker(state, index);
            }
        }
    }

    /// A worker's process is gone: saves its results and its waiting tasks, fails what ran, replaces it.
    pub(super) fn remove_worker(&self, state: &mut ProcessPoolState, index: usize) {
        let lanes = match state.members.workers.get(index).and_then(Option::as_ref) {
            Some(worker) => worker.lanes.clone(),
            None => return,
        };
        for lane in &lanes {
            self.drain_lane(state, *lane);
        }
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::take) else { return };
        Supervisor::forget_worker(worker.id, worker.socket.as_fd());
        if let Source::Seats(seats) = &self.backend.spawn.source {
            seats.withdraw(worker.id);
            worker.ask_to_leave();
        }
        let was_ready = worker.ready == worker.lanes.len();
        if !was_ready {
            state.members.starting = state.members.starting.saturating_sub(1);
        }
        state.members.evictions -= usize::from(worker.eviction.is_some());
        // Those that ran beside the task that it was ended for.
        let eviction = worker.eviction.as_ref().filter(|_| worker.killed && worker.condemned.is_none());
        // One that has been sent away has still to run what it has.
        let owes = |lane: &Lane| lane.outstanding.iter().any(|sent| !sent.task.is_done());
        let owes = lanes.iter().filter_map(|lane| state.members.lanes.get(*lane)?.as_ref()).any(owes);
        let asked = (worker.dismissed && !owes) || worker.killed || worker.signalled.is_some();
        let unasked = !asked || worker.condemned.is_some();
        let mut victims = Vec::new();
        let mut waiting = Vec::new();
        let mut lost = Vec::new();
        for lane_index in lanes {
            state.members.idle.retain(|idle| *idle != lane_index);
            state.members.busy.retain(|busy| *busy != lane_index);
            let Some(mut lane) = state.members.lanes.get_mut(lane_index).and_then(Option::take) else {
                continue;
            };
            state.members.outstanding -= lane.outstanding.len();
            lost.extend(self.leave_lane(state, lane_index, &mut lane));
            for (at, sent) in lane.outstanding.drain(..).enumerate() {
                if sent.task.is_done() {
                    continue;
                }
                if lane.tasks.started(sent.position) {
                    if eviction.is_none() || worker.has_hung(&sent.task) {
                        sent.task.count_attempt();
                    }
                    let record = Record {
                        reached: lane.reached.read(sent.task.id),
                        begun_ns: sent.begun_ns(&lane.begun, &state.records.monotonic),
                        ..Record::default()
                    };
                    victims.push((sent.task, record));
                } else if at == 0
                    && unasked
                    && (sent.function.is_some_and(|at| lane.tasks.started(at)) || sent.task.lose_worker())
                {
                    // Loading its function is part of the attempt.
                    sent.task.count_attempt();
                    victims.push((sent.task, Record::default()));
                } else {
                    waiting.push(sent.task);
                }
            }
        }
        waiting.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in waiting {
            task.set_stage(Stage::Queued);
            state.queue.push_front(task);
        }
        // Without a stand-in that did not start, the pool is what it was.
        let needed = was_ready || !worker.tenure.stands_in;
        if unasked {
            state.counters.crashed += 1;
            if !was_ready && needed {
                state.members.failed_starts = state.members.failed_starts.saturating_add(1);
            }
        }
        let stack = worker.notes.as_ref().and_then(|notes| notes.read(index));
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
        // One that was sent away was to end, though perhaps not so soon.
        let counts = unasked && needed && (!worker.dismissed || worker.condemned.is_some());
        let unhealthy = if counts { self.count_death(state, &failure) } else { None };
        let breaks = unhealthy.is_some()
            || counts && (self.breaks_on_crash() || state.members.failed_starts >= self.most_failed_starts());
        // The end of the pool takes the states with it, and loses none.
        let is_over = state.ending || matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_));
        let is_sent_home = worker.tenure.retired.is_none() && !matches!(state.lifecycle, Lifecycle::Open);
        let is_loss = unasked || eviction.is_some() || !(is_over || is_sent_home);
        if is_loss && (is_over || breaks) {
            lost.iter().for_each(|session| self.tell_lost(session, worker.known_pid(), true));
        } else if is_loss && !lost.is_empty() {
            let why = worker.end_on_purpose().filter(|_| !unasked).unwrap_or_else(|| failure.clone());
            lost.iter().for_each(|session| self.lose_state(session, worker.known_pid(), &why));
        }
        for (task, record) in victims {
            let record = Record { pid: worker.known_pid(), worker: worker.tenure.number, ..record };
            if breaks {
                self.finish(state, &task, Outcome::Failed(failure.clone()), record);
            } else if let Some(hung) = worker.failure_of_hung(&task) {
                self.blame(state, &task, hung, record);
            } else if let Some(eviction) = eviction {
                self.lose_neighbour(state, &task, eviction.failure(record.pid), record.pid);
            } else {
                self.blame(state, &task, failure.clone(), record);
            }
        }
        let (pid, status, reason) = (worker.known_pid(), worker.status, worker.condemned.clone());
        if unasked {
            events::tell(&self.config.name, What::WorkerCrashed { pid, status, reason });
        }
        let ended = worker.killed
            && worker.tenure.ready.is_some()
            && !unasked
            && !state.ending
            && matches!(state.lifecycle, Lifecycle::Open | Lifecycle::Closing);
        if ended || worker.tenure.retired.is_some() {
            self.tell_recycled(state, &worker);
        }
        let retired = worker.tenure.retired.is_some();
        if unasked && !needed {
            self.lack_stand_in(state, worker.condemned.as_deref().unwrap_or("it died"));
        }
        drop(worker);
        if breaks {
            self.break_now(state, unhealthy.as_ref().unwrap_or(&failure));
        } else if retired {
            // Its place was taken when it was sent away.
            self.fill_or_fall_short(state);
        } else if !matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            self.replace(state);
        }
        if !matches!(state.lifecycle, Lifecycle::Open) {
            self.check_end(state);
        }
        self.control.kick();
    }

    /// After this many failed starts in a row the next is expected to fail, too.
    fn most_failed_starts(&self) -> u32 {
        let workers = u32::try_from(self.config.workers).unwrap_or(u32::MAX);
        workers.saturating_mul(FAILED_STARTS_PER_WORKER).max(LEAST_FAILED_STARTS)
    }

    /// Starts a worker in place of one that is gone, if there is work for it or there may be.
    pub(crate) fn replace(&self, state: &mut ProcessPoolState) {
        if state.members.alive() < self.wanted(state) {
            state.counters.restarted += 1;
        }
        self.fill_or_fall_short(state);
    }

    /// How many workers the pool should have now.
    pub(super) fn wanted(&self, state: &ProcessPoolState) -> usize {
        let closing = !matches!(state.lifecycle, Lifecycle::Open);
        let done =
            closing && state.queue.is_empty() && state.delays.is_empty() && state.members.outstanding == 0;
        if done || state.ending { 0 } else { state.size }
    }

    /// Ends a worker whose memory makes no sense. It is given nothing more and nothing is read from it before its
    /// process is gone; then whatever it has not started goes back to the queue.
    pub(crate) fn condemn_lane(&self, state: &mut ProcessPoolState, lane: usize, reason: &str) {
        let Some(index) = state.members.lanes.get(lane).and_then(Option::as_ref).map(|lane| lane.worker)
        else {
            return;
        };
        state.members.set_aside(index);
        if let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut)
            && worker.condemned.is_none()
        {
            worker.condemned = Some(reason.into());
            worker.kill();
        }
    }

    /// Tells workers which segments and functions they may forget; gives the time to look again.
    pub(crate) fn sweep_segments(&self, state: &mut ProcessPoolState, now: Instant) -> Option<Instant> {
        let pending = self.forget_functions(state);
        let mut alive = false;
        for worker in state.members.workers.iter_mut().flatten() {
            let Some(lane) = worker.lanes.first().and_then(|i| state.members.lanes.get_mut(*i)?.as_mut())
            else {
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

    /// Sends workers the functions that no task can name any more; true if there was no room for all of them.
    pub(crate) fn forget_functions(&self, state: &mut ProcessPoolState) -> bool {
        let functions = self.dropped_functions.take();
        let mut pending = false;
        for lane in state.members.lanes.iter_mut().flatten() {
            for id in &functions {
                if lane.functions.remove(id) {
                    lane.forgotten.push(*id);
                }
            }
            lane.forget();
            pending |= !lane.forgotten.is_empty() || !lane.dropped.is_empty();
        }
        pending
    }
}

impl Crew {
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        self.workers.iter().position(|worker| worker.as_ref().is_some_and(|worker| worker.id == id))
    }

    /// Kills every worker; gives back the tasks that were with them.
    pub(super) fn kill_everything(&mut self) -> Vec<Arc<Task>> {
        for worker in self.workers.iter_mut().flatten() {
            worker.kill();
        }
        let (mut tasks, mut started) = (Vec::new(), Vec::new());
        for lane in self.lanes.iter_mut().flatten() {
            for sent in lane.outstanding.drain(..) {
                if lane.tasks.started(sent.position) {
                    sent.task.count_attempt();
                    lane.pace.stop(sent.task.id);
                    if let Some(worker) = self.workers.get(lane.worker).and_then(Option::as_ref) {
                        worker.end_call(sent.task.id);
                    }
                    started.push(Arc::clone(&sent.task));
                }
                tasks.push(sent.task);
            }
        }
        for task in started.iter().filter(|task| !task.is_done()) {
            self.leave_arguments(task);
        }
        self.outstanding = 0;
        self.busy.clear();
        tasks.retain(|task| !task.is_done());
        tasks
    }

    /// The thread of this process that has started this task ends its call.
    pub(super) fn end_call(&self, task: &Arc<Task>) {
        let Some(lane) = task.lane().and_then(|lane| self.lanes.get(lane)?.as_ref()) else { return };
        let mut started = lane.outstanding.iter().filter(|sent| lane.tasks.started(sent.position));
        if started.any(|sent| Arc::ptr_eq(&sent.task, task))
            && let Some(worker) = self.workers.get(lane.worker).and_then(Option::as_ref)
        {
            worker.end_call(task.id);
        }
    }

    /// Tells idle workers to leave; true when none is left.
    pub(super) fn dismiss_all(&mut self) -> bool {
        for index in 0..self.workers.len() {
            let Some(worker) = self.workers[index].as_ref() else { continue };
            if worker.dismissed || worker.killed {
                continue;
            }
            self.dismiss(Some(index));
        }
        self.workers.iter().flatten().next().is_none()
    }

    /// Workers that are not on their way out, and stand in for no other.
    pub(super) fn alive(&self) -> usize {
        let alive =
            |worker: &&Worker| !worker.dismissed && worker.eviction.is_none() && !worker.tenure.stands_in;
        self.workers.iter().flatten().filter(alive).count()
    }

    /// Tells a worker to leave when it has run what it has been given.
    pub(super) fn dismiss(&mut self, worker: Option<usize>) {
        let Some(worker) = worker.and_then(|index| self.workers.get_mut(index)?.as_mut()) else { return };
        worker.dismissed = true;
        for lane in &worker.lanes {
            if let Some(lane) = self.lanes.get_mut(*lane).and_then(Option::as_mut) {
                lane.close();
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
        all.flat_map(|worker| [worker.status_due, worker.hang_up_due]).flatten().min()
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
