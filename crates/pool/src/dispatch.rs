//! Moving tasks: from the queue into lanes, back out of slow or dead lanes, and results out of the rings.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_base::{Code, Result, error};
use windlass_os::socket;
use windlass_shm::arena::Arena;
use windlass_shm::ring::{Header, PushError, Retract};
use windlass_shm::segment::Segment;

use crate::engine::{Core, Engine};
use crate::events::{self, What};
use crate::frame::{self, Part, Table};
use crate::lane::Sent;
use crate::task::{Call, Failure, Function, Outcome, Record, Reply, Stage, Task};
use crate::wire::{flags, kind};
use crate::worker::{receive_segment, segment_message};

/// How long tasks are, learned from the answers: it sets how many may wait in a lane.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Moving average of a task's busy time in nanoseconds; 0 before the first answer.
    average_ns: u64,
    /// Whether a task of another than the usual priority was ever seen.
    pub(crate) mixed_priorities: bool,
}

/// Enough waiting work to outlast the parent's next look at the rings.
const COVER_NS: u64 = 400_000;
const MOST_IN_LANE: usize = 32;
/// Bytes of a result that are copied out of its segment.
const MOST_COPIED: u64 = 1 << 20;
/// Records that are read from one lane before the others are looked at.
const MOST_AT_ONCE: usize = 4096;
/// Tasks shorter than this are not worth being carried to another lane,
const STEAL_ABOVE_NS: u64 = 30_000;
/// unless the one before them has been running for longer than usual.
pub(crate) const STEAL_AFTER: Duration = Duration::from_millis(1);

impl Load {
    fn learn(&mut self, busy_ns: u64) {
        self.average_ns =
            if self.average_ns == 0 { busy_ns.max(1) } else { (self.average_ns * 7 + busy_ns) / 8 };
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

/// What came of an attempt to put a task into a lane.
enum Fed {
    Yes,
    /// No room in the ring or in the socket's buffer at the moment.
    Full,
    /// The lane is of no use any more.
    Broken,
}

impl Engine {
    /// Feeds queued tasks to lanes: idle ones first, then busy ones with room; then lets idle lanes take waiting tasks
    /// from busy ones.
    pub(crate) fn dispatch(&self, core: &mut Core) {
        let mut ring = Vec::new();
        while !core.queue.is_empty() {
            let Some(index) = self.choose_lane(core) else { break };
            let Some(task) = core.queue.pop() else { break };
            match self.feed(core, index, &task) {
                Fed::Yes => {
                    if !ring.contains(&index) {
                        ring.push(index);
                    }
                }
                Fed::Full => {
                    core.queue.push_front(task);
                    break;
                }
                Fed::Broken => {
                    core.queue.push_front(task);
                    self.condemn_lane(core, index, "its task ring is corrupt");
                }
            }
        }
        if core.queue.is_empty() && core.outstanding > core.busy.len() && !core.idle.is_empty() {
            self.steal(core, &mut ring);
        }
        self.control.set_load(u32::try_from(core.busy.len()).unwrap_or(u32::MAX));
        for index in ring {
            if let Some(lane) = core.lanes.get(index).and_then(Option::as_ref) {
                lane.tasks.wake_consumer();
            }
        }
    }

    fn choose_lane(&self, core: &mut Core) -> Option<usize> {
        if let Some(index) = self.choose_idle(core) {
            return Some(index);
        }
        let limit = core.load.lane_limit();
        let count = core.busy.len();
        if count == 0 || core.outstanding >= count * limit {
            return None;
        }
        for step in 0..count {
            let at = (core.cursor + step) % count;
            let index = *core.busy.get(at)?;
            let lane = core.lanes.get(index)?.as_ref();
            if lane.is_some_and(|lane| lane.outstanding.len() < limit) {
                core.cursor = at + 1;
                return Some(index);
            }
        }
        None
    }

    fn feed(&self, core: &mut Core, index: usize, task: &Arc<Task>) -> Fed {
        let Call::Remote { function, .. } = &task.call else { return Fed::Broken };
        let Some(lane) = core.lanes.get_mut(index).and_then(Option::as_mut) else { return Fed::Broken };
        let Some(worker) = core.workers.get_mut(lane.worker).and_then(Option::as_mut) else {
            return Fed::Broken;
        };
        let Some(payload) = task.payload() else { return Fed::Broken };
        let mut segments = payload.segments.iter().chain(&function.payload.segments);
        if !segments.all(|segment| worker.give_segment(segment)) {
            return Fed::Full;
        }
        if !lane.functions.contains(&function.id) {
            match push_function(lane, function) {
                Fed::Yes => {}
                other => return other,
            }
        }
        let header = Header {
            kind: kind::TASK,
            flags: payload.flags | task.flags,
            len: 0,
            id: task.id,
            aux: u64::from(function.id),
        };
        let position = match lane.tasks.try_push(header, &[&payload.bytes]) {
            Ok(position) => position,
            Err(PushError::Full) => return Fed::Full,
            Err(PushError::TooLarge | PushError::Corrupt) => return Fed::Broken,
        };
        drop(payload);
        task.count_attempt();
        task.sent_to(index);
        lane.outstanding.push_back(Sent { task: Arc::clone(task), position });
        core.outstanding += 1;
        if lane.outstanding.len() == 1 {
            lane.front_since = Instant::now();
            core.idle.retain(|idle| *idle != index);
            core.busy.push(index);
        }
        Fed::Yes
    }

    /// Carries waiting tasks from the fullest lanes to idle ones.
    fn steal(&self, core: &mut Core, ring: &mut Vec<usize>) {
        let now = Instant::now();
        let always = core.load.worth_stealing();
        while core.outstanding > core.busy.len() {
            let Some(index) = self.choose_idle(core) else { return };
            // The longest queue; among equals, the one that has waited longest behind its first task.
            let longest = core.busy.iter().copied().max_by_key(|i| {
                let lane = core.lanes.get(*i).and_then(Option::as_ref);
                lane.map(|lane| {
                    (!always && now.duration_since(lane.front_since) > STEAL_AFTER, lane.outstanding.len())
                })
            });
            let Some(victim) = longest else { return };
            let Some(lane) = core.lanes.get_mut(victim).and_then(Option::as_mut) else { return };
            if lane.outstanding.len() < 2 || !(always || now.duration_since(lane.front_since) > STEAL_AFTER) {
                return;
            }
            let Some(last) = lane.outstanding.back() else { return };
            if !matches!(lane.tasks.retract(last.position), Retract::Taken) {
                return;
            }
            let Some(sent) = lane.outstanding.pop_back() else { return };
            core.lane_shrank(victim, 1);
            match self.feed(core, index, &sent.task) {
                Fed::Yes => ring.push(index),
                Fed::Full | Fed::Broken => {
                    sent.task.set_stage(Stage::Queued);
                    core.queue.push_front(sent.task);
                    return;
                }
            }
        }
    }

    fn choose_idle(&self, core: &mut Core) -> Option<usize> {
        while let Some(index) = core.idle.last().copied() {
            if core.lanes.get(index).is_some_and(|lane| lane.is_some()) {
                return Some(index);
            }
            core.idle.pop();
        }
        None
    }

    /// Takes waiting tasks of a lower priority out of the lanes, so that `priority` goes first.
    pub(crate) fn take_back_lower(&self, core: &mut Core, priority: i32) {
        let mut back = Vec::new();
        for index in core.busy.clone() {
            let Some(lane) = core.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
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
            core.lane_shrank(index, removed);
        }
        back.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in back {
            task.set_stage(Stage::Queued);
            core.queue.push_front(task);
        }
    }

    /// Reads every result that is there; true if there was any record.
    pub(crate) fn drain_lanes(&self, core: &mut Core) -> bool {
        let mut came = false;
        if core.starting > 0 {
            for index in 0..core.lanes.len() {
                came |= self.drain_lane(core, index);
            }
        } else {
            let mut at = core.busy.len();
            while at > 0 {
                at -= 1;
                if let Some(index) = core.busy.get(at).copied() {
                    came |= self.drain_lane(core, index);
                }
            }
        }
        came
    }

    /// Reads one lane's results; true if there was any record.
    pub(crate) fn drain_lane(&self, core: &mut Core, index: usize) -> bool {
        let mut came = false;
        // Bounded, so that a worker that never stops talking cannot hold the engine's lock.
        for _ in 0..MOST_AT_ONCE {
            let Some(lane) = core.lanes.get_mut(index).and_then(Option::as_mut) else { return came };
            let header = match lane.results.peek() {
                Ok(Some(header)) => header,
                Ok(None) => return came,
                Err(_) => {
                    self.condemn_lane(core, index, "its result ring is corrupt");
                    return came;
                }
            };
            came = true;
            let mut bytes = Vec::new();
            if header.len > 0 {
                lane.results.copy_payload(&mut bytes);
            }
            lane.results.finish();
            if let Err(error) = self.receive(core, index, header, bytes) {
                self.condemn_lane(core, index, &error.to_string());
                return came;
            }
        }
        came
    }

    fn receive(&self, core: &mut Core, index: usize, header: Header, bytes: Vec<u8>) -> Result<()> {
        let lane = core.lanes.get_mut(index).and_then(Option::as_mut);
        let Some(lane) = lane else { return Ok(()) };
        let worker_index = lane.worker;
        match header.kind {
            kind::DONE => {
                if lane.outstanding.front().is_none_or(|sent| sent.task.id != header.id) {
                    return Err(error!(Code::ShmCorrupt, "it answered a task that it was not given"));
                }
                let Some(sent) = lane.outstanding.pop_front() else { return Ok(()) };
                lane.front_since = Instant::now();
                core.lane_shrank(index, 1);
                let worker = core.workers.get_mut(worker_index).and_then(Option::as_mut);
                let Some(worker) = worker else { return Ok(()) };
                worker.completed += 1;
                worker.busy_ns += header.aux;
                let pid = worker.known_pid();
                let body = if header.flags & flags::DESCRIBED == 0 {
                    Ok((bytes, Vec::new()))
                } else {
                    worker.receive_frame(bytes)
                };
                let (bytes, segments) = match body {
                    Ok(body) => body,
                    Err(error) => {
                        // The answer is lost with the worker, and the task must not be.
                        let failure =
                            Failure::Crashed { pid, status: None, reason: Some(error.report().into()) };
                        let record = Record { pid, busy_ns: header.aux, total_ns: 0 };
                        self.retry_or_finish(core, &sent.task, Outcome::Failed(failure), record);
                        return Err(error);
                    }
                };
                if header.flags & flags::RETAINED != 0
                    && let Some(mut payload) = sent.task.payload()
                {
                    let lease = payload.lease.take();
                    let leased = lease.as_ref().map(|lease| lease.segment().id());
                    for segment in payload.segments.iter().filter(|segment| Some(segment.id()) != leased) {
                        // The worker keeps a shared array beyond its task, for as long as it likes.
                        segment.lend_for_good();
                    }
                    if let Some(lease) = lease {
                        worker.retained.insert(lease.id(), lease);
                    }
                }
                core.load.learn(header.aux);
                core.failed_starts = 0;
                core.lost_zygotes = 0;
                let raised = header.flags & flags::ERROR != 0;
                let outcome = Outcome::Replied(Reply { flags: header.flags, bytes, segments });
                let record = Record { pid, busy_ns: header.aux, total_ns: 0 };
                if raised {
                    self.retry_or_finish(core, &sent.task, outcome, record);
                } else {
                    self.finish(core, &sent.task, outcome, record);
                }
                if !matches!(core.state, crate::engine::State::Open) {
                    self.check_end(core);
                }
            }
            kind::READY => {
                if !lane.ready {
                    lane.ready = true;
                    if let Some(worker) = core.workers.get_mut(worker_index).and_then(Option::as_mut) {
                        worker.told_pid = i32::try_from(header.aux).unwrap_or(0);
                        worker.ready += 1;
                        if worker.ready == worker.lanes.len() {
                            core.starting = core.starting.saturating_sub(1);
                            events::tell(&self.config.name, What::WorkerStarted { pid: worker.known_pid() });
                            core.failed_starts = 0;
                            core.lost_zygotes = 0;
                        }
                    }
                }
            }
            kind::INIT_FAILED => {
                let reply = Reply { flags: header.flags | flags::ERROR, bytes, segments: Vec::new() };
                self.break_core(core, &Failure::Initializer(Arc::new(reply)));
            }
            kind::RELEASE => {
                if let Some(worker) = core.workers.get_mut(worker_index).and_then(Option::as_mut) {
                    worker.retained.remove(&header.aux);
                }
            }
            _ => return Err(error!(Code::ShmCorrupt, "it sent a record of an unknown kind")),
        }
        Ok(())
    }
}

fn push_function(lane: &mut crate::lane::Lane, function: &Arc<Function>) -> Fed {
    let header = Header {
        kind: kind::FUNCTION,
        flags: function.payload.flags,
        len: 0,
        id: 0,
        aux: u64::from(function.id),
    };
    match lane.tasks.try_push(header, &[&function.payload.bytes]) {
        Ok(_) => {
            lane.functions.insert(function.id);
            Fed::Yes
        }
        Err(PushError::Full) => Fed::Full,
        Err(PushError::TooLarge | PushError::Corrupt) => Fed::Broken,
    }
}

impl crate::workers::Worker {
    /// Makes sure that the worker has, or will have, a segment's descriptor; false when its socket takes no more now.
    fn give_segment(&mut self, segment: &Arc<Segment>) -> bool {
        if self.segments.contains_key(&segment.id()) {
            return true;
        }
        let sent =
            socket::send(self.socket.as_fd(), &[&segment_message(segment, false)], &[segment.as_fd()], false)
                .is_ok();
        if sent {
            self.segments.insert(segment.id(), Arc::downgrade(segment));
        }
        sent
    }

    /// A described frame with the segments that it refers to. Parts that are not large are copied out of theirs: each
    /// segment that is held costs a descriptor, and a program may keep thousands of results.
    fn receive_frame(&mut self, bytes: Vec<u8>) -> Result<(Vec<u8>, Vec<Arc<Segment>>)> {
        let table = Table::parse(&bytes)?;
        let segments = self.segments_of(&table)?;
        let placed =
            table.entries().filter(|entry| entry.segment != 0).map(|entry| entry.length).sum::<u64>();
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
                        return Err(error!(Code::ShmCorrupt, "it named a segment that it did not pass"));
                    }
                },
            });
        }
        let parts: Vec<Part<'_>> = copies.iter().map(|copy| Part::Inline(copy)).collect();
        Ok((frame::encode(0, &parts, &[]), Vec::new()))
    }

    /// The segments that a reply's table names, received from the worker if they are new.
    fn segments_of(&mut self, table: &Table<'_>) -> Result<Vec<Arc<Segment>>> {
        let mut found = Vec::new();
        for entry in table.entries().filter(|entry| entry.segment != 0) {
            while !self.received.contains_key(&entry.segment) {
                if let Some(segment) = Segment::lookup(entry.segment, entry.generation)? {
                    self.received.insert(entry.segment, segment);
                    break;
                }
                let Some(segment) = receive_segment(&self.socket, Some(Arena::global()))? else {
                    return Err(error!(Code::ShmCorrupt, "it named a segment that it did not pass"));
                };
                self.received.insert(segment.id(), segment);
            }
            if let Some(segment) = self.received.get(&entry.segment)
                && !found.iter().any(|known: &Arc<Segment>| known.id() == segment.id())
            {
                segment.check_range(entry.offset, entry.length)?;
                found.push(Arc::clone(segment));
            }
        }
        self.received.retain(|id, _| !found.iter().any(|segment| segment.id() == *id));
        Ok(found)
    }
}
