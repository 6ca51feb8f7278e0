//! Atomics in a mapping that several processes share.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ropewalk_base::{Code, Result, error};
use ropewalk_os::mmap::Mapping;
use ropewalk_sync::CacheLine;
use ropewalk_sync::futex::{Scope, SleepFlag};

/// A type that shared memory may be read as, although another process can write any bytes there at any time.
///
/// # Safety
///
/// The type is made of atomics alone, and any bytes are a value of it.
pub unsafe trait Atomics {}

// SAFETY: an atomic integer.
unsafe impl Atomics for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Atomics for AtomicU64 {}
// SAFETY: an atomic integer, and nothing beside it.
unsafe impl<S: Scope> Atomics for SleepFlag<S> {}
// SAFETY: its content, and padding that no code reads.
unsafe impl<T: Atomics> Atomics for CacheLine<T> {}
// SAFETY: its elements.
unsafe impl<T: Atomics, const N: usize> Atomics for [T; N] {}

/// Atomics at an offset of a mapping, which this keeps mapped.
pub struct Words<T> {
    /// Points to an aligned `T` inside the mapping.
    place: NonNull<T>,
    map: Arc<Mapping>,
}

// SAFETY: it is a shared reference to atomics, which any thread may have; the mapping is `Send` and `Sync`.
unsafe impl<T: Atomics> Send for Words<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Words<T> {}

impl<T: Atomics> Words<T> {
    /// The atomics `offset` bytes from the start of a mapping. Writing them needs a writable mapping.
    ///
    /// # Errors
    ///
    /// `Code::TooLarge` when the mapping ends before they do, or they would not be aligned.
    pub fn new(map: &Arc<Mapping>, offset: usize) -> Result<Self> {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= map.len());
        if !fits || !(map.as_ptr() as usize + offset).is_multiple_of(align_of::<T>()) {
            return Err(error!(Code::TooLarge, "words do not fit into their memory"));
        }
        // SAFETY: the offset was checked to lie inside the mapping, whose address is not null.
        let place = unsafe { NonNull::new_unchecked(map.as_ptr().add(offset).cast()) };
        Ok(Self { place, map: Arc::clone(map) })
    }
}

impl<T: Atomics> Deref for Words<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` has checked that it lies in the mapping, aligned; any bytes are a value of it, it changes
        // through atomics alone, and the mapping lives as long as self.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Words<T> {
    /// The mapping that holds the atomics.
    #[inline]
    pub fn map(&self) -> &Mapping {
        &self.map
    }
}

impl<T> Clone for Words<T> {
    /// The same atomics.
    fn clone(&self) -> Self {
        Self { place: self.place, map: Arc::clone(&self.map) }
    }
}

impl<T> fmt::Debug for Words<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use ropewalk_os::memfd;
    use ropewalk_os::mmap::Protection;

    use super::*;

    #[test]
    fn words_are_shared_and_stay_inside() {
        let fd = memfd::create(c"test", 4096, true).expect("a memfd");
        let map = || Arc::new(Mapping::map(fd.as_fd(), 4096, Protection::ReadWrite).expect("mapped"));
        let (one, two) = (map(), map());
        let written = Words::<[AtomicU64; 2]>::new(&one, 4080).expect("the last ones");
        let read = Words::<AtomicU64>::new(&two, 4088).expect("the last one");
        drop((one, two));
        written[1].store(7, Ordering::Relaxed);
        assert_eq!(read.load(Ordering::Relaxed), 7);
        let two = map();
        for offset in [4084, 4096, usize::MAX, 4] {
            assert!(Words::<AtomicU64>::new(&two, offset).is_err(), "{offset}");
        }
        assert!(Words::<CacheLine<AtomicU32>>::new(&two, 32).is_err(), "not aligned");
    }
}
