//! The status of a loop, which its handles read, and which asyncio keeps in attributes of the loop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use super::compat;
use super::loop_module::LoopModule;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::Raised;

/// The beginning of a `LoopCore`.
pub(super) struct Status {
    pub(super) module: *mut LoopModule,
    /// The thread that runs the loop; 0 while none does.
    pub(super) thread: AtomicUsize,
    pub(super) closed: AtomicBool,
    pub(super) stopping: AtomicBool,
    pub(super) debug: AtomicBool,
}

pub(super) fn this_thread() -> usize {
    // SAFETY: callable everywhere.
    unsafe { compat::PyThread_get_thread_ident() as usize }
}

impl Status {
    pub(super) fn new(module: &mut LoopModule) -> Self {
        Self {
            module,
            thread: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            debug: AtomicBool::new(false),
        }
    }

    /// The status of a loop.
    ///
    /// # Safety
    ///
    /// `owner` is a live loop, and stays so while the reference is used.
    #[inline]
    pub(super) unsafe fn of<'a>(owner: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller's; the content of a loop begins with its status (see `LoopCore`).
        unsafe { content::<Self>(owner) }
    }

    #[inline]
    pub(super) fn is_debug(&self) -> bool {
        self.debug.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The thread that runs the loop; 0 while none does.
    #[inline]
    pub(super) fn thread(&self) -> usize {
        self.thread.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn check_open(&self) -> Result<(), Raised> {
        if self.is_closed() { Err(fail(c"Event loop is closed")) } else { Ok(()) }
    }
}
