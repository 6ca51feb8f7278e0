//! The items of streams, out of the result rings.

use ropewalk_base::{Code, Result, error};
use ropewalk_shm::channel::ring::Header;

use super::dispatch::is_limit;
use super::{ProcessPool, ProcessPoolState};
use crate::outcome::Failure;
use crate::stream::{self, Arrived};
use crate::wire::flags;

impl ProcessPool {
    /// Takes in the item that lies next in a lane's result ring.
    ///
    /// # Errors
    ///
    /// When the lane runs no stream of this number, or one that may not send it.
    pub(super) fn receive_item(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        header: Header,
    ) -> Result<()> {
        let members = &mut state.members;
        let Some(lane) = members.lanes.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
        let front = lane.outstanding.front().filter(|sent| sent.task.id == header.id);
        let Some(sent) = front else {
            return Err(error!(Code::SharedMemoryCorrupt, "it sent an item of a task that it does not run"));
        };
        let Some(stream) = sent.task.stream() else {
            return Err(error!(Code::SharedMemoryCorrupt, "it sent an item of a task that is no stream"));
        };
        let form = u8::try_from(header.aux).unwrap_or(u8::MAX);
        let arrived = if header.flags & flags::DESCRIBED == 0 {
            stream.arrive(form, header.flags, |bytes| lane.results.copy_payload(bytes))?
        } else {
            let mut bytes = Vec::new();
            lane.results.copy_payload(&mut bytes);
            let cost = stream::cost(header.flags, &bytes);
            let worker = members.workers.get_mut(lane.worker).and_then(Option::as_mut);
            let Some(worker) = worker else { return Ok(()) };
            // Also for a reader that has left: the segments that the worker has passed are taken in.
            let frame = match worker.receive_frame(bytes) {
                Ok(frame) => Ok(frame),
                Err(error) if is_limit(&error) => Err(Failure::Limit {
                    code: error.code(),
                    reason: format!("an item was lost: {}", error.report()).into(),
                }),
                Err(error) => return Err(error),
            };
            stream.arrive_frame(header.flags, cost, frame)?
        };
        lane.results.finish();
        if arrived == Arrived::Awaited {
            let task = std::sync::Arc::clone(&sent.task);
            self.signal_reader(state, &task);
        }
        Ok(())
    }
}
