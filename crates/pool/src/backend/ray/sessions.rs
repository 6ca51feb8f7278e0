//! The states of sessions in the actors of a Ray cluster: which lanes have them, and what their threads are asked for.
//!
//! As with worker processes, a *pinned* session has one lane, and its tasks wait at that lane's place in the queue. The
//! other sessions' tasks are in the common queue: the thread that takes one hands it to an idle lane with the state. A
//! lane's thread hears that its actor is to make a state with the first task that needs it
//! ([`Attended::First`](crate::Attended::First)), and that it is to drop some as soon as it is idle.

use std::sync::Arc;
use std::time::Instant;

use ropewalk_base::Code;

use super::Ray;
use super::lanes::{Fleet, Lane};
use crate::clock;
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Record};
use crate::pool::{Pool, PoolState};
use crate::session::{Session, UNBOUND};
use crate::task::Task;

/// A session whose state is in a lane's actor, or is to be made there.
#[derive(Debug)]
pub(super) struct Kept {
    session: Arc<Session>,
    /// The number of the state; 0 before the actor is asked to make it.
    generation: u32,
    /// Whether a task of it has been answered.
    answered: bool,
    /// When its last task was given or answered.
    used: Instant,
}

impl Lane {
    /// Whether it may be given tasks.
    fn is_usable(&self) -> bool {
        self.pid != 0 && !self.doomed && !self.left && !self.leaves && !self.stands_in
    }

    fn is_idle(&self) -> bool {
        self.is_usable() && self.run.is_none()
    }

    fn has_pinned(&self) -> bool {
        self.sessions.values().any(|kept| kept.session.is_pinned())
    }

    fn has_state_of(&self, session: &Session) -> bool {
        self.sessions.get(&session.id).is_some_and(|kept| kept.generation > 0)
    }

    /// Removes a session from the lane; its actor is to drop the state, if it has one.
    fn drop_state(&mut self, at: usize, session: &Session) {
        let Some(kept) = self.sessions.remove(&session.id) else { return };
        if kept.generation > 0 && self.pid != 0 {
            self.dropped.push(session.id);
        }
        unbind(at, session);
    }

    /// Drops the states that no task has used for their session's `ttl`; gives the time to look again.
    pub(super) fn expire_states(&mut self, at: usize) -> Option<Instant> {
        let limited = |kept: &&mut Kept| kept.generation > 0 && kept.session.ttl.is_some();
        let running = self.run.as_ref().and_then(|run| run.task.session()).map(|session| session.id);
        let (mut next, mut spent) = (None, Vec::new());
        let mut now = None;
        for kept in self.sessions.values_mut().filter(limited) {
            let now = *now.get_or_insert_with(clock::now);
            let session = &kept.session;
            if running == Some(session.id) || (session.is_pinned() && session.pending() > 0) {
                kept.used = now;
            }
            match kept.session.ttl.and_then(|ttl| kept.used.checked_add(ttl)) {
                Some(end) if end <= now => spent.push(Arc::clone(&kept.session)),
                Some(end) => next = Some(next.map_or(end, |other: Instant| other.min(end))),
                None => {}
            }
        }
        spent.iter().for_each(|session| self.drop_state(at, session));
        next
    }

    /// A task of the session has been answered.
    pub(super) fn answered(&mut self, session: &Session) {
        if let Some(kept) = self.sessions.get_mut(&session.id) {
            kept.answered = true;
            kept.used = clock::now();
        }
    }
}

/// A lane has no state of this session any more, and gets no tasks of it.
fn unbind(at: usize, session: &Session) {
    session.remove_home(at);
    if session.is_pinned() {
        session.set_place(UNBOUND);
    }
}

impl Fleet {
    /// The lane for a new session: with the fewest sessions, and of those an idle one.
    fn best_lane(&self) -> Option<usize> {
        let usable = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_usable());
        usable.min_by_key(|(_, lane)| (lane.sessions.len(), lane.run.is_some())).map(|(at, _)| at)
    }

    /// The lane for a task that the thread of lane `at` has taken from the queue.
    pub(super) fn lane_for(&self, at: usize, task: &Task) -> usize {
        let idle = || self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_idle());
        match task.session() {
            Some(session) if session.is_pinned() => at,
            Some(session) => {
                // The one with the state; else one with the fewest sessions.
                let rank = |(known, lane): &(usize, &Lane)| {
                    (!lane.has_state_of(session), lane.sessions.len(), *known != at)
                };
                idle().min_by_key(rank).map_or(at, |(known, _)| known)
            }
            // Another task would keep a pinned session waiting.
            None if self.lanes.get(at).is_some_and(Lane::has_pinned) => {
                idle().find(|(_, lane)| !lane.has_pinned()).map_or(at, |(known, _)| known)
            }
            None => at,
        }
    }

    /// The session's lane, if it is pinned to one, has a task.
    pub(super) fn is_busy_for(&self, session: &Session) -> bool {
        self.lanes.get(session.place()).is_some_and(|lane| lane.run.is_some())
    }
}

impl Pool<Ray> {
    /// Finds a lane for a session that has none and needs one.
    pub(super) fn bind_session(state: &mut PoolState<Ray>, session: &Arc<Session>) {
        if session.place() == UNBOUND
            && let Some(at) = state.members.best_lane()
        {
            Self::bind_to(state, at, session);
        }
    }

    fn bind_to(state: &mut PoolState<Ray>, at: usize, session: &Arc<Session>) {
        session.set_place(at);
        session.add_home(at);
        let kept = Kept { session: Arc::clone(session), generation: 0, answered: false, used: clock::now() };
        state.members.lane(at).sessions.insert(session.id, kept);
    }

    /// Finds lanes for the tasks whose sessions have none. Those of actors that are gone for good fail.
    pub(super) fn bind_waiting(&self, state: &mut PoolState<Ray>) {
        if !state.queue.pinned.has(UNBOUND) {
            return;
        }
        for task in state.queue.pinned.take_place(UNBOUND) {
            let Some(session) = task.session() else { continue };
            if let Some(failure) = session.lost() {
                self.finish(state, &task, Outcome::Failed(failure), Record::default());
                continue;
            }
            Self::bind_session(state, session);
            state.queue.push(task);
        }
        self.backend.ready.notify_all();
    }

    /// A lane's actor is ready: the lane takes sessions over that wait in lanes with more of them. Actors do not begin
    /// at the same time, and the first of them gets whatever was opened before.
    pub(super) fn take_over_sessions(&self, state: &mut PoolState<Ray>, at: usize) {
        loop {
            let own = state.members.lane(at).sessions.len();
            let crowded = state.members.lanes.iter().enumerate().max_by_key(|(_, lane)| lane.sessions.len());
            let Some((from, lane)) = crowded.filter(|(_, lane)| lane.sessions.len() > own + 1) else {
                return;
            };
            let mut unmade = lane.sessions.values().filter(|kept| kept.generation == 0);
            let Some(session) = unmade.next().map(|kept| Arc::clone(&kept.session)) else { return };
            let tasks = state.queue.pinned.take_session(from, session.id);
            state.members.lane(from).drop_state(from, &session);
            Self::bind_to(state, at, &session);
            tasks.into_iter().for_each(|task| state.queue.push(task));
        }
    }

    /// A task is about to be given to a lane. Says whether its actor is to make the state of the task's session first.
    pub(super) fn open_state(&self, state: &mut PoolState<Ray>, at: usize, task: &Arc<Task>) -> bool {
        let Some(session) = task.session() else { return false };
        let lane = state.members.lane(at);
        let worker = lane.number;
        let used = clock::now();
        let kept = lane.sessions.entry(session.id).or_insert_with(|| {
            session.add_home(at);
            Kept { session: Arc::clone(session), generation: 0, answered: false, used }
        });
        kept.used = used;
        let opens = kept.generation == 0;
        if opens {
            kept.generation = session.next_generation();
            let (session, generation) = (Arc::clone(&session.name), kept.generation);
            events::tell(&self.config.name, What::SessionMade { worker, session, generation });
        }
        task.set_generation(kept.generation);
        opens
    }

    /// Drops every state of a session.
    pub(super) fn drop_states(&self, state: &mut PoolState<Ray>, session: &Session) {
        for at in session.homes() {
            state.members.lane(at).drop_state(at, session);
        }
        self.backend.ready.notify_all();
    }

    /// The actor of a lane is gone, and the states that it had. `running` is the task that it ran.
    pub(super) fn leave_lane(
        &self,
        state: &mut PoolState<Ray>,
        at: usize,
        running: Option<&Arc<Task>>,
        (pid, doomed, failure): (i32, bool, &Failure),
    ) {
        let lane = state.members.lane(at);
        lane.dropped.clear();
        let kept = std::mem::take(&mut lane.sessions);
        let of_run = running.and_then(|task| task.session()).map(|session| session.id);
        let reason = || format!("worker {pid} was ended for the sake of its task, or of its pool").into();
        for Kept { session, generation, answered, .. } in kept.into_values() {
            unbind(at, &session);
            if answered || of_run == Some(session.id) {
                let why = if doomed {
                    Failure::Limit { code: Code::PoolError, reason: reason() }
                } else {
                    failure.clone()
                };
                self.lose_state(&session, pid, &why);
            } else if generation > 0 {
                session.take_back_generation(generation);
            }
        }
        for task in state.queue.pinned.take_place(at) {
            state.queue.push(task);
        }
    }
}

#[cfg(test)]
mod tests;
