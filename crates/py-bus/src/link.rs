//! Links: the queues that lead to other processes.
//!
//! What is published is encoded once, in the publisher's thread, and written to the ring of each process that listens,
//! there and then if there is room: so it arrives even if this process ends at once. Where there is no room it waits in
//! the link's queue, which a thread of its own empties. While anything waits there nothing is written past it, so that
//! the messages of one publisher stay in order.
//!
//! A full queue treats each message as the process at the other end asked for its topic: one process that does not
//! receive holds up those who publish what it must not miss, and nobody else.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::{Offered, Overflow, Taken};

use super::arguments;
use super::queue::{Queue, Side};
use ropewalk_capi::object::{Object, Raised, take_exception};

/// Topics whose losses are counted apart; beyond, they are counted under the empty name.
const MOST_TOPICS: usize = 1024;

/// A message on its way to the links of a bus.
pub(super) struct Outgoing {
    topic: *mut ffi::PyObject,
    /// Encoded for the first link; `None` of Python's if it cannot be.
    encoded: Option<Object>,
    /// The topic and the encoded message.
    pair: Option<Object>,
}

impl Outgoing {
    pub(super) fn new(topic: *mut ffi::PyObject, encoded: Option<Object>) -> Self {
        Self { topic, encoded, pair: None }
    }

    /// Gives the message to a link: it is written, or offered to the queue.
    ///
    /// # Safety
    ///
    /// The topic and the message are live, and the thread is attached.
    pub(super) unsafe fn go(
        &mut self,
        queue: &Arc<Queue>,
        message: *mut ffi::PyObject,
        overflow: Overflow,
    ) -> Result<Option<Offered<Object>>, Raised> {
        let (encode, write, is_idle) = {
            let state = queue.lock();
            let is_idle = state.backlog.is_empty() && !state.link.held && !state.backlog.closed;
            (state.link.encode.clone(), state.link.write.clone(), is_idle)
        };
        let (Some(encode), Some(write)) = (encode, write) else { return Ok(None) };
        if self.encoded.is_none() {
            self.encoded = Some(encode.call(&[self.topic, message])?);
        }
        let Some(encoded) = self.encoded.clone().filter(|encoded| !encoded.is_none()) else {
            return Ok(None);
        };
        if is_idle {
            let written = write.call(&[encoded.as_ptr()])?;
            // SAFETY: a live object.
            if unsafe { ffi::PyObject_IsTrue(written.as_ptr()) } == 1 {
                return Ok(None);
            }
        }
        if self.pair.is_none() {
            // SAFETY: two live objects, of which the tuple takes references of its own.
            self.pair = Some(unsafe { Object::own(ffi::PyTuple_Pack(2, self.topic, encoded.as_ptr()))? });
        }
        let Some(pair) = self.pair.clone() else { return Ok(None) };
        let offered = queue.offer_to_link(pair, overflow);
        if let Offered::Dropped(dropped) = &offered {
            queue.lose(dropped);
        }
        Ok(Some(offered))
    }
}

impl Queue {
    /// Gives a link its functions.
    pub(super) fn connect(&self, encode: Object, write: Object) {
        let mut state = self.lock();
        let before = (state.link.encode.replace(encode), state.link.write.replace(write));
        drop(state);
        drop(before);
    }

    /// Takes its functions away: it is closed, and they refer to what refers to it.
    pub(super) fn disconnect(&self) {
        let functions: Vec<Object> = self.lock().link.take_objects().collect();
        drop(functions);
    }

    /// Offers a message to a link's queue, with the policy that it was asked for with.
    fn offer_to_link(&self, message: Object, overflow: Overflow) -> Offered<Object> {
        let mut state = self.lock();
        let accepted = state.backlog.counters.accepted;
        let offered = state.backlog.offer_among(message, self.capacity, overflow);
        if state.backlog.counters.accepted > accepted {
            let wake = state.wake(Side::Receivers);
            drop(state);
            self.perform(wake);
        }
        offered
    }

    /// Counts a pair that was dropped, by its topic.
    fn lose(&self, pair: &Object) {
        // SAFETY: a pair that `Outgoing::go` made; the topic lives as long as it does.
        let topic = unsafe { arguments::characters(ffi::PyTuple_GetItem(pair.as_ptr(), 0), c"topic") };
        let Ok(topic) = topic else {
            drop(take_exception());
            return;
        };
        let mut topic = topic.to_owned();
        let mut state = self.lock();
        let lost = &mut state.link.lost;
        if lost.len() >= MOST_TOPICS && !lost.contains_key(&topic) {
            topic.clear();
        }
        *lost.entry(topic).or_default() += 1;
    }

    /// How many messages of each topic were dropped since this was last asked.
    pub(super) fn take_lost(&self) -> HashMap<String, u64> {
        std::mem::take(&mut self.lock().link.lost)
    }

    /// Takes a message, and writes nothing past it until it is released.
    pub(super) fn hold(&self) -> Taken<Object> {
        let mut state = self.lock();
        let taken = state.backlog.take();
        state.link.held = matches!(taken, Taken::Message(_));
        let wake = state.wake(Side::Publishers);
        drop(state);
        self.perform(wake);
        taken
    }

    /// The message that was taken is written.
    pub(super) fn release(&self) {
        self.lock().link.held = false;
    }
}
