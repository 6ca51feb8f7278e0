//! Coroutines that wait at one end of a queue. Their loops are woken through their mailboxes, once for a burst.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use pyo3_ffi as ffi;

use super::queue::{Queue, Side};
use ropewalk_capi::mailbox::{Mailbox, Post, Wakes, resolve};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::running_loop;

/// The coroutines of one loop, as the futures that they wait for.
pub(super) struct Group {
    mailbox: Mailbox,
    /// The queue itself, for the post.
    queue: Weak<Queue>,
    /// The loop has a post to wake them.
    pending: bool,
    futures: VecDeque<Object>,
}

/// The loops whose coroutines wait at one end.
#[derive(Default)]
pub(super) struct Loops(Vec<Group>);

/// Loops to be woken for a queue.
#[derive(Default)]
pub(super) struct Wakers(Vec<(Mailbox, Weak<Queue>)>);

impl Loops {
    /// Whether any loop must be woken on a change.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|group| !group.pending && !group.futures.is_empty())
    }

    /// Whether any coroutine waits.
    pub(super) fn is_waited_in(&self) -> bool {
        self.0.iter().any(|group| !group.futures.is_empty())
    }

    /// Marks every loop that must be woken as pending.
    pub(super) fn mark_pending(&mut self) -> Wakers {
        let mut wakers = Vec::new();
        for group in &mut self.0 {
            if !group.pending && !group.futures.is_empty() && group.mailbox.is_ours() {
                group.pending = true;
                wakers.push((group.mailbox.clone(), Weak::clone(&group.queue)));
            }
        }
        Wakers(wakers)
    }

    fn find(&mut self, mailbox: *mut ffi::PyObject) -> Option<&mut Group> {
        self.0.iter_mut().find(|group| group.mailbox.object().as_ptr() == mailbox)
    }

    /// Removes a future, unless it was taken to be woken.
    fn remove(&mut self, future: *mut ffi::PyObject) -> Option<Object> {
        self.0.iter_mut().find_map(|group| {
            let at = group.futures.iter().position(|known| known.as_ptr() == future)?;
            group.futures.remove(at)
        })
    }

    /// Every referenced object, for the garbage collector.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.iter().flat_map(|group| std::iter::once(group.mailbox.object()).chain(&group.futures))
    }

    /// Removes a loop and its coroutines; the caller drops the result without the guard.
    fn forget(&mut self, mailbox: &Mailbox) -> Option<Group> {
        let at =
            self.0.iter().position(|group| group.mailbox.object().as_ptr() == mailbox.object().as_ptr())?;
        Some(self.0.swap_remove(at))
    }

    /// Takes everything. Only the caller has the queue.
    pub(super) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.0)
    }
}

impl Wakers {
    /// Wakes the loops for the coroutines that wait at this end. The thread is attached and holds no guard.
    pub(super) fn wake(self, side: Side) {
        for (mailbox, queue) in self.0 {
            if !mailbox.is_here() {
                mailbox.post(Post::Wake(queue, side as usize));
            } else if let Some(queue) = queue.upgrade() {
                queue.wake_loop(side, mailbox.object().as_ptr());
            }
        }
    }
}

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
    }
}

impl Queue {
    /// Wakes as many coroutines of a loop as may find something. Called in the loop's thread.
    fn wake_loop(&self, side: Side, mailbox: *mut ffi::PyObject) {
        match self.lock().loops(side).find(mailbox) {
            Some(group) => group.pending = false,
            None => return,
        }
        // After the flag is cleared: a later change wakes the loop again.
        let mut left = self.worth_waking(side);
        while left > 0 {
            let future = self.lock().loops(side).find(mailbox).and_then(|group| group.futures.pop_front());
            let Some(future) = future else { return };
            match resolve(&future) {
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
            let queue = Arc::downgrade(self);
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

    /// Removes loops in which no coroutine will wait any more: each `asyncio.run` would leave one.
    fn forget_dead_loops(&self, side: Side) -> Result<(), Raised> {
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
