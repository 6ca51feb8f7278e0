//! What the builders of maps and vectors share: an edit for one call at a time.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3_ffi as ffi;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::Raised;

/// An edit that Python code reaches. A comparison in one call may run code that makes another, and so may other threads
/// meanwhile; such a call raises.
pub(crate) struct Shared<E> {
    /// Whether a call uses the edit. Acquire and release: a call sees what the one before it did.
    in_use: AtomicBool,
    /// Whether the edit has ended: it can still be read and finished. Written by the call that uses the edit.
    is_closed: AtomicBool,
    /// The edit; `None` once the collector has cleared it.
    edit: UnsafeCell<Option<E>>,
}

// SAFETY: one call at a time has the edit, and attached threads only.
unsafe impl<E> Sync for Shared<E> {}
// SAFETY: any attached thread may drop what an edit holds.
unsafe impl<E> Send for Shared<E> {}

/// The only use of an edit.
pub(crate) struct Use<'a, E> {
    shared: &'a Shared<E>,
    edit: &'a mut E,
}

impl<E> Shared<E> {
    pub(crate) fn new(edit: E) -> Self {
        Self {
            in_use: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            edit: UnsafeCell::new(Some(edit)),
        }
    }

    /// Takes the edit for a call that reads or finishes.
    ///
    /// # Errors
    ///
    /// A `RuntimeError` is set if another call has it.
    pub(crate) fn read(&self) -> Result<Use<'_, E>, Raised> {
        if self.in_use.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(fail(
                c"another call uses this builder: it is for one thread, and not for the comparison of its keys",
            ));
        }
        // SAFETY: the flag was false, so no other call has the edit.
        match unsafe { &mut *self.edit.get() } {
            Some(edit) => Ok(Use { shared: self, edit }),
            None => {
                self.in_use.store(false, Ordering::Release);
                Err(fail(c"the builder was cleared by the garbage collector"))
            }
        }
    }

    /// Takes the edit for a call that changes it.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read), or a `RuntimeError` if the edit has ended.
    pub(crate) fn change(&self) -> Result<Use<'_, E>, Raised> {
        let taken = self.read()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(fail(
                c"the builder's block has ended: it changes no more, and finish() gives its result",
            ));
        }
        Ok(taken)
    }

    /// Ends the edit: it changes no more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Shows what the edit holds to the collector, which runs while no other code does.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse`; the function visits what the edit holds with its arguments.
    pub(crate) unsafe fn visit(
        &self,
        visit: ffi::visitproc,
        arg: *mut c_void,
        of: unsafe fn(&E, ffi::visitproc, *mut c_void) -> c_int,
    ) -> c_int {
        // SAFETY: the caller's; a call that uses the edit is between two changes when the collector runs.
        unsafe { (*self.edit.get()).as_ref().map_or(0, |edit| of(edit, visit, arg)) }
    }

    /// Takes the edit out of a builder that is garbage. To drop it may run any code.
    pub(crate) fn take(&self) -> Option<E> {
        if self.in_use.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag was false, so no call has the edit.
        let edit = unsafe { (*self.edit.get()).take() };
        self.in_use.store(false, Ordering::Release);
        edit
    }
}

impl<E> Drop for Use<'_, E> {
    fn drop(&mut self) {
        self.shared.in_use.store(false, Ordering::Release);
    }
}

impl<E> Deref for Use<'_, E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.edit
    }
}

impl<E> DerefMut for Use<'_, E> {
    fn deref_mut(&mut self) -> &mut E {
        self.edit
    }
}
