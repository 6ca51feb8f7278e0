//! Statics that a forked child makes anew.
//!
//! In a child of `fork` only one thread is left, so a lock that another thread held stays taken for ever; and two
//! processes must not hand out what the parent owns. So a child does not touch its parent's value but makes its own.
//! The old value is never freed, so the parent's references to it stay valid in the child.

use std::convert::Infallible;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use ropewalk_os::process;

/// A value that each process makes at its first use.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// Null, or from `Box::into_raw`: the fork generation that it was made in, and the value. Replaced by the thread
    /// that finds it missing or inherited; Release and Acquire publish the value's contents.
    current: AtomicPtr<(u64, T)>,
}

impl<T: Sync> PerProcess<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value, if this process has made it.
    #[inline]
    pub fn existing(&self) -> Option<&'static T> {
        self.of(process::fork_generation()).ok()
    }

    /// The value of this process, made by the first thread that asks. Threads that ask at the same time may each make
    /// one; all get the same value, and the others are dropped.
    #[inline]
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        match self.get_or_try(|| Ok::<T, Infallible>(make())) {
            Ok(value) => value,
        }
    }

    /// As [`get`](Self::get), for a value whose construction may fail; the next call tries again.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let generation = process::fork_generation();
        let found = match self.of(generation) {
            Ok(value) => return Ok(value),
            Err(found) => found,
        };
        let fresh = Box::into_raw(Box::new((generation, make()?)));
        match self.current.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the value is published now, and never freed.
            Ok(_) => Ok(unsafe { &(*fresh).1 }),
            Err(other) => {
                // SAFETY: `fresh` was not published, so this thread owns and frees it. Another thread of this process
                // has published `other`, which is not null and never freed.
                unsafe {
                    drop(Box::from_raw(fresh));
                    Ok(&(*other).1)
                }
            }
        }
    }

    /// The value of this generation, or the pointer that stands in its place.
    fn of(&self, generation: u64) -> Result<&'static T, *mut (u64, T)> {
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was published by `get_or_try`; a published value is neither freed nor changed.
        match unsafe { found.as_ref() } {
            Some((made_in, value)) if *made_in == generation => Ok(value),
            _ => Err(found),
        }
    }
}

impl<T: Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_one() {
        static NUMBER: PerProcess<u32> = PerProcess::new();
        assert_eq!(NUMBER.existing(), None);
        assert_eq!(NUMBER.get_or_try(|| Err("not yet")), Err("not yet"));
        assert_eq!(*NUMBER.get(|| 7), 7);
        assert_eq!(*NUMBER.get(|| 8), 7);
        assert_eq!(NUMBER.existing(), Some(&7));
    }

    #[test]
    fn all_threads_get_the_same() {
        static NUMBER: PerProcess<usize> = PerProcess::new();
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|at| scope.spawn(move || *NUMBER.get(|| at))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(all.iter().all(|number| *number == all[0]), "{all:?}");
    }
}
