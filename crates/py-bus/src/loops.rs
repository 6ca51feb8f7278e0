//! The event loops whose coroutines wait at one end of a queue. They are woken through their mailboxes, once for a
//! burst.

use std::collections::VecDeque;
use std::sync::Weak;

use pyo3_ffi as ffi;

use ropewalk_capi::mailbox::{Mailbox, Post, Wakes};
use ropewalk_capi::object::Object;

/// The coroutines of one loop, as the futures that they wait for.
pub(super) struct Group {
    pub(super) mailbox: Mailbox,
    /// The queue, for the post.
    pub(super) queue: Weak<dyn Wakes>,
    /// The loop has a post to wake them.
    pub(super) pending: bool,
    pub(super) futures: VecDeque<Object>,
}

/// The loops whose coroutines wait at one end.
#[derive(Default)]
pub(super) struct Loops(pub(super) Vec<Group>);

/// Loops to be woken for a queue.
#[derive(Default)]
pub(super) struct Wakers(Vec<(Mailbox, Weak<dyn Wakes>)>);

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

    pub(super) fn find(&mut self, mailbox: *mut ffi::PyObject) -> Option<&mut Group> {
        self.0.iter_mut().find(|group| group.mailbox.object().as_ptr() == mailbox)
    }

    /// Removes a future, unless it was taken to be woken.
    pub(super) fn remove(&mut self, future: *mut ffi::PyObject) -> Option<Object> {
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
    pub(super) fn forget(&mut self, mailbox: &Mailbox) -> Option<Group> {
        let at =
            self.0.iter().position(|group| group.mailbox.object().as_ptr() == mailbox.object().as_ptr())?;
        Some(self.0.swap_remove(at))
    }

    /// Removes the groups that are idle and whose loop has other mailboxes by now; the caller drops them without the
    /// guard.
    pub(super) fn forget_idle(&mut self) -> Vec<Group> {
        let is_idle =
            |group: &mut Group| group.futures.is_empty() && !group.pending && !group.mailbox.is_held();
        self.0.extract_if(.., is_idle).collect()
    }

    /// Takes everything. Only the caller has the queue.
    pub(super) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.0)
    }
}

impl Wakers {
    /// Wakes the loops for the coroutines that wait at this place. The thread is attached and holds no guard.
    pub(super) fn wake(self, place: usize) {
        for (mailbox, queue) in self.0 {
            if !mailbox.is_here() {
                mailbox.post(Post::Wake(queue, place));
            } else if let Some(queue) = queue.upgrade() {
                queue.wake(place, mailbox.object().as_ptr());
            }
        }
    }
}
