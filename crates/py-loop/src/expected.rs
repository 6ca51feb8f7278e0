//! The read that waits for a transport's bytes.

use std::cell::Cell;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use ropewalk_capi::object::{Object, Raised};

/// Known to a transport that feeds a `StreamReader`, so that the read gets its bytes past the reader's buffer.
#[derive(Debug)]
pub(super) struct Expected {
    /// The read, or null. It holds the transport, and withdraws before it is gone.
    reading: Cell<*mut ffi::PyObject>,
    /// The address of the reader that was fed last: the one behind the protocol.
    reader: Cell<*mut ffi::PyObject>,
}

impl Expected {
    pub(super) fn new() -> Self {
        Self { reading: Cell::new(null_mut()), reader: Cell::new(null_mut()) }
    }

    /// The transport feeds the reader at this address; null for none.
    pub(super) fn set_reader(&self, reader: *mut ffi::PyObject) {
        self.reader.set(reader);
    }

    /// The read that waits.
    pub(super) fn reading(&self) -> Result<Option<Object>, Raised> {
        let reading = self.reading.get();
        // SAFETY: a live read, as the field says; the thread is attached.
        if reading.is_null() { Ok(None) } else { unsafe { Object::share(reading) }.map(Some) }
    }

    /// A read of that reader waits; returns whether its bytes come from here, and no other read waits.
    ///
    /// On a free-threaded build another thread may drop a read while the transport looks at it, so none is taken.
    ///
    /// # Safety
    ///
    /// The read calls [`withdraw`](Self::withdraw) before it is gone, and holds the transport until then.
    pub(super) unsafe fn enter(&self, reader: *mut ffi::PyObject, reading: *mut ffi::PyObject) -> bool {
        let taken = cfg!(not(Py_GIL_DISABLED)) && self.reader.get() == reader && self.reading.get().is_null();
        if taken {
            self.reading.set(reading);
        }
        taken
    }

    /// The read at this address does not wait any more.
    pub(super) fn withdraw(&self, reading: *mut ffi::PyObject) {
        if self.reading.get() == reading {
            self.reading.set(null_mut());
        }
    }

    /// Nothing is expected here any more.
    pub(super) fn clear(&self) {
        self.reading.set(null_mut());
        self.reader.set(null_mut());
    }
}
