//! Replacing actors that are due, without a dip, and changing their number.
//!
//! As with worker processes, an actor that is due stays in service until a **stand-in** is ready: a lane beyond the
//! pool's size, whose actor is initialized, warmed up and probed, and is given no task. Then the two change places
//! under one hold of the lock, and the lane that was due *leaves*: it finishes the task that it has, its states are
//! made again elsewhere, and its thread ends the actor and then itself. A pool has one stand-in at a time, and none
//! while as many lanes leave as it has places for. If a stand-in cannot be made, the actor that is due goes on, and
//! the pool reports the shortage.
//!
//! The limit of tasks is exact: with its last one an actor leaves, whether a stand-in is ready or not. So it is due
//! ahead of time. A lone actor that is due for its tasks goes on until then, while the stand-in waits.
//!
//! A lane's place is used again when its thread has ended. Another thread of the layer above starts those of new lanes
//! ([`Errand::Begin`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Code;

use super::Ray;
use super::lanes::{Fleet, Lane};
use crate::cause::Cause;
use crate::clock;
use crate::events::{self, What};
use crate::lifespan::Lifespan;
use crate::outcome::Failure;
use crate::pool::{Errand, Lifecycle, Pool, PoolState, Which};

/// How long a pool waits after a stand-in could not be made.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part of its limit of tasks by which an actor may be due early: one of so many.
const MOST_AHEAD: u64 = 4;

impl Lane {
    /// Whether it is one of those that the pool is to have.
    pub(super) fn is_in_service(&self) -> bool {
        self.open && !self.stands_in && !self.leaves && !self.left
    }

    /// Whether its actor is ready, and waits to take the place of another.
    fn is_spare(&self) -> bool {
        self.open && self.stands_in && !self.leaves && self.pid != 0 && !self.doomed
    }

    /// Its actor is to be replaced, for that cause if it was not due for one that outweighs it.
    fn make_due(&mut self, cause: Cause) {
        if cause.outweighs(self.due) {
            self.due = Some(cause);
        }
    }

    /// When its age makes its actor due; `None` if it will not, or does not matter any more.
    fn ages(&self) -> Option<Instant> {
        let waits = self.is_in_service() && self.pid != 0 && Cause::MaxAge.outweighs(self.due);
        self.since.filter(|_| waits)?.checked_add(self.lifespan.age?)
    }

    /// The tasks that its actor may be given yet.
    fn left_to_give(&self) -> u64 {
        self.lifespan.tasks.saturating_sub(self.completed + u64::from(self.run.is_some()))
    }

    /// Whether its last tasks will be given before a stand-in is ready, if they go on as they came.
    fn is_nearly_spent(&self, start: Duration) -> bool {
        let left = self.left_to_give();
        let given = self.completed + u64::from(self.run.is_some());
        let age = self.since.map_or(Duration::ZERO, |since| clock::now().saturating_duration_since(since));
        let lasts = age.as_secs_f64() * left as f64 / given.max(1) as f64;
        left <= 1 || (left <= self.lifespan.tasks / MOST_AHEAD && lasts <= start.as_secs_f64() * 1.5)
    }
}

impl Fleet {
    /// Lanes that the pool is to have.
    fn in_service(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.is_in_service()).count()
    }

    /// Opens a lane: a free place, or a new one.
    fn open(&mut self, stands_in: bool) {
        let at = self.lanes.iter().position(|lane| !lane.open).unwrap_or(self.lanes.len());
        let asked = Some(clock::now());
        *self.lane(at) = Lane { open: true, stands_in, asked, ..Lane::default() };
        self.order(at, Errand::Begin { stands_in });
    }

    fn stand_in(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.open && lane.stands_in && !lane.leaves)
    }

    fn due(&self) -> impl Iterator<Item = (usize, &Lane, Cause)> {
        let all = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_in_service() && lane.pid != 0);
        all.filter_map(|(at, lane)| Some((at, lane, lane.due?)))
    }

    /// The lane whose place a stand-in takes now. A lone one that is due for its tasks goes on until it is spent.
    fn to_retire(&self) -> Option<(usize, Cause)> {
        if let Some((at, _, cause)) = self.due().find(|(_, _, cause)| *cause != Cause::MaxTasks) {
            return Some((at, cause));
        }
        // One that has run nothing yet is as new as the stand-in.
        let used = || self.due().filter(|(_, lane, _)| lane.completed > 0);
        if used().count() < 2 {
            return None;
        }
        used().min_by_key(|(_, lane, _)| lane.left_to_give()).map(|(at, _, cause)| (at, cause))
    }

    /// The lane that a smaller pool can best do without: one that is due, or has no actor, or no states, or rests, or
    /// has run fewest tasks.
    fn to_spare(&self) -> Option<usize> {
        let all = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_in_service());
        let rank = |(_, lane): &(usize, &Lane)| {
            let stays = lane.due.is_none() && lane.pid != 0;
            (stays, !lane.sessions.is_empty(), lane.run.is_some(), lane.completed)
        };
        all.min_by_key(rank).map(|(at, _)| at)
    }
}

impl Pool<Ray> {
    /// Marks actors that another is to replace; gives their number.
    pub(super) fn mark_due(&self, state: &mut PoolState<Ray>, which: Which) -> usize {
        let mut marked = 0;
        for lane in state.members.lanes.iter_mut() {
            let meant = match which {
                Which::All => true,
                Which::Number(number) => lane.number == number,
                Which::Process(pid) => lane.pid == pid,
            };
            if meant && lane.is_in_service() && lane.pid != 0 && !lane.doomed {
                lane.make_due(Cause::Asked);
                marked += 1;
            }
        }
        self.replace_due(state);
        marked
    }

    /// The pool is to have another number of actors.
    pub(super) fn change_number(&self, state: &mut PoolState<Ray>) {
        if !matches!(state.lifecycle, Lifecycle::Open) {
            return;
        }
        while state.members.in_service() > state.size {
            let Some(at) = state.members.to_spare() else { break };
            self.retire(state, at, Cause::Shrunk);
        }
        self.fill(state);
        self.replace_due(state);
    }

    /// Brings the pool to its size, by the stand-in if there is one.
    pub(super) fn fill(&self, state: &mut PoolState<Ray>) {
        if !matches!(state.lifecycle, Lifecycle::Open) && !state.is_wanted() {
            return;
        }
        while state.members.in_service() < state.size {
            match state.members.stand_in() {
                Some(at) => state.members.lanes[at].stands_in = false,
                None => state.members.open(false),
            }
        }
        if let Some(aged) = Self::next_recycling(&state.members) {
            self.wake_supervisor_at(state, aged);
        }
        self.bind_waiting(state);
        self.backend.ready.notify_all();
        self.backend.ordered.notify_one();
    }

    /// A task waits again: makes sure that there is a lane for it. Those of a pool that is closed leave when they have
    /// nothing to do, and the one that had the task may leave for another reason.
    pub(super) fn keep_one(&self, state: &mut PoolState<Ray>) {
        if state.members.in_service() == 0 && !state.ending {
            state.members.open(false);
            self.backend.ordered.notify_one();
        }
    }

    /// Puts a stand-in that is ready into the place of an actor that is due; asks for one, or sends one away.
    pub(super) fn replace_due(&self, state: &mut PoolState<Ray>) {
        if !matches!(state.lifecycle, Lifecycle::Open) {
            return;
        }
        if state.members.lanes.iter().any(Lane::is_spare)
            && let Some((at, cause)) = state.members.to_retire()
        {
            // That makes room, which the stand-in takes at once.
            self.retire(state, at, cause);
            self.fill(state);
        }
        let leaving = state.members.lanes.iter().filter(|lane| lane.open && lane.leaves).count();
        // Else a pool of long tasks would have ever more actors.
        let needed = state.members.due().next().is_some() && leaving < state.size;
        match state.members.stand_in() {
            Some(at) if !needed => {
                state.members.lanes[at].leaves = true;
                self.backend.ready.notify_all();
            }
            None if needed && state.members.no_stand_in_until.is_none() => {
                state.members.open(true);
                self.backend.ordered.notify_one();
            }
            _ => {}
        }
    }

    /// A lane's actor is given no more tasks: it finishes the one that it has, and leaves.
    fn retire(&self, state: &mut PoolState<Ray>, at: usize, cause: Cause) {
        let lane = &mut state.members.lanes[at];
        lane.leaves = true;
        lane.due = Some(cause);
        if cause != Cause::Shrunk {
            state.counters.restarted += 1;
        }
        if state.members.lanes[at].run.is_none() {
            self.move_sessions(state, at);
        }
        self.backend.ready.notify_all();
    }

    /// The states of a lane that leaves are made again in others, when they are needed.
    pub(super) fn move_sessions(&self, state: &mut PoolState<Ray>, at: usize) {
        let lane = &state.members.lanes[at];
        let (pid, cause) = (lane.pid, lane.due.map_or("not needed", Cause::name));
        let reason = format!("the pool has replaced worker {pid} ({cause})").into();
        let why = Failure::Limit { code: Code::PoolError, reason };
        self.leave_lane(state, at, None, (pid, false, &why));
        self.bind_waiting(state);
    }

    /// An actor is ready.
    pub(super) fn begins_life(&self, state: &mut PoolState<Ray>, at: usize) {
        let now = clock::now();
        let lane = &mut state.members.lanes[at];
        lane.lifespan = Lifespan::of(lane.number, &self.config.life);
        lane.due = None;
        let took = lane.asked.take().map(|asked| now.saturating_duration_since(asked));
        if lane.stands_in {
            state.members.no_stand_in_until = None;
        }
        state.members.start = took.unwrap_or(state.members.start);
        self.replace_due(state);
        if let Some(aged) = state.members.lanes[at].ages() {
            self.wake_supervisor_at(state, aged);
        }
    }

    /// An actor was given a task.
    pub(super) fn count_given(&self, state: &mut PoolState<Ray>, at: usize) {
        let start = state.members.start;
        let lane = &mut state.members.lanes[at];
        if lane.lifespan.tasks == u64::MAX || lane.leaves {
            return;
        }
        if lane.left_to_give() == 0 {
            self.retire(state, at, Cause::MaxTasks);
            self.fill(state);
        } else if lane.due.is_none() && lane.is_nearly_spent(start) {
            lane.make_due(Cause::MaxTasks);
            self.replace_due(state);
        }
    }

    /// The thread of a lane has ended, and its place is free.
    pub(super) fn has_left(&self, state: &mut PoolState<Ray>, at: usize) {
        let lane = std::mem::take(state.members.lane(at));
        state.members.orders.retain(|order| order.worker != at || matches!(order.what, Errand::Begin { .. }));
        if let (Some(cause), true) = (lane.due, lane.leaves && lane.pid != 0 && !state.ending) {
            let (pid, number, tasks) = (lane.pid, lane.number, lane.completed);
            state.counters.recycled[cause as usize] += 1;
            let memory = None;
            events::tell(&self.config.name, What::WorkerRecycled { pid, number, cause, memory, tasks });
        }
        if lane.stands_in && !lane.leaves {
            self.lacks_stand_in(state);
        }
        if matches!(state.lifecycle, Lifecycle::Open) {
            self.fill(state);
            self.replace_due(state);
        }
        self.check_end(state);
    }

    /// A stand-in could not be made: the pool asks again after a while.
    fn lacks_stand_in(&self, state: &mut PoolState<Ray>) {
        let until = clock::now() + PATIENCE;
        state.members.no_stand_in_until = Some(until);
        self.wake_supervisor_at(state, until);
    }

    /// Finds actors that are due for their age; the supervisor calls it.
    pub(super) fn find_aged(&self, state: &mut PoolState<Ray>, now: Instant) {
        if state.members.no_stand_in_until.is_some_and(|until| until <= now) {
            state.members.no_stand_in_until = None;
        }
        for lane in state.members.lanes.iter_mut().filter(|lane| lane.ages().is_some_and(|at| at <= now)) {
            lane.make_due(Cause::MaxAge);
        }
        self.replace_due(state);
    }

    /// When the supervisor must do that again.
    pub(super) fn next_recycling(members: &Fleet) -> Option<Instant> {
        members.lanes.iter().filter_map(Lane::ages).chain(members.no_stand_in_until).min()
    }

    /// Why a lane has no actor yet, as the pool reports it.
    pub(super) fn shortage_of(lane: &Lane, why: Arc<str>) -> Option<Arc<str>> {
        match lane.stands_in && !why.is_empty() {
            true => {
                let told = "a worker that is to be replaced goes on, for its replacement is not there";
                Some(format!("{told}: {why}").into())
            }
            false => (!why.is_empty()).then_some(why),
        }
    }
}

#[cfg(test)]
mod tests;
