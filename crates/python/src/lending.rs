//! What travels beside a pickle: which segments an encoding has referred to, and which buffers it leaves out.
//!
//! While a call or a result is being pickled, a shared array pickles as a handle and leaves its segment here, so that
//! the descriptor travels before the record. Outside of an encoding nobody would pass the descriptor, and the array is
//! pickled by value.
//!
//! Both are bounded, for a record and the socket between two processes are: a table of descriptors has to fit into one
//! record, and the descriptors of one record into the socket, whose reader does not look before it sees the record.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use pyo3_ffi as ffi;
use windlass_shm::segment::Segment;

/// Segments that one encoding may refer to. A Unix socket takes some two hundred descriptors before it is full.
pub(crate) const MOST_LENT: usize = 128;
/// Buffers that one encoding may leave out of its stream: their table takes half of the largest record.
const MOST_BUFFERS: usize = 1024;
/// Buffers below `SMALL` bytes that it may: beyond, a copy into the stream is cheaper than a view of each.
const MOST_SMALL: usize = 64;
const SMALL: isize = 4096;

thread_local! {
    static LENT: RefCell<Option<Vec<Arc<Segment>>>> = const { RefCell::new(None) };
}

/// Opens an encoding in this thread; one that was open is forgotten.
pub(crate) fn begin() {
    LENT.set(Some(Vec::new()));
}

/// Closes it, and gives the segments that were lent in it, each once.
pub(crate) fn take() -> Vec<Arc<Segment>> {
    LENT.take().unwrap_or_default()
}

/// What became of a wish to lend a segment.
#[must_use]
pub(crate) enum Lent {
    /// It goes with the encoding.
    Yes,
    /// No encoding is open.
    Closed,
    /// The encoding has `MOST_LENT` others already.
    TooMany,
}

/// Lends a segment to the encoding that is open.
pub(crate) fn lend(segment: &Arc<Segment>) -> Lent {
    LENT.with_borrow_mut(|lent| match lent {
        Some(lent) if lent.iter().any(|known| Arc::ptr_eq(known, segment)) => Lent::Yes,
        Some(lent) if lent.len() >= MOST_LENT => Lent::TooMany,
        Some(lent) => {
            lent.push(Arc::clone(segment));
            Lent::Yes
        }
        None => Lent::Closed,
    })
}

/// Whether a buffer that the pickler offers is better left in the stream, when `kept` others have been left out.
///
/// # Safety
///
/// `buffer` is a live object, and the thread is attached to the interpreter.
pub(crate) unsafe fn stays_in_stream(kept: usize, buffer: *mut ffi::PyObject) -> bool {
    if kept < MOST_SMALL {
        return false;
    }
    let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
    // SAFETY: GetBuffer fills the view if it returns 0, and then it is released once.
    let length = unsafe {
        if ffi::PyObject_GetBuffer(buffer, view.as_mut_ptr(), ffi::PyBUF_FULL_RO) != 0 {
            // Whoever takes its bytes will hit upon the same error, and report it.
            ffi::PyErr_Clear();
            return false;
        }
        let length = (*view.as_ptr()).len;
        ffi::PyBuffer_Release(view.as_mut_ptr());
        length
    };
    kept >= MOST_BUFFERS || length < SMALL
}
