//! Calls of tasks to the program, out of the result rings, and the answers.

use ropewalk_base::{Code, Result, error};
use ropewalk_shm::channel::ring::{Header, PushError};

use super::dispatch::{is_limit, queue_again};
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::calls::{Answered, Calling};
use crate::outcome::Reply;
use crate::payload::Payload;
use crate::pool::Pool;
use crate::task::Task;
use crate::wire::{flags, kind};

impl Crew {
    /// Asks a task that a lane has to stop by itself.
    pub(super) fn ask_to_stop(&mut self, task: &Task) {
        if let Some(lane) = task.lane().and_then(|index| self.lanes.get(index)?.as_ref()) {
            lane.pace.stop(task.id);
        }
    }
}

impl ProcessPool {
    /// A task of a lane calls a function of the program.
    ///
    /// # Errors
    ///
    /// When the lane does not run this task, or the call's frame makes no sense.
    pub(super) fn receive_call(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        header: Header,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let members = &mut state.members;
        let Some(lane) = members.lanes.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
        let Some(sent) = lane.outstanding.front().filter(|sent| sent.task.id == header.id) else {
            return Err(error!(Code::SharedMemoryCorrupt, "it made a call for a task that it does not run"));
        };
        let task = std::sync::Arc::clone(&sent.task);
        lane.call = Some(header.aux);
        let worker = members.workers.get_mut(lane.worker).and_then(Option::as_mut);
        let Some(worker) = worker else { return Ok(()) };
        let described = header.flags & flags::DESCRIBED;
        let frame = if described == 0 { Ok((bytes, Vec::new())) } else { worker.receive_frame(bytes) };
        let (bytes, segments) = match frame {
            Ok(frame) => frame,
            // The call is lost for want of a descriptor, say: an answer without content says so.
            Err(error) if is_limit(&error) => {
                let _ = Self::push_answer(members, index, header.id, header.aux, &Payload::refusal());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !state.calls.served {
            let _ = Self::push_answer(&mut state.members, index, header.id, header.aux, &Payload::refusal());
            return Ok(());
        }
        let frame = Reply { flags: described, bytes, segments };
        state.calls.add(Calling { task, lane: index, number: header.aux, frame });
        // Tasks that wait behind it need not wait for the answer.
        let waiting = state.members.take_back_behind(index, 1);
        queue_again(state, waiting);
        Pool::<super::Processes>::bump(&self.calls_word);
        Ok(())
    }

    /// Sends an answer to a lane that waits for it.
    pub(super) fn push_answer(
        members: &mut Crew,
        index: usize,
        task: u64,
        number: u64,
        payload: &Payload,
    ) -> Answered {
        let Some(lane) = members.lanes.get_mut(index).and_then(Option::as_mut) else { return Answered::Gone };
        let waits = lane.call == Some(number)
            && lane.outstanding.front().is_some_and(|sent| sent.task.id == task && !sent.task.is_done());
        if !waits {
            return Answered::Gone;
        }
        let Some(worker) = members.workers.get_mut(lane.worker).and_then(Option::as_mut) else {
            return Answered::Gone;
        };
        if !payload.segments().iter().all(|segment| worker.give_segment(segment)) {
            return Answered::Full;
        }
        let header = Header { kind: kind::ANSWER, flags: payload.flags, len: 0, id: task, aux: number };
        match lane.answers.try_push(header, &[&payload.bytes]) {
            Ok(_) => {}
            Err(PushError::Full) => return Answered::Full,
            Err(PushError::TooLarge | PushError::Corrupt) => return Answered::Gone,
        }
        // Until the worker says that it has read it, or its process is gone.
        if let Some(lease) = payload.lease() {
            worker.retain(lease);
        }
        lane.call = None;
        lane.answers.wake_consumer();
        Answered::Yes
    }
}
