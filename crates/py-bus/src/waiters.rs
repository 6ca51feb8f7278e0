//! How a coroutine comes to wait at one end of a queue, is woken, and leaves.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use pyo3_ffi as ffi;

use super::loops::Group;
use super::queue::{Queue, Side};
use ropewalk_capi::mailbox::{Mailbox, Wakes};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::running_loop;

/// The side with this number.
fn side(place: usize) -> Side {
    if place == Side::Receivers as usize { Side::Receivers } else { Side::Publishers }
}

impl Wakes for Queue {
    fn wake(&self, place: usize, mailbox: *mut ffi::PyObject) {
        self.wake_loop(side(place), mailbox);
    }

    fn not_woken(&self, place: usize, mailbox: *mut ffi::PyObject) {
        if let Some(group) = self.lock().loops(side(place)).find(mailbox) {
            group.pending = false;
        }
        self.watch_next(side(place));
    }
}

impl Queue {
    /// Makes the next report wake the loops again: those coroutines that are not woken now wait for it.
    fn watch_next(&self, side: Side) {
        if let (Some(feed), Side::Receivers) = (&self.feed, side) {
            feed.mailbox.watch_next();
        }
    }

    /// Wakes as many coroutines of a loop as may find something. Called in the loop's thread.
    fn wake_loop(&self, side: Side, mailbox: *mut ffi::PyObject) {
        let found = self.lock().loops(side).find(mailbox).map(|group| {
            group.pending = false;
            (group.mailbox.clone(), group.futures.len())
        });
        let Some((known, waiting)) = found else { return };
        // After the flag is cleared: a later change wakes the loop again.
        let mut left = self.worth_waking(side);
        if left < waiting {
            // Some go on waiting. The report that woke the loop has cleared the feed's flag; one that arrived before it
            // is set again wakes nobody, so it is counted now.
            self.watch_next(side);
            left = self.worth_waking(side);
        }
        while left > 0 {
            let future = self.lock().loops(side).find(mailbox).and_then(|group| group.futures.pop_front());
            let Some(future) = future else { return };
            match known.resolve(&future) {
                Ok(true) => left -= 1,
                Ok(false) => {}
                Err(Raised) => {
                    // SAFETY: an exception is set, the object is live.
                    unsafe { ffi::PyErr_WriteUnraisable(future.as_ptr()) };
                }
            }
        }
    }

    /// Makes a coroutine of the running loop wait at one end; returns its future, or `None` if it need not wait.
    pub(super) fn wait_in_loop(self: &Arc<Self>, side: Side) -> Result<Option<Object>, Raised> {
        let event_loop = running_loop::required()?;
        let future = event_loop.attribute(c"create_future")?.call(&[])?;
        let mailbox = Mailbox::of(&event_loop)?;
        mailbox.enter();
        let address = mailbox.object().as_ptr();
        let known = self.lock().loops(side).find(address).is_some();
        let mut fresh = None;
        if !known {
            self.forget_dead_loops(side)?;
            let queue: Weak<dyn Wakes> = Arc::<Self>::downgrade(self);
            fresh = Some(Group { mailbox, queue, pending: false, futures: VecDeque::new() });
        }
        let mut state = self.lock();
        let loops = state.loops(side);
        if loops.find(address).is_none() {
            loops.0.extend(fresh.take());
        }
        if let Some(group) = loops.find(address) {
            group.futures.push_back(future.clone());
        }
        drop(state);
        drop(fresh);
        // Checked after it is registered: a later publisher wakes it. For a report the feed's thread does.
        let feed = self.feed.as_ref().filter(|_| side == Side::Receivers);
        let has_report = feed.is_some_and(|feed| !feed.mailbox.watch());
        if has_report || self.is_open(side) {
            let removed = self.lock().loops(side).remove(future.as_ptr());
            if removed.is_some() {
                return Ok(None); // The new objects are dropped here, without the guard.
            }
        }
        Ok(Some(future))
    }

    /// Removes loops in which no coroutine will wait any more: each `asyncio.run` would leave one, and so would each
    /// wait in a loop that accepts no attributes.
    fn forget_dead_loops(&self, side: Side) -> Result<(), Raised> {
        let idle = self.lock().loops(side).forget_idle();
        drop(idle);
        let known: Vec<Mailbox> =
            self.lock().loops(side).0.iter().map(|group| group.mailbox.clone()).collect();
        for mailbox in known {
            if mailbox.is_dead()? {
                let gone = self.lock().loops(side).forget(&mailbox);
                drop(gone);
            }
        }
        Ok(())
    }

    /// Removes a coroutine that waits no more. If it was woken already, another is woken in its place.
    pub(super) fn leave_loop(&self, side: Side, future: *mut ffi::PyObject) {
        let removed = self.lock().loops(side).remove(future);
        if removed.is_none() {
            self.pass_on(side);
        }
    }
}
