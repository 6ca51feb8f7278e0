//! Moving tasks: from the queue into lanes, and back out of slow or dead lanes.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::{Code, Error};
use ropewalk_os::clock::monotonic_nanos;
use ropewalk_shm::channel::ring::{Header, Position, PushError, Retract};
use ropewalk_shm::memory::Segment;

use super::sessions::open_state;
use super::workers::Worker;
use super::{ProcessPool, ProcessPoolState};
use crate::clock;
use crate::events::{self, What};
use crate::function::Function;
use crate::lane::{Sent, send_plain};
use crate::locked::wake_later;
use crate::outcome::{Failure, Outcome, Record};
use crate::pace::Credit;
use crate::passing;
use crate::running::Terms;
use crate::stream::Stream;
use crate::task::{Stage, Task};
use crate::wire::{flags, kind};

/// How long tasks are, learned from the answers: it sets how many may wait in a lane.
#[derive(Debug, Default)]
pub(crate) struct TaskLengths {
    /// Moving average of a task's busy time in nanoseconds; 0 before the first answer.
    average_ns: u64,
}

/// Enough waiting work to last until the parent's next check of the rings.
const COVER_NS: u64 = 400_000;
const MOST_IN_LANE: usize = 32;
pub(super) const CORRUPT_TASKS: &str = "its task ring is corrupt";
pub(super) const TOO_LARGE: &str = "its record is larger than a ring takes";
/// Tasks shorter than this are not worth being carried to another lane,
const STEAL_ABOVE_NS: u64 = 30_000;
/// unless the one before them has been running for longer than usual.
pub(crate) const STEAL_AFTER: Duration = Duration::from_millis(1);

impl TaskLengths {
    pub(super) fn learn(&mut self, busy_ns: u64) {
        self.average_ns = match self.average_ns {
            0 => busy_ns.max(1),
            average => (average.saturating_mul(7).saturating_add(busy_ns) / 8).max(1),
        };
    }

    pub(super) fn average_ns(&self) -> u64 {
        self.average_ns
    }

    /// Tasks that one lane may hold, the running one included.
    pub(super) fn lane_limit(&self) -> usize {
        match self.average_ns {
            0 => 2,
            average => {
                let waiting = usize::try_from(COVER_NS / average.max(1)).unwrap_or(MOST_IN_LANE);
                1 + waiting.clamp(1, MOST_IN_LANE - 1)
            }
        }
    }

    fn worth_stealing(&self) -> bool {
        self.average_ns == 0 || self.average_ns > STEAL_ABOVE_NS
    }
}

/// The result of an attempt to put a task into a lane.
pub(super) enum Fed {
    Yes,
    /// No room in the ring or in the socket's buffer at the moment.
    Full,
    /// The lane is of no use any more.
    Broken,
    /// No lane will ever take it.
    Never(&'static str),
}

impl ProcessPool {
    /// Feeds queued tasks to lanes: idle ones first, then busy ones with room; then lets idle lanes take waiting tasks
    /// from busy ones.
    pub(crate) fn dispatch(&self, state: &mut ProcessPoolState) {
        if self.dropped_functions.any() {
            // Before the next task: what its function needs may be what these have left.
            self.forget_functions(state);
        }
        let mut ring = Vec::new();
        let sessions = state.queue.pinned.len() > 0;
        if sessions {
            self.bind_waiting(state);
        }
        while state.queue.has_common() {
            let Some(mut index) = self.choose_lane(state) else { break };
            let Some(mut task) = state.queue.pop() else { break };
            if sessions && let Some(first) = state.queue.pinned.pop_before(index, &task) {
                state.queue.push_front(task);
                task = first;
            } else if let Some(session) = task.session() {
                index = state.members.prefer(session, index);
            }
            if self.end_if_late(state, &task) {
                continue;
            }
            match self.feed(state, index, &task) {
                Fed::Yes => {
                    if !ring.contains(&index) {
                        ring.push(index);
                    }
                }
                Fed::Full => {
                    state.queue.push_front(task);
                    // The next look begins with another lane.
                    if let Some(at) = state.members.idle.iter().rposition(|idle| *idle == index) {
                        state.members.idle[..=at].rotate_right(1);
                    }
                    break;
                }
                Fed::Broken => {
                    state.queue.push_front(task);
                    self.condemn_lane(state, index, CORRUPT_TASKS);
                }
                Fed::Never(reason) => self.refuse(state, &task, reason),
            }
        }
        if sessions {
            self.feed_pinned(state, &mut ring);
        }
        if !state.queue.has_common()
            && state.members.outstanding > state.members.busy.len()
            && !state.members.idle.is_empty()
        {
            self.steal(state, &mut ring);
        }
        if state.members.starting > 0 && !state.queue.has_common() {
            self.take_from_starting(state, &mut ring);
        }
        self.control.set_load(u32::try_from(state.members.busy.len()).unwrap_or(u32::MAX));
        // A worker that has just come up has taken tasks out of the queue.
        self.tell_room(state);
        for index in ring {
            if let Some(lane) = state.members.lanes.get(index).and_then(Option::as_ref) {
                lane.tasks.sleeper().into_iter().for_each(wake_later);
            }
        }
    }

    /// Ends a task that cannot be sent.
    pub(super) fn refuse(&self, state: &mut ProcessPoolState, task: &Arc<Task>, reason: &str) {
        let failure = Failure::Limit { code: Code::TooLarge, reason: reason.into() };
        self.finish(state, task, Outcome::Failed(failure), Record::default());
    }

    fn choose_lane(&self, state: &mut ProcessPoolState) -> Option<usize> {
        if let Some(index) = self.choose_idle(state) {
            return Some(index);
        }
        let limit = state.members.task_lengths.lane_limit();
        let count = state.members.busy.len();
        if count == 0 || state.members.outstanding >= count * limit {
            return None;
        }
        for step in 0..count {
            let at = (state.members.cursor + step) % count;
            let index = *state.members.busy.get(at)?;
            let lane = state.members.lanes.get(index)?.as_ref();
            if lane.is_some_and(|lane| !lane.closed && lane.call.is_none() && lane.outstanding.len() < limit)
            {
                state.members.cursor = at + 1;
                return Some(index);
            }
        }
        None
    }

    pub(super) fn feed(&self, state: &mut ProcessPoolState, index: usize, task: &Arc<Task>) -> Fed {
        let Some(call) = task.remote() else { return Fed::Never("it is no call for a worker") };
        let Some(function) = &call.function else { return Fed::Never("it has no function") };
        let payload = &call.payload;
        let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Fed::Broken;
        };
        let Some(worker) = state.members.workers.get_mut(lane.worker).and_then(Option::as_mut) else {
            return Fed::Broken;
        };
        let mut segments = payload.segments().iter().chain(function.payload.segments());
        if !segments.all(|segment| worker.give_segment(segment)) {
            // The worker reads its socket when a task asks for what is in it; here it does not know that it should.
            if !worker.asked_to_look {
                worker.asked_to_look = send_plain(&mut lane.tasks, kind::LOOK, 0);
            }
            return Fed::Full;
        }
        worker.asked_to_look = false;
        lane.forget();
        let mut function_at = None;
        if let Some(session) = task.session() {
            let known = lane.sessions.get(&session.id).map(|kept| kept.generation);
            match open_state(lane, worker, index, session) {
                Ok((position, generation)) => {
                    if known != Some(generation) {
                        let (worker, session) = (worker.tenure.number, Arc::clone(&session.name));
                        events::tell(&self.config.name, What::SessionMade { worker, session, generation });
                    }
                    function_at = position;
                    task.set_generation(generation);
                }
                Err(fed) => return fed,
            }
        }
        if !lane.functions.contains(&function.id) {
            match push_function(lane, function) {
                Ok(position) => {
                    function_at = function_at.or(Some(position));
                    // Until the worker says that it has read it: a task that is taken back may end before.
                    if let Some(lease) = function.payload.lease() {
                        worker.retain(lease);
                    }
                }
                Err(fed) => return fed,
            }
        }
        let header = Header {
            kind: kind::TASK,
            flags: payload.flags
                | task.flags
                | if task.options.writable { flags::WRITABLE } else { 0 }
                | if task.session().is_some() { flags::OF_SESSION } else { 0 }
                | if task.options.limits_runs() { flags::TIMED } else { 0 }
                | if task.options.hang().is_some() { flags::WATCHED } else { 0 }
                | if task.options.stream > 0 { flags::STREAM } else { 0 }
                | if self.config.cpu_time { flags::MEASURED } else { 0 },
            len: 0,
            id: task.id,
            aux: u64::from(function.id) | u64::from(task.attempt().saturating_add(1)) << 32,
        };
        if let Some(terms) = terms(task)
            && let Err(fed) = push_terms(lane, task.id, terms)
        {
            return fed;
        }
        // Before the worker can see it, so that nothing of it begins earlier.
        let sent_at = clock::now();
        let position = match lane.tasks.try_push(header, &[&payload.bytes]) {
            Ok(position) => position,
            Err(PushError::Full) => return Fed::Full,
            Err(PushError::TooLarge) => return Fed::Never(TOO_LARGE),
            Err(PushError::Corrupt) => return Fed::Broken,
        };
        // What is held for other tasks, and for this one, is looked through below.
        drop(call);
        task.sent_to(index);
        if let Some(stream) = task.stream() {
            stream.sent_to(&lane.pace);
        }
        lane.outstanding.push_back(Sent::new(Arc::clone(task), position, function_at, sent_at));
        state.members.outstanding += 1;
        let worker = lane.worker;
        if lane.outstanding.len() == 1 {
            lane.front_since = sent_at;
            state.members.idle.retain(|idle| *idle != index);
            state.members.busy.push(index);
        }
        self.may_begin(state, task);
        state.members.limit_segments(worker);
        if self.config.life.max_tasks.is_some() {
            self.count_given(state, worker);
        }
        Fed::Yes
    }

    /// Carries waiting tasks from the fullest lanes to idle ones.
    fn steal(&self, state: &mut ProcessPoolState, ring: &mut Vec<usize>) {
        let now = clock::now();
        let always = state.members.task_lengths.worth_stealing();
        while state.members.outstanding > state.members.busy.len() {
            let Some(index) = self.choose_idle(state) else { return };
            // The longest queue; among equals, the one that has waited longest behind its first task.
            let longest = state.members.busy.iter().copied().max_by_key(|i| {
                let lane = state.members.lanes.get(*i).and_then(Option::as_ref);
                lane.map(|lane| {
                    (!always && now.duration_since(lane.front_since) > STEAL_AFTER, lane.movable())
                })
            });
            let Some(victim) = longest else { return };
            let Some(lane) = state.members.lanes.get_mut(victim).and_then(Option::as_mut) else { return };
            if !(always || now.duration_since(lane.front_since) > STEAL_AFTER) {
                return;
            }
            let Some(at) = lane.last_movable() else { return };
            if !matches!(lane.tasks.retract(lane.outstanding[at].position), Retract::Taken) {
                return;
            }
            let Some(sent) = lane.outstanding.remove(at) else { return };
            state.members.lane_shrank(victim, 1);
            if !self.hand_over(state, ring, index, sent.task) {
                return;
            }
        }
    }

    /// Lets workers that rest have the tasks of those that are still starting. Tasks are given to these ahead, because
    /// most starts are short; an initializer or a `warmup` may make one long. A session's task stays: its state is made
    /// there.
    fn take_from_starting(&self, state: &mut ProcessPoolState, ring: &mut Vec<usize>) {
        loop {
            let members = &mut state.members;
            let lane_of = |index: usize| members.lanes.get(index).and_then(Option::as_ref);
            let rests = |index: &usize| lane_of(*index).is_some_and(|lane| lane.ready && !lane.closed);
            let Some(index) = members.idle.iter().rev().copied().find(rests) else { return };
            let given = members.busy.iter().find_map(|busy| {
                let lane = lane_of(*busy).filter(|lane| !lane.ready)?;
                Some((*busy, lane.outstanding.iter().rposition(|sent| sent.task.session().is_none())?))
            });
            let Some((starting, at)) = given else { return };
            let Some(lane) = members.lanes.get_mut(starting).and_then(Option::as_mut) else { return };
            if !matches!(lane.tasks.retract(lane.outstanding[at].position), Retract::Taken) {
                return;
            }
            let Some(sent) = lane.outstanding.remove(at) else { return };
            members.lane_shrank(starting, 1);
            if members.idle.last() == Some(&starting) {
                // The next task goes to a worker that is ready, too.
                members.idle.rotate_right(1);
            }
            if !self.hand_over(state, ring, index, sent.task) {
                return;
            }
        }
    }

    /// Gives a task that was taken out of another lane to this one; false if that was not possible.
    fn hand_over(
        &self,
        state: &mut ProcessPoolState,
        ring: &mut Vec<usize>,
        index: usize,
        task: Arc<Task>,
    ) -> bool {
        match self.feed(state, index, &task) {
            Fed::Yes => ring.push(index),
            Fed::Never(reason) => self.refuse(state, &task, reason),
            fed @ (Fed::Full | Fed::Broken) => {
                task.set_stage(Stage::Queued);
                state.queue.push_front(task);
                if matches!(fed, Fed::Broken) {
                    self.condemn_lane(state, index, CORRUPT_TASKS);
                }
                return false;
            }
        }
        true
    }

    fn choose_idle(&self, state: &mut ProcessPoolState) -> Option<usize> {
        if state.members.bound > 0
            && let Some(index) = state.members.idle_without_sessions()
        {
            return Some(index);
        }
        while let Some(index) = state.members.idle.last().copied() {
            if state
                .members
                .lanes
                .get(index)
                .is_some_and(|lane| lane.as_ref().is_some_and(|lane| !lane.closed))
            {
                return Some(index);
            }
            state.members.idle.pop();
        }
        None
    }

    /// Takes waiting tasks of a lower priority out of the lanes, so that a newer one goes first; not those that have
    /// waited for so long that they go first.
    pub(crate) fn take_back_lower(&self, state: &mut ProcessPoolState, newer: &Task) {
        let mut back = Vec::new();
        for index in state.members.busy.clone() {
            let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let before = lane.outstanding.len();
            while let Some(last) = lane.outstanding.back() {
                if state.queue.goes_before(&last.task, newer)
                    || !matches!(lane.tasks.retract(last.position), Retract::Taken)
                {
                    break;
                }
                back.extend(lane.outstanding.pop_back().map(|sent| sent.task));
            }
            let removed = before - lane.outstanding.len();
            state.members.lane_shrank(index, removed);
        }
        queue_again(state, back);
    }

    /// Takes waiting tasks of other clients, and of the same priority, out of the lanes for the first task of a client:
    /// it waits for its turn, and not for what the lanes were given before it came.
    pub(crate) fn take_back_of_others(&self, state: &mut ProcessPoolState, newer: &Task) {
        let members = &state.members;
        if members.outstanding <= members.busy.len()
            || !members.task_lengths.worth_stealing()
            || !state.queue.is_first_of_its_client(newer)
        {
            return;
        }
        let mut back = Vec::new();
        for index in state.members.busy.clone() {
            let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let before = lane.outstanding.len();
            for at in (1..before).rev() {
                let Some(sent) = lane.outstanding.get(at) else { continue };
                let (ours, theirs) = (&newer.options, &sent.task.options);
                // A session's tasks stay in their order.
                let other = !sent.is_pinned()
                    && theirs.priority == ours.priority
                    && theirs.client().map(|client| &client.name) != ours.client().map(|client| &client.name);
                if other && matches!(lane.tasks.retract(sent.position), Retract::Taken) {
                    back.extend(lane.outstanding.remove(at).map(|sent| sent.task));
                }
            }
            let removed = before - lane.outstanding.len();
            state.members.lane_shrank(index, removed);
        }
        queue_again(state, back);
    }
}

/// The terms of a task, if it has any.
fn terms(task: &Task) -> Option<Terms> {
    let options = &task.options;
    if options.deadline().is_none() && options.timeout().is_none() && task.stream().is_none() {
        return None;
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let deadline = options.deadline().and_then(|deadline| task.submitted.checked_add(deadline)).map(|at| {
        let left = nanos(at.saturating_duration_since(clock::now()));
        monotonic_nanos().saturating_add(left)
    });
    Some(Terms {
        deadline: deadline.unwrap_or(0),
        timeout: options.timeout().map_or(0, nanos),
        credit: task.stream().map_or_else(Credit::default, Stream::terms),
    })
}

/// Sends a task's terms ahead of it. If the task does not follow, they concern nobody.
fn push_terms(lane: &mut crate::lane::Lane, task: u64, terms: Terms) -> Result<(), Fed> {
    let header = Header { kind: kind::TERMS, id: task, ..Header::default() };
    match lane.tasks.try_push(header, &[&terms.to_bytes()]) {
        Ok(_) => Ok(()),
        Err(PushError::Full) => Err(Fed::Full),
        Err(PushError::TooLarge) => Err(Fed::Never(TOO_LARGE)),
        Err(PushError::Corrupt) => Err(Fed::Broken),
    }
}

/// Tasks that were taken out of lanes wait in front of the queue again, as they stood there.
pub(super) fn queue_again(state: &mut ProcessPoolState, mut back: Vec<Arc<Task>>) {
    back.retain(|task| !task.is_done());
    back.sort_by_key(|task| std::cmp::Reverse(task.id));
    for task in back {
        task.set_stage(Stage::Queued);
        state.queue.push_front(task);
    }
}

/// Whether an error is a limit of this process, of which the worker is innocent.
pub(super) fn is_limit(error: &Error) -> bool {
    !matches!(error.code(), Code::SharedMemoryCorrupt | Code::StaleHandle)
}

pub(super) fn push_function(lane: &mut crate::lane::Lane, function: &Arc<Function>) -> Result<Position, Fed> {
    let header = Header {
        kind: kind::FUNCTION,
        flags: function.payload.flags,
        len: 0,
        id: 0,
        aux: u64::from(function.id),
    };
    match lane.tasks.try_push(header, &[&function.payload.bytes]) {
        Ok(position) => {
            lane.functions.insert(function.id);
            Ok(position)
        }
        Err(PushError::Full) => Err(Fed::Full),
        Err(PushError::TooLarge) => Err(Fed::Never(TOO_LARGE)),
        Err(PushError::Corrupt) => Err(Fed::Broken),
    }
}

impl Worker {
    /// Makes sure that the worker has, or will have, a segment's descriptor; false when its socket takes no more now.
    pub(crate) fn give_segment(&mut self, segment: &Arc<Segment>) -> bool {
        // A thread of this process finds what the task, or the function, keeps.
        if self.leave.is_some() || self.segments.touch(segment) {
            return true;
        }
        let sent = passing::try_lend(self.socket.as_fd(), segment) == passing::Sent::Yes;
        if sent {
            self.segments.insert(segment);
        }
        sent
    }
}

#[cfg(test)]
mod tests;
