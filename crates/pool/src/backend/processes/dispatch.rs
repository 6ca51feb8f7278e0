//! Moving tasks: from the queue into lanes, back out of slow or dead lanes, and results out of the rings.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::{Code, Error, Result, error};
use ropewalk_shm::channel::ring::{Header, Position, PushError, Retract};
use ropewalk_shm::memory::{Arena, Segment};

use super::workers::Worker;
use super::{ProcessPool, ProcessPoolState};
use crate::clock;
use crate::codec::table::{self, Entry, Part, Table};
use crate::events::{self, What};
use crate::function::Function;
use crate::lane::{Sent, send_plain};
use crate::outcome::{Failure, Outcome, Record, Reply};
use crate::passing::{self, Passed};
use crate::pool::Lifecycle;
use crate::task::{Call, Stage, Task};
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
/// Segments that a lane may have passed before the answer that names them is read.
const MOST_AHEAD: usize = 256;
/// Bytes of a result that are copied out of its segment.
const MOST_COPIED: u64 = 1 << 20;
const CORRUPT_TASKS: &str = "its task ring is corrupt";
const TOO_LARGE: &str = "its record is larger than a ring takes";
/// Records that are read from one lane before the others are looked at.
const MOST_AT_ONCE: usize = 4096;
/// Tasks shorter than this are not worth being carried to another lane,
const STEAL_ABOVE_NS: u64 = 30_000;
/// unless the one before them has been running for longer than usual.
pub(crate) const STEAL_AFTER: Duration = Duration::from_millis(1);

impl TaskLengths {
    fn learn(&mut self, busy_ns: u64) {
        self.average_ns = match self.average_ns {
            0 => busy_ns.max(1),
            average => (average.saturating_mul(7).saturating_add(busy_ns) / 8).max(1),
        };
    }

    /// Tasks that one lane may hold, the running one included.
    fn lane_limit(&self) -> usize {
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
enum Fed {
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
        while !state.queue.is_empty() {
            let Some(index) = self.choose_lane(state) else { break };
            let Some(task) = state.queue.pop() else { break };
            match self.feed(state, index, &task) {
                Fed::Yes => {
                    if !ring.contains(&index) {
                        ring.push(index);
                    }
                }
                Fed::Full => {
                    state.queue.push_front(task);
                    // The next look begins with another lane.
                    if state.members.idle.last() == Some(&index) {
                        state.members.idle.rotate_right(1);
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
        if state.queue.is_empty()
            && state.members.outstanding > state.members.busy.len()
            && !state.members.idle.is_empty()
        {
            self.steal(state, &mut ring);
        }
        self.control.set_load(u32::try_from(state.members.busy.len()).unwrap_or(u32::MAX));
        // A worker that has just come up has taken tasks out of the queue.
        self.tell_room(state);
        for index in ring {
            if let Some(lane) = state.members.lanes.get(index).and_then(Option::as_ref) {
                lane.tasks.wake_consumer();
            }
        }
    }

    /// Ends a task that cannot be sent.
    fn refuse(&self, state: &mut ProcessPoolState, task: &Arc<Task>, reason: &str) {
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
            if lane.is_some_and(|lane| !lane.closed && lane.outstanding.len() < limit) {
                state.members.cursor = at + 1;
                return Some(index);
            }
        }
        None
    }

    fn feed(&self, state: &mut ProcessPoolState, index: usize, task: &Arc<Task>) -> Fed {
        let Call::Remote { function, .. } = &task.call else {
            return Fed::Never("it is no call for a worker");
        };
        // Not kept locked: what is held for other tasks is looked through below.
        let function = function.lock().clone();
        let Some(function) = &function else { return Fed::Never("it has no function") };
        let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Fed::Broken;
        };
        let Some(worker) = state.members.workers.get_mut(lane.worker).and_then(Option::as_mut) else {
            return Fed::Broken;
        };
        let Some(payload) = task.payload() else { return Fed::Never("it has no arguments") };
        let mut segments = payload.segments.iter().chain(&function.payload.segments);
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
        if !lane.functions.contains(&function.id) {
            match push_function(lane, function) {
                Ok(position) => {
                    function_at = Some(position);
                    // Until the worker says that it has read it: a task that is taken back may end before.
                    if let Some(lease) = &function.payload.lease {
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
                | if task.options.timeout.is_some() { flags::TIMED } else { 0 },
            len: 0,
            id: task.id,
            aux: u64::from(function.id),
        };
        // Before the worker can see it, so that nothing of it begins earlier.
        let sent_at = clock::now();
        let position = match lane.tasks.try_push(header, &[&payload.bytes]) {
            Ok(position) => position,
            Err(PushError::Full) => return Fed::Full,
            Err(PushError::TooLarge) => return Fed::Never(TOO_LARGE),
            Err(PushError::Corrupt) => return Fed::Broken,
        };
        drop(payload);
        task.sent_to(index);
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
                    (!always && now.duration_since(lane.front_since) > STEAL_AFTER, lane.outstanding.len())
                })
            });
            let Some(victim) = longest else { return };
            let Some(lane) = state.members.lanes.get_mut(victim).and_then(Option::as_mut) else { return };
            if lane.outstanding.len() < 2 || !(always || now.duration_since(lane.front_since) > STEAL_AFTER) {
                return;
            }
            let Some(last) = lane.outstanding.back() else { return };
            if !matches!(lane.tasks.retract(last.position), Retract::Taken) {
                return;
            }
            let Some(sent) = lane.outstanding.pop_back() else { return };
            state.members.lane_shrank(victim, 1);
            match self.feed(state, index, &sent.task) {
                Fed::Yes => ring.push(index),
                Fed::Never(reason) => self.refuse(state, &sent.task, reason),
                Fed::Full => {
                    sent.task.set_stage(Stage::Queued);
                    state.queue.push_front(sent.task);
                    return;
                }
                Fed::Broken => {
                    sent.task.set_stage(Stage::Queued);
                    state.queue.push_front(sent.task);
                    self.condemn_lane(state, index, CORRUPT_TASKS);
                    return;
                }
            }
        }
    }

    fn choose_idle(&self, state: &mut ProcessPoolState) -> Option<usize> {
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

    /// Takes waiting tasks of a lower priority out of the lanes, so that `priority` goes first.
    pub(crate) fn take_back_lower(&self, state: &mut ProcessPoolState, priority: i32) {
        let mut back = Vec::new();
        for index in state.members.busy.clone() {
            let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let before = lane.outstanding.len();
            while let Some(last) = lane.outstanding.back() {
                if last.task.options.priority >= priority
                    || !matches!(lane.tasks.retract(last.position), Retract::Taken)
                {
                    break;
                }
                back.extend(lane.outstanding.pop_back().map(|sent| sent.task));
            }
            let removed = before - lane.outstanding.len();
            state.members.lane_shrank(index, removed);
        }
        back.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in back {
            task.set_stage(Stage::Queued);
            state.queue.push_front(task);
        }
    }

    /// Reads every result that is there; true if there was any record.
    pub(crate) fn drain_lanes(&self, state: &mut ProcessPoolState) -> bool {
        let mut came = false;
        if state.members.starting > 0 {
            for index in 0..state.members.lanes.len() {
                came |= self.drain_lane(state, index);
            }
        } else {
            let mut at = state.members.busy.len();
            while at > 0 {
                at -= 1;
                if let Some(index) = state.members.busy.get(at).copied() {
                    came |= self.drain_lane(state, index);
                }
            }
        }
        came
    }

    /// Reads one lane's results; true if there was any record.
    pub(crate) fn drain_lane(&self, state: &mut ProcessPoolState, index: usize) -> bool {
        let mut came = false;
        // Bounded, so that a worker that never stops talking cannot hold the engine's lock.
        for _ in 0..MOST_AT_ONCE {
            let Some(lane) = state.members.lanes.get_mut(index).and_then(Option::as_mut) else { return came };
            let header = match lane.results.peek() {
                Ok(Some(header)) => header,
                Ok(None) => return came,
                Err(_) => {
                    self.condemn_lane(state, index, "its result ring is corrupt");
                    return came;
                }
            };
            came = true;
            let mut bytes = Vec::new();
            if header.len > 0 {
                lane.results.copy_payload(&mut bytes);
            }
            lane.results.finish();
            if let Err(error) = self.receive(state, index, header, bytes) {
                self.condemn_lane(state, index, &error.to_string());
                return came;
            }
        }
        came
    }

    fn receive(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        header: Header,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let lane = state.members.lanes.get_mut(index).and_then(Option::as_mut);
        let Some(lane) = lane else { return Ok(()) };
        let worker_index = lane.worker;
        match header.kind {
            kind::DONE => {
                if lane.outstanding.front().is_none_or(|sent| sent.task.id != header.id) {
                    return Err(error!(
                        Code::SharedMemoryCorrupt,
                        "it answered a task that it was not given"
                    ));
                }
                let Some(sent) = lane.outstanding.pop_front() else { return Ok(()) };
                if !sent.task.is_done() {
                    sent.task.count_attempt();
                }
                lane.front_since = clock::now();
                state.members.lane_shrank(index, 1);
                let worker = state.members.workers.get_mut(worker_index).and_then(Option::as_mut);
                let Some(worker) = worker else { return Ok(()) };
                // It is the worker's word, but no task has run for longer than it has been here.
                let here =
                    u64::try_from(clock::now().saturating_duration_since(sent.task.submitted).as_nanos())
                        .unwrap_or(u64::MAX);
                let busy_ns = header.aux.min(here);
                worker.completed += 1;
                worker.busy_ns = worker.busy_ns.saturating_add(busy_ns);
                let pid = worker.known_pid();
                let body = if header.flags & flags::DESCRIBED == 0 {
                    Ok((bytes, Vec::new()))
                } else {
                    worker.receive_frame(bytes)
                };
                let limited =
                    |error: &Error| !matches!(error.code(), Code::SharedMemoryCorrupt | Code::StaleHandle);
                let reply = match body {
                    Ok((bytes, segments)) => Outcome::Replied(Reply { flags: header.flags, bytes, segments }),
                    // A limit of this process, of which the worker is innocent: it costs this one result.
                    Err(error) if limited(&error) => Outcome::Failed(Failure::Limit {
                        code: error.code(),
                        reason: format!("a result was lost: {}", error.report()).into(),
                    }),
                    Err(error) => {
                        // The answer is lost with the worker, and the task must not be.
                        let failure = Failure::Crashed {
                            pid,
                            status: None,
                            reason: Some(error.message().into()),
                            stack: None,
                            starting: false,
                        };
                        let record = Record { pid, busy_ns, ..Record::default() };
                        self.retry_or_finish(state, &sent.task, Outcome::Failed(failure), record);
                        return Err(error);
                    }
                };
                if header.flags & flags::RETAINED != 0
                    && let Some(payload) = sent.task.payload()
                {
                    // The task keeps its own reference: it may be run again, and by another worker.
                    if let Some(lease) = &payload.lease {
                        worker.retain(lease);
                    }
                }
                if header.flags & flags::KEPT != 0
                    && let Some(payload) = sent.task.payload()
                {
                    payload.lend_for_good();
                }
                state.members.task_lengths.learn(busy_ns);
                state.members.failed_starts = 0;
                state.members.lost_zygotes = 0;
                let raised = header.flags & flags::ERROR != 0 && matches!(reply, Outcome::Replied(_));
                let record = Record { pid, busy_ns, ..Record::default() };
                if raised {
                    self.retry_or_finish(state, &sent.task, reply, record);
                } else {
                    self.finish(state, &sent.task, reply, record);
                }
                if state.members.evictions > 0 {
                    self.end_if_alone(state, worker_index, None);
                }
                if !matches!(state.lifecycle, Lifecycle::Open) {
                    self.check_end(state);
                }
            }
            kind::READY => {
                if !lane.ready {
                    lane.ready = true;
                    if let Some(worker) = state.members.workers.get_mut(worker_index).and_then(Option::as_mut)
                    {
                        worker.own_pid = i32::try_from(header.aux).unwrap_or(0);
                        worker.ready += 1;
                        if worker.ready == worker.lanes.len() {
                            state.members.starting = state.members.starting.saturating_sub(1);
                            events::tell(&self.config.name, What::WorkerStarted { pid: worker.known_pid() });
                            state.members.failed_starts = 0;
                            state.members.lost_zygotes = 0;
                        }
                    }
                }
            }
            kind::INIT_FAILED if lane.ready => {
                return Err(error!(Code::SharedMemoryCorrupt, "its initializer failed after it was ready"));
            }
            kind::INIT_FAILED => {
                let reply = Reply { flags: header.flags | flags::ERROR, bytes, segments: Vec::new() };
                self.break_now(state, &Failure::Initializer(Arc::new(reply)));
            }
            kind::RELEASE => {
                if let Some(worker) = state.members.workers.get_mut(worker_index).and_then(Option::as_mut) {
                    worker.release(header.aux, header.id);
                }
            }
            kind::LOST => {
                if let Some(worker) = state.members.workers.get_mut(worker_index).and_then(Option::as_mut) {
                    worker.segments.remove(header.aux);
                }
            }
            _ => return Err(error!(Code::SharedMemoryCorrupt, "it sent a record of an unknown kind")),
        }
        Ok(())
    }
}

fn push_function(lane: &mut crate::lane::Lane, function: &Arc<Function>) -> Result<Position, Fed> {
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
        if self.segments.touch(segment) {
            return true;
        }
        let sent = passing::try_lend(self.socket.as_fd(), segment) == passing::Sent::Yes;
        if sent {
            self.segments.insert(segment);
        }
        sent
    }

    /// A described frame with the segments that it refers to. Parts that are not large are copied out of theirs: each
    /// segment that is held costs a descriptor, and a program may keep thousands of results.
    fn receive_frame(&mut self, bytes: Vec<u8>) -> Result<(Vec<u8>, Vec<Arc<Segment>>)> {
        let table = Table::parse(&bytes)?;
        let segments = self.segments_of(&table)?;
        let placed = table
            .entries()
            .filter(|entry| entry.segment != 0 && !entry.is_shared())
            .fold(0, |sum: u64, entry| sum.saturating_add(entry.length));
        if table.handles() > 0 || placed > MOST_COPIED {
            return Ok((bytes, segments));
        }
        let mut copies = Vec::with_capacity(table.len());
        for entry in table.entries() {
            copies.push(match table.inline(&entry) {
                Some(inline) => inline.to_vec(),
                None => match segments.iter().find(|segment| segment.id() == entry.segment) {
                    Some(segment) => segment.copy_out(entry.offset, entry.length)?,
                    None => {
                        return Err(error!(
                            Code::SharedMemoryCorrupt,
                            "it named a segment that it did not pass"
                        ));
                    }
                },
            });
        }
        let parts: Vec<Part<'_>> = copies.iter().map(|copy| Part::Inline(copy)).collect();
        Ok((table::write(0, &parts, &[]), Vec::new()))
    }

    /// The segments that a reply's table names. The worker has passed each of them once for this reply; what it has
    /// passed meanwhile for replies of its other lanes is kept for them.
    fn segments_of(&mut self, table: &Table<'_>) -> Result<Vec<Arc<Segment>>> {
        let mut named: Vec<u64> = Vec::new();
        let mut found: Vec<Arc<Segment>> = Vec::new();
        let mut lost = None;
        for entry in table.entries().filter(|entry| entry.segment != 0) {
            if !named.contains(&entry.segment) {
                named.push(entry.segment);
                match self.take_passed(&entry)? {
                    Ok(segment) => found.push(segment),
                    Err(error) => lost = lost.or(Some(error)),
                }
            }
            if let Some(segment) = found.iter().find(|segment| segment.id() == entry.segment) {
                segment.check(entry.generation)?;
                segment.check_range(entry.offset, entry.bytes())?;
            }
        }
        lost.map_or(Ok(found), Err)
    }

    /// One segment that the worker has passed, or why it could not be taken in.
    fn take_passed(&mut self, entry: &Entry) -> Result<Result<Arc<Segment>>> {
        let most = MOST_AHEAD * self.lanes.len();
        loop {
            if let Some(at) = self.received.iter().position(|(id, _)| *id == entry.segment) {
                return Ok(self.received.remove(at).1);
            }
            if self.received.len() >= most {
                return Err(error!(Code::SharedMemoryCorrupt, "it passes segments that it never names"));
            }
            self.received.push(match passing::receive(&self.socket, Some(Arena::global()))? {
                Some(Passed::Segment(segment)) => (segment.id(), Ok(segment)),
                Some(Passed::Lost(id, error)) => (id, Err(error)),
                Some(Passed::Forget(_)) | None => {
                    return Err(error!(Code::SharedMemoryCorrupt, "it named a segment that it did not pass"));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
