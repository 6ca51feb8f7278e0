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
use ropewalk_shm::memory::{Block, Segment};

use crate::shared;

/// Segments that one encoding may refer to. A Unix socket takes some two hundred descriptors before it is full.
pub(crate) const MOST_LENT: usize = 128;
/// Buffers that one encoding may leave out of its stream: their table takes half of the largest record.
pub(crate) const MOST_BUFFERS: usize = 1024;
/// Buffers below `SMALL` bytes that it may: beyond, a copy into the stream is cheaper than a view of each.
const MOST_SMALL: usize = 64;
const SMALL: isize = 4096;

thread_local! {
    static LENT: RefCell<Option<Loans>> = const { RefCell::new(None) };
}

/// What one encoding has referred to.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// Each once.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Blocks of this process's own in those segments: whoever holds them keeps their memory from being used again.
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl Loans {
    /// Adds what another encoding has referred to, for both to travel together.
    pub(crate) fn add(&mut self, other: Self) {
        for segment in other.segments {
            if !self.segments.iter().any(|known| Arc::ptr_eq(known, &segment)) {
                self.segments.push(segment);
            }
        }
        self.blocks.extend(other.blocks);
    }

    /// Somebody may look into what was lent for longer than this process knows.
    pub(crate) fn lend_for_good(&self) {
        for segment in &self.segments {
            segment.lend_for_good();
        }
        for block in &self.blocks {
            block.lend_for_good();
        }
    }
}

/// The encoding that was open as another was opened within it, to go on after that.
#[must_use]
pub(crate) struct Outer(Option<Loans>);

/// Opens an encoding in this thread.
pub(crate) fn begin() -> Outer {
    Outer(LENT.replace(Some(Loans::default())))
}

/// Closes it, and gives what was lent in it.
pub(crate) fn take(outer: Outer) -> Loans {
    LENT.replace(outer.0).unwrap_or_default()
}

/// What became of a wish to lend a segment.
#[must_use]
pub(crate) enum Lent {
    /// It goes with the encoding.
    Yes,
    /// No encoding is open, or the segment has no descriptor any more.
    Closed,
    /// The encoding has `MOST_LENT` others already.
    TooMany,
}

/// Lends a segment, and the block in it if it is this process's own, to the encoding that is open.
pub(crate) fn lend(segment: &Arc<Segment>, block: Option<&Arc<Block>>) -> Lent {
    if segment.fd().is_none() {
        // It cannot be passed on: its bytes are.
        return Lent::Closed;
    }
    LENT.with_borrow_mut(|lent| {
        let Some(loans) = lent else { return Lent::Closed };
        if !loans.segments.iter().any(|known| Arc::ptr_eq(known, segment)) {
            if loans.segments.len() >= MOST_LENT {
                return Lent::TooMany;
            }
            loans.segments.push(Arc::clone(segment));
        }
        if let Some(block) = block
            && !loans.blocks.last().is_some_and(|last| Arc::ptr_eq(last, block))
        {
            loans.blocks.push(Arc::clone(block));
        }
        Lent::Yes
    })
}

/// What a pickler had better do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Leave it in the stream.
    Stays,
    /// Take it out; these bytes, if the view could be had.
    Leaves(Option<(usize, usize)>),
}

/// Whether a buffer that the pickler offers is better left in the stream, when `kept` others have been left out.
///
/// # Safety
///
/// `buffer` is a live object, and the thread is attached to the interpreter.
pub(crate) unsafe fn offered(kept: usize, buffer: *mut ffi::PyObject) -> Offered {
    let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
    // SAFETY: GetBuffer fills the view if it returns 0, and then it is released once.
    let (address, length) = unsafe {
        if ffi::PyObject_GetBuffer(buffer, view.as_mut_ptr(), ffi::PyBUF_FULL_RO) != 0 {
            // Whoever takes its bytes will hit upon the same error, and report it.
            ffi::PyErr_Clear();
            return Offered::Leaves(None);
        }
        let of = ((*view.as_ptr()).buf as usize, (*view.as_ptr()).len);
        ffi::PyBuffer_Release(view.as_mut_ptr());
        of
    };
    if kept >= MOST_BUFFERS || (kept >= MOST_SMALL && length < SMALL) {
        // Memory that is shared must not be copied, whatever its size.
        let shared = usize::try_from(length).is_ok_and(|n| n > 0 && shared::find(address, n).is_some());
        if !shared {
            return Offered::Stays;
        }
    }
    Offered::Leaves(usize::try_from(length).ok().filter(|n| *n > 0).map(|n| (address, n)))
}
