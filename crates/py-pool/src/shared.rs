//! Shared memory of this process by address: what lies in it is lent to an encoding, and not copied.
//!
//! A view of a shared array may have lost every sign of it: `numpy.asarray`, a column of a table, an array that was
//! unpickled from buffers. Its address has not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_pool::frame::{Entry, Part};
use ropewalk_shm::memory::{Block, Segment};
use ropewalk_sync::{Mutex, MutexGuard};

use crate::lending::Loans;

/// Memory that other processes may see under the same handle.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) segment: Arc<Segment>,
    /// There if this process owns the memory.
    pub(crate) block: Option<Arc<Block>>,
    /// Where it starts in this process.
    pub(crate) address: usize,
    /// Where it starts in the segment.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// Places by address, which do not overlap, each with how many buffers lie in it.
static PLACES: Mutex<BTreeMap<usize, (Place, usize)>> = Mutex::new(BTreeMap::new());
/// Length of the map, so that who has no shared memory takes no lock. Written under the lock; a thread that has a view
/// of some memory has seen what entered it, by the interpreter's own ordering: hence relaxed.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn places() -> MutexGuard<'static, BTreeMap<usize, (Place, usize)>> {
    PLACES.lock()
}

/// One more buffer lies in a place.
pub(crate) fn enter(place: &Place) {
    let mut places = places();
    places.entry(place.address).or_insert_with(|| (place.clone(), 0)).1 += 1;
    COUNT.store(places.len(), Ordering::Relaxed);
}

/// One buffer fewer lies in the place that starts there.
pub(crate) fn leave(address: usize) {
    let mut places = places();
    let Some(entry) = places.get_mut(&address) else { return };
    entry.1 -= 1;
    if entry.1 > 0 {
        return;
    }
    let gone = places.remove(&address);
    COUNT.store(places.len(), Ordering::Relaxed);
    drop(places);
    // Unmapping takes its time: not under the lock.
    drop(gone);
}

/// The place that these bytes lie in, all of them.
pub(crate) fn find(address: usize, length: usize) -> Option<Place> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let places = places();
    let (place, _) = places.range(..=address).next_back()?.1;
    let end = (address - place.address).checked_add(length)?;
    (end as u64 <= place.length).then(|| place.clone())
}

/// Part of a frame that is yet to be placed.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// Bytes to be copied.
    Copied(&'a [u8]),
    /// A part of shared memory, by the two entries that say so.
    Shared(Entry, Entry),
}

impl<'a> Piece<'a> {
    /// What becomes of these bytes in a frame whose encoding has lent `loans`.
    pub(crate) fn of(bytes: &'a [u8], loans: &Loans) -> Self {
        if loans.segments.is_empty() || bytes.is_empty() {
            return Self::Copied(bytes);
        }
        let address = bytes.as_ptr() as usize;
        match find(address, bytes.len()) {
            Some(place) if loans.segments.iter().any(|lent| Arc::ptr_eq(lent, &place.segment)) => {
                let (segment, generation) = (place.segment.id(), place.segment.generation());
                let start = (address - place.address) as u64;
                Self::Shared(
                    Entry::shared(segment, generation, place.offset, place.length),
                    Entry { segment, generation, offset: start, length: bytes.len() as u64 },
                )
            }
            _ => Self::Copied(bytes),
        }
    }

    /// The bytes to be copied.
    pub(crate) fn copied(&self) -> &'a [u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(..) => &[],
        }
    }

    /// Appends what it is in a frame; `place` has the bytes that are to be copied.
    pub(crate) fn append<'b>(&self, parts: &mut Vec<Part<'b>>, place: impl FnOnce(&'a [u8]) -> Part<'b>) {
        match self {
            Self::Copied(bytes) => parts.push(place(bytes)),
            Self::Shared(block, part) => parts.extend([Part::Placed(*block), Part::Placed(*part)]),
        }
    }
}
