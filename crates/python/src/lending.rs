//! Which segments an encoding has referred to.
//!
//! While a call or a result is being pickled, a shared array pickles as a handle and leaves its segment here, so that
//! the descriptor travels before the record. Outside of an encoding nobody would pass the descriptor, and the array is
//! pickled by value.

use std::cell::RefCell;
use std::sync::Arc;

use windlass_shm::segment::Segment;

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

/// Lends a segment to the encoding that is open; false if none is.
pub(crate) fn lend(segment: &Arc<Segment>) -> bool {
    LENT.with_borrow_mut(|lent| match lent {
        Some(lent) => {
            if !lent.iter().any(|known| Arc::ptr_eq(known, segment)) {
                lent.push(Arc::clone(segment));
            }
            true
        }
        None => false,
    })
}
