//! The shared memory that a frame refers to: lent while the frame is being pickled.
//!
//! While a call or a result is being pickled, a shared array pickles as a handle and leaves its segment here, so that
//! the descriptor travels before the record. Outside of an encoding no descriptor would be passed, so the array is
//! pickled by value.

use std::cell::RefCell;
use std::sync::Arc;

use ropewalk_shm::memory::{Block, Segment};

use super::limits::MOST_LENT;

thread_local! {
    static LENT: RefCell<Option<Loans>> = const { RefCell::new(None) };
}

/// The segments that one encoding refers to.
#[derive(Debug, Default)]
pub struct Loans {
    /// Each once.
    pub segments: Vec<Arc<Segment>>,
    /// Blocks of this process in those segments: holding them keeps their memory from being reused.
    pub blocks: Vec<Arc<Block>>,
}

impl Loans {
    /// Adds what another encoding has referred to, for both to travel together.
    pub fn add(&mut self, other: Self) {
        for segment in other.segments {
            if !self.segments.iter().any(|known| Arc::ptr_eq(known, &segment)) {
                self.segments.push(segment);
            }
        }
        self.blocks.extend(other.blocks);
    }

    /// Other processes may use the lent memory for longer than this process knows.
    pub fn lend_for_good(&self) {
        for segment in &self.segments {
            segment.lend_for_good();
        }
        for block in &self.blocks {
            block.lend_for_good();
        }
    }
}

/// Opens an encoding in this thread, and closes it after `encode`; gives what was lent in it, too.
pub fn during<T>(encode: impl FnOnce() -> T) -> (T, Loans) {
    let outer = Opened(LENT.replace(Some(Loans::default())));
    let made = encode();
    let lent = LENT.take().unwrap_or_default();
    drop(outer);
    (made, lent)
}

/// The encoding that was open as another was opened within it; it goes on when this is dropped.
struct Opened(Option<Loans>);

impl Drop for Opened {
    fn drop(&mut self) {
        let inner = LENT.replace(self.0.take());
        drop(inner);
    }
}

/// The result of an attempt to lend a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Lent {
    /// It goes with the encoding.
    Yes,
    /// No encoding is open, or the segment has no descriptor any more.
    Closed,
    /// The encoding has `MOST_LENT` others already.
    TooMany,
}

/// Lends a segment, and the block in it if it is this process's own, to the encoding that is open.
pub fn lend(segment: &Arc<Segment>, block: Option<&Arc<Block>>) -> Lent {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Arc<Segment> {
        Segment::create(64, true).expect("a segment").publish(None)
    }

    #[test]
    fn a_segment_is_lent_once_to_the_encoding_that_is_open() {
        let (one, other) = (segment(), segment());
        assert_eq!(lend(&one, None), Lent::Closed);
        let ((), mut both) = during(|| {
            assert_eq!((lend(&one, None), lend(&one, None)), (Lent::Yes, Lent::Yes));
            let (lent, inner) = during(|| lend(&other, None));
            assert_eq!((lent, inner.segments.len()), (Lent::Yes, 1));
            assert_eq!(lend(&other, None), Lent::Yes);
        });
        assert_eq!(both.segments.len(), 2);
        both.add(Loans { segments: vec![one, segment()], blocks: Vec::new() });
        assert_eq!(both.segments.len(), 3, "each once");
        assert_eq!(lend(&other, None), Lent::Closed);
    }

    #[test]
    fn a_panic_closes_the_encoding() {
        let panicked =
            std::panic::catch_unwind(|| during(|| std::panic::resume_unwind(Box::new("while pickling"))));
        assert!(panicked.map(|((), _)| ()).is_err());
        assert_eq!(lend(&segment(), None), Lent::Closed);
    }

    #[test]
    fn no_frame_refers_to_more_than_fit_into_the_socket() {
        let all: Vec<_> = (0..=MOST_LENT).map(|_| segment()).collect();
        let (last, first) = all.split_last().expect("many");
        let ((), loans) = during(|| {
            assert!(first.iter().all(|segment| lend(segment, None) == Lent::Yes));
            assert_eq!((lend(last, None), lend(&all[0], None)), (Lent::TooMany, Lent::Yes));
        });
        assert_eq!(loans.segments.len(), MOST_LENT);
    }
}
