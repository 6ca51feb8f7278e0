//! The one seam for atomics, locks and cells: swapped for loom's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
use loom::{cell::UnsafeCell, sync as imp};
#[cfg(not(loom))]
use std::{cell::UnsafeCell, sync as imp};

pub(crate) use imp::MutexGuard;

/// A mutex without poison: what it guards here is whole whenever a guard is dropped.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A cell whose users prove among themselves that they take turns; loom checks the proof.
pub(crate) struct Turns<T>(UnsafeCell<T>);

// SAFETY: a reference to the content exists only inside `with`, whose callers take turns; so a turn may be
// another thread's, which asks that the content may be sent there, and no more.
unsafe impl<T: Send> Sync for Turns<T> {}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Gives `act` the content.
    ///
    /// # Safety
    ///
    /// Nobody else is in `with` on this cell, and the end of the last turn happens before this one.
    pub(crate) unsafe fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: the caller's turn, so that this is the only reference.
        let content = unsafe { &mut *self.0.get() };
        #[cfg(not(loom))]
        return act(content);
        #[cfg(loom)]
        // SAFETY: the same; loom fails the model if it is not so.
        self.0.with_mut(|content| act(unsafe { &mut *content }))
    }
}
