//! Replacing workers that are due, without a dip.
//!
//! A worker is due when it has had as many tasks as one is to have, is as old, has as much memory, or when the program
//! asks for it. It stays in service. The pool asks for a **stand-in**, a worker beyond its size, which is given no task
//! before it is ready: forked, initialized, warmed up and probed. Then the two change places under one hold of the
//! lock: the stand-in joins the lanes that tasks are given to, and the worker that is due is *retired*. What it has not
//! started is taken back, what it runs is finished, and then it leaves. So the number of ready workers does not fall
//! below the pool's size.
//!
//! A pool has one stand-in at a time, whatever the number of workers that are due, and none while as many replaced
//! workers as it has places for are not gone: what they still run is run beside what the pool runs. For the same reason
//! a pool never has more than twice its size of workers, those that leave included. If the stand-in
//! dies, or cannot be had, the worker that is due goes on, the pool reports the shortage, and asks again after a
//! while. A worker that is due and dies is replaced by the stand-in that is under way.
//!
//! **The limit of tasks is exact.** A worker is never given more; with the last one it is *spent* and leaves after it,
//! whether a stand-in is ready or not. So it is due ahead of time: as soon as the tasks that are left would not last
//! until stand-ins for all workers were ready. A worker that is due for its tasks and is the only one goes on until it
//! is spent, while the stand-in waits; if several are due, the one with the least left is retired early.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_os::memory::anonymous_bytes_of;

use super::workers::Worker;
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::cause::Cause;
use crate::clock;
use crate::config::Life;
use crate::events::{self, What};
use crate::lifespan::Lifespan;
use crate::pool::{Lifecycle, Which};

/// How long a pool waits after a stand-in could not be had.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a worker that was sent away may take to end when it has run its last task: its exit handlers run then. The
/// next one that is due waits for it. As long as the pool's grace, if that is longer.
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);
/// Workers in a row that their first task has made too large, which say that the limit is too low for the tasks.
const SHORT_LIVED: u32 = 3;
/// How long a worker's start is taken to last before any was seen, in nanoseconds.
const USUAL_START_NS: u64 = 5_000_000;
/// The part of its limit of tasks by which a worker may be due early: one of so many. How long tasks take does not say
/// when they come, and a pool with little to do must not replace its workers all the time.
const MOST_AHEAD: u64 = 4;
/// Tasks that a lane may hold, beside those that it runs, when a worker's look-ahead is reckoned.
const IN_LANE: u64 = 1;

/// What decides how long a worker lives.
#[derive(Debug)]
pub(crate) struct Tenure {
    /// Its number in the pool, from 1 on; no other worker of the pool gets it.
    pub(crate) number: u64,
    asked: Instant,
    /// Since when all of its lanes are ready.
    pub(crate) ready: Option<Instant>,
    /// The limits that it was born with.
    limits: Lifespan,
    /// It is beyond the pool's size, and is given no task: it waits to take the place of a worker that is due.
    pub(super) stands_in: bool,
    /// Why it is to be replaced, if it is.
    pub(super) due: Option<Cause>,
    /// Why it has been sent away, with the memory that it had then.
    pub(super) retired: Option<(Cause, Option<u64>)>,
    /// When it has to be gone, unless it still runs tasks then.
    leave_due: Option<Instant>,
    pub(super) memory: super::sampling::Memory,
}

impl Tenure {
    pub(super) fn new(number: u64, stands_in: bool, life: &Life) -> Self {
        Self {
            number,
            asked: clock::now(),
            ready: None,
            limits: Lifespan::of(number, life),
            stands_in,
            due: None,
            retired: None,
            leave_due: None,
            memory: super::sampling::Memory::default(),
        }
    }

    /// When it was asked for.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }

    pub(super) fn most_memory(&self) -> Option<u64> {
        self.limits.memory
    }

    /// It is to be replaced, for that cause if it was not due for one that outweighs it.
    pub(super) fn make_due(&mut self, cause: Cause) {
        if cause.outweighs(self.due) {
            self.due = Some(cause);
        }
    }

    /// When its age makes it due; `None` if it will not, or does not matter any more.
    fn ages(&self) -> Option<Instant> {
        if !Cause::MaxAge.outweighs(self.due) || self.retired.is_some() {
            return None;
        }
        self.ready?.checked_add(self.limits.age?)
    }
}

/// How long workers take to start, learned from those that did.
#[derive(Debug, Default)]
pub(crate) struct StartTimes {
    /// Moving average from the request until the worker was ready, in nanoseconds; 0 before the first.
    average_ns: u64,
}

impl StartTimes {
    fn learn(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.average_ns = match self.average_ns {
            0 => took,
            average => (average / 4).saturating_mul(3).saturating_add(took / 4).max(1),
        };
    }

    /// Whether a worker was ready once.
    pub(super) fn has_seen_any(&self) -> bool {
        self.average_ns > 0
    }

    fn expected_ns(&self) -> u64 {
        if self.average_ns == 0 { USUAL_START_NS } else { self.average_ns }
    }
}

impl ProcessPool {
    /// See [`Engine::recycle`](crate::Engine::recycle).
    pub(crate) fn recycle_workers(&self, state: &mut ProcessPoolState, which: Which) -> usize {
        let mut marked = 0;
        for worker in state.members.workers.iter_mut().flatten() {
            let meant = match which {
                Which::All => worker.tenure.ready.is_some(),
                Which::Number(number) => worker.tenure.number == number,
                Which::Process(pid) => worker.known_pid() == pid,
            };
            if meant && !worker.is_dying() {
                worker.tenure.make_due(Cause::Asked);
                marked += 1;
            }
        }
        if marked > 0 {
            self.control.kick();
        }
        marked
    }

    /// A worker was given a task, or is ready for its first, and its pool limits their number.
    pub(super) fn count_given(&self, state: &mut ProcessPoolState, index: usize) {
        let ahead = self.look_ahead(state);
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        let lanes = worker.lanes.iter().filter_map(|lane| state.members.lanes.get(*lane)?.as_ref());
        let given = worker.completed + lanes.map(|lane| lane.outstanding.len() as u64).sum::<u64>();
        let limit = worker.tenure.limits.tasks;
        let left = limit.saturating_sub(given);
        if left > ahead.min(limit / MOST_AHEAD).max(1) {
            return;
        }
        if worker.tenure.due.is_none() {
            worker.tenure.make_due(Cause::MaxTasks);
            self.control.kick();
        }
        if left == 0 {
            self.retire(state, index, Cause::MaxTasks, false);
        }
    }

    /// Tasks that a worker is given while the stand-ins of all workers are started, one after the other.
    fn look_ahead(&self, state: &ProcessPoolState) -> u64 {
        let starts = state.members.starts.expected_ns().saturating_mul(state.size as u64);
        let tasks = match state.members.task_lengths.average_ns() {
            0 => 0,
            average => (starts / 2).saturating_mul(3) / average,
        };
        tasks.saturating_add(1 + IN_LANE).saturating_mul(self.config.threads as u64)
    }

    /// All lanes of a worker are ready.
    pub(super) fn worker_ready(&self, state: &mut ProcessPoolState, index: usize) {
        let now = clock::now();
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        worker.tenure.ready = Some(now);
        let took = now.saturating_duration_since(worker.tenure.asked);
        let stands_in = worker.tenure.stands_in;
        for lane in &worker.lanes {
            if let Some(lane) = state.members.lanes.get_mut(*lane).and_then(Option::as_mut) {
                // From here on it is idle.
                lane.front_since = now;
            }
        }
        state.members.starts.learn(took);
        state.members.without_since = None;
        if stands_in {
            if state.members.no_stand_in_until.take().is_some() && state.members.refused_until.is_none() {
                state.members.shortage = None;
            }
            self.change_places(state);
        }
        if self.config.life.max_tasks.is_some() {
            self.count_given(state, index);
        }
        if self.config.life.max_age.is_some() || self.config.life.max_memory.is_some() {
            // The supervisor has to look when this one is due.
            self.control.kick();
        }
    }

    /// Finds workers that are due, and replaces those for whom a stand-in is ready.
    pub(super) fn recycle_due(&self, state: &mut ProcessPoolState, now: Instant) {
        for worker in state.members.workers.iter_mut().flatten() {
            if worker.tenure.ages().is_some_and(|at| at <= now) && !worker.is_dying() {
                worker.tenure.make_due(Cause::MaxAge);
            }
        }
        self.end_overdue(state, now);
        if state.members.no_stand_in_until.is_some_and(|at| at <= now) {
            state.members.no_stand_in_until = None;
            if state.members.refused_until.is_none() {
                state.members.shortage = None;
            }
        }
        self.change_places(state);
        self.fill_or_fall_short(state);
        for lane in state.members.lanes.iter_mut().flatten() {
            lane.send_exit();
        }
    }

    /// Ends workers that were sent away, have nothing to run, and do not leave.
    fn end_overdue(&self, state: &mut ProcessPoolState, now: Instant) {
        for worker in state.members.workers.iter_mut().flatten() {
            if worker.is_killed() || worker.tenure.leave_due.is_none_or(|at| at > now) {
                continue;
            }
            let lanes = worker.lanes.iter().filter_map(|lane| state.members.lanes.get(*lane)?.as_ref());
            if lanes.flat_map(|lane| &lane.outstanding).any(|sent| !sent.task.is_done()) {
                worker.tenure.leave_due = Some(now + self.leave_patience());
            } else {
                worker.kill();
            }
        }
    }

    fn leave_patience(&self) -> Duration {
        LEAVE_PATIENCE.max(self.config.grace)
    }

    /// When the supervisor must look for workers that are due, or overdue.
    pub(super) fn next_recycling(members: &Crew) -> Option<Instant> {
        let workers = || members.workers.iter().flatten();
        let ages = workers().filter_map(|worker| worker.tenure.ages()).min();
        let ends =
            workers().filter(|worker| !worker.is_killed()).filter_map(|worker| worker.tenure.leave_due).min();
        [ages, ends, members.no_stand_in_until].into_iter().flatten().min()
    }

    /// Puts a stand-in that is ready into the place of a worker that is due.
    fn change_places(&self, state: &mut ProcessPoolState) {
        if !matches!(state.lifecycle, Lifecycle::Open) {
            return;
        }
        while state.members.stand_in(true).is_some() {
            let Some((index, cause)) = state.members.to_retire() else { return };
            // Retiring it makes room, which the stand-in takes at once.
            self.retire(state, index, cause, true);
        }
    }

    /// Sends a worker away: it is given no more tasks, finishes those that it runs, and leaves. `take_back` the tasks
    /// that it has not started; else it runs them, too.
    pub(super) fn retire(&self, state: &mut ProcessPoolState, index: usize, cause: Cause, take_back: bool) {
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        if worker.is_dying() {
            return;
        }
        let memory = worker.tenure.memory.exact();
        let process = worker.pidfd.as_ref().map(AsFd::as_fd);
        let memory = memory.or_else(|| anonymous_bytes_of(worker.pid, process?));
        worker.tenure.retired = Some((cause, memory));
        worker.tenure.leave_due = Some(clock::now() + self.leave_patience());
        let lanes = worker.lanes.clone();
        if take_back {
            self.take_back_from(state, &lanes);
        }
        state.members.dismiss(Some(index));
        state.members.idle.retain(|lane| !lanes.contains(lane));
        for lane in &lanes {
            self.leave_closed(state, *lane);
        }
        if cause != Cause::Shrunk && state.members.alive() < self.wanted(state) {
            state.counters.restarted += 1;
        }
        self.bring_in(state);
        self.control.kick();
    }

    /// Takes stand-ins into service while the pool has fewer workers than it should.
    pub(super) fn bring_in(&self, state: &mut ProcessPoolState) {
        while state.members.alive() < self.wanted(state) {
            let found = state.members.stand_in(true).or_else(|| state.members.stand_in(false));
            let Some(worker) = found.and_then(|index| state.members.workers.get_mut(index)?.as_mut()) else {
                return;
            };
            worker.tenure.stands_in = false;
            let lanes = worker.lanes.clone();
            for lane in lanes {
                state.members.idle.insert(0, lane);
            }
        }
    }

    /// Whether a worker more is not one too many beside those that were replaced and still run their last tasks. With a
    /// limit of few tasks each worker is spent as soon as it is given them, and without this the pool would have a
    /// worker for each task that waits. Workers that a smaller pool has sent away take no place.
    pub(super) fn has_place(&self, state: &ProcessPoolState) -> bool {
        let is_replaced =
            |worker: &&Worker| worker.tenure.retired.is_some_and(|(cause, _)| cause != Cause::Shrunk);
        let replaced = state.members.workers.iter().flatten().filter(is_replaced).count();
        state.members.alive() + replaced < 2 * state.size
    }

    /// Asks for a stand-in if a worker is due, and sends one away that is not needed any more.
    pub(super) fn ask_for_stand_in(&self, state: &mut ProcessPoolState) {
        let due = matches!(state.lifecycle, Lifecycle::Open) && state.members.any_due();
        // Else a pool of long tasks, or on a machine that is too busy to end workers, would have ever more of them.
        let needed = due && state.members.leaving() < state.size;
        let there = state.members.stand_in(false).or_else(|| state.members.stand_in(true));
        match there {
            Some(index) if !needed => state.members.dismiss(Some(index)),
            None if needed && state.members.no_stand_in_until.is_none() => {
                if let Err(error) = self.add_worker(state, true) {
                    self.lack_stand_in(state, &error.report());
                }
            }
            _ => {}
        }
    }

    /// A stand-in cannot be had now: those that are due go on, and the pool asks again after a while.
    pub(super) fn lack_stand_in(&self, state: &mut ProcessPoolState, reason: &str) {
        state.members.no_stand_in_until = Some(clock::now() + PATIENCE);
        let told =
            format!("a worker that is to be replaced goes on, for its replacement did not start: {reason}");
        state.members.shortage = Some(told.into());
        self.control.kick();
    }

    /// A worker that the pool has sent away, or ended on purpose, is gone.
    pub(super) fn tell_recycled(&self, state: &mut ProcessPoolState, worker: &Worker) {
        let (cause, memory) = worker.tenure.retired.unwrap_or((Cause::Task, worker.tenure.memory.exact()));
        state.counters.recycled[cause as usize] += 1;
        let (pid, number, tasks) = (worker.known_pid(), worker.tenure.number, worker.completed);
        events::tell(&self.config.name, What::WorkerRecycled { pid, number, cause, memory, tasks });
        if cause == Cause::MaxMemory {
            self.judge_limit(state, worker, memory);
        }
    }

    /// Tells the program once if workers are replaced for their memory after each task.
    fn judge_limit(&self, state: &mut ProcessPoolState, worker: &Worker, memory: Option<u64>) {
        let members = &mut state.members;
        // Each thread may have run one.
        let is_short = worker.completed <= worker.lanes.len() as u64;
        members.short_lived = if is_short { members.short_lived.saturating_add(1) } else { 0 };
        let Some(limit) = self.config.life.max_memory else { return };
        if members.short_lived < SHORT_LIVED || members.advice.is_some() {
            return;
        }
        let had = memory.map_or_else(|| "more".to_owned(), |bytes| format!("{bytes} bytes"));
        let reason: Arc<str> = format!(
            "max_rss={limit} is below what one task needs: workers are replaced after each task, and the last one had \
             {had}. Raise max_rss, or let tasks free their memory."
        )
        .into();
        members.advice = Some(Arc::clone(&reason));
        let (pid, number) = (worker.known_pid(), worker.tenure.number);
        events::tell(&self.config.name, What::LimitTooLow { pid, number, memory, reason });
    }
}

impl Crew {
    /// A stand-in, which is ready or not.
    fn stand_in(&self, ready: bool) -> Option<usize> {
        self.workers.iter().position(|worker| {
            worker.as_ref().is_some_and(|worker| {
                worker.tenure.stands_in && !worker.is_dying() && worker.tenure.ready.is_some() == ready
            })
        })
    }

    pub(super) fn is_stand_in(&self, index: usize) -> bool {
        self.workers.get(index).and_then(Option::as_ref).is_some_and(|worker| worker.tenure.stands_in)
    }

    fn due(&self) -> impl Iterator<Item = (usize, &Worker, Cause)> {
        let all =
            self.workers.iter().enumerate().filter_map(|(index, worker)| Some((index, worker.as_ref()?)));
        all.filter(|(_, worker)| !worker.tenure.stands_in && !worker.is_dying())
            .filter_map(|(index, worker)| Some((index, worker, worker.tenure.due?)))
    }

    /// Workers that were replaced and are not gone.
    fn leaving(&self) -> usize {
        self.workers.iter().flatten().filter(|worker| worker.tenure.retired.is_some()).count()
    }

    fn any_due(&self) -> bool {
        self.due().next().is_some()
    }

    /// The worker whose place a stand-in takes now. A lone one that is due for its tasks goes on until it is spent.
    fn to_retire(&self) -> Option<(usize, Cause)> {
        let other = self.due().find(|(_, _, cause)| *cause != Cause::MaxTasks);
        if let Some((index, _, cause)) = other {
            return Some((index, cause));
        }
        // One that has run nothing yet is as new as the stand-in.
        let used = || self.due().filter(|(_, worker, _)| worker.completed > 0);
        if used().count() < 2 {
            return None;
        }
        let least =
            used().min_by_key(|(_, worker, _)| worker.tenure.limits.tasks.saturating_sub(worker.completed));
        least.map(|(index, _, cause)| (index, cause))
    }
}

#[cfg(test)]
mod tests;
