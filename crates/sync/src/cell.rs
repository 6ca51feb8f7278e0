//! Cells: one with a cache line to itself, one that publishes a static, and one whose users take turns by a protocol of
//! their own.

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;
use std::ptr;

use crate::atomic::{AtomicPtr, Ordering};

/// A value with a cache line to itself, so that two threads that write to neighbours do not slow each other. The layout
/// is C's, for shared memory.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct CacheLine<T>(pub T);

/// A reference to what lives for ever, or none, that one thread shows to others.
pub struct AtomicRef<T: 'static>(AtomicPtr<T>);

impl<T: Sync> AtomicRef<T> {
    /// What is shown.
    #[inline]
    pub fn load(&self) -> Option<&'static T> {
        // SAFETY: it is null, or `store` got it as a reference that never ends.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Shows this.
    #[inline]
    pub fn store(&self, shown: Option<&'static T>) {
        self.0
            .store(shown.map_or(ptr::null_mut(), |shown| ptr::from_ref(shown).cast_mut()), Ordering::Release);
    }
}

impl<T> Default for AtomicRef<T> {
    /// Shows nothing.
    fn default() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// A cell whose users prove among themselves that they take turns; loom checks the proof.
pub struct TurnCell<T>(UnsafeCell<T>);

// SAFETY: a reference to the content exists only inside `with`, whose callers take turns. A turn may belong to another
// thread, which requires `T: Send` and no more.
unsafe impl<T: Send> Sync for TurnCell<T> {}

impl<T> TurnCell<T> {
    /// A cell with this content.
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `act` with the content.
    ///
    /// # Safety
    ///
    /// No other thread is in `with` on this cell, and the end of the last turn happens before this one.
    #[inline]
    pub unsafe fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: it is the caller's turn, so this is the only reference.
        let content = unsafe { &mut *self.0.get() };
        #[cfg(not(loom))]
        return act(content);
        #[cfg(loom)]
        // SAFETY: as above; loom fails the model if callers do not take turns.
        self.0.with_mut(|content| act(unsafe { &mut *content }))
    }
}
