//! Hazard pointers: which thread reads which snapshot, so that no other thread frees it meanwhile.
//!
//! A reader writes the snapshot that it is about to read to a place of its own, and checks whether it is still the
//! current one. A writer that has replaced a snapshot looks through all such places before it frees the old one.
//! Readers write to their own cache line only, and pay for no barrier: the writer makes them all pass one.
//!
//! Source: M. Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004; the
//! asymmetric barrier as in liburcu (M. Desnoyers et al., "User-Level Implementations of Read-Copy Update", IEEE TPDS
//! 23(2), 2012).

use std::cell::Cell;
use std::ptr;

use ropewalk_sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use ropewalk_sync::{Arc, Mutex, barrier};

/// How many snapshots a thread may read at once: one for each level of handlers that publish to handlers, and one for
/// checking at the deepest level whether a topic has listeners.
const MOST: usize = if cfg!(loom) { 2 } else { 65 };

/// The places of one thread.
#[repr(align(128))] // Two cache lines: the processor fetches them in pairs.
#[derive(Debug)]
pub(crate) struct Places {
    /// What the thread reads at each depth; null for nothing. Written by the thread that owns the places (release when
    /// it has finished), read by writers.
    reading: [AtomicPtr<()>; MOST],
    /// Whether a thread owns these places. Taken by compare and exchange; given back (release) when the thread ends.
    taken: AtomicBool,
    /// The number of these places, for data that is kept for each thread.
    pub(crate) index: usize,
}

/// All places, of threads that live and of threads that have ended.
#[derive(Debug, Default)]
pub(crate) struct Domain {
    places: Mutex<Vec<Arc<Places>>>,
}

impl Domain {
    /// Places for this thread.
    pub(crate) fn join(&self) -> Reader {
        let asymmetric = barrier::is_asymmetric();
        let mut all = self.places.lock();
        let free = all
            .iter()
            .find(|places| {
                places.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
            .cloned();
        let places = free.unwrap_or_else(|| {
            let fresh = Arc::new(Places {
                reading: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
                taken: AtomicBool::new(true),
                index: all.len(),
            });
            all.push(Arc::clone(&fresh));
            fresh
        });
        Reader { places, depth: Cell::new(0), asymmetric }
    }

    /// Of these pointers, which have been replaced, those that no thread reads.
    ///
    /// The caller has passed a heavy barrier since it replaced them.
    pub(crate) fn unread<T>(&self, retired: &mut Vec<*mut T>) -> Vec<*mut T> {
        let mut read: Vec<*mut ()> = Vec::new();
        for places in self.places.lock().iter() {
            for place in &places.reading {
                // Acquire: pairs with the release of a reader that has finished.
                let pointer = place.load(Ordering::Acquire);
                if !pointer.is_null() {
                    read.push(pointer);
                }
            }
        }
        let (kept, free) = retired.iter().partition(|pointer| read.contains(&pointer.cast()));
        *retired = kept;
        free
    }
}

/// A thread's places, for reading snapshots.
#[derive(Debug)]
pub(crate) struct Reader {
    places: Arc<Places>,
    depth: Cell<usize>,
    asymmetric: bool,
}

/// The thread reads as many snapshots as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

impl Reader {
    /// The number of this thread's places.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.places.index
    }

    /// How many snapshots this thread reads now.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.get()
    }

    /// Protects what a pointer points to, for as long as the guard lives.
    #[inline]
    pub(crate) fn protect<'a, T>(&'a self, source: &AtomicPtr<T>) -> Result<Protected<'a, T>, TooDeep> {
        let depth = self.depth.get();
        let Some(place) = self.places.reading.get(depth) else { return Err(TooDeep) };
        let mut current = source.load(Ordering::Relaxed);
        let mut moved = false;
        loop {
            // Release: a writer that sees this frees what stood here before, which this thread has finished reading.
            place.store(current.cast(), Ordering::Release);
            // Either a writer that replaces `current` now sees this place, or the load below sees the replacement.
            barrier::light(self.asymmetric);
            let again = source.load(Ordering::Acquire);
            if again == current {
                break;
            }
            current = again;
            moved = true;
        }
        self.depth.set(depth + 1);
        Ok(Protected { reader: self, place, pointer: current, moved })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.places.taken.store(false, Ordering::Release);
    }
}

/// Protects one snapshot: it is not freed while this lives.
pub(crate) struct Protected<'a, T> {
    reader: &'a Reader,
    place: &'a AtomicPtr<()>,
    pointer: *mut T,
    /// The place held another pointer at first, and a writer may have seen that one.
    moved: bool,
}

impl<T> Protected<'_, T> {
    /// Null if the source was.
    #[inline]
    pub(crate) fn pointer(&self) -> *mut T {
        self.pointer
    }

    /// Ends the protection. Returns whether the source has changed: it has if a writer could not free the old snapshot
    /// because of this place.
    #[inline]
    pub(crate) fn finish(self, source: &AtomicPtr<T>) -> bool {
        let (reader, pointer, moved) = (self.reader, self.pointer, self.moved);
        drop(self);
        // Either a writer that replaces `pointer` sees that this reader has finished, or the load below sees the
        // replacement. If another snapshot has the same address, the one that was read here has been freed.
        barrier::light(reader.asymmetric);
        moved || source.load(Ordering::Relaxed) != pointer
    }
}

impl<T> Drop for Protected<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: all reads of the snapshot come before.
        self.place.store(ptr::null_mut(), Ordering::Release);
        self.reader.depth.set(self.reader.depth.get() - 1);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn places_are_handed_on_when_their_thread_ends() {
        let domain = Domain::default();
        let (first, second) = (domain.join(), domain.join());
        assert_eq!((first.index(), second.index()), (0, 1));
        drop(first);
        assert_eq!((domain.join().index(), second.index()), (0, 1));
        assert_eq!(domain.places.lock().len(), 2);
    }

    #[test]
    fn what_is_read_at_any_depth_is_kept_and_all_else_is_not() {
        let (domain, mut values) = (Domain::default(), [1_u8, 2, 3]);
        let pointers = values.each_mut().map(std::ptr::from_mut);
        let sources = pointers.map(AtomicPtr::new);
        let reader = domain.join();
        let outer = reader.protect(&sources[0]).expect("not deep");
        let inner = reader.protect(&sources[1]).expect("not deep");
        assert_eq!((outer.pointer(), inner.pointer()), (pointers[0], pointers[1]));
        let mut retired = pointers.to_vec();
        assert_eq!(domain.unread(&mut retired), [pointers[2]]);
        assert_eq!(retired, pointers[..2]);
        assert!(!inner.finish(&sources[1]), "it is the current one still");
        assert_eq!(domain.unread(&mut retired), [pointers[1]]);
        sources[0].store(pointers[2], Ordering::Relaxed);
        assert!(outer.finish(&sources[0]), "a writer may have left it because of us");
        assert_eq!(domain.unread(&mut retired), [pointers[0]]);
        assert!(retired.is_empty());
    }

    #[test]
    fn a_thread_reads_so_many_things_and_no_more() {
        let (domain, mut value) = (Domain::default(), 1_u8);
        let source = AtomicPtr::new(std::ptr::from_mut(&mut value));
        let reader = domain.join();
        for _ in 0..2 {
            let held: Vec<_> = (0..MOST).map(|_| reader.protect(&source).expect("a place")).collect();
            assert!(matches!(reader.protect(&source), Err(TooDeep)));
            drop(held);
        }
    }
}
