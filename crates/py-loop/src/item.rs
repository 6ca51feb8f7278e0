//! An entry of the queue.

use pyo3_ffi as ffi;

use super::handle::{self, Handle};

/// An entry of the queue: a handle, or a transport or socket operation that is ready. The lowest bit says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item(usize);

impl Item {
    pub(super) fn of_handle(made: *mut Handle) -> Self {
        Self(made as usize)
    }

    /// A transport or a socket operation whose descriptor is ready.
    pub(super) fn of_ready(object: *mut ffi::PyObject) -> Self {
        Self(object as usize | 1)
    }

    pub(super) fn is_handle(self) -> bool {
        self.0 & 1 == 0
    }

    pub(super) fn object(self) -> *mut ffi::PyObject {
        (self.0 & !1) as *mut ffi::PyObject
    }

    pub(super) fn as_handle(self) -> *mut Handle {
        self.0 as *mut Handle
    }
}

/// Drops the reference that the queue held.
pub(super) fn drop_item(item: Item) {
    // SAFETY: as above.
    unsafe {
        if item.is_handle() { handle::release(item.as_handle()) } else { ffi::Py_DECREF(item.object()) }
    }
}
