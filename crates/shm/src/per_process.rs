//! Statics that a forked child makes anew.
//!
//! In a child of `fork` only one thread is left, and whatever lock another held stays taken for ever; and
//! what the parent owns must not be given out by two processes. So a child does not touch its parent's value
//! but makes its own. The old one is never freed: the parent's references to it are valid in the child, too.

use std::sync::atomic::{AtomicPtr, Ordering};

use ropewalk_os::process;

/// A value of each process, made at its first use there.
pub(crate) struct PerProcess<T: 'static> {
    /// Null, or from `Box::leak`: the fork generation that it was made in, and the value. Replaced by whoever
    /// finds it missing or inherited; Release and Acquire carry the value's contents.
    current: AtomicPtr<(u64, T)>,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let generation = process::fork_generation();
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: it is null or was leaked below, and nothing that was leaked is ever freed or changed.
        if let Some((made_in, value)) = unsafe { found.as_ref() }
            && *made_in == generation
        {
            return value;
        }
        let fresh = Box::into_raw(Box::new((generation, make())));
        match self.current.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from now on it is shared, and never freed.
            Ok(_) => unsafe { &(*fresh).1 },
            Err(other) => {
                // SAFETY: ours was not published, so it is ours to free; another thread of this process has
                // put `other` there, which is not null and never freed.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &(*other).1
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_one() {
        static NUMBER: PerProcess<u32> = PerProcess::new();
        assert_eq!(*NUMBER.get(|| 7), 7);
        assert_eq!(*NUMBER.get(|| 8), 7);
    }
}
