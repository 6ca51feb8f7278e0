//! Which event loop of ours a thread runs, for those who would post to it or take a shorter way.
//!
//! It is a fact of the thread, so it is kept by the thread: the loop enters it when it begins to run, and whoever asks
//! pays for a thread-local word.

use std::cell::Cell;
use std::ptr;

use pyo3_ffi as ffi;

thread_local! {
    /// Compared and never followed: it may be of an object that is gone.
    static RUNNING: Cell<*mut ffi::PyObject> = const { Cell::new(ptr::null_mut()) };
}

/// This thread runs the loop from now on.
pub fn enter(event_loop: *mut ffi::PyObject) {
    RUNNING.set(event_loop);
}

/// This thread does not run the loop any more, if it did.
pub fn leave(event_loop: *mut ffi::PyObject) {
    if is_here(event_loop) {
        RUNNING.set(ptr::null_mut());
    }
}

/// Whether the object is a loop of ours that this thread runs.
#[inline]
#[must_use]
pub fn is_here(event_loop: *mut ffi::PyObject) -> bool {
    ptr::eq(RUNNING.get(), event_loop)
}
