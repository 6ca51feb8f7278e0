//! Shared memory of this process by address: a buffer inside it is lent to a frame, and not copied.
//!
//! A view of a shared array may not be recognizable as one: `numpy.asarray`, a column of a table, an array that was
//! unpickled from buffers. Its address still is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_shm::memory::{Block, Segment};
use ropewalk_sync::Mutex;

/// Memory that other processes may see under the same handle.
#[derive(Clone, Debug)]
pub struct Place {
    /// The segment that it is part of.
    pub segment: Arc<Segment>,
    /// There if this process owns the memory.
    pub block: Option<Arc<Block>>,
    /// Where it starts in this process.
    pub address: usize,
    /// Where it starts in the segment.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether nothing writes to it any more, here or elsewhere.
    pub is_sealed: bool,
}

/// Places by address, which do not overlap, each with how many buffers lie in it.
static PLACES: Mutex<BTreeMap<usize, (Place, usize)>> = Mutex::new(BTreeMap::new());
/// Length of the map, so that a process without shared memory takes no lock. Written under the lock; a thread that has
/// a view of some memory has seen what entered it, by the interpreter's own ordering: hence relaxed.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One more buffer lies in a place.
pub fn enter(place: &Place) {
    let mut places = PLACES.lock();
    places.entry(place.address).or_insert_with(|| (place.clone(), 0)).1 += 1;
    COUNT.store(places.len(), Ordering::Relaxed);
}

/// Nothing writes any more to the place that starts there.
pub fn seal(address: usize) {
    if let Some((place, _)) = PLACES.lock().get_mut(&address) {
        place.is_sealed = true;
    }
}

/// One buffer fewer lies in the place that starts there.
pub fn leave(address: usize) {
    let mut places = PLACES.lock();
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
pub fn find(address: usize, length: usize) -> Option<Place> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let places = PLACES.lock();
    let (place, _) = places.range(..=address).next_back()?.1;
    let end = (address - place.address).checked_add(length)?;
    (end as u64 <= place.length).then(|| place.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_place_is_found_while_somebody_has_it() {
        let segment = Segment::create(4096, true).expect("a segment").publish(None);
        let address = segment.data().expect("mapped") as usize;
        let place =
            Place { segment, block: None, address: address + 64, offset: 64, length: 100, is_sealed: false };
        let found = |from: usize, length| find(address + from, length).map(|place| place.offset);
        assert_eq!(found(64, 1), None);
        enter(&place);
        enter(&place);
        for (from, length, there) in [
            (64, 100, true),
            (64, 101, false),
            (63, 1, false),
            (163, 1, true),
            (164, 1, false),
            (100, 0, true),
        ] {
            assert_eq!(found(from, length).is_some(), there, "{from} {length}");
        }
        leave(address + 64);
        assert_eq!(found(70, 5), Some(64));
        let is_sealed = || find(address + 70, 5).map(|place| place.is_sealed);
        assert_eq!(is_sealed(), Some(false));
        seal(address + 64);
        assert_eq!(is_sealed(), Some(true));
        leave(address + 64);
        assert_eq!(found(70, 5), None);
    }
}
