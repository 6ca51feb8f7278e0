//! Links: the queues that lead to other processes.
//!
//! The publisher's thread encodes a message once, and writes it to the ring of each process that listens. It writes at
//! once if there is room, so the message arrives even if this process ends immediately. If there is no room the message
//! waits in the link's queue, which the link's own thread empties. While any message waits there no other is written
//! past it, so the messages of one publisher stay in order.
//!
//! A full queue applies to each message the policy that the other process has requested for its topic: a process that
//! does not receive holds up only publishers of messages that it must not miss.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::{Offered, Overflow, Taken};

use super::arguments;
use super::queue::{Queue, Side};
use ropewalk_capi::object::{Object, Raised, take_exception};

/// The most topics whose losses are counted separately; further ones are counted under the empty name.
const MOST_TOPICS: usize = 1024;

/// A message on its way to the links of a bus.
pub(super) struct Outgoing {
    topic: *mut ffi::PyObject,
    /// Encoded for the first link; Python's `None` if it cannot be encoded.
    encoded: Option<Object>,
    /// The topic and the encoded message.
    pair: Option<Object>,
}

impl Outgoing {
    pub(super) fn new(topic: *mut ffi::PyObject, encoded: Option<Object>) -> Self {
        Self { topic, encoded, pair: None }
    }

    /// Gives the message to a link: writes it, or offers it to the queue.
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
            // SAFETY: two live objects, to which the tuple takes its own references.
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
    /// Sets a link's functions.
    pub(super) fn connect(&self, encode: Object, write: Object) {
        let mut state = self.lock();
        let before = (state.link.encode.replace(encode), state.link.write.replace(write));
        drop(state);
        drop(before);
    }

    /// Drops a closed link's functions, which refer back to it.
    pub(super) fn disconnect(&self) {
        let functions: Vec<Object> = self.lock().link.take_objects().collect();
        drop(functions);
    }

    /// Offers a message to a link's queue, with the requested policy.
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

    /// Counts a dropped pair under its topic.
    fn lose(&self, pair: &Object) {
        // SAFETY: a pair that `Outgoing::go` made; the topic lives as long as the pair.
        let topic = unsafe { arguments::characters(ffi::PyTuple_GetItem(pair.as_ptr(), 0), c"topic") };
        let Ok(topic) = topic else {
            drop(take_exception());
            return;
        };
        self.lose_some(topic.to_owned(), 1);
    }

    /// Counts dropped messages under a topic, or under the empty name.
    pub(super) fn lose_some(&self, mut topic: String, count: u64) {
        let mut state = self.lock();
        let lost = &mut state.link.lost;
        if lost.len() >= MOST_TOPICS && !lost.contains_key(&topic) {
            topic.clear();
        }
        *lost.entry(topic).or_default() += count;
    }

    /// Takes the counts of dropped messages by topic since the last call.
    pub(super) fn take_lost(&self) -> HashMap<String, u64> {
        std::mem::take(&mut self.lock().link.lost)
    }

    /// Takes a message; no other is written past it until it is released.
    pub(super) fn hold(&self) -> Taken<Object> {
        let mut state = self.lock();
        let taken = state.backlog.take();
        state.link.held = matches!(taken, Taken::Message(_));
        let wake = state.wake(Side::Publishers);
        drop(state);
        self.perform(wake);
        taken
    }

    /// Reports that the held message was written.
    pub(super) fn release(&self) {
        self.lock().link.held = false;
    }
}
