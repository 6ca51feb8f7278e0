//! Results: out of the rings of workers, to their tasks.

use std::sync::Arc;

use ropewalk_base::{Code, Result, error};
use ropewalk_shm::channel::ring::Header;
use ropewalk_shm::memory::{Arena, Segment};

use super::dispatch::is_limit;
use super::workers::Worker;
use super::{ProcessPool, ProcessPoolState};
use crate::clock;
use crate::codec::table::{self, Entry, Part, Table};
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Reply};
use crate::passing::{self, Passed};
use crate::pool::Lifecycle;
use crate::pulse::Progress;
use crate::times::Heard;
use crate::wire::{flags, kind};

/// Segments that a lane may have passed before the answer that names them is read.
const MOST_AHEAD: usize = 256;
/// Bytes of a result that are copied out of its segment.
const MOST_COPIED: u64 = 1 << 20;
/// Bytes of a worker's reason for not being fit that are shown.
const MOST_SAID: usize = 1024;
/// Records that are read from one lane before the others are looked at.
const MOST_AT_ONCE: usize = 4096;

impl ProcessPool {
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
            if header.kind == kind::ITEM {
                if let Err(error) = self.receive_item(state, index, header) {
                    self.condemn_lane(state, index, &error.to_string());
                    return came;
                }
                continue;
            }
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
                // Checked while it is still the lane's: it goes down with the worker, and is not lost.
                let not_run = header.flags & (flags::FINAL | flags::ERROR) == flags::FINAL;
                if not_run && lane.outstanding.front().is_some_and(|sent| !sent.task.is_late()) {
                    return Err(error!(
                        Code::SharedMemoryCorrupt,
                        "it did not run a task whose deadline had not passed"
                    ));
                }
                let Some(sent) = lane.outstanding.pop_front() else { return Ok(()) };
                lane.call = None;
                if !sent.task.is_done() && !not_run {
                    sent.task.count_attempt();
                }
                let now = clock::now();
                lane.front_since = now;
                state.members.lane_shrank(index, 1);
                let worker = state.members.workers.get_mut(worker_index).and_then(Option::as_mut);
                let Some(worker) = worker else { return Ok(()) };
                let (mut header, mut bytes) = (header, bytes);
                let since = clock::in_nanos(now.saturating_duration_since(sent.at));
                let nanos = state.records.monotonic.nanos_of(now);
                let heard = Heard::read(header.aux, &mut header.flags, &mut bytes, nanos, since);
                let busy_ns = heard.busy_ns;
                worker.completed += 1;
                if worker.completed == 1 {
                    state.members.storms.calm();
                }
                worker.busy_ns = worker.busy_ns.saturating_add(busy_ns);
                let pid = worker.known_pid();
                let ids = (pid, worker.tenure.number);
                let body = if header.flags & flags::DESCRIBED == 0 {
                    Ok((bytes, Vec::new()))
                } else {
                    worker.receive_frame(bytes)
                };
                let reply = match body {
                    Ok((bytes, segments)) => Outcome::Replied(Reply { flags: header.flags, bytes, segments }),
                    // A limit of this process, of which the worker is innocent: it costs this one result.
                    Err(error) if is_limit(&error) => Outcome::Failed(Failure::Limit {
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
                        let record = heard.record(ids, &sent.task, now);
                        self.retry_or_finish(state, &sent.task, Outcome::Failed(failure), record);
                        return Err(error);
                    }
                };
                if header.flags & flags::RETAINED != 0
                    && let Some(call) = sent.task.remote()
                {
                    // The task keeps its own reference: it may be run again, and by another worker.
                    if let Some(lease) = call.payload.lease() {
                        worker.retain(lease);
                    }
                }
                if header.flags & flags::KEPT != 0
                    && let Some(call) = sent.task.remote()
                {
                    call.payload.lend_for_good();
                }
                if let Some(at) = worker.outlived.iter().position(|(task, _)| *task == header.id) {
                    let (_, payload) = worker.outlived.swap_remove(at);
                    if header.flags & flags::RETAINED != 0
                        && let Some(lease) = payload.lease()
                    {
                        worker.retain(lease);
                    }
                    if header.flags & flags::KEPT != 0 {
                        payload.lend_for_good();
                    }
                }
                if let Some(session) = sent.task.session() {
                    self.answered_in(state, index, session);
                }
                if !not_run {
                    state.members.task_lengths.learn(busy_ns);
                }
                state.members.failed_starts = 0;
                state.members.lost_zygotes = 0;
                let reply = match reply {
                    Outcome::Replied(reply) if header.flags & flags::ACTOR != 0 => {
                        self.unmade(&sent.task, reply)
                    }
                    reply => reply,
                };
                let raised = header.flags & flags::ERROR != 0 && matches!(reply, Outcome::Replied(_));
                let record = heard.record(ids, &sent.task, now);
                if not_run {
                    self.end_if_late(state, &sent.task);
                } else if state.members.evictions > 0
                    && self.answers_too_late(state, worker_index, &sent.task, record)
                {
                    // It has hung, and has failed with that.
                } else if raised && header.flags & flags::STOPPED != 0 && sent.task.is_asked_to_stop() {
                    self.finish(state, &sent.task, Outcome::Cancelled, record);
                } else if raised && header.flags & flags::FINAL == 0 {
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
                            self.worker_ready(state, worker_index);
                        }
                    }
                }
            }
            kind::INIT_FAILED if lane.ready => {
                return Err(error!(Code::SharedMemoryCorrupt, "its initializer failed after it was ready"));
            }
            kind::UNFIT => {
                let why = String::from_utf8_lossy(bytes.get(..MOST_SAID).unwrap_or(&bytes)).into_owned();
                return Err(error!(Code::InitializerFailed, "{}", why));
            }
            kind::INIT_FAILED => {
                if state.members.is_stand_in(worker_index) {
                    // Those that run are sound: the pool goes on with them.
                    return Err(error!(Code::InitializerFailed, "its initializer failed"));
                }
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
            kind::CALL => self.receive_call(state, index, header, bytes)?,
            kind::PROGRESS => {
                let Some(sent) = lane.outstanding.front().filter(|sent| sent.task.id == header.id) else {
                    return Err(error!(
                        Code::SharedMemoryCorrupt,
                        "it reported for a task that it does not run"
                    ));
                };
                let (total, note) = bytes.split_at_checked(8).unwrap_or((&[], &[]));
                let number = |bits: u64| Some(f64::from_bits(bits)).filter(|number| number.is_finite());
                let total = total.try_into().ok().and_then(|total| number(u64::from_le_bytes(total)));
                let note = Some(String::from_utf8_lossy(note)).filter(|note| !note.is_empty());
                if let Some(done) = number(header.aux) {
                    sent.task.signals().report(Progress::new(done, total, note.as_deref()));
                }
            }
            _ => return Err(error!(Code::SharedMemoryCorrupt, "it sent a record of an unknown kind")),
        }
        Ok(())
    }
}

impl Worker {
    /// A described frame with the segments that it refers to. Parts that are not large are copied out of theirs: each
    /// segment that is held costs a descriptor, and a program may keep thousands of results.
    pub(super) fn receive_frame(&mut self, bytes: Vec<u8>) -> Result<(Vec<u8>, Vec<Arc<Segment>>)> {
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
