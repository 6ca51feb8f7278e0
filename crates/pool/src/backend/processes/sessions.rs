//! The states of sessions: which lanes have them, when they are made, and when they are dropped.
//!
//! A lane knows the sessions whose state its thread has. Before the first task of another session there, the parent
//! sends a `SESSION` record; the worker makes the state when that task begins. A *pinned* session has one lane, its
//! tasks wait at that lane's place in the queue, and no other lane gets them. The other sessions' tasks are in the
//! common queue, and go to a lane that has the state, if one of those is free.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use ropewalk_base::Code;
use ropewalk_shm::channel::ring::{Header, Position, PushError};

use super::dispatch::{CORRUPT_TASKS, Fed, TOO_LARGE, push_function};
use super::workers::{SWEEP, Worker};
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::clock;
use crate::lane::{Kept, Lane, send_plain};
use crate::outcome::{Failure, Outcome, Record};
use crate::session::{Session, UNBOUND};
use crate::wire::{flags, kind};

/// When a state that no task uses is dropped: the time, the lane and the session. The earliest is the greatest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry(Reverse<Instant>, usize, u32);

impl Expiry {
    pub(crate) fn at(&self) -> Instant {
        self.0.0
    }
}

/// Makes sure that a lane has a session's state when its next task begins. Gives the place of the function that makes
/// the state, if it had to be sent, and the number of the state.
pub(super) fn open_state(
    lane: &mut Lane,
    worker: &mut Worker,
    index: usize,
    session: &Arc<Session>,
) -> Result<(Option<Position>, u32), Fed> {
    let now = if session.ttl.is_some() { clock::now() } else { lane.front_since };
    if let Some(kept) = lane.sessions.get_mut(&session.id)
        && kept.generation > 0
    {
        kept.used = now;
        let generation = kept.generation;
        if lane.named != session.id {
            let aux = u64::from(session.id);
            push(
                lane,
                Header { kind: kind::ENTER_SESSION, flags: flags::EMPTY, aux, ..Header::default() },
                &[],
            )?;
            lane.named = session.id;
        }
        return Ok((None, generation));
    }
    let opening = session.opening.lock();
    let Some(opening) = &*opening else { return Err(Fed::Never("its session was closed")) };
    let (init, arguments) = (&opening.init, &opening.arguments);
    let of_init = init.iter().flat_map(|init| init.payload.segments());
    if !arguments.segments().iter().chain(of_init).all(|segment| worker.give_segment(segment)) {
        if !worker.asked_to_look {
            worker.asked_to_look = send_plain(&mut lane.tasks, kind::LOOK, 0);
        }
        return Err(Fed::Full);
    }
    worker.asked_to_look = false;
    let mut function_at = None;
    if let Some(init) = init
        && !lane.functions.contains(&init.id)
    {
        function_at = Some(push_function(lane, init)?);
        if let Some(lease) = init.payload.lease() {
            worker.retain(lease);
        }
    }
    let generation = session.next_generation();
    let header = Header {
        kind: kind::SESSION,
        flags: arguments.flags | if session.is_actor { flags::ACTOR } else { 0 },
        len: 0,
        id: u64::from(session.id) | u64::from(generation) << 32,
        aux: init.as_ref().map_or(0, |init| u64::from(init.id)),
    };
    if let Err(fed) = push(lane, header, &[&arguments.bytes]) {
        session.take_back_generation(generation);
        return Err(fed);
    }
    lane.named = session.id;
    // The state may keep views into it for as long as it lives.
    if let Some(lease) = arguments.lease() {
        worker.retain(lease);
    }
    arguments.lend_for_good();
    // The worker drops an older state for the new one.
    lane.dropped.retain(|dropped| *dropped != session.id);
    let kept = Kept { session: Arc::clone(session), generation, answered: false, used: now, timed: false };
    if lane.sessions.insert(session.id, kept).is_none() {
        session.add_home(index);
    }
    Ok((function_at, generation))
}

fn push(lane: &mut Lane, header: Header, payload: &[&[u8]]) -> Result<(), Fed> {
    match lane.tasks.try_push(header, payload) {
        Ok(_) => Ok(()),
        Err(PushError::Full) => Err(Fed::Full),
        Err(PushError::TooLarge) => Err(Fed::Never(TOO_LARGE)),
        Err(PushError::Corrupt) => Err(Fed::Broken),
    }
}

impl ProcessPool {
    /// Finds a lane for a session that has none and needs one.
    pub(crate) fn bind_session(&self, state: &mut ProcessPoolState, session: &Arc<Session>) {
        if session.place() == UNBOUND
            && let Some(index) = state.members.best_lane()
            && let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut)
        {
            let (session, used) = (Arc::clone(session), lane.front_since);
            session.set_place(index);
            session.add_home(index);
            let id = session.id;
            lane.sessions.insert(id, Kept { session, generation: 0, answered: false, used, timed: false });
            state.members.bound += 1;
        }
    }

    /// Finds lanes for the tasks whose sessions have lost theirs. Those of actors that are gone for good fail.
    pub(crate) fn bind_waiting(&self, state: &mut ProcessPoolState) {
        if !state.queue.pinned.has(UNBOUND) {
            return;
        }
        for task in state.queue.pinned.take_place(UNBOUND) {
            let Some(session) = task.session() else { continue };
            if let Some(failure) = session.lost() {
                self.finish(state, &task, Outcome::Failed(failure), Record::default());
                continue;
            }
            self.bind_session(state, session);
            state.queue.push(task);
        }
    }

    /// Feeds the lanes the tasks that they alone may run.
    pub(super) fn feed_pinned(&self, state: &mut ProcessPoolState, ring: &mut Vec<usize>) {
        let limit = state.members.task_lengths.lane_limit();
        for index in state.queue.pinned.places() {
            while state.members.takes_tasks(index)
                && state.members.lanes[index].as_ref().is_some_and(|lane| lane.outstanding.len() < limit)
                && let Some(task) = state.queue.pinned.pop(index)
            {
                if self.end_if_late(state, &task) {
                    continue;
                }
                match self.feed(state, index, &task) {
                    Fed::Yes => {
                        if !ring.contains(&index) {
                            ring.push(index);
                        }
                        continue;
                    }
                    Fed::Full => state.queue.push_front(task),
                    Fed::Broken => {
                        state.queue.push_front(task);
                        self.condemn_lane(state, index, CORRUPT_TASKS);
                    }
                    Fed::Never(reason) => {
                        self.refuse(state, &task, reason);
                        continue;
                    }
                }
                break;
            }
        }
    }

    /// A task of a session has been answered in a lane that may have the state.
    pub(super) fn answered_in(&self, state: &mut ProcessPoolState, index: usize, session: &Session) {
        let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { return };
        let is_closed = lane.closed;
        let Some(kept) = lane.sessions.get_mut(&session.id) else { return };
        kept.answered = true;
        if let Some(ttl) = session.ttl {
            kept.used = clock::now();
            if let Some(at) = kept.used.checked_add(ttl)
                && !std::mem::replace(&mut kept.timed, true)
            {
                state.members.expiries.push(Expiry(Reverse(at), index, session.id));
                self.wake_supervisor_at(state, at);
            }
        }
        if is_closed {
            self.leave_closed(state, index);
        }
    }

    /// Drops the states that no task has used for their session's `ttl`.
    pub(super) fn expire_states(&self, state: &mut ProcessPoolState, now: Instant) {
        while state.members.expiries.peek().is_some_and(|expiry| expiry.at() <= now) {
            let Some(Expiry(_, index, id)) = state.members.expiries.pop() else { return };
            let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let Some(kept) = lane.sessions.get(&id) else { continue };
            let session = Arc::clone(&kept.session);
            let Some(ttl) = session.ttl else { continue };
            let is_used = lane.has_task_of(id) || (session.is_pinned() && session.pending() > 0);
            let idle_since = if is_used { now } else { kept.used };
            match idle_since.checked_add(ttl) {
                Some(at) if at > now => state.members.expiries.push(Expiry(Reverse(at), index, id)),
                Some(_) => self.drop_state(state, index, &session),
                None => {}
            }
        }
    }

    /// Drops every state of a session.
    pub(super) fn drop_states(&self, state: &mut ProcessPoolState, session: &Session) {
        for index in session.homes() {
            self.drop_state(state, index, session);
        }
    }

    /// Tells a worker to drop a state.
    fn drop_state(&self, state: &mut ProcessPoolState, index: usize, session: &Session) {
        let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(kept) = lane.sessions.remove(&session.id) else { return };
        if kept.generation > 0 {
            lane.dropped.push(session.id);
            lane.forget();
        }
        let is_told = lane.dropped.is_empty();
        state.members.unbind(index, session);
        if !is_told {
            self.wake_supervisor_at(state, clock::now() + SWEEP);
        }
    }

    /// A lane's worker is gone. Gives the sessions whose state is lost with it.
    pub(super) fn leave_lane(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        lane: &mut Lane,
    ) -> Vec<Arc<Session>> {
        let mut lost = Vec::new();
        for kept in std::mem::take(&mut lane.sessions).into_values() {
            let session = kept.session;
            state.members.unbind(index, &session);
            let begun = lane.outstanding.iter().any(|sent| {
                sent.task.session().is_some_and(|known| known.id == session.id)
                    && lane.tasks.started(sent.position)
            });
            if kept.answered || begun {
                lost.push(session);
            } else if kept.generation > 0 {
                session.take_back_generation(kept.generation);
            }
        }
        for task in state.queue.pinned.take_place(index) {
            state.queue.push(task);
        }
        lost
    }

    /// A lane gets no more tasks: its sessions without a task there leave it. An actor stays, because its object may
    /// not be there twice.
    pub(super) fn leave_closed(&self, state: &mut ProcessPoolState, index: usize) {
        let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { return };
        let (worker, mut left) = (lane.worker, Vec::new());
        lane.sessions.retain(|_, kept| {
            let session = &kept.session;
            let is_its =
                |sent: &crate::lane::Sent| sent.task.session().is_some_and(|known| known.id == session.id);
            let stays = session.is_actor && kept.generation > 0 || lane.outstanding.iter().any(is_its);
            if !stays {
                left.push((Arc::clone(session), kept.answered));
            }
            stays
        });
        let pid = state.members.workers.get(worker).and_then(Option::as_ref).map_or(0, Worker::known_pid);
        for (session, is_lost) in left {
            state.members.unbind(index, &session);
            if is_lost && !state.ending {
                // No actor's: its object would have stayed.
                self.tell_lost(&session, pid, false);
            }
            for task in state.queue.pinned.take_session(index, session.id) {
                state.queue.push(task);
            }
        }
    }
}

impl Crew {
    /// A lane has no state of this session any more, and gets no tasks of it.
    fn unbind(&mut self, index: usize, session: &Session) {
        session.remove_home(index);
        if session.is_pinned() {
            session.set_place(UNBOUND);
            self.bound = self.bound.saturating_sub(1);
        }
    }

    /// The lane of a pinned session, if it has one.
    pub(super) fn lane_of(&self, session: &Session) -> Option<&Lane> {
        self.lanes.get(session.place())?.as_ref()
    }

    /// Whether a lane may be given tasks.
    fn takes_tasks(&self, index: usize) -> bool {
        let lane = self.lanes.get(index).and_then(Option::as_ref).filter(|lane| !lane.closed);
        let worker = lane.and_then(|lane| self.workers.get(lane.worker)?.as_ref());
        worker.is_some_and(|worker| !worker.is_dying() && !worker.tenure.stands_in)
    }

    /// The lane for a new session: with the fewest sessions; of those an idle one, and the warmest of them.
    fn best_lane(&self) -> Option<usize> {
        let lanes = self.lanes.iter().enumerate().filter_map(|(index, lane)| Some((index, lane.as_ref()?)));
        let usable = lanes.filter(|(index, _)| self.takes_tasks(*index));
        let warmth = |index: usize| self.idle.iter().position(|idle| *idle == index).map_or(0, |at| at + 1);
        usable
            .min_by_key(|(index, lane)| (lane.sessions.len(), Reverse(warmth(*index))))
            .map(|(index, _)| index)
    }

    /// The warmest idle lane of those that no pinned session needs: another task there would keep a session waiting.
    pub(super) fn idle_without_sessions(&self) -> Option<usize> {
        let is_free =
            |lane: &Lane| !lane.closed && !lane.sessions.values().any(|kept| kept.session.is_pinned());
        let lane = |index: &usize| self.lanes.get(*index).and_then(Option::as_ref);
        self.idle.iter().rev().copied().find(|index| lane(index).is_some_and(is_free))
    }

    /// The lane for a task of a session, where any may have it and `chosen` would: one with the state, if it is free
    /// or all are busy; else, of the idle ones, one with the fewest sessions.
    pub(super) fn prefer(&self, session: &Session, chosen: usize) -> usize {
        let homes = session.homes();
        let idle_home = self.idle.iter().rev().find(|idle| homes.contains(idle) && self.takes_tasks(**idle));
        if let Some(home) = idle_home {
            return *home;
        }
        let count = |index: &usize| self.lanes.get(*index)?.as_ref().map(|lane| lane.sessions.len());
        if self.idle.contains(&chosen) {
            let idle = self.idle.iter().rev().filter(|idle| self.takes_tasks(**idle));
            return idle.min_by_key(|index| count(index)).copied().unwrap_or(chosen);
        }
        let limit = self.task_lengths.lane_limit();
        let has_room = |home: &usize| {
            self.takes_tasks(*home)
                && self.lanes[*home].as_ref().is_some_and(|lane| lane.outstanding.len() < limit)
        };
        homes.into_iter().find(has_room).unwrap_or(chosen)
    }
}

impl Worker {
    /// Why the states that it had are gone, if the pool has ended it though nothing was wrong with it.
    pub(super) fn end_on_purpose(&self) -> Option<Failure> {
        let pid = self.known_pid();
        let reason = match (&self.eviction, &self.tenure.retired) {
            (Some(eviction), _) => format!("worker {pid} was ended because {}", eviction.reason()),
            (None, Some((cause, _))) => format!("the pool has replaced worker {pid} ({})", cause.name()),
            (None, None) => return None,
        };
        Some(Failure::Limit { code: Code::PoolError, reason: reason.into() })
    }
}

#[cfg(test)]
mod tests;
