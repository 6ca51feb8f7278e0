//! Calls that other threads have handed over, until the loop takes them into its queue.
//!
//! Where there is a global interpreter lock, the lock orders all threads that schedule, so they append to the loop's
//! queue themselves, and nothing waits here. On a free-threaded build they push to a queue without a lock, and the loop
//! takes from that once in each turn.

#[cfg(Py_GIL_DISABLED)]
use std::ptr::NonNull;

#[cfg(Py_GIL_DISABLED)]
use ropewalk_reactor::Injector;

use super::handle::Handle;

/// See the module.
#[derive(Default)]
pub(super) struct Handed {
    #[cfg(Py_GIL_DISABLED)]
    queue: Injector<Handle>,
}

#[cfg(Py_GIL_DISABLED)]
impl Handed {
    /// Hands a handle over.
    ///
    /// # Safety
    ///
    /// The handle is in no queue, and its reference goes to this one.
    pub(super) unsafe fn push(&self, made: NonNull<Handle>) {
        // SAFETY: the caller's; the reference keeps the handle alive until it is taken.
        unsafe { self.queue.push(made) };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes all, in the order in which they were handed over. Their references are the caller's.
    pub(super) fn take(&self) -> impl Iterator<Item = *mut Handle> + use<> {
        self.queue.take().map(NonNull::as_ptr)
    }

    /// Those that wait.
    ///
    /// # Safety
    ///
    /// No thread takes any while the iterator is used.
    pub(super) unsafe fn waiting(&self) -> impl Iterator<Item = *mut Handle> {
        // SAFETY: the caller's.
        unsafe { self.queue.nodes() }.map(NonNull::as_ptr)
    }
}

#[cfg(not(Py_GIL_DISABLED))]
impl Handed {
    /// None: see the module.
    #[expect(clippy::unused_self, reason = "the method of a free-threaded build, which has a queue")]
    pub(super) fn take(&self) -> impl Iterator<Item = *mut Handle> + use<> {
        std::iter::empty()
    }

    /// None: see the module.
    #[expect(clippy::unused_self, reason = "the method of a free-threaded build, which has a queue")]
    pub(super) unsafe fn waiting(&self) -> impl Iterator<Item = *mut Handle> {
        std::iter::empty()
    }
}
